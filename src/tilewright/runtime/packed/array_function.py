"""Packed functions of Python callables that take numpy arrays.

A tensor that compiled code passes may be borrowed for the call: tvm-ffi 0.1 gives no DLPack of such a one (it
crashes), and numpy's DLPack lacks bfloat16 and the floats of 8 bits.  Here every tensor on the CPU becomes an
array over the same memory, whoever passed it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.errors import InputError
from tilewright.runtime.packed.ffi import tvm_ffi
from tilewright.runtime.packed.functions import PackedFunction, packed_function

Array = np.ndarray[tuple[int, ...], np.dtype[np.generic]]
_CPU: Final = 1


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


def as_array(tensor: tvm_ffi.Tensor) -> Array:
    """An array over the memory of a tensor; of a borrowed one only for the time of the call.

    Raises: InputError for a tensor that is not on the CPU, or not dense and in row-major order.
    """
    kind, _ = tensor.__dlpack_device__()
    if kind != _CPU or not tensor.is_contiguous():
        raise InputError(
            f"got a tensor on '{tensor.device}', expected a dense one on the CPU"
        )
    code = tensor.dtype
    dtype = dtypes.from_dlpack(code.type_code, code.bits).numpy
    size_bytes = tensor.numel() * dtype.itemsize
    if size_bytes == 0:
        return np.empty(tensor.shape, dtype)
    return np.asarray(_Memory(tensor, size_bytes)).view(dtype).reshape(tensor.shape)


def array_function(call: Callable[..., object]) -> PackedFunction:
    """The packed function of a callable that gets numpy arrays: it reads inputs and fills outputs.

    Arrays are views of the caller's memory: inputs must not be written, and none may be kept.
    """

    def run(*tensors: Any) -> None:
        call(*map(as_array, tensors))

    return packed_function(run)
