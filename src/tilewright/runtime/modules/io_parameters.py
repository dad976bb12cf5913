"""The `io_parameters` module: programs read and write weights that live outside of them.

A parameter is known by scope and key.  `open_parameters` maps files; anything with the buffer
protocol serves as well.  Where the device can use host memory in place and the program promises
not to write to it, loading copies nothing.

Source: IREE `io_parameters.imports.mlir`; `modules/io/parameters`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, final

from tilewright.base.budget import CURRENT, check_clock
from tilewright.base.errors import ArchiveError, UserError
from tilewright.base.input_file import STREAM, is_stream
from tilewright.base.status import StatusCode, failure
from tilewright.base.text import did_you_mean
from tilewright.formats.byte_view import Buffer as HostBytes
from tilewright.formats.byte_view import view_bytes
from tilewright.formats.parameters import SplatEntry, read_parameters, scope_and_path
from tilewright.runtime import native
from tilewright.runtime.hal.allocator import held
from tilewright.runtime.hal.buffer import READ, WRITE, Buffer, BufferUsage
from tilewright.runtime.hal.command_buffer import BufferRef
from tilewright.runtime.hal.device import Device
from tilewright.runtime.hal.fence import Fence
from tilewright.runtime.vm.buffer import VmBuffer
from tilewright.runtime.vm.list import VmList
from tilewright.runtime.vm.native_module import NativeFunction, NativeModule

Source: TypeAlias = memoryview | SplatEntry
Scopes: TypeAlias = Mapping[str, Mapping[str, Source]]
"""Scope to key to bytes; the scope without a name is called ''."""

_KEY: Final = struct.Struct("<II")  # offset and length in the key data
_SPAN: Final = struct.Struct(
    "<QQQ"
)  # offset in the parameter, offset in the buffer, length
_FILL_LIMIT_BYTES: Final = 8
_IMMUTABLE: Final = int(BufferUsage.SHARING_IMMUTABLE)


# --- where parameters come from ----------------------------------------------------------------


FileCheck = Callable[[HostBytes, str, str], object]


def open_parameters(
    specs: Iterable[str], check: FileCheck | None = None
) -> dict[str, dict[str, Source]]:
    """Map parameter files; what several files of a scope hold is merged, the first one wins.

    Args:
        specs: `path` or `scope=path`; .irpa, .safetensors, .gguf or .params (TVM).
        check: sees each file (bytes, path, how errors call it) before it is read, and may raise.
    Raises: ArchiveError for a file that cannot be read.
    """
    scopes: dict[str, dict[str, Source]] = {}
    for spec in specs:
        scope, path = scope_and_path(spec)
        try:
            if is_stream(path):
                raise ArchiveError(STREAM, location=path)
            contents = memoryview(native.map_file(path))
        except (OSError, ValueError) as error:
            raise ArchiveError(f"cannot read the file: {error}", location=path) from error
        if check is not None:
            check(contents, path, path)
        index = read_parameters(contents, path)
        known = scopes.setdefault(scope, {})
        for name, entry in index.entries.items():
            source = entry if isinstance(entry, SplatEntry) else index.bytes_of(entry)
            known.setdefault(name, source)
    return scopes


def parameters_of(arrays: Mapping[str, HostBytes]) -> dict[str, Source]:
    """A scope over contiguous arrays by key; writable ones can be written by programs.

    Raises: UserError for memory that is not contiguous.
    """
    try:
        return {key: view_bytes(array) for key, array in arrays.items()}
    except (TypeError, ValueError) as error:
        raise UserError(f"parameters must be contiguous: {error}") from error


def create_parameters_module(scopes: Scopes) -> NativeModule:
    """The module over these scopes."""
    rows = (
        NativeFunction(
            "load",
            ("0rIrrrIiirrr_r",),
            _load,
            "device fence? fence? bytes? bytes bytes bytes",
        ),
        NativeFunction(
            "gather",
            ("0rIrrrrrrr_v",),
            _gather,
            "device fence? fence? bytes? buffer bytes bytes bytes",
        ),
        NativeFunction(
            "scatter",
            ("0rIrrrrrrr_v",),
            _scatter,
            "device fence? fence? buffer bytes? bytes bytes bytes",
        ),
    )
    types: Mapping[str, type] = {
        "device": Device,
        "fence": Fence,
        "buffer": Buffer,
        "bytes": VmBuffer,
    }
    return NativeModule("io_parameters", rows, types=types, create_state=lambda: scopes)


# --- the exports --------------------------------------------------------------------------------


def _load(
    scopes: Scopes,
    device: Device,
    affinity: int,
    wait: Fence | None,
    signal: Fence | None,
    scope: VmBuffer | None,
    target_affinity: int,
    memory_type: int,
    usage: int,
    *tables: VmBuffer,
) -> VmList:
    del target_affinity
    queue = _Queue(device, affinity, wait)
    buffers: list[object] = []
    for span in _spans(scopes, scope, tables):
        buffer = _use_in_place(device, memory_type, usage, span)
        if buffer is None:
            buffer = queue.allocate(memory_type, usage, span.length)
            queue.read(span, buffer, 0)
        buffers.append(buffer)
    queue.finish(signal)
    return VmList("!hal.buffer", buffers)


def _gather(
    scopes: Scopes,
    device: Device,
    affinity: int,
    wait: Fence | None,
    signal: Fence | None,
    scope: VmBuffer | None,
    target: Buffer,
    *tables: VmBuffer,
) -> None:
    queue = _Queue(device, affinity, wait)
    for span in _spans(scopes, scope, tables):
        queue.read(span, target, span.buffer_offset)
    queue.finish(signal)


def _scatter(
    scopes: Scopes,
    device: Device,
    affinity: int,
    wait: Fence | None,
    signal: Fence | None,
    source: Buffer,
    scope: VmBuffer | None,
    *tables: VmBuffer,
) -> None:
    queue = _Queue(device, affinity, wait)
    for span in _spans(scopes, scope, tables):
        queue.write(span, source)
    queue.finish(signal)


# --- spans --------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class _Span:
    """A range of a parameter, and where it goes to or comes from in a buffer."""

    key: str
    source: Source
    offset: int
    buffer_offset: int
    length: int

    def view(self) -> memoryview:
        """The bytes; those of a pattern are made."""
        if isinstance(self.source, memoryview):
            return self.source[self.offset : self.offset + self.length]
        pattern = self.pattern()
        return memoryview(pattern * -(-self.length // len(pattern)))[: self.length]

    def pattern(self) -> bytes:
        """The pattern as it stands at the beginning of the range."""
        assert isinstance(self.source, SplatEntry)
        pattern = self.source.pattern
        turn = self.offset % len(pattern)
        return pattern[turn:] + pattern[:turn]

    @property
    def can_fill(self) -> bool:
        """Whether a queue's fill does it."""
        if isinstance(self.source, memoryview):
            return False
        size = len(self.source.pattern)
        return size <= _FILL_LIMIT_BYTES and not (
            self.length % size or self.buffer_offset % size
        )


def _spans(
    scopes: Scopes, scope_text: VmBuffer | None, tables: tuple[VmBuffer, ...]
) -> Iterator[_Span]:
    """Resolve a call's packed tables: keys, their text, ranges."""
    key_table, key_data, ranges = tables
    scope = "" if scope_text is None else scope_text.text
    known = scopes.get(scope)
    if known is None:
        raise failure(
            StatusCode.NOT_FOUND,
            f"no parameters of the scope '{scope}'"
            if scope
            else "no parameters without a scope",
            hint=did_you_mean(scope, list(scopes))
            or f"give them: --parameters={scope and f'{scope}='}file.irpa",
        )
    count, rest = divmod(len(ranges), _SPAN.size)
    if rest or len(key_table) < count * _KEY.size:
        raise failure(
            StatusCode.INVALID_ARGUMENT, "tables of parameters do not fit each other"
        )
    for index in range(count):
        at, length = _KEY.unpack(key_table.range(index * _KEY.size, _KEY.size))
        key = bytes(key_data.range(at, length)).decode("utf-8", errors="replace")
        numbers = _SPAN.unpack(ranges.range(index * _SPAN.size, _SPAN.size))
        yield _checked(scope, key, known, numbers)


def _checked(
    scope: str, key: str, known: Mapping[str, Source], numbers: tuple[int, int, int]
) -> _Span:
    where = f"parameter '{scope}::{key}'"
    source = known.get(key)
    if source is None:
        raise failure(
            StatusCode.NOT_FOUND,
            "there is no such parameter",
            location=where,
            hint=did_you_mean(key, list(known)) or f"the scope has {len(known)} others",
        )
    offset, buffer_offset, length = numbers
    size = source.nbytes if isinstance(source, memoryview) else source.length
    if offset + length > size:
        raise failure(
            StatusCode.OUT_OF_RANGE,
            f"{length} bytes at {offset}, the parameter has {size}",
            location=where,
        )
    return _Span(key, source, offset, buffer_offset, length)


def _use_in_place(
    device: Device, memory_type: int, usage: int, span: _Span
) -> Buffer | None:
    """The parameter's own memory as a buffer, where nobody writes to it and the device can."""
    if isinstance(span.source, SplatEntry) or not usage & _IMMUTABLE:
        return None
    return device.allocator.import_host(memory_type, usage, span.view().toreadonly())


# --- queues -------------------------------------------------------------------------------------


@final
class _Queue:
    """Operations that all wait for one fence and together signal another."""

    __slots__ = ("_affinity", "_device", "_done", "_wait")

    def __init__(self, device: Device, affinity: int, wait: Fence | None) -> None:
        self._device: Device = device
        self._affinity: int = affinity
        self._wait: Fence | None = wait
        self._done: list[Fence] = []

    def allocate(self, memory_type: int, usage: int, length: int) -> Buffer:
        allocator = self._device.allocator
        return held(length, lambda: allocator.allocate(memory_type, usage, length))

    def read(self, span: _Span, target: Buffer, offset: int) -> None:
        """Parameter to buffer."""
        if span.length == 0:
            return
        check_clock()
        target.check_range(offset, span.length, f"parameter '{span.key}'")
        if span.can_fill:
            place = BufferRef(target, offset, span.length)
            self._submit(self._device.queue_fill, place, span.pattern())
            return
        if isinstance(span.source, SplatEntry) and CURRENT.account is not None:
            CURRENT.account.budget.keep(target.storage, span.length)  # the pattern laid out
        file = self._device.import_file(span.view(), READ)
        self._submit(self._device.queue_read, file, 0, target, offset, span.length)

    def write(self, span: _Span, source: Buffer) -> None:
        """Buffer to parameter."""
        if isinstance(span.source, SplatEntry) or span.source.readonly:
            raise failure(
                StatusCode.PERMISSION_DENIED,
                "the parameter cannot be written",
                location=f"parameter '{span.key}'",
                hint="files are mapped read-only; pass writable arrays (parameters_of)",
            )
        if span.length == 0:
            return
        file = self._device.import_file(span.view(), READ | WRITE)
        self._submit(
            self._device.queue_write, source, span.buffer_offset, file, 0, span.length
        )

    def finish(self, signal: Fence | None) -> None:
        """Signal when everything is done."""
        if signal is not None:
            wait = Fence.join(self._done) if self._done else self._wait
            self._device.queue_barrier(wait, signal, affinity=self._affinity)
        elif self._done:
            Fence.join(self._done).wait()

    def _submit(self, operation: Callable[..., object], *arguments: object) -> None:
        done = Fence.at(self._device.create_semaphore(), 1)
        operation(self._wait, done, *arguments, affinity=self._affinity)
        self._done.append(done)
