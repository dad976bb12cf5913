"""The functions that are made of e**x: exp, exp_nonpositive, sigmoid, tanh, erf, normal_cdf.  Called by `expand`."""

from __future__ import annotations

import math
from typing import Final

from tilewright.base import dtypes
from tilewright.compiler.kernel import expressions
from tilewright.compiler.kernel.ir import Binary, Const, Expression
from tilewright.compiler.lowering.math.pieces import (
    Means,
    bits_of,
    bounded,
    copy_sign,
    exponent_bias,
    polynomial,
    power_of_two,
    scaled,
    split_exponent,
    table_of,
)
from tilewright.compiler.lowering.math.tables import (
    LOG2_E,
    NORMAL_DENOMINATOR,
    NORMAL_END,
    NORMAL_NUMERATOR,
    Quotient,
)

E = expressions.Expressions

_NOTHING_BESIDE_1: Final = 40.0
"""e**-x of this x, of either type."""
_PLACES: Final = 6
"""Binary places behind the point that are cut off a number of halves of ln 2."""
_LATE: Final = 0.25
"""What is added before they are cut off: the number grows at 0.2573, where tanh is just above 1/4."""


def exp(x: Expression, means: Means) -> Expression:
    """e**x."""
    t = table_of(x)
    n, shifted, r = split_exponent(bounded(x, *t.exp_range), 2 * exponent_bias(t))
    return scaled(exp_near(r, means), n, shifted, means)


def exp_nonpositive(x: Expression, means: Means) -> Expression:
    """e**x of x <= 0: half of what bounds and scales the results of `exp` is not needed, and none of it where they are normal.

    Where whole vectors are scaled in one instruction, rests of them and single numbers have the same bits.
    """
    t = table_of(x)
    normal = _has_normal_power(x)
    least = x if normal else E.max(x, t.exp_range[0])
    if x.lanes * t.bits == means.scaled_bits:
        n, shifted, r = split_exponent(least)
        return scaled(exp_near(r, means), n, shifted, means)
    lift = 0 if normal else t.lift
    _, shifted, r = split_exponent(least, exponent_bias(t) + lift)
    scale = power_of_two(shifted)
    if means.scales:
        grown = E.mul(exp_near(r, means), scale)
    else:
        grown = E.fma(_above_one(r), scale, scale)
    return E.mul(grown, 2.0**-lift)


def _has_normal_power(x: Expression) -> bool:
    """Whether e**x of x <= 0 is not denormal, as `x` is the larger of something and a number whose power is normal."""
    bound = x.right if isinstance(x, Binary) and x.op == "max" else None
    return isinstance(bound, Const) and bound.value >= math.log(table_of(x).least_normal)


def exp_near(r: Expression, means: Means) -> Expression:
    """e**r for |r| <= ln2/2."""
    if means.fma:
        return polynomial(r, (1.0, 1.0, *table_of(r).exp))
    # A product that is rounded on its own shall be small beside 1.
    return E.add(_above_one(r), 1.0)


def _above_one(r: Expression) -> Expression:
    """e**r - 1 for |r| <= ln2/2, as exact as e**r needs it."""
    return E.fma(E.mul(r, r), polynomial(r, table_of(r).exp), r)


def sigmoid(x: Expression, _: Means) -> Expression:
    """1 / (1 + e**-x), without overflow.

    Both sides of the quotient are 2**lift too small, so that e**-x is finite where the quotient is denormal; far
    above 0 it is nothing beside 1.
    """
    t = table_of(x)
    shifted, r = split_exponent(
        bounded(x, t.exp_range[0], _NOTHING_BESIDE_1), exponent_bias(t) - t.lift, sign=-1
    )[1:]
    turned = [(-1) ** power * c for power, c in enumerate((1.0, 1.0, *t.exp))]
    one = E.const(2.0**-t.lift, x.dtype, x.lanes)
    return E.div(one, E.fma(polynomial(r, tuple(turned)), power_of_two(shifted), one))


def _expm1(x: Expression) -> Expression:
    """e**x - 1 without cancellation, for |x| below 40."""
    t = table_of(x)
    _, shifted, r = split_exponent(x, exponent_bias(t))
    near = E.fma(E.mul(r, r), polynomial(r, t.expm1), r)
    scale = power_of_two(shifted)
    return E.fma(scale, near, E.sub(scale, 1.0))


def tanh(x: Expression, _: Means) -> Expression:
    """In f32 by half a logarithm of 2 at a time; in f64 (e**2a - 1) / (e**2a + 1) of a = |x|, through e**2a - 1."""
    t = table_of(x)
    size = E.min(E.abs(x), t.tanh_end)
    if t.bits == 32:
        return copy_sign(_tanh_by_halves(size), x)
    grown = _expm1(E.add(size, size))
    return copy_sign(E.div(grown, E.add(grown, 2.0)), x)


def _tanh_by_halves(x: Expression) -> Expression:
    """Tanh of 0 <= x <= `tanh_end` in f32: x = n ln2/2 + s, and with v = s coth(s) e**2s is (v + s) / (v - s).

    So the numerator is (2**n - 1) / 2 (v + s) + s, and v - s less than the denominator, which is why rounding it hardly
    matters near 1. Below the point where tanh is 1/4, n is 0 and the quotient s / v; what is next to it has twice the
    last place.
    """
    t = table_of(x)
    magic = t.magic / 2**_PLACES + exponent_bias(t) - 1
    parts = E.fma(x, 2 * LOG2_E, E.const(magic + _LATE, x.dtype, x.lanes))
    shifted = E.bitcast(E.and_(bits_of(parts), -(1 << _PLACES)), t.dtype)
    s = E.fma(E.sub(shifted, magic), -0.5 * math.log(2), x)
    v = polynomial(E.mul(s, s), (1.0, *t.tanh))
    half_power = E.bitcast(E.shl(bits_of(shifted), t.mantissa - _PLACES), t.dtype)
    above = E.fma(E.sub(half_power, 0.5), E.add(v, s), s)
    return E.div(above, E.add(above, E.sub(v, s)))


def erf(x: Expression, means: Means) -> Expression:
    """In f32 a quotient of polynomials; in f64 near 0 a polynomial, else 1 - e**-q of |x|."""
    t = table_of(x)
    if t.bits == 32:
        # Where products and sums are rounded apart, the quotient does not reach 1.
        one = copy_sign(E.const(1.0, x.dtype), x)
        near = _odd_quotient(x, t.erf_end, t.erf)
        return E.select(E.ge(E.abs(x), t.erf_end), one, near)
    size = E.abs(x)
    near = E.fma(x, polynomial(E.mul(x, x), t.erf_near), x)
    q = polynomial(E.sub(E.min(size, t.erf_end), t.erf_center), t.erf_far)
    _, shifted, r = split_exponent(E.neg(q), exponent_bias(t))
    vanishing = E.mul(exp_near(r, means), power_of_two(shifted))
    far = copy_sign(E.sub(1.0, vanishing), x)
    return E.select(E.lt(size, t.erf_split), near, far)


def _odd_quotient(x: Expression, end: float, quotient: Quotient) -> Expression:
    """An odd function that grows to 1 at `end`, as x P(x**2) / Q(x**2); what is rounded may be beyond 1."""
    inside = bounded(x, -end, end)
    square = E.mul(inside, inside)
    above, below = (polynomial(square, part) for part in quotient)
    return bounded(E.div(E.mul(inside, above), below), -1.0, 1.0)


def normal_cdf(x: Expression, means: Means) -> Expression:
    """(1 + erf(x / sqrt(2))) / 2, which GELU multiplies its argument with, absolutely: 2e-7 in f32, exactly 0 and 1 from 5.5 on.

    In f32 a quotient of polynomials, half as many steps as an exponential takes, and half as deep.  At the end
    of its range it is a little beyond 1/2, and grows from there, so the bounds make it exact.
    """
    if x.dtype is not dtypes.f32:
        whole = erf(E.mul(x, math.sqrt(0.5)), means)
        return E.fma(whole, E.const(0.5, x.dtype, x.lanes), E.const(0.5, x.dtype, x.lanes))
    square = E.min(E.mul(x, x), NORMAL_END)
    above = E.mul(x, polynomial(square, NORMAL_NUMERATOR))
    half = E.div(above, polynomial(square, NORMAL_DENOMINATOR))
    return bounded(E.add(half, 0.5), 0.0, 1.0)
