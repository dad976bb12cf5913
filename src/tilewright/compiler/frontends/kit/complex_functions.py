"""Functions of complex numbers, in f64 by parts.

Each is the formula that keeps its digits near branch cuts and zeros; what has no complex form is
refused.  Called by the rows of front ends.

Source: Kahan, "Branch Cuts for Complex Elementary Functions", 1987; C11, annex G, for infinities.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from tilewright.compiler.frontends.kit.complex_pairs import (
    LARGEST_EXPONENT,
    Pair,
    exponential,
    quotient,
    unless_zero,
)
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.kit.wide import (
    Wide,
    angle,
    exact_product,
    exact_sum,
    exp_minus_one,
    log_plus_one,
)

# Beyond it, tanh is one to the last digit of f64.
_SATURATED: Final = 20.0
# Above it, one plus a square is the square, and the square of a larger one is no number of f64.
_SQUARES_OVERFLOW: Final = 1e150


def divide(z: Pair, w: Pair) -> Pair:
    """The quotient; over zero and over infinity, each part is what the real quotient gives."""
    e, zero = z.x.maker, w.x.number(0.0)
    infinite = e.op("logical_or", w.x.is_inf(), w.y.is_inf())
    finite = e.op("logical_and", z.x.is_finite(), z.y.is_finite())
    found = Pair(z.x / w.x, z.y / w.x).where(w.is_zero(), quotient(z, w))
    return Pair(zero, zero).where(e.op("logical_and", infinite, finite), found)


def _exponential_minus_one(z: Pair) -> Pair:
    half = (z.y * 0.5).apply("sin")
    cosine_less_one = half * half * -2.0
    less = exp_minus_one(z.x)
    real = less * z.y.apply("cos") + cosine_less_one
    return Pair(unless_zero(z.y, real, less), exponential(z).y)


def logarithm(z: Pair) -> Pair:
    """Log z, whose real part keeps its digits where the magnitude is near one."""
    a, b = abs(z.x), abs(z.y)
    long, short = a.larger(b), a.smaller(b)
    near = log_plus_one(_with_squares(long.number(-1.0), long, short)) * 0.5
    far = _log_of_size(long, short)
    e = long.maker
    is_near = e.op("logical_and", long.less(2.0), long.number(0.5).less(long))
    return Pair(near.where(is_near, far), angle(z.y, z.x))


def _log_of_size(long: Wide, short: Wide) -> Wide:
    ratio = short / long
    found = long.apply("log") + log_plus_one(ratio * ratio) * 0.5
    e = long.maker
    special = e.op("logical_or", long.equal(0.0), long.is_inf())
    return long.apply("log").where(special, found)


def _with_squares(first: Wide, x: Wide, y: Wide) -> Wide:
    """First + x^2 + y^2, rounded about once, also where the three nearly cancel."""
    (square, lost_x), (other, lost_y) = exact_product(x, x), exact_product(y, y)
    total, rest = exact_sum(first, square)
    total, more = exact_sum(total, other)
    return total + (rest + more + (lost_x + lost_y))


def _log_plus_one(z: Pair) -> Pair:
    moved = Pair(z.x + 1.0, z.y)
    near = log_plus_one(_with_squares(z.x * 2.0, z.x, z.y)) * 0.5
    far = _log_of_size(abs(moved.x).larger(abs(z.y)), abs(moved.x).smaller(abs(z.y)))
    size = abs(z.x).larger(abs(z.y))
    return Pair(near.where(size.less(4.0), far), angle(z.y, moved.x))


def square_root(z: Pair) -> Pair:
    """The root whose real part is not negative."""
    size = z.size()
    root = ((abs(z.x) * 0.5) + size * 0.5).apply("sqrt")
    other = abs(z.y) / (root * 2.0)
    other = other.where(z.x.maker.op("logical_not", root.equal(0.0)), 0.0)
    negative = z.x.less(0.0)
    found = Pair(other.where(negative, root), root.where(negative, other))
    infinite = Pair(z.y.number(math.inf), abs(z.y))
    found = infinite.where(z.y.is_inf(), found)
    return Pair(found.x, found.y.signed_as(z.y))


def _reciprocal_root(z: Pair) -> Pair:
    size, root = z.size(), square_root(z)
    found = Pair(root.x / size, -(root.y / size))
    zero = z.x.number(0.0)
    infinite = z.x.number(math.inf)
    found = Pair(infinite, zero).where(size.equal(0.0), found)
    return Pair(zero, zero).where(size.is_inf(), found)


def _cube_root(z: Pair) -> Pair:
    log = logarithm(z)
    found = exponential(Pair(log.x / 3.0, log.y / 3.0))
    zero = z.x.number(0.0)
    return Pair(zero, zero).where(z.size().equal(0.0), found)


def hyperbolic_tangent(z: Pair) -> Pair:
    """Kahan's form, which neither overflows nor cancels."""
    tangent, sine = z.y.apply("tan"), z.x.apply("sinh")
    spread = tangent * tangent + 1.0
    root = (sine * sine + 1.0).apply("sqrt")
    below = spread * sine * sine + 1.0
    found = Pair(spread * root * sine / below, tangent / below)
    decay = (abs(z.x) * -2.0).apply("exp")
    imaginary = z.y.apply("sin") * z.y.apply("cos") * decay * 4.0
    far = Pair(z.x.apply("sign"), unless_zero(z.y, imaginary, z.y))
    return far.where(z.x.number(_SATURATED).less(abs(z.x)), found)


def _sine(z: Pair) -> Pair:
    x, y = z.x, z.y
    real, imaginary = x.apply("sin") * y.apply("cosh"), x.apply("cos") * y.apply("sinh")
    return Pair(unless_zero(x, real, x), unless_zero(y, imaginary, y))


def _cosine(z: Pair) -> Pair:
    x, y = z.x, z.y
    real, imaginary = x.apply("cos") * y.apply("cosh"), x.apply("sin") * y.apply("sinh")
    return Pair(real, -unless_zero(x, imaginary, x * y.apply("sign")))


def _logistic(z: Pair) -> Pair:
    """One over 1 + e^-z; far on the left, where that power overflows, e^z itself."""
    power = exponential(Pair(-z.x, -z.y))
    one = Pair(z.x.number(1.0), z.x.number(0.0))
    found = divide(one, Pair(power.x + 1.0, power.y))
    return exponential(z).where(z.x.less(-LARGEST_EXPONENT / 2), found)


def _sign(z: Pair) -> Pair:
    size = z.size()
    nothing = size.equal(0.0)
    return Pair(
        (z.x / size).where(_not(nothing, z), z.x), (z.y / size).where(_not(nothing, z), z.y)
    )


def _not(condition: Tensor, z: Pair) -> Tensor:
    return z.x.maker.op("logical_not", condition)


def _beside_one(z: Pair) -> tuple[Pair, Pair]:
    """The roots of 1 - z and 1 + z."""
    return square_root(Pair(1.0 - z.x, -z.y)), square_root(Pair(z.x + 1.0, z.y))


def _unless_infinite(z: Pair, limit: Pair, found: Pair) -> Pair:
    """What was found, or the limit where a part of z is an infinity."""
    return limit.where(z.x.maker.op("logical_or", z.x.is_inf(), z.y.is_inf()), found)


def _arc_sine(z: Pair) -> Pair:
    minus, plus = _beside_one(z)
    below = minus.x * plus.x - minus.y * plus.y
    height = minus.x * plus.y - minus.y * plus.x
    limit = Pair(angle(z.x, abs(z.y)), z.x.number(math.inf).signed_as(z.y))
    return _unless_infinite(z, limit, Pair(angle(z.x, below), height.apply("asinh")))


def _arc_cosine(z: Pair) -> Pair:
    minus, plus = _beside_one(z)
    height = plus.x * minus.y - plus.y * minus.x
    found = Pair(angle(minus.x, plus.x) * 2.0, height.apply("asinh"))
    limit = Pair(angle(abs(z.y), z.x), z.x.number(math.inf).signed_as(-z.y))
    return _unless_infinite(z, limit, found)


def _area_cosine(z: Pair) -> Pair:
    minus = square_root(Pair(z.x - 1.0, z.y))
    plus = square_root(Pair(z.x + 1.0, z.y))
    real = minus.x * plus.x + minus.y * plus.y
    found = Pair(real.apply("asinh"), angle(minus.y, plus.x) * 2.0)
    return _unless_infinite(z, Pair(z.x.number(math.inf), angle(z.y, z.x)), found)


def _area_tangent(z: Pair) -> Pair:
    """On the right, where the logarithm is that of more than one; the function is odd."""
    x, square = abs(z.x), z.y * z.y
    left = 1.0 - x
    real = log_plus_one(x * 4.0 / (left * left + square)) * 0.25
    far = divide(Pair(z.x.number(1.0), z.x.number(0.0)), Pair(x, z.y)).x
    real = far.where(x.number(_SQUARES_OVERFLOW).less(x.larger(abs(z.y))), real)
    imaginary = angle(z.y * 2.0, left * (x + 1.0) - square) * 0.5
    quarter = x.number(math.pi / 2).signed_as(z.y)
    limit = Pair(x.number(0.0), z.y.where(z.y.is_nan(), quarter))
    found = _unless_infinite(z, limit, Pair(real, imaginary))
    return Pair(found.x.signed_as(z.x), found.y)


FUNCTIONS: Final[dict[str, Callable[[Pair], Pair]]] = {
    "acos": _arc_cosine,
    "acosh": _area_cosine,
    "asin": _arc_sine,
    "asinh": lambda z: _arc_sine(z.turned()).turned_back(),
    "atan": lambda z: _area_tangent(z.turned()).turned_back(),
    "atanh": _area_tangent,
    "cbrt": _cube_root,
    "cos": _cosine,
    "cosh": lambda z: _cosine(z.turned()),
    "exp": exponential,
    "exponential_minus_one": _exponential_minus_one,
    "log": logarithm,
    "log_plus_one": _log_plus_one,
    "rsqrt": _reciprocal_root,
    "sigmoid": _logistic,
    "sign": _sign,
    "sin": _sine,
    "sinh": lambda z: _sine(z.turned()).turned_back(),
    "sqrt": square_root,
    "tan": lambda z: hyperbolic_tangent(z.turned()).turned_back(),
    "tanh": hyperbolic_tangent,
}
"""Functions of one complex number, by the name of the real op."""


def power(z: Pair, w: Pair) -> Pair:
    """|z|^2 to the half of a real power, times what the angle turns; zero to any power but zero is zero."""
    turn = angle(z.y, z.x)
    size = z.size()
    log = logarithm(z).x
    grown = size.power(w.x) * (-(w.y * turn)).apply("exp")
    # One factor may overflow where the other one vanishes.
    together = (w.x * log - w.y * turn).apply("exp")
    grown = together.where(grown.is_nan(), grown)
    phase = w.x * turn + unless_zero(w.y, w.y * log, w.y)
    found = Pair(grown * phase.apply("cos"), grown * phase.apply("sin"))
    e, zero = size.maker, size.number(0.0)
    nothing = Pair(zero, zero).where(size.equal(0.0), found)
    is_one = e.op("logical_and", w.x.equal(0.0), w.y.equal(0.0))
    return Pair(size.number(1.0), zero).where(is_one, nothing)


def arc_tangent_of_two(y: Pair, x: Pair) -> Pair:
    """-i log((x + i y) / sqrt(x^2 + y^2)).

    The quotient says the branch only.  Its angle is half that of (x + i y) over (x - i y), its magnitude the
    root of that of theirs; the parts of that quotient are sums of two products, which lose no digits.
    """
    turned = y.turned()
    above = Pair(x.x + turned.x, x.y + turned.y)
    below = Pair(x.x - turned.x, x.y - turned.y)
    squares = Pair(
        x.x * x.x - x.y * x.y + y.x * y.x - y.y * y.y, (x.x * x.y + y.x * y.y) * 2.0
    )
    found = logarithm(divide(above, square_root(squares))).turned_back()
    across = _of_products(x.x, y.x, x.y, y.y)
    half = angle(across * 2.0, (x.size() - y.size()) * (x.size() + y.size())) * 0.5
    turns = ((found.x - half) * (1 / math.pi)).apply("round")
    area = _of_products(y.x, x.y, -y.y, x.x)
    shorter = above.square().smaller(below.square())
    ratio = abs(area) * 4.0 / shorter
    height = (log_plus_one(ratio) * 0.25).signed_as(-area)
    is_right = ratio.is_finite()
    real = (half + turns * math.pi).where(is_right, found.x)
    return Pair(real, height.where(is_right, found.y))


def _of_products(a: Wide, b: Wide, c: Wide, d: Wide) -> Wide:
    """A b + c d, rounded about once."""
    (product, lost), (other, more) = exact_product(a, b), exact_product(c, d)
    total, rest = exact_sum(product, other)
    return total + (rest + lost + more)
