"""The distribution function of normal numbers, which GELU multiplies its argument with.  Called by `expand`."""

from __future__ import annotations

import math

from tilewright.base import dtypes
from tilewright.compiler.kernel import expressions
from tilewright.compiler.kernel.ir import Expression
from tilewright.compiler.lowering.math.exponentials import erf
from tilewright.compiler.lowering.math.pieces import Means, bounded, polynomial
from tilewright.compiler.lowering.math.tables import (
    NORMAL_DENOMINATOR,
    NORMAL_END,
    NORMAL_NUMERATOR,
)

E = expressions.Expressions


def normal_cdf(x: Expression, means: Means) -> Expression:
    """(1 + erf(x / sqrt(2))) / 2, absolutely: 2e-7 in f32, exactly 0 and 1 from 5.5 on.

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
