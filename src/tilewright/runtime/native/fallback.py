"""The C core's classes in Python over ctypes and mmap, for machines where the extension was not built.

Not here: speed.  One thread runs everything, a workgroup costs about a microsecond.  Same constructors,
same results and same error classes as `_native`; the interface is described in the package's docstring.
"""

from __future__ import annotations

import ctypes
import sys
import time
from array import array
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Final, Self

from tilewright.base.errors import DeviceError
from tilewright.runtime.native.denormals import denormals_flushed
from tilewright.runtime.native.fallback_commands import (
    PLACE_BYTES,
    Command,
    Layout,
    check,
    unpack,
)
from tilewright.runtime.native.fallback_heap import DEFAULT_HEAP, Heap
from tilewright.runtime.native.fallback_memory import (
    CodeImage,
    Memory,
    buffer_address,
    default_environment,
    import_thunk,
    map_file,
    processor_data,
)
from tilewright.runtime.native.fallback_packed_call import PackedCall
from tilewright.runtime.native.fallback_tensor import tensor_capsule
from tilewright.runtime.native.kernel_error import KernelError
from tilewright.runtime.native.memory_report import MemoryUse
from tilewright.runtime.native.records import (
    BINDING,
    BINDING_WRITABLE,
    COMMAND,
    COMMAND_FLUSH_DENORMALS,
    COMMAND_ON_FINDING,
    DISPATCH_STATE,
    FINDING_BYTES,
    NO_FINDING,
    SLOT,
    SLOT_ROW,
    SLOT_WRITABLE,
    WORKGROUP_STATE,
    Kind,
)
from tilewright.runtime.native.timing import CommandTimes

__all__ = [
    "CodeImage",
    "CommandList",
    "Heap",
    "Memory",
    "PackedCall",
    "Pool",
    "RecordedCall",
    "import_thunk",
    "map_file",
    "processor_data",
    "tensor_capsule",
]

_KERNEL: Final = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
)

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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _check_pool(pool: Pool | None) -> None:
    if pool is not None and not isinstance(pool, Pool):
        raise TypeError("pool: expected a Pool or None")
    if pool is not None and pool.closed:
        raise ValueError("the pool is closed")


# ------------------------------------------------------------------ command lists


def _check_buffer(index: int, value: object, size_bytes: int, writable: bool) -> memoryview:
    wanted = f"expected a C-contiguous{' writable' if writable else ''} buffer"
    try:
        view = memoryview(value)  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError, BufferError):
        raise ValueError(f"slot {index}: got {type(value)!r}, {wanted}") from None
    if not view.c_contiguous or (writable and view.readonly):
        raise ValueError(f"slot {index}: got {type(value)!r}, {wanted}")
    check(
        view.nbytes >= size_bytes,
        f"slot {index}: buffer of {view.nbytes} bytes, expected at least {size_bytes}",
    )
    return view


class _Slots:
    """The buffers of one run: addresses, and views that hold them."""

    def __init__(
        self, slots: list[tuple[int, ...]], buffers: Sequence[object], heap: Heap
    ) -> None:
        self.heap: Heap = heap
        check(
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
        if flags & SLOT_ROW:
            check(
                value is None,
                f"slot {index}: got {type(value)!r}, expected None for a row of another slot",
            )
            address = 0
        elif isinstance(value, int):
            address = value
        elif value is None and size_bytes == 0:
            address = 0
        else:
            view = _check_buffer(index, value, size_bytes, bool(flags & SLOT_WRITABLE))
            address = buffer_address(value)
        check(
            alignment <= 1 or address % alignment == 0,
            f"slot {index}: address {address:#x}, expected a multiple of {alignment}",
        )
        self.views.append(view)
        self.addresses.append(address)

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
        return view if flags & BINDING_WRITABLE else view.toreadonly()


def _has_finding(records: memoryview) -> bool:
    firsts = range(0, len(records), FINDING_BYTES)
    return any(
        int.from_bytes(records[i : i + 8], "little", signed=True) != NO_FINDING
        for i in firsts
    )


class CommandList:
    """Recorded commands, replayed by the caller's thread."""

    def __init__(
        self,
        commands: bytes,
        bindings: bytes,
        slots: bytes,
        constants: bytes,
        host_calls: Sequence[Callable[..., object]] = (),
        owners: Sequence[object] = (),
        names: Sequence[str] = (),
    ) -> None:
        self.slots = unpack(SLOT, slots, "slots")
        self._constants = ctypes.create_string_buffer(bytes(constants), len(constants) + 4)
        self._host_calls = tuple(host_calls)
        self._owners = tuple(owners)
        self._names = tuple(names)
        table = unpack(BINDING, bindings, "bindings")
        self._check_slots()
        self._check_bindings(table)
        check(
            len(constants) % 4 == 0,
            f"constants: {len(constants)} bytes, expected whole records of 4",
        )
        self._commands = [Command(c, table) for c in unpack(COMMAND, commands, "commands")]
        layout = Layout(
            self.slots, len(self._commands), len(constants) // 4, len(self._host_calls)
        )
        for ordinal, command in enumerate(self._commands):
            command.verify(f"command {ordinal}", layout)
        self._rows = [c for c in self._commands if c.kind == Kind.ROW]
        bound = {command.function for command in self._rows}
        for index, (_, flags, _) in enumerate(self.slots):
            is_bound = not flags & SLOT_ROW or index in bound
            check(is_bound, f"slot {index}: no command says which row it is")

    @property
    def command_count(self) -> int:
        """Number of commands."""
        return len(self._commands)

    @property
    def slot_count(self) -> int:
        """Number of buffers a run takes."""
        return len(self.slots)

    def run(
        self, pool: Pool | None, buffers: Sequence[object], heap: Heap | None = None
    ) -> None:
        """Replay the commands."""
        self.run_timed(pool, buffers, heap)

    def run_timed(
        self, pool: Pool | None, buffers: Sequence[object], heap: Heap | None = None
    ) -> list[CommandTimes]:
        """Replay the commands, timing each in nanoseconds; the caller runs all."""
        _check_pool(pool)
        run = _Slots(self.slots, tuple(buffers), heap or DEFAULT_HEAP)
        for command in reversed(self._rows):
            self._bind_row(command, run, 0)
        spans = [(0, 0)] * len(self._commands)
        concurrency = 1 if pool is None else min(pool.thread_count, 255)
        ordinal = 0
        while ordinal < len(self._commands):
            command, (first, last) = self._commands[ordinal], spans[ordinal]
            begin = time.perf_counter_ns()
            following = self._run_command(ordinal, command, run, concurrency)
            end = time.perf_counter_ns()
            # In a loop a span is as long as all trips.
            spans[ordinal] = (first, last + end - begin) if first else (begin, end)
            ordinal = following
        return [
            (
                begin,
                end,
                ((0, begin, end),) if begin and command.kind < Kind.HOST_CALL else (),
            )
            for command, (begin, end) in zip(self._commands, spans, strict=True)
        ]

    def _bind_row(self, command: Command, run: _Slots, place: int) -> None:
        """Let the slot of a row command be a row of its table."""
        size, (table, _, offset, length) = (
            self.slots[command.function][0],
            command.bindings[1],
        )
        count = length // size
        inside = min(max(place + count if place < 0 else place, 0), count - 1)
        run.addresses[command.function] = run.addresses[table] + offset + inside * size

    def _check_slots(self) -> None:
        for index, (size_bytes, flags, alignment) in enumerate(self.slots):
            check(
                alignment & (alignment - 1) == 0,
                f"slot {index}: alignment {alignment}, expected a power of two",
            )
            fits = not flags & SLOT_ROW or (not flags & SLOT_WRITABLE and size_bytes != 0)
            check(fits, f"slot {index}: a row has bytes and is read-only")

    def _check_bindings(self, table: list[tuple[int, ...]]) -> None:
        for index, (slot, flags, offset, length) in enumerate(table):
            at = f"binding {index}"
            check(
                slot < len(self.slots),
                f"{at}: slot {slot}, expected less than {len(self.slots)}",
            )
            size_bytes, slot_flags, _ = self.slots[slot]
            check(
                offset + length <= size_bytes,
                f"{at}: {length} bytes at {offset} leave slot {slot} of {size_bytes} bytes",
            )
            check(
                not flags & BINDING_WRITABLE or bool(slot_flags & SLOT_WRITABLE),
                f"{at}: writes slot {slot}, which is read-only",
            )

    def _run_command(
        self, ordinal: int, command: Command, run: _Slots, concurrency: int
    ) -> int:
        """Run a command; returns the ordinal of the next one."""
        pointers = [run.addresses[slot] + offset for slot, _, offset, _ in command.bindings]
        match command.kind:
            case Kind.DISPATCH:
                flushes = command.flags & COMMAND_FLUSH_DENORMALS
                with denormals_flushed() if flushes else nullcontext():
                    local = self._scratch(ordinal, command.local_memory_bytes, run.heap)
                    code = self._dispatch(command, pointers, concurrency, local)
                if code != 0:
                    raise self._error(ordinal, code)
            case Kind.COPY:
                # No bytes move where an output has the memory of the input that it updates.
                ctypes.memmove(pointers[0], pointers[1], command.bindings[0][3])
            case Kind.FILL:
                width, length = command.constant_count, command.bindings[0][3]
                pattern = command.function.to_bytes(8, "little")[:width]
                ctypes.memmove(pointers[0], pattern * (length // width), length)
            case Kind.GOTO:
                if not pointers or not ctypes.c_uint8.from_address(pointers[0]).value:
                    return command.function
            case Kind.ROW:
                data = ctypes.string_at(pointers[0], PLACE_BYTES)
                self._bind_row(command, run, int.from_bytes(data, "little", signed=True))
            case _:
                views = [run.range_view(binding) for binding in command.bindings]
                if not command.flags & COMMAND_ON_FINDING or _has_finding(views[0]):
                    self._host_calls[command.function](*views)
        return ordinal + 1

    def _error(self, ordinal: int, code: int) -> KernelError:
        name = self._names[ordinal] if ordinal < len(self._names) else ""
        return KernelError(ordinal, name, code)

    def _scratch(self, ordinal: int, size_bytes: int, heap: Heap) -> Memory | None:
        """Workgroup memory of a command that asks for some.  Raises: KernelError."""
        name = self._names[ordinal] if ordinal < len(self._names) else ""
        try:
            return heap.lease(size_bytes, MemoryUse.SCRATCH) if size_bytes else None
        except DeviceError as error:
            used = sum(heap.report()[:3])
            capacity = heap.capacity_bytes or 0
            raise KernelError(ordinal, name, 0, size_bytes, used, capacity) from error

    def _dispatch(
        self,
        command: Command,
        pointers: list[int],
        concurrency: int,
        local: Memory | None,
    ) -> int:
        """Call the kernel for each workgroup; returns the first code that is not 0."""
        kernel = _KERNEL(command.function)
        environment = command.environment or default_environment.address
        with _dispatch_state(command, self._constants, pointers, concurrency) as state:
            group = ctypes.create_string_buffer(WORKGROUP_STATE.size)
            size_x, size_y, size_z = command.grid
            local_fields = (0, 0, local.address if local else 0, command.local_memory_bytes)
            for z in range(size_z):
                for y in range(size_y):
                    for x in range(size_x):
                        WORKGROUP_STATE.pack_into(group, 0, x, y, z, *local_fields)
                        code = kernel(environment, state, group)
                        if code != 0:
                            return code
        return 0


@contextmanager
def _dispatch_state(
    command: Command, constants: Any, pointers: list[int], concurrency: int
) -> Generator[Any]:
    """The block all workgroups read; the tables it points to live as long as the context."""
    addresses = array("Q", pointers or [0])
    lengths = array("Q", [binding[3] for binding in command.bindings] or [0])
    yield ctypes.create_string_buffer(
        DISPATCH_STATE.pack(
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


# ------------------------------------------------------------------ recorded calls


class RecordedCall:
    """A static model, called with arrays."""

    def __init__(
        self,
        commands: CommandList,
        pool: Pool | None,
        inputs: Sequence[tuple[str, str, Sequence[int]]],
        outputs: Sequence[Callable[[], Any]],
        constants: Sequence[object] = (),
        heap: Heap | None = None,
        counted_bytes: int = 0,
        tensors: type | None = None,
    ) -> None:
        if tensors is not None:
            raise TypeError("tensors: this core takes buffers only")
        if heap is not None and not isinstance(heap, Heap):
            raise TypeError("heap: expected a Heap or None")
        if not isinstance(commands, CommandList):
            raise TypeError("commands: expected a CommandList")
        _check_pool(pool)
        self._commands, self._pool = commands, pool
        self._heap, self._counted_bytes = heap or DEFAULT_HEAP, counted_bytes
        self._inputs = [
            (name, formats.split("|"), tuple(shape)) for name, formats, shape in inputs
        ]
        self._outputs = tuple(outputs)
        self._constants = tuple(constants)
        slots = commands.slots
        named = len(self._inputs) + len(self._outputs) + len(self._constants)
        check(
            named <= len(slots),
            f"{named} inputs, outputs and constants, but the list has {len(slots)} slots",
        )
        for index, (name, _, _) in enumerate(self._inputs):
            check(
                not slots[index][1] & SLOT_WRITABLE,
                f"input '{name}': the list writes to slot {index}",
            )
        for index, (_, flags, _) in enumerate(slots[:named]):
            check(
                not flags & SLOT_ROW,
                f"slot {index} is a row of another, expected memory of its own",
            )
        self._scratch_sizes = [
            None if flags & SLOT_ROW else size for size, flags, _ in slots[named:]
        ]
        first = len(self._inputs) + len(self._outputs)
        for index, (slot, value) in enumerate(
            zip(slots[first:], self._constants, strict=False), first
        ):
            _check_buffer(index, value, slot[0], bool(slot[1] & SLOT_WRITABLE))

    def __call__(self, *arrays: object) -> Any:
        """Run the model on its inputs."""
        if len(arrays) != len(self._inputs):
            raise TypeError(f"got {len(arrays)} inputs, expected {len(self._inputs)}")
        _check_pool(self._pool)
        inputs = [self._input(index, value) for index, value in enumerate(arrays)]
        with self._heap.counting(self._counted_bytes):
            arena = [
                None if n is None else self._heap.lease(n, MemoryUse.ARENA)
                for n in self._scratch_sizes
            ]
            outputs = [allocate() for allocate in self._outputs]
            buffers = [*inputs, *outputs, *self._constants, *arena]
            self._commands.run(self._pool, buffers, self._heap)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def _input(self, index: int, value: object) -> object:
        name, formats, shape = self._inputs[index]
        size_bytes, _, alignment = self._commands.slots[index]
        try:
            view = memoryview(value)  # pyright: ignore[reportArgumentType]
        except (TypeError, ValueError, BufferError):
            raise TypeError(
                f"input '{name}' is a {type(value)!r}, expected an array with the buffer protocol"
            ) from None
        check(view.c_contiguous, f"input '{name}' is not C-contiguous")
        letter = view.format.removeprefix("@").removeprefix("=")
        letter = letter.removeprefix("<") if sys.byteorder == "little" else letter
        if letter not in formats:
            raise TypeError(
                f"input '{name}' has format '{view.format}', expected '{'|'.join(formats)}'"
            )
        check(
            view.shape == shape, f"input '{name}' has shape {view.shape}, expected {shape}"
        )
        check(
            view.nbytes >= size_bytes,
            f"input '{name}' has {view.nbytes} bytes, but the list reads {size_bytes}",
        )
        if alignment <= 1 or buffer_address(value) % alignment == 0:
            return value
        staged = self._heap.lease(size_bytes)
        memoryview(staged)[:size_bytes] = view.tobytes()[:size_bytes]
        return staged
