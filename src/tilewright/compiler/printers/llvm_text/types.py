"""How values of each data type look in LLVM IR: type names and constants.

`f16` and `bf16` values travel as their 16 storage bits (`i16`), integers of less than a byte as the
low bits of one, and `bool` as `i1`; memory holds what `base.dtypes` says.  Text only, no LLVM needed.  Called by every file of this room.
"""

from __future__ import annotations

import math
import struct
from typing import Final, NamedTuple

import ml_dtypes
import numpy as np

from tilewright.base import dtypes
from tilewright.base.dtypes import DType

_VALUE_TYPES: Final = {
    dtypes.bool_: "i1",
    dtypes.f16: "i16",
    dtypes.bf16: "i16",
    **dict.fromkeys(dtypes.SMALL_INTEGERS, "i8"),
}
_MEMORY_TYPES: Final = _VALUE_TYPES | {dtypes.bool_: "i8"}


class Value(NamedTuple):
    """An operand: its text (`%v3`, `1.0`), LLVM type, and the scope depth that defines it."""

    text: str
    type: str
    level: int = 0

    def __str__(self) -> str:
        return f"{self.type} {self.text}"


def value_type(dtype: DType, lanes: int = 1) -> str:
    """The LLVM type of an SSA value."""
    return vector(_VALUE_TYPES.get(dtype) or dtype.llvm, lanes)


def memory_type(dtype: DType, lanes: int = 1) -> str:
    """The LLVM type of a load or store."""
    return vector(_MEMORY_TYPES.get(dtype) or dtype.llvm, lanes)


def vector(scalar: str, lanes: int) -> str:
    """`scalar` itself, or a vector of it."""
    return scalar if lanes == 1 else f"<{lanes} x {scalar}>"


def mangle(scalar: str, lanes: int) -> str:
    """The suffix of an overloaded intrinsic: `f32`, `v16f32`, `i64`."""
    short = {"float": "f32", "double": "f64", "half": "f16"}.get(scalar, scalar)
    return short if lanes == 1 else f"v{lanes}{short}"


def float_text(value: float, scalar: str) -> str:
    """A float constant, exact: LLVM wants the bits of the double."""
    if scalar == "float":
        value = float(np.float32(value)) if math.isfinite(value) else value
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def constant_text(value: float, dtype: DType) -> str:
    """One element of `dtype` as LLVM text, in its value type."""
    if dtype.is_bool:
        return "true" if value else "false"
    if dtype is dtypes.f16:
        return str(int(np.asarray(value, np.float16).view(np.int16)))
    if dtype is dtypes.bf16:
        return str(int(np.asarray(value, ml_dtypes.bfloat16).view(np.int16)))
    if dtype.is_float and dtype.bits >= 32:
        return float_text(float(value), dtype.llvm)
    if dtype.is_float or dtype.bits < 8:
        return str(int(np.asarray(value, dtype.numpy).view(np.int8)))
    wrapped = int(value) & ((1 << dtype.bits) - 1)
    return str(wrapped - (1 << dtype.bits) if wrapped >> (dtype.bits - 1) else wrapped)


def splat_text(text: str, scalar: str, lanes: int) -> str:
    """A constant in every lane."""
    if lanes == 1:
        return text
    zero = text in ("0", "false") or text == "0x0000000000000000"
    return "zeroinitializer" if zero else f"splat ({scalar} {text})"


def constant(value: float, dtype: DType, lanes: int = 1) -> Value:
    """A number as an operand."""
    scalar = value_type(dtype)
    text = splat_text(constant_text(value, dtype), scalar, lanes)
    return Value(text, vector(scalar, lanes))


def number(value: int, scalar: str = "i64") -> Value:
    """An integer of an LLVM type as an operand."""
    return Value(str(value), scalar)


def iota(lanes: int, stride: int, scalar: str) -> Value:
    """The constant vector `0, stride, 2 * stride, …`."""
    bits = int(scalar[1:])
    items: list[str] = []
    for lane in range(lanes):
        wrapped = (lane * stride) & ((1 << bits) - 1)
        signed = wrapped - (1 << bits) if wrapped >> (bits - 1) else wrapped
        items.append(f"{scalar} {signed}")
    return Value(f"<{', '.join(items)}>", vector(scalar, lanes))


def split_type(type_: str) -> tuple[str, int]:
    """`<16 x float>` as `("float", 16)`."""
    if not type_.startswith("<"):
        return type_, 1
    lanes, _, scalar = type_[1:-1].partition(" x ")
    return scalar, int(lanes)
