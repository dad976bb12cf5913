"""Arrays of numpy as tensors of tvm-ffi and back, of every element type.

numpy exchanges through DLPack the types that it has itself; those of `ml_dtypes` (bfloat16, floats of 8
bits, integers of 4) it does not, so they take another way here.  Called by modules whose functions take and
give tensors.
"""

from __future__ import annotations

import math

import numpy as np

from tilewright.base import dtypes
from tilewright.base.errors import InputError
from tilewright.runtime.native.process_memory import read_process_memory
from tilewright.runtime.packed.ffi import tvm_ffi
from tilewright.runtime.packed.tensor_call import bind_tensors

Array = np.ndarray[tuple[int, ...], np.dtype[np.generic]]


def tensor_of(array: Array) -> tvm_ffi.Tensor:
    """The array's memory as a tensor, which keeps it.

    Raises: UserError for a type that tensors do not have; BufferError for an array that is read-only.
    """
    try:
        return tvm_ffi.from_dlpack(array)
    except (BufferError, TypeError, RuntimeError):
        if not array.flags.writeable or not array.flags.c_contiguous:
            raise
    kept: list[tvm_ffi.Tensor] = []
    dtype = dtypes.from_numpy(array.dtype)
    flat = array.reshape(-1).view(np.uint8)
    bind_tensors(kept.append, [(dtype, array.shape)], "tensor")(flat.data)
    return kept[0]


def array_of(tensor: tvm_ffi.Tensor) -> Array:
    """A tensor of the host as an array: its memory, or a copy for types that numpy's DLPack lacks.

    Raises: InputError for a tensor of another device, one that is not dense, or of an unknown type.
    """
    try:
        return np.from_dlpack(tensor)
    except (BufferError, TypeError, RuntimeError) as error:
        dtype = dtypes.find_numpy_name(str(tensor.dtype))
        on_host = tensor.device.dlpack_device_type() == tvm_ffi.DLDeviceType.kDLCPU
        if dtype is None or not on_host or not tensor.is_contiguous():
            raise InputError(
                f"got a tensor of {tensor.dtype} on {tensor.device}, expected a dense one of the host"
            ) from error
    shape = tuple(int(size) for size in tensor.shape)
    data = read_process_memory(tensor.data_ptr(), math.prod(shape) * dtype.itemsize)
    return np.frombuffer(data, dtype.numpy).reshape(shape)
