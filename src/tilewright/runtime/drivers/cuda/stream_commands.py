"""Operations put into a stream, one call each.

Called with the context bound to the thread.
"""

from __future__ import annotations

import ctypes
from ctypes import c_uint, c_uint64, c_void_p
from typing import Final

from tilewright.runtime.drivers.cuda.context import CudaStream
from tilewright.runtime.drivers.cuda.operations import (
    DeviceCopy,
    HostCopy,
    Launch,
    MemoryFill,
    Operation,
)

_FILLS: Final = {1: "cuMemsetD8Async", 2: "cuMemsetD16Async", 4: "cuMemsetD32Async"}


def pack_parameters(launch: Launch) -> tuple[ctypes.Array[c_void_p], object]:
    """What a launch passes: where each parameter lies, and the memory they lie in.

    Bindings come first, as addresses, then the constants as u32, each a parameter of its own.
    """
    pointers = (c_uint64 * len(launch.pointers))(*launch.pointers)
    constants = (c_uint * len(launch.constants))(*launch.constants)
    first, second = ctypes.addressof(pointers), ctypes.addressof(constants)
    places = [first + 8 * index for index in range(len(launch.pointers))]
    places += [second + 4 * index for index in range(len(launch.constants))]
    return (c_void_p * len(places))(*places), (pointers, constants)


def issue_operation(operation: Operation, stream: CudaStream) -> None:
    """Put one operation into a stream.  Raises: DeviceError when the GPU's driver refuses it."""
    call = stream.context.library.call
    match operation:
        case DeviceCopy(target, source, size_bytes):
            call("cuMemcpyDtoDAsync", target, source, size_bytes, stream.handle)
        case HostCopy(target, data):
            call("cuMemcpyHtoDAsync", target, data, len(data), stream.handle)
        case MemoryFill(target, value, element_bytes, width, 1):
            call(_FILLS[element_bytes], target, value, width, stream.handle)
        case MemoryFill(target, value, _, width, height, pitch):
            call("cuMemsetD2D8Async", target, pitch, value, width, height, stream.handle)
        case Launch(kernel, grid):
            places, memory = pack_parameters(operation)
            arguments = (kernel.shared_bytes, stream.handle, places, None)
            call("cuLaunchKernel", kernel.handle, *grid, *kernel.block, *arguments)
            del memory  # the driver has copied the parameters
