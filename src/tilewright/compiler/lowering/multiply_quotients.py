"""Write quotients that are rounded to short integers without a division.

    cast<u8>(round(x / s) + z)   ->   cast<u8>(round(q + (x - q s) r) + z)   with r = 1 / s, q = x r

A division of vectors takes as long as dozens of products.  With r the rounded reciprocal, the rest of the
first quotient is exact but for what correct rounding does not need, and the second is x / s correctly rounded,
unless all bits of s are ones.  The first is kept below 2**20, beyond which every short integer is saturated:
there the second is no less, infinities stay what they are, and so does NaN.  For unsigned bytes, x itself is
kept between what gives the least and the greatest byte, which NaN cannot leave upwards, and the quotient is
rounded by adding 1.5 * 2**23, whose last bits it then is.  What reads such a byte as a float takes that number off
again: it is never a byte.  Called by the CPU's back end for targets that multiply and add with one rounding.

Source: Markstein, Computation of Elementary Functions on the IBM RISC System/6000 Processor, 1990, theorem 8.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from tilewright.base import dtypes
from tilewright.compiler.kernel import expressions as e
from tilewright.compiler.kernel.ir import (
    Binary,
    Bitcast,
    Cast,
    Const,
    Expression,
    Fma,
    Kernel,
    Select,
    Unary,
)
from tilewright.compiler.kernel.rewrite import map_body, with_body

_LARGE: Final = 2.0**20
_ROUNDING: Final = 1.5 * 2.0**23
_BYTE: Final = 255
_EXPONENTS: Final = 64
_SHORT: Final = 16


def multiply_quotients(kernel: Kernel) -> Kernel:
    """The kernel with products instead of divisions where those mean the same."""
    return with_body(kernel, map_body(kernel.body, expression=_rewritten))


def _rewritten(value: Expression) -> Expression:
    if isinstance(value, Binary):
        return _less_zero(value)
    if not isinstance(value, Cast):
        return value
    if value.dtype is dtypes.f32:
        return _as_float(value)
    if not value.dtype.is_integer or value.dtype.bits > _SHORT:
        return value
    shifted, total = value.operand, None
    if (
        isinstance(shifted, Binary)
        and shifted.op == "add"
        and isinstance(shifted.right, Const)
    ):
        shifted, total = shifted.left, shifted.right
    if not isinstance(shifted, Unary) or shifted.op != "round":
        return value
    found = _divided(shifted.operand)
    if found is None:
        return value
    if value.dtype is dtypes.u8 and (total is None or _is_byte(total.value)):
        return _byte(*found, 0 if total is None else int(total.value))
    quotient = _quotient(*found)
    whole = e.unary("round", quotient)
    whole = whole if total is None else e.binary("add", whole, total)
    return e.cast(whole, value.dtype)


def _divided(value: Expression) -> tuple[Expression, Const] | None:
    """The parts of `x / s` for an `s` with a good reciprocal; anything is itself by one."""
    if value.dtype is not dtypes.f32:
        return None
    if not isinstance(value, Binary) or value.op != "div":
        return value, e.const(1.0, dtypes.f32, value.lanes)
    x, divisor = value.left, value.right
    if not isinstance(divisor, Const) or not _has_reciprocal(divisor.value):
        return None
    return x, divisor


def _is_byte(number: float) -> bool:
    return 0 <= number <= _BYTE and number == int(number)


def _byte(x: Expression, divisor: Const, zero: int) -> Expression:
    """`u8(round(x / divisor) + zero)`."""
    ends = sorted(float(np.float32((end - zero) * divisor.value)) for end in (0, _BYTE))
    low, high = (e.const(end, dtypes.f32, x.lanes) for end in ends)
    least = low if divisor.value > 0 else high  # what NaN becomes gives 0
    if least is low:
        x = e.select(e.compare("gt", x, low), x, low)
        x = e.select(e.compare("lt", x, high), x, high)
    else:
        x = e.select(e.compare("lt", x, high), x, high)
        x = e.select(e.compare("gt", x, low), x, low)
    rounded = e.binary("add", _kept_quotient(x, divisor), _ROUNDING)
    bits = e.bitcast(rounded, dtypes.i32)
    return e.cast(e.binary("add", bits, zero), dtypes.u8)


def _as_float(value: Cast) -> Expression:
    """`f32(byte)`, where the byte is the last bits of a rounded number: all are exact."""
    byte = value.operand
    if not isinstance(byte, Cast) or byte.dtype is not dtypes.u8:
        return value
    bits, zero = byte.operand, 0.0
    if isinstance(bits, Binary) and bits.op == "add" and isinstance(bits.right, Const):
        bits, zero = bits.left, bits.right.value
    if not isinstance(bits, Bitcast) or not _is_rounded(bits.operand):
        return value
    return e.binary("sub", bits.operand, _ROUNDING - zero)


def _less_zero(value: Binary) -> Expression:
    """`f32(byte) - zero` by one difference."""
    inner, zero = value.left, value.right
    if value.op != "sub" or not isinstance(zero, Const) or not isinstance(inner, Binary):
        return value
    if inner.op != "sub" or not isinstance(inner.right, Const) or not _is_byte(zero.value):
        return value
    if not _is_rounded(inner.left):
        return value
    return e.binary("sub", inner.left, inner.right.value + zero.value)


def _is_rounded(value: Expression) -> bool:
    """Whether a value was made by `_byte`: kept between two ends, divided, rounded."""
    if not isinstance(value, Binary) or value.op != "add" or value.dtype is not dtypes.f32:
        return False
    if not isinstance(value.right, Const) or value.right.value != _ROUNDING:
        return False
    quotient = value.left
    if isinstance(quotient, Fma) and isinstance(quotient.c, Binary):
        quotient = quotient.c.left
    return isinstance(quotient, Select)


def _kept_quotient(x: Expression, divisor: Const) -> Expression:
    """`x / divisor` by products, where no step leaves the exponents."""
    if divisor.value == 1:
        return x
    reciprocal = _reciprocal(divisor)
    first = e.binary("mul", x, reciprocal)
    rest = e.fma(e.unary("neg", first), divisor, x)
    return e.fma(rest, reciprocal, first)


def _reciprocal(divisor: Const) -> Const:
    value = float(np.float32(1) / np.float32(divisor.value))
    return e.const(value, dtypes.f32, divisor.lanes)


def _quotient(x: Expression, divisor: Const) -> Expression:
    """`x / divisor` by products."""
    if divisor.value == 1:
        return x
    reciprocal = _reciprocal(divisor)
    first = e.binary("mul", x, reciprocal)
    first = e.binary("min", e.binary("max", first, -_LARGE), _LARGE)
    rest = e.fma(e.unary("neg", first), divisor, x)
    return e.fma(rest, reciprocal, first)


def _has_reciprocal(divisor: float) -> bool:
    """Whether quotients are far from the ends of the exponents, and its bits are not all ones."""
    mantissa, exponent = math.frexp(abs(divisor))
    return abs(exponent) < _EXPONENTS and 0.5 <= mantissa < 1 - 2.0**-24
