"""Complex numbers of f64 under arithmetic, and those functions of them that more than one front end has.

Rounded once by who asks for a result.  Called by the rows of front ends.

Source: Smith, "Algorithm 116: Complex division", 1962; C11, annex G, for infinities.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, final

from tilewright.base.dtypes import DType
from tilewright.compiler.frontends.kit.complex_parts import Complex
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.kit.wide import Wide

LARGEST_EXPONENT: Final = 709.0
"""The power of e of a larger number is none of f64."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """The two parts of a complex number in f64."""

    x: Wide
    y: Wide

    @staticmethod
    def of(e: NodeMaker, held: Complex) -> Pair:
        """A complex tensor, widened."""
        return Pair(Wide.of(e, held.real), Wide.of(e, held.imaginary))

    def rounded(self, dtype: DType) -> Complex:
        """The parts in the type of a result."""
        return Complex(self.x.rounded(dtype), self.y.rounded(dtype))

    def size(self) -> Wide:
        """The magnitude; the longer side is taken out of the root, so that no square overflows."""
        a, b = abs(self.x), abs(self.y)
        long, short = a.larger(b), a.smaller(b)
        ratio = short / long
        found = long * (ratio * ratio + 1.0).apply("sqrt")
        found = long.where(long.equal(0.0), found)
        either = long.maker.op("logical_or", a.is_inf(), b.is_inf())
        return long.number(math.inf).where(either, found)

    def square(self) -> Wide:
        """The square of the magnitude, where it is a number of f64."""
        return self.x * self.x + self.y * self.y

    def scaled(self, factor: Wide) -> Pair:
        """Both parts times a real number."""
        return Pair(self.x * factor, self.y * factor)

    def turned(self) -> Pair:
        """Times the imaginary unit."""
        return Pair(-self.y, self.x)

    def turned_back(self) -> Pair:
        """Times minus the imaginary unit."""
        return Pair(self.y, -self.x)

    def is_zero(self) -> Tensor:
        """Where both parts are zeros."""
        return self.x.maker.op("logical_and", self.x.equal(0.0), self.y.equal(0.0))

    def where(self, condition: Tensor, other: Pair) -> Pair:
        """This number where a condition holds, else the other one."""
        return Pair(self.x.where(condition, other.x), self.y.where(condition, other.y))


def quotient(z: Pair, w: Pair) -> Pair:
    """Smith's quotient: the longer side of the divisor is taken out first, so that no square is too large or too small.

    No number over zero, nor over a divisor whose parts are both infinite: front ends differ there.
    """
    flat = abs(w.y).at_most(abs(w.x))
    long, short = w.x.where(flat, w.y), w.y.where(flat, w.x)
    ratio = short / long
    below = long + short * ratio
    one = Pair(z.x + z.y * ratio, z.y - z.x * ratio)
    other = Pair(z.x * ratio + z.y, z.y * ratio - z.x)
    found = one.where(flat, other)
    return Pair(found.x / below, found.y / below)


def exponential(z: Pair) -> Pair:
    """e^z."""
    half = (z.x * 0.5).apply("exp")
    is_large = z.x.number(LARGEST_EXPONENT).less(z.x)
    cosine, sine = z.y.apply("cos"), z.y.apply("sin")
    whole = z.x.apply("exp")
    real = ((half * cosine) * half).where(is_large, whole * cosine)
    imaginary = ((half * sine) * half).where(is_large, whole * sine)
    found = Pair(unless_zero(z.y, real, whole), unless_zero(z.y, imaginary, z.y))
    # Of an infinity that turns without end, the magnitude is known: zero, or infinite.
    e = z.x.maker
    endless = e.op("logical_and", z.x.is_inf(), e.op("logical_not", z.y.is_finite()))
    nowhere = z.x.number(0.0).where(z.x.less(0.0), math.nan)
    return Pair(whole, nowhere).where(endless, found)


def unless_zero(test: Wide, found: Wide, otherwise: Wide) -> Wide:
    """A product with an infinity is none where its other factor comes from a zero."""
    return otherwise.where(test.equal(0.0), found)
