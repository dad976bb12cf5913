"""Sine and cosine, at any size of the argument.  Called by `expand`.

Source: the reduction of usual angles in three parts of pi/2 is Cody's and Waite's; that of huge ones is a
primitive (`kernel.primitives`).
"""

from __future__ import annotations

import math

from tilewright.base import dtypes
from tilewright.compiler.kernel import expressions, primitives
from tilewright.compiler.kernel.ir import Argument, Call, Expression, Function
from tilewright.compiler.lowering.math.pieces import (
    Means,
    bits_of,
    polynomial,
    sum_with_error,
    table_of,
)
from tilewright.compiler.lowering.math.tables import (
    F64,
    HALF_PI_PARTS,
    LARGE_ANGLE,
    TWO_OVER_PI,
)

E = expressions.Expressions


def sin(x: Expression, _: Means) -> Expression:
    """Sine; of a zero that zero."""
    return E.select(E.eq(x, 0.0), x, _circular(x, 0))


def cos(x: Expression, _: Means) -> Expression:
    """Cosine."""
    return _circular(x, 1)


def _circular(x: Expression, turn: int) -> Expression:
    """sin(x + turn pi/2)."""
    wide = E.cast(x, dtypes.f64)
    quadrant, r, low = _reduced(wide)
    if x.dtype is dtypes.f32:
        usual = _quarter(quadrant, E.cast(E.add(r, low), dtypes.f32), None, turn)
    else:
        usual = _quarter(quadrant, r, low, turn)
    exact = Call(_of_large_angle(turn), (wide,), x.lanes)
    return E.select(E.gt(E.abs(x), LARGE_ANGLE), E.cast(exact, x.dtype), usual)


def _of_large_angle(turn: int) -> Function:
    """sin(x + turn pi/2) of any f64."""
    x = Argument(0, dtypes.f64)
    quadrant, r, low = (
        Call(part(), (x,))
        for part in (
            primitives.angle_quadrant,
            primitives.angle_rest,
            primitives.angle_error,
        )
    )
    value = _quarter(quadrant, r, low, turn)
    value = E.select(E.lt(E.abs(x), math.inf), value, math.nan)
    return Function(("sine", "cosine")[turn], (dtypes.f64,), dtypes.f64, value)


def _reduced(x: Expression) -> tuple[Expression, Expression, Expression]:
    """F64 x = n pi/2 + r + low: n as integer bits, then the two parts of the rest."""
    shifted = E.fma(x, TWO_OVER_PI, E.const(F64.magic, x.dtype, x.lanes))
    n = E.sub(shifted, F64.magic)
    first, second, third = HALF_PI_PARTS
    near = E.sub(x, E.mul(n, first))
    r, error = sum_with_error(near, E.neg(E.mul(n, second)))
    low = E.sub(error, E.mul(n, third))
    r, low = sum_with_error(r, low)
    return E.cast(bits_of(shifted), dtypes.i32), r, low


def _quarter(
    quadrant: Expression, r: Expression, low: Expression | None, turn: int
) -> Expression:
    """sin(r + low + (quadrant + turn) pi/2) for |r| <= pi/4."""
    t = table_of(r)
    square = E.mul(r, r)
    cube = E.mul(square, r)
    tail = E.mul(cube, polynomial(square, t.sin))
    half = E.mul(square, 0.5)
    near_one = E.sub(1.0, half)
    correction = E.mul(E.mul(square, square), polynomial(square, t.cos))
    if low is not None:
        tail = E.fma(low, near_one, tail)
        correction = E.sub(correction, E.mul(r, low))
    sine = E.add(r, tail)
    lost = E.sub(E.sub(1.0, near_one), half)
    cosine = E.add(near_one, E.add(lost, correction))
    turned = E.add(quadrant, turn)
    value = E.select(E.ne(E.and_(turned, 1), 0), cosine, sine)
    flip = E.shl(E.and_(turned, 2), 30)
    if t.bits == 64:
        flip = E.shl(E.cast(flip, dtypes.i64), 32)
    return E.bitcast(E.xor(bits_of(value), flip), t.dtype)
