"""The C core's classes in Python over ctypes and mmap, for machines where the extension was not built.

Not here: speed.  One thread runs everything, a workgroup costs about a microsecond.  Same constructors,
same results and same error classes as `_native`; the interface is described in the package's docstring.
Two differences show: a `Memory` of 0 bytes has a 1-byte buffer, and `map_file` copies ranges that do not
start at a page.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tilewright.runtime.native import records

_KERNEL: Final = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
)
_QUERY: Final = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p)
_SYSTEM_PROTECTION: Final = (
    (records.PROTECT_READ, mmap.PROT_READ),
    (records.PROTECT_WRITE, mmap.PROT_WRITE),
    (records.PROTECT_EXECUTE, mmap.PROT_EXEC),
)
_WRITE_AND_EXECUTE: Final = records.PROTECT_WRITE | records.PROTECT_EXECUTE


class _PyBuffer(ctypes.Structure):
    """The start of CPython's Py_buffer; room for the rest."""

    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("rest", ctypes.c_byte * 128),
    ]


def _buffer_address(value: object) -> int:
    """Address of a buffer; valid while a memoryview of it is held."""
    view = _PyBuffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(value), ctypes.byref(view), 0)
    address = view.buf or 0
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(view))
    return address


def read_process_memory(address: int, length: int) -> bytes:
    """Read any memory of this process: the reader for libraries the system loaded, which we trust."""
    return ctypes.string_at(address, length)


# ------------------------------------------------------------------ memory


class Memory(mmap.mmap):
    """A zeroed block of whole pages."""

    address: int
    size_bytes: int
    readonly: bool

    def __new__(cls, size_bytes: int) -> Memory:
        """Map anonymous memory."""
        if size_bytes < 0:
            raise ValueError(f"size_bytes is {size_bytes}, expected at least 0")
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        try:
            self = super().__new__(cls, -1, max(size_bytes, 1), flags=flags)
        except (OSError, OverflowError) as error:
            raise MemoryError(f"{size_bytes} bytes") from error
        return self._describe(size_bytes, readonly=False)

    def _describe(self, size_bytes: int, *, readonly: bool) -> Memory:
        self.address = _buffer_address(self)
        self.size_bytes = size_bytes
        self.readonly = readonly
        return self

    @classmethod
    def _map(cls, descriptor: int, offset: int, length: int) -> Memory:
        self = super().__new__(cls, descriptor, length, prot=mmap.PROT_READ, offset=offset)
        return self._describe(length, readonly=True)


def map_file(path: str | Path, offset: int = 0, length: int | None = None) -> Memory:
    """Map a file range for reading, or copy it if it does not start at a page."""
    with Path(path).open("rb") as file:
        file_bytes = file.seek(0, 2)
        wanted = file_bytes - offset if length is None else length
        if offset > file_bytes or wanted > file_bytes - offset:
            raise ValueError(
                f"range of {wanted} bytes at offset {offset} ends after the file's {file_bytes} bytes"
            )
        if wanted and offset % mmap.ALLOCATIONGRANULARITY == 0:
            return Memory._map(file.fileno(), offset, wanted)
        memory = Memory(wanted)
        file.seek(offset)
        memoryview(memory)[:wanted] = file.read(wanted)
        memory.readonly = True
        return memory


def processor_data() -> tuple[int, ...]:
    """No feature words: nobody can ask the processor without the C core."""
    return (0,) * 8


_default_environment: Final = Memory(records.ENVIRONMENT.size)

# ------------------------------------------------------------------ code images


class CodeImage:
    """Code in memory, written first and protected afterwards."""

    def __init__(
        self,
        size_bytes: int,
        segments: Sequence[tuple[int, bytes]],
        relocations: Sequence[tuple[int, int, bool]],
        protections: Sequence[tuple[int, int, int]],
    ) -> None:
        if size_bytes <= 0:
            raise ValueError("size_bytes is out of range")
        self._memory = Memory(size_bytes)
        self.base: int = self._memory.address
        self.size_bytes: int = size_bytes
        view = memoryview(self._memory)
        for index, (offset, data) in enumerate(segments):
            self._check("segment", index, offset, len(data))
            view[offset : offset + len(data)] = data
        for index, (offset, value, is_base_relative) in enumerate(relocations):
            self._check("relocation", index, offset, 8)
            word = (value + (self.base if is_base_relative else 0)) & 0xFFFFFFFFFFFFFFFF
            view[offset : offset + 8] = word.to_bytes(8, sys.byteorder)
        view.release()
        self._protections = bytearray(-(-size_bytes // mmap.PAGESIZE))
        for index, (offset, length, protection) in enumerate(protections):
            self._check("protection", index, offset, length)
            if protection & _WRITE_AND_EXECUTE == _WRITE_AND_EXECUTE:
                raise ValueError(f"protection {index}: writable and executable")
            for page in self._pages(offset, length):
                self._protections[page] = protection
        self._seal()

    def address(self, offset: int) -> int:
        """Address of an offset."""
        if not 0 <= offset < self.size_bytes:
            raise IndexError(
                f"offset {offset} is outside the image of {self.size_bytes} bytes"
            )
        return self.base + offset

    def read(self, address: int, length: int) -> bytes:
        """Bytes of readable pages."""
        offset = address - self.base
        if not self._allows(offset, length, records.PROTECT_READ):
            raise IndexError(
                f"{length} bytes at address {address:#x} are not readable image memory"
            )
        return ctypes.string_at(address, length)

    def call_query(self, offset: int, version: int, environment_address: int) -> int:
        """Call the library query function at an offset."""
        if not self._allows(offset, 1, records.PROTECT_EXECUTE):
            raise ValueError(f"offset {offset} is not executable image memory")
        query = _QUERY(self.base + offset)
        return query(version, environment_address or _default_environment.address) or 0

    def _check(self, what: str, index: int, offset: int, length: int) -> None:
        if offset < 0 or length < 0 or offset + length > self.size_bytes:
            raise ValueError(
                f"{what} {index}: outside the image of {self.size_bytes} bytes"
            )

    def _pages(self, offset: int, length: int) -> range:
        return range(
            offset // mmap.PAGESIZE, -(-(offset + length) // mmap.PAGESIZE) if length else 0
        )

    def _allows(self, offset: int, length: int, protection: int) -> bool:
        if offset < 0 or offset + length > self.size_bytes:
            return False
        return all(
            self._protections[page] & protection for page in self._pages(offset, length)
        )

    def _seal(self) -> None:
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        for page, protection in enumerate(self._protections):
            bits = sum(system for ours, system in _SYSTEM_PROTECTION if protection & ours)
            address = ctypes.c_void_p(self.base + page * mmap.PAGESIZE)
            if protect(address, ctypes.c_size_t(mmap.PAGESIZE), bits) != 0:
                raise OSError(ctypes.get_errno(), "mprotect")


# ------------------------------------------------------------------ pools


class Pool:
    """The shape of a pool; all work is done by the caller."""

    def __init__(
        self, thread_count: int, cpu_ids: Sequence[int] | None = None, spin_us: int = 100
    ) -> None:
        if not 1 <= thread_count <= 4096 or spin_us < 0:
            raise ValueError(
                f"thread_count is {thread_count}, expected 1 to 4096; "
                f"spin_us is {spin_us}, expected at least 0"
            )
        if cpu_ids is not None and len(cpu_ids) != thread_count:
            raise ValueError(
                f"cpu_ids has {len(cpu_ids)} entries, expected one per thread ({thread_count})"
            )
        self.thread_count: int = thread_count
        self.closed: bool = False

    def close(self) -> None:
        """Refuse further runs."""
        self.closed = True

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _check_pool(pool: Pool | None) -> None:
    if pool is not None and not isinstance(pool, Pool):
        raise TypeError("pool: expected a Pool or None")
    if pool is not None and pool.closed:
        raise ValueError("the pool is closed")


# ------------------------------------------------------------------ plans


def _check(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def _unpack(record: Any, data: bytes, what: str) -> list[tuple[int, ...]]:
    _check(
        len(data) % record.size == 0,
        f"{what}: {len(data)} bytes, expected whole records of {record.size}",
    )
    return list(record.iter_unpack(data))


class _Command:
    """One unpacked command with its bindings."""

    def __init__(self, fields: tuple[int, ...], bindings: list[tuple[int, ...]]) -> None:
        (
            self.kind,
            _,
            self.first,
            self.binding_count,
            self.constant_first,
            self.constant_count,
        ) = fields[:6]
        self.grid: tuple[int, ...] = fields[6:9]
        self.size: tuple[int, ...] = fields[9:12]
        self.local_memory_bytes: int = fields[12]
        self.function, self.environment = fields[14:]
        self.bindings: list[tuple[int, ...]] = bindings[
            self.first : self.first + self.binding_count
        ]

    def check(self, at: str, constant_count: int, host_call_count: int) -> None:
        """Refuse what a run could not do safely."""
        _check(
            len(self.bindings) == self.binding_count, f"{at}: bindings end after the table"
        )
        match self.kind:
            case records.COMMAND_DISPATCH:
                self._check_dispatch(at, constant_count)
            case records.COMMAND_COPY:
                self._check_copy(at)
            case records.COMMAND_FILL:
                _check(
                    self.constant_count in {1, 2, 4, 8},
                    f"{at}: a pattern has 1, 2, 4 or 8 bytes, got {self.constant_count}",
                )
                fits = (
                    self.binding_count == 1
                    and self.bindings[0][1] == records.BINDING_WRITABLE
                )
                fits = fits and self.bindings[0][3] % self.constant_count == 0
                _check(fits, f"{at}: a fill needs one writable binding of whole patterns")
            case records.COMMAND_HOST_CALL:
                _check(
                    self.function < host_call_count,
                    f"{at}: host call {self.function}, expected less than {host_call_count}",
                )
            case _:
                raise ValueError(f"{at}: unknown kind {self.kind}")

    def _check_dispatch(self, at: str, constant_count: int) -> None:
        _check(self.function != 0, f"{at}: the function address is 0")
        _check(
            self.binding_count <= 0xFF and self.constant_count <= 0xFFFF,
            f"{at}: too many bindings or constants",
        )
        _check(
            self.constant_first + self.constant_count <= constant_count,
            f"{at}: constants end after the table",
        )
        _check(self.grid[2] <= 0xFFFF and self.size[2] <= 0xFFFF, f"{at}: z above 65535")

    def _check_copy(self, at: str) -> None:
        _check(self.binding_count == 2, f"{at}: a copy has two bindings")
        (to, flags, start, length), (source, _, source_start, source_length) = self.bindings
        _check(
            flags == records.BINDING_WRITABLE and length == source_length,
            f"{at}: a copy needs a writable target and equal lengths, "
            f"got {length} and {source_length} bytes",
        )
        overlaps = to == source and abs(start - source_start) < length
        _check(not overlaps, f"{at}: the copied ranges overlap")


class _Slots:
    """The buffers of one run: addresses, and views that hold them."""

    def __init__(self, slots: list[tuple[int, ...]], buffers: Sequence[object]) -> None:
        _check(
            len(buffers) == len(slots),
            f"got {len(buffers)} buffers, expected one per slot ({len(slots)})",
        )
        self.views: list[memoryview | None] = []
        self.addresses: list[int] = []
        for index, (slot, value) in enumerate(zip(slots, buffers, strict=True)):
            self._bind(index, slot, value)

    def _bind(self, index: int, slot: tuple[int, ...], value: object) -> None:
        size_bytes, flags, alignment = slot
        view = None
        if isinstance(value, int):
            address = value
        elif value is None and size_bytes == 0:
            address = 0
        else:
            view = self._view(index, value, size_bytes, flags == records.SLOT_WRITABLE)
            address = _buffer_address(value)
        _check(
            alignment <= 1 or address % alignment == 0,
            f"slot {index}: address {address:#x}, expected a multiple of {alignment}",
        )
        self.views.append(view)
        self.addresses.append(address)

    @staticmethod
    def _view(index: int, value: object, size_bytes: int, writable: bool) -> memoryview:
        wanted = f"expected a C-contiguous{' writable' if writable else ''} buffer"
        try:
            view = memoryview(value)  # pyright: ignore[reportArgumentType]
        except (TypeError, ValueError, BufferError):
            raise ValueError(f"slot {index}: got {type(value)!r}, {wanted}") from None
        if not view.c_contiguous or (writable and view.readonly):
            raise ValueError(f"slot {index}: got {type(value)!r}, {wanted}")
        _check(
            view.nbytes >= size_bytes,
            f"slot {index}: buffer of {view.nbytes} bytes, expected at least {size_bytes}",
        )
        return view

    def range_view(self, binding: tuple[int, ...]) -> memoryview:
        """A byte view of a binding; keeps the buffer alive where there is one."""
        slot, flags, offset, length = binding
        held = self.views[slot]
        if held is None or held.nbytes == 0:
            view = memoryview(
                (ctypes.c_char * length).from_address(self.addresses[slot] + offset)
            )
        else:
            view = held
        view = view.cast("B") if view.format != "B" or view.ndim != 1 else view
        if held is not None and held.nbytes:
            view = view[offset : offset + length]
        return view if flags == records.BINDING_WRITABLE else view.toreadonly()


class Plan:
    """Recorded commands, replayed by the caller's thread."""

    def __init__(
        self,
        commands: bytes,
        bindings: bytes,
        slots: bytes,
        constants: bytes,
        host_calls: Sequence[Callable[..., object]] = (),
        owners: Sequence[object] = (),
    ) -> None:
        self._slots = _unpack(records.SLOT, slots, "slots")
        self._constants = ctypes.create_string_buffer(bytes(constants), len(constants) + 4)
        self._host_calls = tuple(host_calls)
        self._owners = tuple(owners)
        table = _unpack(records.BINDING, bindings, "bindings")
        self._check_slots()
        self._check_bindings(table)
        _check(
            len(constants) % 4 == 0,
            f"constants: {len(constants)} bytes, expected whole records of 4",
        )
        self._commands = [
            _Command(c, table) for c in _unpack(records.COMMAND, commands, "commands")
        ]
        for ordinal, command in enumerate(self._commands):
            command.check(f"command {ordinal}", len(constants) // 4, len(self._host_calls))

    @property
    def command_count(self) -> int:
        """Number of commands."""
        return len(self._commands)

    @property
    def slot_count(self) -> int:
        """Number of buffers a run takes."""
        return len(self._slots)

    def run(self, pool: Pool | None, buffers: Sequence[object]) -> None:
        """Replay the commands."""
        self.run_timed(pool, buffers)

    def run_timed(self, pool: Pool | None, buffers: Sequence[object]) -> list[int]:
        """Replay the commands, timing each in nanoseconds."""
        _check_pool(pool)
        run = _Slots(self._slots, tuple(buffers))
        times: list[int] = []
        concurrency = 1 if pool is None else min(pool.thread_count, 255)
        for ordinal, command in enumerate(self._commands):
            begin = time.perf_counter_ns()
            self._run_command(ordinal, command, run, concurrency)
            times.append(time.perf_counter_ns() - begin)
        return times

    def _check_slots(self) -> None:
        for index, (_, _, alignment) in enumerate(self._slots):
            _check(
                alignment & (alignment - 1) == 0,
                f"slot {index}: alignment {alignment}, expected a power of two",
            )

    def _check_bindings(self, table: list[tuple[int, ...]]) -> None:
        for index, (slot, flags, offset, length) in enumerate(table):
            at = f"binding {index}"
            _check(
                slot < len(self._slots),
                f"{at}: slot {slot}, expected less than {len(self._slots)}",
            )
            size_bytes, slot_flags, _ = self._slots[slot]
            _check(
                offset + length <= size_bytes,
                f"{at}: {length} bytes at {offset} leave slot {slot} of {size_bytes} bytes",
            )
            _check(
                not flags & records.BINDING_WRITABLE or slot_flags == records.SLOT_WRITABLE,
                f"{at}: writes slot {slot}, which is read-only",
            )

    def _run_command(
        self, ordinal: int, command: _Command, run: _Slots, concurrency: int
    ) -> None:
        pointers = [run.addresses[slot] + offset for slot, _, offset, _ in command.bindings]
        match command.kind:
            case records.COMMAND_DISPATCH:
                code = self._dispatch(command, pointers, concurrency)
                if code != 0:
                    raise RuntimeError(f"command {ordinal}: the kernel returned {code}")
            case records.COMMAND_COPY:
                ctypes.memmove(pointers[0], pointers[1], command.bindings[0][3])
            case records.COMMAND_FILL:
                width, length = command.constant_count, command.bindings[0][3]
                pattern = command.function.to_bytes(8, "little")[:width]
                ctypes.memmove(pointers[0], pattern * (length // width), length)
            case _:
                views = [run.range_view(binding) for binding in command.bindings]
                self._host_calls[command.function](*views)

    def _dispatch(self, command: _Command, pointers: list[int], concurrency: int) -> int:
        """Call the kernel for each workgroup; returns the first code that is not 0."""
        kernel = _KERNEL(command.function)
        environment = command.environment or _default_environment.address
        local = Memory(command.local_memory_bytes) if command.local_memory_bytes else None
        with _dispatch_state(command, self._constants, pointers, concurrency) as state:
            group = ctypes.create_string_buffer(records.WORKGROUP_STATE.size)
            size_x, size_y, size_z = command.grid
            local_fields = (0, 0, local.address if local else 0, command.local_memory_bytes)
            for z in range(size_z):
                for y in range(size_y):
                    for x in range(size_x):
                        records.WORKGROUP_STATE.pack_into(group, 0, x, y, z, *local_fields)
                        code = kernel(environment, state, group)
                        if code != 0:
                            return code
        return 0


@contextmanager
def _dispatch_state(
    command: _Command, constants: Any, pointers: list[int], concurrency: int
) -> Iterator[Any]:
    """The block all workgroups read; the tables it points to live as long as the context."""
    addresses = array("Q", pointers or [0])
    lengths = array("Q", [binding[3] for binding in command.bindings] or [0])
    yield ctypes.create_string_buffer(
        records.DISPATCH_STATE.pack(
            *command.size,
            command.constant_count,
            *command.grid,
            concurrency,
            command.binding_count,
            ctypes.addressof(constants) + 4 * command.constant_first,
            addresses.buffer_info()[0],
            lengths.buffer_info()[0],
        )
    )


# ------------------------------------------------------------------ invocations


class Invocation:
    """A static model, called with arrays."""

    def __init__(
        self,
        plan: Plan,
        pool: Pool | None,
        inputs: Sequence[tuple[str, str, Sequence[int]]],
        outputs: Sequence[Callable[[], Any]],
        constants: Sequence[object] = (),
    ) -> None:
        if not isinstance(plan, Plan):
            raise TypeError("plan: expected a Plan")
        _check_pool(pool)
        self._plan, self._pool = plan, pool
        self._inputs = [
            (name, formats.split("|"), tuple(shape)) for name, formats, shape in inputs
        ]
        self._outputs = tuple(outputs)
        self._constants = tuple(constants)
        slots = plan._slots
        named = len(self._inputs) + len(self._outputs) + len(self._constants)
        _check(
            named <= len(slots),
            f"{named} inputs, outputs and constants, but the plan has {len(slots)} slots",
        )
        for index, (name, _, _) in enumerate(self._inputs):
            _check(
                slots[index][1] != records.SLOT_WRITABLE,
                f"input '{name}': the plan writes to slot {index}",
            )
        self._scratch_sizes = [size for size, _, _ in slots[named:]]
        first = len(self._inputs) + len(self._outputs)
        for index, (slot, value) in enumerate(
            zip(slots[first:], self._constants, strict=False), first
        ):
            _Slots._view(index, value, slot[0], slot[1] == records.SLOT_WRITABLE)

    def __call__(self, *arrays: object) -> Any:
        """Run the model on its inputs."""
        if len(arrays) != len(self._inputs):
            raise TypeError(f"got {len(arrays)} inputs, expected {len(self._inputs)}")
        _check_pool(self._pool)
        inputs = [self._input(index, value) for index, value in enumerate(arrays)]
        outputs = [allocate() for allocate in self._outputs]
        scratch = [Memory(size) for size in self._scratch_sizes]
        self._plan.run(self._pool, [*inputs, *outputs, *self._constants, *scratch])
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def _input(self, index: int, value: object) -> object:
        name, formats, shape = self._inputs[index]
        size_bytes, _, alignment = self._plan._slots[index]
        try:
            view = memoryview(value)  # pyright: ignore[reportArgumentType]
        except (TypeError, ValueError, BufferError):
            raise TypeError(
                f"input '{name}' is a {type(value)!r}, expected an array with the buffer protocol"
            ) from None
        _check(view.c_contiguous, f"input '{name}' is not C-contiguous")
        letter = view.format.removeprefix("@").removeprefix("=")
        letter = letter.removeprefix("<") if sys.byteorder == "little" else letter
        if letter not in formats:
            raise TypeError(
                f"input '{name}' has format '{view.format}', expected '{'|'.join(formats)}'"
            )
        _check(
            view.shape == shape, f"input '{name}' has shape {view.shape}, expected {shape}"
        )
        _check(
            view.nbytes >= size_bytes,
            f"input '{name}' has {view.nbytes} bytes, but the plan reads {size_bytes}",
        )
        if alignment <= 1 or _buffer_address(value) % alignment == 0:
            return value
        staged = Memory(size_bytes)
        memoryview(staged)[:size_bytes] = view.tobytes()[:size_bytes]
        return staged
