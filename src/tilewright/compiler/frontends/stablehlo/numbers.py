"""Pieces of arithmetic that several rows are made of.

All are exact in what they promise: special values first, then the formula where it holds.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor

_UNSIGNED: Final = {
    dtypes.i8: dtypes.u8, dtypes.i16: dtypes.u16, dtypes.i32: dtypes.u32, dtypes.i64: dtypes.u64,
}  # fmt: skip
_SIGNED: Final = {unsigned: signed for signed, unsigned in _UNSIGNED.items()}


def unsigned(dtype: DType) -> DType:
    """The unsigned integers of as many bits.  Raises: UnsupportedError if there are none."""
    if dtype in _SIGNED:
        return dtype
    if dtype not in _UNSIGNED:
        raise UnsupportedError(f"elements of type {dtype} are not supported here")
    return _UNSIGNED[dtype]


def signed(dtype: DType) -> DType:
    """The signed integers of as many bits.  Raises: UnsupportedError if there are none."""
    return _SIGNED[unsigned(dtype)]


def widely(e: NodeMaker, x: Tensor) -> Tensor:
    """Floats as f64, where a formula needs more digits than they have."""
    return e.cast(x, dtypes.f64)


def infinity(e: NodeMaker, dtype: DType) -> Tensor:
    """The largest float."""
    return e.scalar(np.inf, dtype)


def zero_where(e: NodeMaker, condition: Tensor, x: Tensor) -> Tensor:
    """Zero where a condition holds, x elsewhere."""
    return e.op("where", condition, e.scalar(0, x.dtype), x)


def count_bits(e: NodeMaker, x: Tensor) -> Tensor:
    """How many bits are set, bit by bit."""
    bits = e.cast(x, unsigned(x.dtype))
    one = e.scalar(1, bits.dtype)
    total = e.op("bitwise_and", bits, one)
    for place in range(1, x.dtype.bits):
        shifted = e.op("shift_right", bits, e.scalar(place, bits.dtype))
        total = e.op("add", total, e.op("bitwise_and", shifted, one))
    return e.cast(total, x.dtype)


def leading_zeros(e: NodeMaker, x: Tensor) -> Tensor:
    """How many bits above the highest one are clear: those that stay clear when all below are set."""
    bits = e.cast(x, unsigned(x.dtype))
    step = 1
    while step < x.dtype.bits:
        shifted = e.op("shift_right", bits, e.scalar(step, bits.dtype))
        bits = e.op("bitwise_or", bits, shifted)
        step *= 2
    return e.cast(count_bits(e, e.op("bitwise_not", bits)), x.dtype)
