"""Quotients of index arithmetic by sizes that only a call knows, without a division at each of them.

    x // d, x % d   ->   q = x * m >> 64;  r = x - q * d;  one more where r >= d      with m = (2**64 - 1) // d

A division of 64 bits takes up to ninety cycles on processors of some age, and vectors have none.  A size does not change
while indices do, so m is computed once, outside of the loops, and each quotient is two products.  With m at most one
below 2**64 / d, x * m >> 64 is the quotient or one below it for every x from 0 to 2**63 - 1; below zero, x // d is
~(~x // d).  So all of it is exact for every 64-bit number and every d from 1 on.  Called by indices and expressions of
this room.

Source: Granlund and Montgomery, Division by Invariant Integers using Multiplication, 1994, section 4.
"""

from __future__ import annotations

from typing import Final, final

from tilewright.compiler.printers.llvm_text.types import (
    Value,
    number,
    splat_text,
    split_type,
    vector,
)
from tilewright.compiler.printers.llvm_text.writer import FunctionWriter

_HALF: Final = 32
_LOW: Final = (1 << _HALF) - 1


@final
class Divisions:
    """Emits quotients and remainders, rounded toward minus infinity; all integers are i64, alone or in lanes."""

    def __init__(self, writer: FunctionWriter) -> None:
        self.writer: FunctionWriter = writer

    def pays(self, left: Value, right: Value) -> bool:
        """Whether a divisor stays what it is while what is divided changes, or lanes divide by one number."""
        return right.text.startswith("%") and (
            right.level < left.level or left.type != right.type
        )

    def divide(self, op: str, left: Value, right: Value, *, nonnegative: bool) -> Value:
        """`left // right` for the `op` "floordiv", `left % right` for "mod".

        Args:
            op: which of the two.
            left: what is divided; alone or in lanes.
            right: one number of at least 1.
            nonnegative: whether no lane of `left` is below zero.
        """
        factor = self._op("udiv", number(-1), right)
        lanes = split_type(left.type)[1]
        divisor = self._splat(right, lanes)
        sign = None if nonnegative else self._op("ashr", left, self._number(left, 63))
        size = left if sign is None else self._op("xor", left, sign)
        guess = self._high(size, factor)
        rest = self._op("sub", size, self._op("mul", guess, divisor))
        is_over = self._compare("uge", rest, divisor)
        if op == "mod":
            rest = self._select(is_over, self._op("sub", rest, divisor), rest)
            if sign is None:
                return rest
            last = self._op("sub", divisor, self._number(left, 1))
            is_below = self._compare("slt", left, self._number(left, 0))
            return self._select(is_below, self._op("sub", last, rest), rest)
        one_more = self._op("add", guess, self._number(left, 1))
        quotient = self._select(is_over, one_more, guess)
        return quotient if sign is None else self._op("xor", quotient, sign)

    def _high(self, left: Value, factor: Value) -> Value:
        """The upper 64 bits of products of numbers without a sign."""
        lanes = split_type(left.type)[1]
        if lanes == 1:
            wide = (self._converted("zext", value, "i128") for value in (left, factor))
            product = self._op("mul", *wide)
            return self._converted("trunc", self._shifted(product, 64), "i64")
        # Vectors multiply halves.
        low, high = (
            self._splat(part, lanes)
            for part in (self._low(factor), self._shifted(factor, _HALF))
        )
        x, y = self._low(left), self._shifted(left, _HALF)
        first = self._shifted(self._op("mul", x, low), _HALF)
        middle = self._op("add", self._op("mul", y, low), first)
        other = self._op("add", self._op("mul", x, high), self._low(middle))
        sums = [self._shifted(part, _HALF) for part in (middle, other)]
        return self._op("add", self._op("add", self._op("mul", y, high), sums[0]), sums[1])

    def _low(self, value: Value) -> Value:
        return self._op("and", value, self._number(value, _LOW))

    def _shifted(self, value: Value, bits: int) -> Value:
        return self._op("lshr", value, self._number(value, bits))

    def _number(self, like: Value, value: int) -> Value:
        scalar, lanes = split_type(like.type)
        return Value(splat_text(str(value), scalar, lanes), like.type)

    def _op(self, verb: str, left: Value, right: Value) -> Value:
        return self.writer.pure(left.type, f"{verb} {left}, {right.text}", left, right)

    def _compare(self, verb: str, left: Value, right: Value) -> Value:
        flag = vector("i1", split_type(left.type)[1])
        return self.writer.pure(flag, f"icmp {verb} {left}, {right.text}", left, right)

    def _select(self, flag: Value, one: Value, other: Value) -> Value:
        return self.writer.pure(
            one.type, f"select {flag}, {one}, {other}", flag, one, other
        )

    def _converted(self, verb: str, value: Value, scalar: str) -> Value:
        return self.writer.pure(scalar, f"{verb} {value} to {scalar}", value)

    def _splat(self, value: Value, lanes: int) -> Value:
        if lanes == 1:
            return value
        type_ = vector(value.type, lanes)
        pure, mask = self.writer.pure, f"<{lanes} x i32> zeroinitializer"
        single = pure(type_, f"insertelement {type_} poison, {value}, i64 0", value)
        return pure(type_, f"shufflevector {single}, {type_} poison, {mask}", single)
