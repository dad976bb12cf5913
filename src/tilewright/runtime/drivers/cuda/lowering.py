"""Recorded commands → operations with addresses, when they are issued.

Only then is every transient buffer allocated, in the order of the stream.  What does nothing (an
empty range, an empty grid) becomes no operation.
"""

from __future__ import annotations

import struct
from typing import Final, cast

from tilewright.base.status import StatusCode, failure
from tilewright.runtime.drivers.cuda.executable import CudaExecutable
from tilewright.runtime.drivers.cuda.operations import (
    DeviceCopy,
    HostCopy,
    Launch,
    Operation,
    fill_operations,
)
from tilewright.runtime.drivers.cuda.storage import CudaStorage
from tilewright.runtime.hal.command_buffer import BufferRef
from tilewright.runtime.hal.deferred_command_buffer import (
    Barrier,
    Collective,
    Command,
    Copy,
    Dispatch,
    Fill,
    Update,
)

_GRID: Final = struct.Struct("<3I")


def storage_of(ref: BufferRef) -> CudaStorage:
    """The memory under a range, which recording has made sure is ours."""
    assert ref.buffer is not None
    storage = ref.buffer.storage
    assert isinstance(storage, CudaStorage)
    return storage


def address_of(ref: BufferRef) -> int:
    """Where a range begins on the GPU.

    Raises: DeviceError (FAILED_PRECONDITION) when it has no memory now.
    """
    buffer = ref.buffer
    assert buffer is not None
    return storage_of(ref).pointer + buffer.byte_offset + ref.offset


def read_grid(ref: BufferRef) -> tuple[int, int, int]:
    """The grid that lies in a buffer, once everything before it is done."""
    assert ref.buffer is not None
    place = ref.buffer.byte_offset + ref.offset
    data = storage_of(ref).read(place, _GRID.size)
    return cast("tuple[int, int, int]", _GRID.unpack(data))


def has_grid_in_buffer(command: Command) -> bool:
    """Whether a command is a dispatch over a grid that only the GPU knows so far."""
    return isinstance(command, Dispatch) and isinstance(command.grid, BufferRef)


def lower_command(command: Command) -> list[Operation]:
    """The operations of one command.  Raises: DeviceError for memory that is not there."""
    match command:
        case Fill(target, pattern):
            return list(fill_operations(address_of(target), target.length, pattern))
        case Update(target, data):
            return [HostCopy(address_of(target), data)] if data else []
        case Copy(source, target):
            return _lower_copy(source, target)
        case Dispatch():
            return _lower_dispatch(command)
        case Barrier() | Collective():  # collectives go to NCCL
            return []


def _lower_copy(source: BufferRef, target: BufferRef) -> list[Operation]:
    if source.length == 0:
        return []
    return [DeviceCopy(address_of(target), address_of(source), source.length)]


def _lower_dispatch(dispatch: Dispatch) -> list[Operation]:
    executable = dispatch.executable
    assert isinstance(executable, CudaExecutable)
    kernel = executable.kernels[dispatch.function]
    grid = dispatch.grid
    if isinstance(grid, BufferRef):
        grid = read_grid(grid)
    if 0 in grid:
        return []
    if grid[1] > 0xFFFF or grid[2] > 0xFFFF or grid[0] > 0x7FFF_FFFF:
        raise failure(
            StatusCode.OUT_OF_RANGE,
            f"kernel '{kernel.name}': a grid of {grid}, at most (2147483647, 65535, 65535)",
        )
    pointers = tuple(map(address_of, dispatch.bindings))
    return [Launch(kernel, grid, pointers, dispatch.constants)]
