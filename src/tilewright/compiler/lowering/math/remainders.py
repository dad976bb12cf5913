"""Remainders of floats.  Called by `expand`."""

from __future__ import annotations

import math
from typing import Final

from tilewright.base import dtypes
from tilewright.compiler.kernel import expressions, primitives
from tilewright.compiler.kernel.ir import Call, Expression
from tilewright.compiler.lowering.math.pieces import Means, copy_sign

E = expressions.Expressions

_SMALL_QUOTIENT: Final = 2.0**24
"""Below, the product of the quotient with an f32 is exact in f64."""


def remainder(x: Expression, y: Expression, _: Means) -> Expression:
    """The remainder of the truncated quotient, exact (C's fmod)."""
    wide_x, wide_y = E.cast(x, dtypes.f64), E.cast(y, dtypes.f64)
    exact = Call(primitives.float_remainder(), (wide_x, wide_y), x.lanes)
    if x.dtype is dtypes.f64:
        return exact
    quotient = E.trunc(E.div(wide_x, wide_y))
    # Exact: both factors have 24 bits.
    left = E.sub(wide_x, E.mul(quotient, wide_y))
    usual = copy_sign(E.cast(left, x.dtype), x)
    small = E.lt(E.abs(quotient), _SMALL_QUOTIENT)
    small = E.and_(small, E.lt(E.abs(y), math.inf))
    return E.select(E.not_(small), E.cast(exact, x.dtype), usual)


def floor_remainder(x: Expression, y: Expression, means: Means) -> Expression:
    """The remainder with the sign of the divisor."""
    rest = remainder(x, y, means)
    nonzero = E.ne(rest, 0.0)
    differs = E.and_(nonzero, E.xor(E.lt(rest, 0.0), E.lt(y, 0.0)))
    moved = E.select(differs, E.add(rest, y), rest)
    return E.select(nonzero, moved, copy_sign(E.const(0.0, y.dtype, y.lanes), y))
