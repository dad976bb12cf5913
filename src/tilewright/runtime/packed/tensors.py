"""Arrays of numpy as tensors of tvm-ffi and back, of every element type.

numpy exchanges through DLPack the types that it has itself; those of `ml_dtypes` (bfloat16, floats of 8
bits, integers of 4) it does not, so they take another way here.  Called by modules whose functions take and
give tensors.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.errors import InputError
from tilewright.base.foreign_tensors import refuse_mask, without_marks
from tilewright.runtime.packed.ffi import tvm_ffi
from tilewright.runtime.packed.tensor_call import AS_BYTES, bind_tensors, why_not_passed

Array = np.ndarray[tuple[int, ...], np.dtype[np.generic]]


@final
class _Memory:
    """The bytes of a tensor, which it keeps, as numpy asks for them."""

    def __init__(self, tensor: tvm_ffi.Tensor, size_bytes: int) -> None:
        self._tensor: tvm_ffi.Tensor = tensor
        self.__array_interface__: dict[str, object] = {
            "data": (tensor.data_ptr(), False),
            "shape": (size_bytes,),
            "typestr": "|u1",
            "version": 3,
        }


def tensor_of(array: Array) -> tvm_ffi.Tensor:
    """The array's memory as a tensor, which keeps it.

    Raises: UserError for a type that tensors do not have; InputError for what is no array, for elements below a mask, for an array that is
    read-only, and for one of a type of `ml_dtypes` whose elements do not lie one behind the other.
    """
    refuse_mask(array)
    try:
        return tvm_ffi.from_dlpack(array)
    except (BufferError, TypeError, RuntimeError) as error:
        if not isinstance(array, np.ndarray):
            raise InputError(
                f"got {type(array).__name__}, expected an array",
                hint="make one of it: numpy.asarray(value)",
            ) from error
        if not array.flags.writeable:
            raise InputError(
                "got an array that is read-only, expected one that may be written to, as tensors are",
                hint="pass a copy: array.copy()",
            ) from error
        if not array.flags.c_contiguous:
            raise InputError(
                f"got an array of {array.dtype} with strides, expected its elements one behind the other",
                hint="pass numpy.ascontiguousarray(array)",
            ) from error
    kept: list[tvm_ffi.Tensor] = []
    dtype = dtypes.from_numpy(array.dtype)
    flat = array.reshape(-1).view(np.uint8)
    bind_tensors(kept.append, [(dtype, array.shape)], "tensor")(flat.data)
    return kept[0]


def tensor_from(value: object) -> tvm_ffi.Tensor:
    """What offers its memory through DLPack (tensors of torch, arrays of JAX), as a tensor over that memory.

    Raises: InputError for what offers none: memory that was taken before, say, or a type that DLPack does not have.
    """
    try:
        return tvm_ffi.from_dlpack(without_marks(value))
    except Exception as error:  # whatever its owner raises
        raise InputError(
            f"got {type(value).__name__} that gives no tensor: {error}"
        ) from error


def array_of(tensor: tvm_ffi.Tensor) -> Array:
    """A tensor of the host as an array over its memory, which it keeps.

    One that is borrowed for a call is kept for that time only.

    Raises: InputError for a tensor of another device, one that is not dense, or of an unknown type or one of less than a byte,
    and for what is no tensor of tvm-ffi.
    """
    if not isinstance(tensor, tvm_ffi.Tensor):
        raise InputError(
            f"got {type(tensor).__name__}, expected a tensor of tvm-ffi",
            hint="numpy.from_dlpack(value) takes other tensors",
        )
    if (
        not tensor.__chandle__()
    ):  # numpy would ask it for an owner, which tvm-ffi does not survive
        return view_of(tensor)
    try:
        return np.from_dlpack(tensor)
    except (BufferError, TypeError, RuntimeError, ValueError):
        return view_of(tensor)


def given(value: object) -> object:
    """What a packed function was called with: tensors as arrays, everything else as it is."""
    return array_of(value) if isinstance(value, tvm_ffi.Tensor) else value


def kept(value: Any) -> Any:
    """A value that may be kept beyond the call it came with: a tensor that was borrowed for that is copied.

    Raises: InputError for a borrowed tensor of another device, one that is not dense, or of an unknown type.
    """
    if isinstance(value, tvm_ffi.core.Tensor) and not value.__chandle__():
        return tensor_of(np.array(view_of(value)))
    return value


def view_of(tensor: tvm_ffi.Tensor) -> Array:
    """The same without DLPack, also of a tensor that is borrowed for a call: for that time only.  Raises: as `array_of`."""
    try:
        return _view_of(tensor)
    except (LookupError, ValueError) as error:  # codes and shapes that nobody knows
        raise InputError(f"got a tensor that no array stands for: {error}") from error


def _view_of(tensor: tvm_ffi.Tensor) -> Array:
    kind, _ = tensor.__dlpack_device__()
    dtype = dtypes.find_numpy_name(str(tensor.dtype))
    if dtype is None or kind != tvm_ffi.DLDeviceType.kDLCPU or not tensor.is_contiguous():
        raise InputError(
            f"got a tensor of {tensor.dtype} on {tensor.device}, expected a dense one of the host"
        )
    if problem := why_not_passed(dtype):
        raise InputError(problem, hint=AS_BYTES)
    size_bytes = tensor.numel() * dtype.itemsize
    if size_bytes == 0:
        return np.empty(tensor.shape, dtype.numpy)
    return np.asarray(_Memory(tensor, size_bytes)).view(dtype.numpy).reshape(tensor.shape)
