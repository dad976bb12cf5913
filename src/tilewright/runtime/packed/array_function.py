"""Packed functions of Python callables that take numpy arrays.

A tensor that compiled code passes may be borrowed for the call: tvm-ffi 0.1 gives no DLPack of such a one (it
crashes), and numpy's DLPack lacks bfloat16 and the floats of 8 bits.  Here every tensor on the CPU becomes an
array over the same memory, whoever passed it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.runtime.packed.functions import PackedFunction, packed_function
from tilewright.runtime.packed.tensors import view_of


def array_function(call: Callable[..., object]) -> PackedFunction:
    """The packed function of a callable that gets numpy arrays: it reads inputs and fills outputs.

    Arrays are views of the caller's memory: inputs must not be written, and none may be kept.
    """

    def run(*tensors: Any) -> None:
        call(*map(view_of, tensors))

    return packed_function(run)
