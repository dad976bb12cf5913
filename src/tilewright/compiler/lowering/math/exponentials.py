"""The functions that are made of e**x: exp, sigmoid, tanh, erf.  Called by `expand`."""

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


def exp_near(r: Expression) -> Expression:
    """e**r for |r| <= ln2/2."""
    tail = polynomial(r, table_of(r).exp)
    return E.add(E.fma(E.mul(r, r), tail, r), 1.0)


def sigmoid(x: Expression, means: Means) -> Expression:
    """1 / (1 + e**-x), without overflow: e**-|x| <= 1."""
    small = exp(E.neg(E.abs(x)), means)
    one = E.const(1.0, x.dtype, x.lanes)
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
