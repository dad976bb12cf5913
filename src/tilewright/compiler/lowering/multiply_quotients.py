"""Write quotients that are rounded to short integers without a division.

    cast<u8>(round(x / s) + z)   ->   cast<u8>(round(q + (x - q s) r) + z)   with r = 1 / s, q = x r

A division of vectors takes as long as dozens of products.  With r the rounded reciprocal, the rest of the
first quotient is exact but for what correct rounding does not need, and the second is x / s correctly rounded,
unless all bits of s are ones.  The first is kept below 2**20, beyond which every short integer is saturated:
there the second is no less, infinities stay what they are, and so does NaN.  For unsigned bytes, x itself is
kept between what gives the least and the greatest byte, which NaN cannot leave upwards, and the quotient is
rounded by adding 1.5 * 2**23, whose last bits it then is.  What reads such a byte as a float takes that number off
again: it is never a byte.  Called by the CPU's back end for targets that multiply and add with one rounding.

Source: Markstein, Computation of Elementary Functions on the IBM RISC System/6000 Processor, 1990, theorem 8.
"""

from __future__ import annotations

from typing import Final, final

from tilewright.base import dtypes
from tilewright.base.record import record
from tilewright.compiler.kernel import expressions as e
from tilewright.compiler.kernel import ir
from tilewright.compiler.kernel.numerics import is_plain_number
from tilewright.compiler.kernel.rewrite import fixed_buffers, map_body, with_body

_LARGE: Final = 2.0**20
_ROUNDING: Final = 1.5 * 2.0**23
_BYTE: Final = 255
_SHORT: Final = 16


def multiply_quotients(kernel: ir.Kernel) -> ir.Kernel:
    """The kernel with products instead of divisions where those mean the same."""
    rules = _Rules(fixed_buffers(kernel))
    return with_body(kernel, map_body(kernel.body, expression=rules.rewritten))


@final
@record(eq=False)
class _Rules:
    """The rewrites of one kernel; `fixed` are bindings that hold numbers of the model."""

    fixed: frozenset[ir.Buffer]

    def rewritten(self, value: ir.Expression) -> ir.Expression:
        """A value whose parts are rewritten, as what it becomes."""
        if isinstance(value, ir.Binary):
            return self._less_zero(value)
        if not isinstance(value, ir.Cast):
            return value
        if value.dtype is dtypes.f32:
            return self._as_float(value)
        if not value.dtype.is_integer or value.dtype.bits > _SHORT:
            return value
        return self._short(value)

    def _short(self, value: ir.Cast) -> ir.Expression:
        """`cast<short>(round(x / divisor) + total)`."""
        shifted, total = value.operand, None
        if (
            isinstance(shifted, ir.Binary)
            and shifted.op == "add"
            and (isinstance(shifted.right, ir.Const) or self._is_zero_point(shifted.right))
        ):
            shifted, total = shifted.left, shifted.right
        if not isinstance(shifted, ir.Unary) or shifted.op != "round":
            return value
        found = self._divided(shifted.operand)
        if found is None:
            return value
        if value.dtype is dtypes.u8 and (total is None or self._is_byte(total)):
            return _byte(*found, total or e.const(0, dtypes.f32))
        whole = e.unary("round", _quotient(*found))
        whole = whole if total is None else e.binary("add", whole, total)
        return e.cast(whole, value.dtype)

    def _divided(self, value: ir.Expression) -> tuple[ir.Expression, ir.Expression] | None:
        """The parts of `x / s` for an `s` with a good reciprocal; anything is itself by one."""
        if value.dtype is not dtypes.f32:
            return None
        if not isinstance(value, ir.Binary) or value.op != "div":
            return value, e.const(1.0, dtypes.f32, value.lanes)
        x, divisor = value.left, value.right
        if isinstance(divisor, ir.Const):
            return (x, divisor) if is_plain_number(abs(divisor.value)) else None
        return (x, divisor) if self._is_fixed(divisor) else None

    def _is_fixed(self, value: ir.Expression) -> bool:
        return isinstance(value, ir.Load) and value.buffer in self.fixed

    def _is_zero_point(self, value: ir.Expression) -> bool:
        """Whether a float is a short integer that the model fixes, or a byte that is made of one."""
        if not isinstance(value, ir.Cast) or value.operand.dtype.bits > _SHORT:
            return False
        number = value.operand
        while isinstance(number, ir.Cast) or (
            isinstance(number, ir.Binary) and isinstance(number.right, ir.Const)
        ):
            number = number.operand if isinstance(number, ir.Cast) else number.left
        is_known = isinstance(number, ir.Const) or self._is_fixed(number)
        return value.operand.dtype.is_integer and is_known

    def _is_byte(self, value: ir.Expression) -> bool:
        if isinstance(value, ir.Const):
            return 0 <= value.value <= _BYTE and value.value == int(value.value)
        return self._is_zero_point(value) and _operand(value).dtype is dtypes.u8

    def _as_float(self, value: ir.Cast) -> ir.Expression:
        """`f32(byte)`, where the byte is the last bits of a rounded number: all are exact."""
        byte = value.operand
        if not isinstance(byte, ir.Cast) or byte.dtype is not dtypes.u8:
            return value
        bits, zero = byte.operand, e.const(0, dtypes.f32)
        if isinstance(bits, ir.Binary) and bits.op == "add":
            right = bits.right
            if not isinstance(right, ir.Const) and not self._is_zero_point(right):
                return value
            bits, zero = bits.left, e.cast(_operand(right), dtypes.f32)
        if not isinstance(bits, ir.Bitcast) or not _is_rounded(bits.operand):
            return value
        return e.binary(
            "sub", bits.operand, e.binary("sub", e.const(_ROUNDING, dtypes.f32), zero)
        )

    def _less_zero(self, value: ir.Binary) -> ir.Expression:
        """`f32(byte) - zero` by one difference: sums of a few whole numbers and `_ROUNDING` are exact."""
        inner, zero = value.left, value.right
        if value.op != "sub" or not isinstance(inner, ir.Binary) or inner.op != "sub":
            return value
        if not self._is_byte(zero) and not self._is_zero_point(zero):
            return value
        if not self._is_offset(inner.right) or not _is_rounded(inner.left):
            return value
        return e.binary("sub", inner.left, e.binary("add", inner.right, zero))

    def _is_offset(self, value: ir.Expression) -> bool:
        """Whether a value is what `_as_float` takes off."""
        if isinstance(value, ir.Const):
            return True
        if not isinstance(value, ir.Binary) or value.op != "sub":
            return False
        return isinstance(value.left, ir.Const) and self._is_zero_point(value.right)


def _operand(value: ir.Expression) -> ir.Expression:
    """What a zero point is made of."""
    return value.operand if isinstance(value, ir.Cast) else value


def _byte(x: ir.Expression, divisor: ir.Expression, zero: ir.Expression) -> ir.Expression:
    """`u8(round(x / divisor) + zero)`."""
    first, last = (
        e.binary("mul", e.binary("sub", e.const(end, dtypes.f32), zero), divisor)
        for end in (0, _BYTE)
    )
    # What NaN becomes gives 0.
    is_falling = isinstance(divisor, ir.Const) and divisor.value < 0
    for op, end in zip(
        ("lt", "gt") if is_falling else ("gt", "lt"), (first, last), strict=True
    ):
        x = e.select(e.compare(op, x, end), x, end)
    rounded = e.binary("add", _quotient(x, divisor, is_kept=True), _ROUNDING)
    bits = e.bitcast(rounded, dtypes.i32)
    return e.cast(e.binary("add", bits, e.cast(_operand(zero), dtypes.i32)), dtypes.u8)


def _is_rounded(value: ir.Expression) -> bool:
    """Whether a value was made by `_byte`: kept between two ends, divided, rounded."""
    if (
        not isinstance(value, ir.Binary)
        or value.op != "add"
        or value.dtype is not dtypes.f32
    ):
        return False
    if not isinstance(value.right, ir.Const) or value.right.value != _ROUNDING:
        return False
    quotient = value.left
    if isinstance(quotient, ir.Fma) and isinstance(quotient.c, ir.Binary):
        quotient = quotient.c.left
    return isinstance(quotient, ir.Select)


def _quotient(
    x: ir.Expression, divisor: ir.Expression, *, is_kept: bool = False
) -> ir.Expression:
    """`x / divisor` by products, of which no step leaves the exponents: `is_kept`, as `x` is, or kept small here."""
    if isinstance(divisor, ir.Const) and divisor.value == 1:
        return x
    reciprocal = e.binary("div", 1.0, divisor)
    first = e.binary("mul", x, reciprocal)
    if not is_kept:
        first = e.binary("min", e.binary("max", first, -_LARGE), _LARGE)
    rest = e.fma(e.unary("neg", first), divisor, x)
    return e.fma(rest, reciprocal, first)
