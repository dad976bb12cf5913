"""What several functions are made of: polynomials, powers of two, sums and products with their errors.

`t` is the table of the operand's type throughout.  Called by the other files of this room.
"""

from __future__ import annotations

import struct
from typing import Final, final

from tilewright.base.record import record
from tilewright.base.target import Target
from tilewright.compiler.kernel import expressions
from tilewright.compiler.kernel.ir import Binary, Expression
from tilewright.compiler.lowering.math.tables import LOG2_E, TABLES, Coefficients, Table

E = expressions.Expressions

_SCALED_BITS: Final = 512


@final
@record
class Means:
    """What the target does in one instruction.

    Attributes:
        fma: multiply and add with one rounding.
        scaled_bits: the width of vectors that it multiplies by powers of two; 0 for none.
        scales: whether there is such a width on this target: whoever has no instruction for it computes the same bits.
    """

    fma: bool
    scaled_bits: int
    scales: bool = False

    @staticmethod
    def of(target: Target) -> Means:
        """Those of a target."""
        scales = target.arch == "x86_64" and target.has("avx512f")
        return Means(target.has_fma, _SCALED_BITS if scales else 0, scales)

    def without_scaling(self) -> Means:
        """Those of a printer that has no such instruction."""
        return Means(self.fma, 0, self.scales)


def table_of(x: Expression) -> Table:
    """The numbers for the type of `x`."""
    return TABLES[x.dtype]


def polynomial(x: Expression, coefficients: Coefficients) -> Expression:
    """Horner's rule; lowest power first."""
    total: Expression = E.const(coefficients[-1], x.dtype, x.lanes)
    for coefficient in reversed(coefficients[:-1]):
        total = E.fma(total, x, E.const(coefficient, x.dtype, x.lanes))
    return total


def bits_of(x: Expression) -> Expression:
    """The bits of a float as a signed integer."""
    return E.bitcast(x, table_of(x).integer)


def copy_sign(magnitude: Expression, sign: Expression) -> Expression:
    """The magnitude of one with the sign of the other."""
    return E.binary("copysign", magnitude, sign)


def bit_pattern(value: float, t: Table) -> int:
    """The bits of a number as a signed integer."""
    code, kind = ("<f", "<i") if t.bits == 32 else ("<d", "<q")
    return int(struct.unpack(kind, struct.pack(code, value))[0])


def exponent_bias(t: Table) -> int:
    """What the exponent of 1 is in the bits of a float."""
    return (1 << (t.bits - t.mantissa - 2)) - 1


def bounded(x: Expression, low: float, high: float) -> Expression:
    """`x`, or the end of the range that it is beyond; NaN stays."""
    return E.max(E.min(x, high), low)


def split_exponent(
    x: Expression, lift: int = 0, *, sign: int = 1
) -> tuple[Expression, Expression, Expression]:
    """`sign x = n ln2 + r`: n as a float, its sum with `lift` and the magic number, sign r.

    With the bias of exponents in `lift`, the low bits of the sum are the exponent of 2**(n + lift - bias).
    """
    t = table_of(x)
    magic = t.magic + lift
    shifted = E.fma(x, sign * LOG2_E, E.const(magic, x.dtype, x.lanes))
    n = E.sub(shifted, magic)
    r = E.fma(n, -sign * t.ln2[0], x)
    return n, shifted, E.fma(n, -sign * t.ln2[1], r)


def power_of_two(shifted: Expression) -> Expression:
    """2**n from a sum with the magic number and the bias, for n of normal numbers.

    The shift leaves nothing of the magic number.
    """
    t = table_of(shifted)
    return E.bitcast(E.shl(bits_of(shifted), t.mantissa), t.dtype)


def scaled(y: Expression, n: Expression, shifted: Expression, means: Means) -> Expression:
    """`y * 2**n` with one rounding, for n of any finite result; `shifted` has the bias twice, for two factors."""
    t = table_of(y)
    if y.lanes * t.bits == means.scaled_bits:
        return Binary("scale", y, n, y.dtype, y.lanes)
    whole = bits_of(shifted)
    half = E.shr(whole, 1)
    for part in (half, E.sub(whole, half)):
        y = E.mul(y, E.bitcast(E.shl(part, t.mantissa), t.dtype))
    return y


def sum_with_error(x: Expression, y: Expression) -> tuple[Expression, Expression]:
    """`x + y` and its rounding error.  Source: Knuth, The Art of Computer Programming 2, 4.2.2."""
    total = E.add(x, y)
    part = E.sub(total, x)
    return total, E.add(E.sub(x, E.sub(total, part)), E.sub(y, part))


def product_with_error(
    x: Expression, y: Expression, means: Means
) -> tuple[Expression, Expression]:
    """`x * y` of f64 and its rounding error."""
    product = E.mul(x, y)
    if means.fma:
        return product, E.fma(x, y, E.neg(product))
    x_high, x_low = _halves(x)
    y_high, y_low = _halves(y)
    error = E.sub(E.mul(x_high, y_high), product)
    error = E.add(E.add(error, E.mul(x_high, y_low)), E.mul(x_low, y_high))
    return product, E.add(error, E.mul(x_low, y_low))


def _halves(x: Expression) -> tuple[Expression, Expression]:
    """`x` of f64 as the sum of two numbers of at most 26 bits."""
    wide = E.mul(x, 2.0**27 + 1)
    high = E.sub(wide, E.sub(wide, x))
    return high, E.sub(x, high)
