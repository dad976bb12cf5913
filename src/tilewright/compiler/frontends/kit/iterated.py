"""Special functions that take as many steps as their arguments say: loops on tensors of f64.

Called by the rows of front ends.

Source: Abramowitz and Stegun, "Handbook of Mathematical Functions", sections 6.5 (incomplete gamma functions) and
22.7 (recurrences of orthogonal polynomials); Lentz, "Generating Bessel functions in Mie scattering calculations",
1976, for the continued fraction; Euclid, "Elements", book 7.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from tilewright.base import dtypes
from tilewright.compiler.frontends.kit import control
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.special_functions import log_gamma, zeta
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.kit.wide import Wide

_MOST_STEPS: Final = 10_000
_PRECISION: Final = 1e-16
_TINY: Final = 1e-300


def _any(e: NodeMaker, x: Tensor) -> Tensor:
    """Whether a condition holds anywhere."""
    ones = e.cast(x, dtypes.i64)
    count = e.op("reduce_sum", ones, axes=tuple(range(x.rank)), keepdims=False)
    return e.op("greater", count, e.scalar(0, dtypes.i64))


def _counted(step: Tensor, e: NodeMaker) -> Tensor:
    return e.op("add", step, e.scalar(1, dtypes.i64))


# --- incomplete gamma functions ----------------------------------------------------------------


def incomplete_gamma(a: Wide, x: Wide, *, upper: bool) -> Wide:
    """The regularized incomplete gamma function, the lower one or the upper one; both have one shape."""
    e, given = x.maker, (a, x)
    # Where there is nothing to sum, ones are summed.
    valid = e.op("logical_and", a.number(0.0).less(a), x.number(0.0).less(x))
    valid = e.op("logical_and", valid, (a + x).is_finite())
    a, x = a.where(valid, 1.0), x.where(valid, 1.0)
    by_series = x.at_most(a.larger(1.0))
    power = (a * x.apply("log") - x - log_gamma(a)).apply("exp")
    below = _series(a, x.where(by_series, 0.0)) * power / a
    above = _fraction(a, x.where(e.op("logical_not", by_series), a.larger(1.0) + 1.0))
    above = above * power
    if upper:
        found = (1.0 - below).where(by_series, above)
    else:
        found = below.where(by_series, 1.0 - above)
    return _at_the_ends(*given, found, upper=upper)


def _at_the_ends(a: Wide, x: Wide, found: Wide, *, upper: bool) -> Wide:
    nothing, all_ = (1.0, 0.0) if upper else (0.0, 1.0)
    found = x.number(nothing).where(x.equal(0.0), found)
    found = x.number(all_).where(x.is_inf(), found)
    undefined = x.number(math.nan)
    at_zero = x.number(all_).where(x.number(0.0).less(x), undefined)
    found = at_zero.where(a.equal(0.0), found)
    at_infinity = undefined.where(x.is_inf(), nothing)
    found = at_infinity.where(a.is_inf(), found)
    either = x.maker.op("logical_or", x.less(0.0), a.less(0.0))
    either = x.maker.op(
        "logical_or", either, x.maker.op("logical_or", x.is_nan(), a.is_nan())
    )
    return undefined.where(either, found)


def _series(a: Wide, x: Wide) -> Wide:
    """1 + x / (a + 1) + x^2 / ((a + 1)(a + 2)) + ... until terms vanish."""
    e, one = x.maker, x.number(1.0).where(x.equal(x), 1.0)

    def going(state: list[Tensor]) -> Tensor:
        step, term, total = state
        held = Wide(e, total) * _PRECISION
        far = e.op("less", step, e.scalar(_MOST_STEPS, dtypes.i64))
        return e.op("logical_and", far, _any(e, held.less(Wide(e, term))))

    def trip(state: list[Tensor]) -> list[Tensor]:
        step, term, total = _counted(state[0], e), Wide(e, state[1]), Wide(e, state[2])
        term = term * (x / (a + Wide(e, e.cast(step, dtypes.f64))))
        return [step, term.tensor, (total + term).tensor]

    start = [e.scalar(0, dtypes.i64), one.tensor, one.tensor]
    return Wide(e, control.loop(e, start, going, trip)[2])


def _fraction(a: Wide, x: Wide) -> Wide:
    """The continued fraction of the upper function by Lentz' forward steps."""
    e = x.maker
    below = x + 1.0 - a
    ratio = 1.0 / below

    def going(state: list[Tensor]) -> Tensor:
        off = abs(Wide(e, state[5]) - 1.0)
        far = e.op("less", state[0], e.scalar(_MOST_STEPS, dtypes.i64))
        return e.op("logical_and", far, _any(e, off.number(_PRECISION * 10).less(off)))

    def trip(state: list[Tensor]) -> list[Tensor]:
        step = _counted(state[0], e)
        b, c, d, found, _ = (Wide(e, part) for part in state[1:])
        count = Wide(e, e.cast(step, dtypes.f64))
        numerator = -count * (count - a)
        b = b + 2.0
        d = 1.0 / _not_zero(numerator * d + b)
        c = _not_zero(b + numerator / c)
        return [step, *(part.tensor for part in (b, c, d, found * c * d, c * d))]

    wide = x.number(1 / _TINY).where(x.equal(x), 1 / _TINY)
    two = x.number(2.0).where(x.equal(x), 2.0)
    start = [e.scalar(0, dtypes.i64), *(p.tensor for p in (below, wide, ratio, ratio, two))]
    return Wide(e, control.loop(e, start, going, trip)[4])


def _not_zero(x: Wide) -> Wide:
    return x.number(_TINY).where(x.equal(0.0), x)


# --- zeta ---------------------------------------------------------------------------------------


def zeta_of_any(x: Wide, q: Wide) -> Wide:
    """Hurwitz' zeta function; for a negative q the terms up to zero one by one.  Both have one shape."""
    e = x.maker
    nothing = x.number(0.0).where(x.equal(x), 0.0)

    def going(state: list[Tensor]) -> Tensor:
        finite = Wide(e, state[0]).is_finite()
        below = Wide(e, state[0]).at_most(0.0)
        return _any(e, e.op("logical_and", finite, below))

    def trip(state: list[Tensor]) -> list[Tensor]:
        place, total = Wide(e, state[0]), Wide(e, state[1])
        below = place.at_most(0.0)
        total = (total + place.power(-x)).where(below, total)
        return [(place + 1.0).where(below, place).tensor, total.tensor]

    place, total = (
        Wide(e, t) for t in control.loop(e, [q.tensor, nothing.tensor], going, trip)
    )
    found = total + zeta(x, place)
    broken = e.op("logical_and", q.at_most(0.0), e.op("logical_not", x.is_whole()))
    found = x.number(math.nan).where(broken, found)
    pole = e.op("logical_and", q.at_most(0.0), q.is_whole())
    found = x.number(math.inf).where(pole, found)
    found = x.number(math.nan).where(x.less(1.0), found)
    return x.number(math.inf).where(x.equal(1.0), found)


# --- orthogonal polynomials ---------------------------------------------------------------------

Next = Callable[[Wide, Wide, Wide, Wide], Wide]
"""The polynomial of degree k + 1 of x, k, that of degree k and that of degree k - 1."""


def polynomial_of_degree(x: Wide, degree: Tensor, first: Wide, following: Next) -> Wide:
    """The polynomial whose degree, an i64 for every x, is data; zero for a negative one.

    Args:
        x: of the shape of the result.
        degree: of the same shape.
        first: the polynomial of degree 1.
        following: the recurrence.
    """
    e = x.maker
    one = x.number(1.0).where(x.equal(x), 1.0)

    def going(state: list[Tensor]) -> Tensor:
        return _any(e, e.op("less", state[0], degree))

    def trip(state: list[Tensor]) -> list[Tensor]:
        step, before, last = state[0], Wide(e, state[1]), Wide(e, state[2])
        count = Wide(e, e.cast(step, dtypes.f64))
        goes_on = e.op("less", step, degree)
        found = following(x, count, last, before)
        parts = (last.where(goes_on, before), found.where(goes_on, last))
        return [_counted(step, e), *(part.tensor for part in parts)]

    start = [e.scalar(1, dtypes.i64), one.tensor, first.tensor]
    found = Wide(e, control.loop(e, start, going, trip)[2])
    zero = e.scalar(0, dtypes.i64)
    found = one.where(e.op("equal", degree, zero), found)
    return x.number(0.0).where(e.op("less", degree, zero), found)


# --- whole numbers ------------------------------------------------------------------------------


def greatest_common_divisor(e: NodeMaker, x: Tensor, y: Tensor) -> Tensor:
    """Of whole numbers of one shape, by Euclid's division with remainder."""
    zero = e.scalar(0, x.dtype)

    def going(state: list[Tensor]) -> Tensor:
        return _any(e, e.op("not_equal", state[1], zero))

    def trip(state: list[Tensor]) -> list[Tensor]:
        left, right = state
        done = e.op("equal", right, zero)
        divisor = e.op("where", done, e.scalar(1, x.dtype), right)
        rest = e.op("where", done, right, e.op("mod", left, divisor, fmod=True))
        return [e.op("where", done, left, right), rest]

    found = control.loop(e, [x, y], going, trip)[0]
    return e.op("abs", found) if x.dtype.is_signed else found
