"""Exports of the `hal` module about allocators, buffers, buffer views and files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.base.diagnostics import say
from tilewright.base.errors import InputError
from tilewright.base.status import StatusCode, failure
from tilewright.base.text import printable_line
from tilewright.runtime.hal.allocator import Allocator, held
from tilewright.runtime.hal.buffer import Buffer, MemoryAccess, MemoryType
from tilewright.runtime.hal.buffer_view import BufferView
from tilewright.runtime.hal.device import Device
from tilewright.runtime.hal.element_type import element_type_name, same_element_type
from tilewright.runtime.hal.file import File
from tilewright.runtime.modules.hal.state import HalState
from tilewright.runtime.vm.buffer import VmBuffer
from tilewright.runtime.vm.native_module import NativeFunction

_PATTERN_SIZES: Final = (1, 2, 4, 8)
_NOT_OPTIMAL: Final = ~int(
    MemoryType.OPTIMAL
)  # plain numbers: flag arithmetic of `enum` is slow


def pattern_bytes(pattern: int, length: int) -> bytes:
    """The low `length` bytes of a fill pattern."""
    if length not in _PATTERN_SIZES:
        raise failure(StatusCode.INVALID_ARGUMENT, f"pattern of {length} bytes")
    return (pattern & (1 << 8 * length) - 1).to_bytes(length, "little")


# --- allocators -------------------------------------------------------------------------------------


def _allocate(
    state: HalState,
    allocator: Allocator,
    queue_affinity: int,
    memory_types: int,
    usage: int,
    size: int,
) -> Buffer:
    del state, queue_affinity
    return held(size, lambda: allocator.allocate(memory_types, usage, size))


def _import(
    state: HalState,
    allocator: Allocator,
    is_try: int,
    queue_affinity: int,
    memory_types: int,
    usage: int,
    source: VmBuffer,
    offset: int,
    length: int,
) -> Buffer | None:
    del state, queue_affinity
    imported = allocator.import_host(memory_types, usage, source.range(offset, length))
    if imported is None and not is_try:
        raise failure(StatusCode.UNAVAILABLE, "the device cannot use host memory in place")
    return imported


def _select(
    state: HalState,
    memory_types: int,
    usage: int,
    flags: int,
    candidates: Sequence[tuple[Device, int]],
) -> tuple[Device, int]:
    del state, memory_types, usage, flags
    if not candidates:
        raise failure(StatusCode.INVALID_ARGUMENT, "a choice among no devices")
    return candidates[0]


# --- buffers ----------------------------------------------------------------------------------------


def _assert_buffer(
    state: HalState,
    buffer: Buffer,
    message: VmBuffer,
    allocator: Allocator,
    minimum_length: int,
    memory_types: int,
    usage: int,
) -> None:
    del state, allocator
    if buffer.byte_length < minimum_length:
        raise InputError(
            f"got {buffer.byte_length} bytes, expected at least {minimum_length}",
            location=message.text,
        )
    lacking = memory_types & ~buffer.memory_type & _NOT_OPTIMAL
    if lacking:
        raise InputError(
            f"the buffer's memory is not {MemoryType(lacking)!r}", location=message.text
        )
    if usage & ~buffer.allowed_usage:
        raise InputError(
            f"the buffer does not allow usage {usage & ~buffer.allowed_usage:#x}",
            location=message.text,
        )


def _length(state: HalState, buffer: Buffer) -> int:
    del state
    return buffer.byte_length


def _load(state: HalState, buffer: Buffer, offset: int, length: int) -> int:
    for device in state.devices:
        device.note_load()
    if length not in (1, 2, 4):
        raise failure(StatusCode.INVALID_ARGUMENT, f"load of {length} bytes")
    data = buffer.read(offset, length)
    return int.from_bytes(data, "little", signed=length == 4)


def _store(state: HalState, value: int, buffer: Buffer, offset: int, length: int) -> None:
    del state
    if length not in (1, 2, 4):
        raise failure(StatusCode.INVALID_ARGUMENT, f"store of {length} bytes")
    buffer.write(pattern_bytes(value, length), offset)


def _subspan(state: HalState, buffer: Buffer, offset: int, length: int) -> Buffer:
    del state
    return buffer.subspan(offset, length)


def _preserve(state: HalState, buffer: Buffer) -> None:
    del state
    buffer.preserve()


def _discard(state: HalState, buffer: Buffer) -> int:
    del state
    return int(buffer.discard())


def _is_terminal(state: HalState, buffer: Buffer) -> int:
    del state
    return int(buffer.is_terminal)


# --- buffer views -----------------------------------------------------------------------------------


def _assert_view(
    state: HalState,
    view: BufferView,
    message: VmBuffer,
    element_type: int,
    encoding_type: int,
    shape: Sequence[int],
) -> None:
    del state
    if (
        view.element_type == element_type
        and view.shape == tuple(shape)
        and view.encoding_type == encoding_type
    ):
        return
    if (
        not same_element_type(view.element_type, element_type)
        or view.shape != tuple(shape)
        or view.encoding_type != encoding_type
    ):
        raise InputError(
            f"got {view.type_text}, expected "
            f"{element_type_name(element_type)}{list(shape)}",
            location=message.text,
        )


def _view_buffer(state: HalState, view: BufferView) -> Buffer:
    del state
    return view.buffer


def _view_create(
    state: HalState,
    buffer: Buffer,
    offset: int,
    length: int,
    element_type: int,
    encoding_type: int,
    shape: Sequence[int],
) -> BufferView:
    del state
    if offset or length != buffer.byte_length:
        buffer = buffer.subspan(offset, length)
    return BufferView(buffer, shape, element_type, encoding_type)


def _view_dim(state: HalState, view: BufferView, index: int) -> int:
    del state
    if not 0 <= index < len(view.shape):
        raise failure(
            StatusCode.OUT_OF_RANGE, f"dimension {index} of rank {len(view.shape)}"
        )
    return view.shape[index]


def _view_element_type(state: HalState, view: BufferView) -> int:
    del state
    return view.element_type


def _view_encoding_type(state: HalState, view: BufferView) -> int:
    del state
    return view.encoding_type


def _view_rank(state: HalState, view: BufferView) -> int:
    del state
    return len(view.shape)


def _view_trace(state: HalState, key: VmBuffer, views: Sequence[BufferView]) -> None:
    if state.tracer is not None:
        state.tracer(key.text, views)
        return
    say(f"=== {printable_line(key.text)} ===\n")
    for view in views:
        say(f"{view.type_text}={view.to_numpy()}\n")


# --- files ------------------------------------------------------------------------------------------


def _file_from_memory(
    state: HalState,
    device: Device,
    queue_affinity: int,
    access: int,
    memory: VmBuffer,
    offset: int,
    length: int,
    flags: int,
) -> File:
    del state, queue_affinity, flags
    if memory.data.readonly and access & MemoryAccess.WRITE:
        raise failure(StatusCode.PERMISSION_DENIED, "a writable file over read-only memory")
    return device.import_file(memory.range(offset, length), access)


ROWS: Final = (
    NativeFunction("allocator.allocate", ("0rIiiI_r",), _allocate, "allocator"),
    NativeFunction("allocator.import", ("0riIiirII_r",), _import, "allocator bytes"),
    NativeFunction("allocator.select", ("0iiICrID_rI",), _select, "device"),
    NativeFunction(
        "buffer.assert", ("0rrrIii_v",), _assert_buffer, "buffer bytes allocator"
    ),
    NativeFunction("buffer.length", ("0r_I",), _length, "buffer"),
    NativeFunction("buffer.load", ("0rIi_i",), _load, "buffer"),
    NativeFunction("buffer.store", ("0irIi_v",), _store, "buffer"),
    NativeFunction("buffer.subspan", ("0rII_r",), _subspan, "buffer"),
    NativeFunction("buffer.allocation.preserve", ("0r_v",), _preserve, "buffer"),
    NativeFunction("buffer.allocation.discard", ("0r_i",), _discard, "buffer"),
    NativeFunction("buffer.allocation.is_terminal", ("0r_i",), _is_terminal, "buffer"),
    NativeFunction("buffer_view.assert", ("0rriiCID_v",), _assert_view, "view bytes"),
    NativeFunction("buffer_view.buffer", ("0r_r",), _view_buffer, "view"),
    NativeFunction("buffer_view.create", ("0rIIiiCID_r",), _view_create, "buffer"),
    NativeFunction("buffer_view.dim", ("0ri_I",), _view_dim, "view"),
    NativeFunction("buffer_view.element_type", ("0r_i",), _view_element_type, "view"),
    NativeFunction("buffer_view.encoding_type", ("0r_i",), _view_encoding_type, "view"),
    NativeFunction("buffer_view.rank", ("0r_i",), _view_rank, "view"),
    NativeFunction("buffer_view.trace", ("0rCrD_v",), _view_trace, "bytes view"),
    NativeFunction(
        "ex.file.from_memory", ("0rIirIIi_r",), _file_from_memory, "device bytes"
    ),
)
