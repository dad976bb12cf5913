"""The functions that are made of e**x: exp, exp_nonpositive, sigmoid, tanh, erf.  Called by `expand`."""

from __future__ import annotations

from tilewright.compiler.kernel import expressions
from tilewright.compiler.kernel.ir import Expression
from tilewright.compiler.lowering.math.pieces import (
    Means,
    bounded,
    copy_sign,
    polynomial,
    power_of_two,
    scaled,
    split_exponent,
    table_of,
)

E = expressions.Expressions


def exp(x: Expression, means: Means) -> Expression:
    """e**x."""
    n, shifted, r = split_exponent(bounded(x, *table_of(x).exp_range))
    return scaled(exp_near(r), n, shifted, means)


def exp_nonpositive(x: Expression, means: Means) -> Expression:
    """e**x of x <= 0: half of what bounds and scales the results of `exp` is not needed."""
    t = table_of(x)
    if x.lanes * t.bits == means.scaled_bits:
        n, shifted, r = split_exponent(E.max(x, t.exp_range[0]))
        return scaled(exp_near(r), n, shifted, means)
    return E.mul(_lifted_exp(x), 2.0**-t.lift)


def _lifted_exp(x: Expression) -> Expression:
    """e**x * 2**lift of x <= 0, which is never denormal: one power of two scales it."""
    t = table_of(x)
    _, shifted, r = split_exponent(E.max(x, t.exp_range[0]), t.lift)
    scale = power_of_two(shifted)
    return E.fma(_above_one(r), scale, scale)


def exp_near(r: Expression) -> Expression:
    """e**r for |r| <= ln2/2."""
    return E.add(_above_one(r), 1.0)


def _above_one(r: Expression) -> Expression:
    """e**r - 1 for |r| <= ln2/2, as exact as e**r needs it."""
    return E.fma(E.mul(r, r), polynomial(r, table_of(r).exp), r)


def sigmoid(x: Expression, _: Means) -> Expression:
    """1 / (1 + e**-x), without overflow: e**-|x| <= 1.

    Both sides of the quotient are 2**lift too large, so only the quotient may be denormal.
    """
    small = _lifted_exp(E.neg(E.abs(x)))
    one = E.const(2.0 ** table_of(x).lift, x.dtype, x.lanes)
    return E.div(E.select(E.ge(x, 0.0), one, small), E.add(one, small))


def _expm1(x: Expression) -> Expression:
    """e**x - 1 without cancellation, for |x| below 40."""
    _, shifted, r = split_exponent(x)
    near = E.fma(E.mul(r, r), polynomial(r, table_of(x).expm1), r)
    scale = power_of_two(shifted)
    return E.fma(scale, near, E.sub(scale, 1.0))


def tanh(x: Expression, _: Means) -> Expression:
    """(e**2a - 1) / (e**2a + 1) of a = |x|, through e**2a - 1."""
    size = E.min(E.abs(x), table_of(x).tanh_end)
    grown = _expm1(E.add(size, size))
    return copy_sign(E.div(grown, E.add(grown, 2.0)), x)


def erf(x: Expression, means: Means) -> Expression:
    """1 - e**-q of |x|, through e**-q - 1; in f64 near 0 a polynomial."""
    del means
    t = table_of(x)
    size = E.abs(x)
    inside = E.min(size, t.erf_end)
    if t.bits == 32:
        q = E.fma(inside, polynomial(inside, t.erf_far), inside)
        return copy_sign(_expm1(E.neg(q)), x)
    near = E.fma(x, polynomial(E.mul(x, x), t.erf_near), x)
    q = polynomial(E.sub(inside, t.erf_center), t.erf_far)
    _, shifted, r = split_exponent(E.neg(q))
    vanishing = E.mul(exp_near(r), power_of_two(shifted))
    far = copy_sign(E.sub(1.0, vanishing), x)
    return E.select(E.lt(size, t.erf_split), near, far)
