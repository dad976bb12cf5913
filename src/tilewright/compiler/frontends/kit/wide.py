"""Formulas on tensors of f64, written as arithmetic: `x * x + 1.0`.

A formula is computed in f64 and rounded once by who asks for it.  Not an array library: each
operator appends a node through the maker.  Called by the families of functions.
"""

from __future__ import annotations

from typing import Final, final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.record import record
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.tensor import Tensor

# A number times this, less itself, keeps the upper 26 of its 53 bits.
_HALF_OF_THE_BITS: Final = 134217729.0


@final
@record(eq=False)
class Wide:
    """A tensor of f64 under arithmetic."""

    maker: NodeMaker
    tensor: Tensor

    @staticmethod
    def of(maker: NodeMaker, x: Tensor) -> Wide:
        """Any floats, widened."""
        return Wide(maker, maker.cast(x, dtypes.f64))

    def rounded(self, dtype: DType) -> Tensor:
        """The value in the type of a result."""
        return self.maker.cast(self.tensor, dtype)

    def number(self, value: float) -> Wide:
        """A number beside this one."""
        return Wide(self.maker, self.maker.scalar(value, dtypes.f64))

    def apply(self, op: str) -> Wide:
        """An op of one operand."""
        return Wide(self.maker, self.maker.op(op, self.tensor))

    def _with(self, op: str, other: Wide | float, *, first: bool = True) -> Wide:
        right = other if isinstance(other, Wide) else self.number(other)
        pair = (self.tensor, right.tensor) if first else (right.tensor, self.tensor)
        return Wide(self.maker, self.maker.op(op, *pair))

    def __add__(self, other: Wide | float) -> Wide:
        return self._with("add", other)

    def __radd__(self, other: float) -> Wide:
        return self._with("add", other, first=False)

    def __sub__(self, other: Wide | float) -> Wide:
        return self._with("sub", other)

    def __rsub__(self, other: float) -> Wide:
        return self._with("sub", other, first=False)

    def __mul__(self, other: Wide | float) -> Wide:
        return self._with("mul", other)

    def __rmul__(self, other: float) -> Wide:
        return self._with("mul", other, first=False)

    def __truediv__(self, other: Wide | float) -> Wide:
        return self._with("div", other)

    def __rtruediv__(self, other: float) -> Wide:
        return self._with("div", other, first=False)

    def __neg__(self) -> Wide:
        return self.apply("neg")

    def __abs__(self) -> Wide:
        return self.apply("abs")

    def power(self, exponent: Wide | float) -> Wide:
        """X to the power of another number."""
        return self._with("pow", exponent)

    def larger(self, other: Wide | float) -> Wide:
        """The larger of two."""
        return self._with("max", other)

    def smaller(self, other: Wide | float) -> Wide:
        """The smaller of two."""
        return self._with("min", other)

    def remainder(self, divisor: float) -> Wide:
        """What a division leaves, with the sign of x."""
        maker = self.maker
        over = maker.scalar(divisor, dtypes.f64)
        return Wide(maker, maker.op("mod", self.tensor, over, fmod=True))

    # --- conditions

    def _compared(self, op: str, other: Wide | float) -> Tensor:
        return self._with(op, other).tensor

    def equal(self, other: Wide | float) -> Tensor:
        """Where two are equal."""
        return self._compared("equal", other)

    def less(self, other: Wide | float) -> Tensor:
        """Where x is less."""
        return self._compared("less", other)

    def at_most(self, other: Wide | float) -> Tensor:
        """Where x is less or equal."""
        return self._compared("less_equal", other)

    def is_inf(self) -> Tensor:
        """Where x is an infinity."""
        return self.maker.op("is_inf", self.tensor)

    def is_nan(self) -> Tensor:
        """Where x is no number."""
        return self.maker.op("is_nan", self.tensor)

    def is_finite(self) -> Tensor:
        """Where x is a number that is no infinity."""
        either = self.maker.op("logical_or", self.is_inf(), self.is_nan())
        return self.maker.op("logical_not", either)

    def is_whole(self) -> Tensor:
        """Where x is an integer."""
        return self.equal(self.apply("floor"))

    def is_negative(self) -> Tensor:
        """Where x has a sign, also minus zero, one over which is less than zero."""
        below = self.apply("reciprocal").less(0.0)
        return self.maker.op("logical_or", self.less(0.0), below)

    def where(self, condition: Tensor, other: Wide | float) -> Wide:
        """X where a condition holds, else the other number."""
        right = other if isinstance(other, Wide) else self.number(other)
        chosen = self.maker.op("where", condition, self.tensor, right.tensor)
        return Wide(self.maker, chosen)

    def signed_as(self, other: Wide) -> Wide:
        """The magnitude of x with the sign of another number."""
        size = abs(self)
        return (-size).where(other.is_negative(), size)


def polynomial(x: Wide, coefficients: tuple[float, ...]) -> Wide:
    """The value of a polynomial, its highest coefficient first (Horner)."""
    first, *rest = coefficients
    found = x.number(first)
    for coefficient in rest:
        found = found * x + coefficient
    return found


def exact_sum(x: Wide, y: Wide) -> tuple[Wide, Wide]:
    """A rounded sum and what its rounding took (Knuth)."""
    total = x + y
    of_y = total - x
    return total, (x - (total - of_y)) + (y - of_y)


def exact_product(x: Wide, y: Wide) -> tuple[Wide, Wide]:
    """A rounded product and what its rounding took, of halves whose products are exact (Dekker)."""
    product = x * y
    (high_x, low_x), (high_y, low_y) = _halves(x), _halves(y)
    rest = high_x * high_y - product + high_x * low_y + low_x * high_y
    return product, rest + low_x * low_y


def _halves(x: Wide) -> tuple[Wide, Wide]:
    scaled = x * _HALF_OF_THE_BITS
    high = scaled - (scaled - x)
    return high, x - high


def log_plus_one(x: Wide) -> Wide:
    """log(1 + x) without the loss of digits near zero (Kahan's correction of the rounded sum)."""
    total = x + 1.0
    log = total.apply("log")
    found = log.where(total.is_inf(), log * (x / (total - 1.0)))
    return x.where(total.equal(1.0), found)


def exp_minus_one(x: Wide) -> Wide:
    """e^x - 1 without the loss of digits near zero (Kahan's correction of the rounded power)."""
    power = x.apply("exp")
    less = power - 1.0
    found = less.where(less.equal(-1.0), less * (x / power.apply("log")))
    found = power.where(power.is_inf(), found)
    return x.where(power.equal(1.0), found)


def angle(y: Wide, x: Wide) -> Wide:
    """The angle of the point (x, y): from the quotient, in the quadrant that the signs say."""
    e = x.maker
    both = e.op("logical_and", x.is_inf(), y.is_inf())
    quotient = x.number(1.0).where(both, abs(y) / abs(x))
    nothing = e.op("logical_and", y.equal(0.0), e.op("logical_not", x.is_nan()))
    quotient = x.number(0.0).where(nothing, quotient)
    found = quotient.apply("atan")
    found = (np.pi - found).where(x.is_negative(), found)
    return (-found).where(y.is_negative(), found)
