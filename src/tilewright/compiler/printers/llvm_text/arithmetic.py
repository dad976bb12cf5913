"""Typed arithmetic on operands: the words in which expressions, conversions and math are written.

Thin wrappers that choose the LLVM instruction for a scalar type and any number of lanes, and own
the semantics of the kernel IR that LLVM does not share: NaN-propagating `min`/`max`, division
that never traps.  Called by expressions, conversions and math of this room.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from tilewright.base.record import record
from tilewright.base.target import Target
from tilewright.compiler.printers.llvm_text.types import (
    Value,
    float_text,
    iota,
    mangle,
    splat_text,
    split_type,
    vector,
)
from tilewright.compiler.printers.llvm_text.writer import FunctionWriter

_SHUFFLE_BITS: Final = 128


@final
@record(kw_only=True)
class Abilities:
    """What the target does in one instruction and LLVM would otherwise call a library for.

    Attributes:
        fma: multiply and add with one rounding.
        rounding: floats to whole floats.
        f16c: conversion of f16.
        masks: loads and stores of some lanes.
        slow_masks: such stores are there, but take longer than to store what a vector had in the other lanes.
        saturation: conversions of floats to integers that saturate.
    """

    fma: bool
    rounding: bool
    f16c: bool
    masks: bool
    slow_masks: bool
    saturation: bool

    @staticmethod
    def of(target: Target) -> Abilities:
        """Those of a target."""
        x86 = target.arch == "x86_64"
        masks = x86 and target.has("avx512vl") and target.has("avx512bw")
        half = {"x86_64": "f16c", "aarch64": "neon", "riscv64": "zfhmin"}[target.arch]
        return Abilities(
            fma=target.has_fma,
            rounding=not x86 or target.has("sse4.1"),
            f16c=target.has(half),
            masks=masks,
            slow_masks=x86 and target.has("avx") and not masks,
            saturation=not x86,
        )


@final
class Arithmetic:
    """Emits pure instructions through a `FunctionWriter`.

    Args:
        writer: where the instructions go.
        abilities: what the target does in one instruction.
    """

    def __init__(self, writer: FunctionWriter, abilities: Abilities) -> None:
        self.writer: FunctionWriter = writer
        self.can: Abilities = abilities

    # --- constants and shapes of values ----------------------------------------------------

    def float(self, like: Value, value: float) -> Value:
        """A constant of the type of `like`."""
        scalar, lanes = split_type(like.type)
        return Value(splat_text(float_text(value, scalar), scalar, lanes), like.type)

    def integer(self, like: Value, value: int) -> Value:
        """An integer constant of the type of `like`."""
        scalar, lanes = split_type(like.type)
        bits = int(scalar[1:])
        wrapped = value & ((1 << bits) - 1)
        signed = wrapped - (1 << bits) if wrapped >> (bits - 1) else wrapped
        text = {0: "false", 1: "true"}[wrapped] if bits == 1 else str(signed)
        return Value(splat_text(text, scalar, lanes), like.type)

    def splat(self, value: Value, lanes: int) -> Value:
        """A scalar in every lane."""
        if lanes == 1:
            return value
        type_ = vector(value.type, lanes)
        if not value.text.startswith("%"):
            return Value(splat_text(value.text, value.type, lanes), type_)
        if value.type == "i1" and self.can.slow_masks:
            # As wide as what it is joined with: LLVM would make narrow vectors of all, and widen these again.
            number = self.convert("sext", value, "i32")
            return self.compare(
                "icmp slt",
                self.splat(number, lanes),
                Value("zeroinitializer", vector("i32", lanes)),
            )
        pure = self.writer.pure
        single = pure(type_, f"insertelement {type_} poison, {value}, i64 0", value)
        mask = f"<{lanes} x i32> zeroinitializer"
        return pure(
            type_,
            f"shufflevector {single}, {type_} poison, {mask}",
            single,
            speculate=False,
        )

    def lane(self, value: Value, index: int) -> Value:
        """One lane of a vector."""
        scalar, lanes = split_type(value.type)
        if lanes == 1:
            return value
        return self.op(scalar, f"extractelement {value}, i64 {index}", value)

    def with_lane(self, value: Value, index: int, item: Value) -> Value:
        """The vector with one lane replaced."""
        return self.op(
            value.type, f"insertelement {value}, {item}, i64 {index}", value, item
        )

    def shuffle(self, left: Value, right: Value | None, order: list[int]) -> Value:
        """Lanes of `left` (then `right`) in a new order."""
        if len(order) == 1 and right is None:
            return self.lane(left, order[0])
        scalar, _ = split_type(left.type)
        items = ", ".join(f"i32 {i}" for i in order)
        other = f"{left.type} poison" if right is None else str(right)
        type_ = vector(scalar, len(order))
        operands = (left,) if right is None else (left, right)
        mask = f"<{len(order)} x i32> <{items}>"
        return self.op(type_, f"shufflevector {left}, {other}, {mask}", *operands)

    def column(self, rows: Sequence[Value], column: int, bits: int) -> Value:
        """Element `column` of every row, of `bits` each: one output of a transposition network.

        Equal instructions are one, so that all columns together take log2(lanes) shuffles each.
        """
        _, lanes = split_type(rows[0].type)
        part = min(lanes, max(1, _SHUFFLE_BITS // bits))
        whole = range(0, lanes, part)
        # Within 128 bits halves are interleaved, which is one instruction for all such parts ...
        low = [b + i // 2 + (i & 1) * lanes for b in whole for i in range(part)]
        high = [i + part // 2 for i in low]

        def interleaved(group: int, size: int, place: int) -> Value:
            if size == 1:
                return rows[group * part + place]
            first = interleaved(group, size // 2, place // 2)
            second = interleaved(group, size // 2, place // 2 + part // 2)
            return self.shuffle(first, second, high if place & 1 else low)

        def joined(group: int, size: int) -> Value:
            """... and then such parts are collected: even ones or odd ones of two vectors."""
            if size == 1:
                return interleaved(group, part, column % part)
            first = joined(2 * group, size // 2)
            second = joined(2 * group + 1, size // 2)
            odd = column // part // (size // 2) & 1
            blocks = range(odd * part, 2 * lanes, 2 * part)
            return self.shuffle(first, second, [b + i for b in blocks for i in range(part)])

        return joined(0, lanes // part)

    def op(self, type_: str, text: str, *operands: Value) -> Value:
        """A pure instruction that stays inside its conditional."""
        return self.writer.pure(type_, text, *operands, speculate=False)

    # --- generic ---------------------------------------------------------------------------

    def binary(self, verb: str, left: Value, right: Value) -> Value:
        """`verb left, right` with the type of `left`."""
        return self.op(
            left.type, f"{verb} {left.type} {left.text}, {right.text}", left, right
        )

    def compare(self, verb: str, left: Value, right: Value) -> Value:
        """`icmp …` or `fcmp …`: an i1 per lane."""
        _, lanes = split_type(left.type)
        text = f"{verb} {left.type} {left.text}, {right.text}"
        return self.op(vector("i1", lanes), text, left, right)

    def select(self, condition: Value, if_true: Value, if_false: Value) -> Value:
        """Lane-wise choice."""
        text = f"select {condition}, {if_true}, {if_false}"
        return self.op(if_true.type, text, condition, if_true, if_false)

    def convert(self, verb: str, value: Value, scalar: str) -> Value:
        """`verb value to scalar` for every lane."""
        _, lanes = split_type(value.type)
        type_ = vector(scalar, lanes)
        return self.op(type_, f"{verb} {value} to {type_}", value)

    def bitcast(self, value: Value, scalar: str) -> Value:
        """The same bits as lanes of another type of the same width."""
        return self.convert("bitcast", value, scalar)

    def reinterpret(self, value: Value, type_: str) -> Value:
        """The same bits as a type of the same size, whatever the lanes."""
        return self.op(type_, f"bitcast {value} to {type_}", value)

    def intrinsic(self, name: str, *operands: Value) -> Value:
        """`llvm.name` overloaded on the type of the first operand."""
        type_ = operands[0].type
        function = f"llvm.{name}.{mangle(*split_type(type_))}"
        self.writer.declare(type_, function, *(o.type for o in operands))
        arguments = ", ".join(map(str, operands))
        return self.op(type_, f"call {type_} @{function}({arguments})", *operands)

    # --- floats ----------------------------------------------------------------------------

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """`a * b + c`, with one rounding where the target can."""
        if self.can.fma:
            return self.intrinsic("fma", a, b, c)
        return self.binary("fadd", self.binary("fmul", a, b), c)

    def mul(self, a: Value, b: Value) -> Value:
        """Product of floats."""
        return self.binary("fmul", a, b)

    def add(self, a: Value, b: Value) -> Value:
        """Sum of floats."""
        return self.binary("fadd", a, b)

    def sub(self, a: Value, b: Value) -> Value:
        """Difference of floats."""
        return self.binary("fsub", a, b)

    def absolute(self, value: Value) -> Value:
        """Magnitude of a float."""
        return self.intrinsic("fabs", value)

    def rounded(self, op: str, x: Value) -> Value:
        """`floor`, `ceil`, `trunc` or `roundeven`: a whole float."""
        if self.can.rounding:
            return self.intrinsic(op, x)
        size = self.absolute(x)
        if op == "trunc":
            return self.intrinsic("copysign", self.rounded("floor", size), x)
        # Sums beyond this number are whole.
        unit = self.float(x, 2.0**23 if split_type(x.type)[0] == "float" else 2.0**52)
        whole = self.intrinsic("copysign", self.sub(self.add(size, unit), unit), x)
        one, zero = self.float(x, 1.0), self.float(x, 0.0)
        if op == "floor":
            above = self.compare("fcmp ogt", whole, x)
            whole = self.sub(whole, self.select(above, one, zero))
        elif op == "ceil":
            below = self.compare("fcmp olt", whole, x)
            whole = self.add(whole, self.select(below, one, zero))
        whole = self.intrinsic("copysign", whole, x)
        return self.select(self.compare("fcmp olt", size, unit), whole, x)

    def scaled(self, y: Value, n: Value) -> Value:
        """`y * 2**n` of 512 bits: an instruction of AVX-512."""
        scalar, lanes = split_type(y.type)
        kind = "ps" if scalar == "float" else "pd"
        name = f"llvm.x86.avx512.mask.scalef.{kind}.512"
        mask = f"i{lanes}"
        self.writer.declare(y.type, name, y.type, y.type, y.type, mask, "i32")
        text = (
            f"call {y.type} @{name}({y}, {n}, {y.type} zeroinitializer, {mask} -1, i32 4)"
        )
        return self.op(y.type, text, y, n)

    def is_nan(self, value: Value) -> Value:
        """Whether a float is not a number."""
        return self.compare("fcmp uno", value, value)

    def extreme(self, op: str, left: Value, right: Value) -> Value:
        """`min` or `max` of floats; NaN if one is NaN.

        One instruction when an operand is a constant: x86's takes the second one if unordered.
        Otherwise `right` is looked at for NaN: what has been combined so far stands on the left,
        and the next step waits for two instructions on it, not three.
        """
        if left.text.startswith("%"):
            left, right = right, left
        chosen = self.ordered_extreme(op, left, right)
        if not left.text.startswith("%"):
            return chosen
        return self.select(self.is_nan(left), left, chosen)

    def ordered_extreme(self, op: str, left: Value, right: Value) -> Value:
        """`min` or `max` of floats; `right` if one is NaN, as x86's instruction has it."""
        verb = "fcmp ogt" if op == "max" else "fcmp olt"
        return self.select(self.compare(verb, left, right), left, right)

    def any_lane(self, mask: Value) -> Value:
        """Whether a lane of a mask is set."""
        _, lanes = split_type(mask.type)
        if lanes == 1:
            return mask
        bits = self.op(f"i{lanes}", f"bitcast {mask} to i{lanes}", mask)
        return self.compare("icmp ne", bits, self.integer(bits, 0))

    # --- integers --------------------------------------------------------------------------

    def shift(self, verb: str, value: Value, amount: int) -> Value:
        """`shl`, `lshr` or `ashr` by a constant."""
        return self.binary(verb, value, self.integer(value, amount))

    def divide(self, left: Value, right: Value, *, signed: bool, rest: bool) -> Value:
        """Quotient or remainder, truncated; by zero gives 0, the most negative by -1 wraps."""
        verb = ("s" if signed else "u") + ("rem" if rest else "div")
        zero, one = self.integer(left, 0), self.integer(left, 1)
        known = not right.text.startswith("%")
        if known and right.text not in ("0", "zeroinitializer", "-1", "splat (i64 -1)"):
            return self.binary(verb, left, right)
        bad = self.compare("icmp eq", right, zero)
        if not signed:
            result = self.binary(verb, left, self.select(bad, one, right))
            return self.select(bad, zero, result)
        minus = self.compare("icmp eq", right, self.integer(left, -1))
        safe = self.select(self.binary("or", bad, minus), one, right)
        result = self.binary(verb, left, safe)
        negated = zero if rest else self.binary("sub", zero, left)
        return self.select(bad, zero, self.select(minus, negated, result))

    def floor_rest(self, left: Value, right: Value, *, signed: bool) -> Value:
        """The remainder with the sign of the divisor."""
        rest = self.divide(left, right, signed=signed, rest=True)
        if not signed:
            return rest
        zero = self.integer(left, 0)
        differs = self.compare("icmp slt", self.binary("xor", rest, right), zero)
        nonzero = self.compare("icmp ne", rest, zero)
        fix = self.binary("and", differs, nonzero)
        return self.select(fix, self.binary("add", rest, right), rest)

    def iota(self, lanes: int, stride: int, scalar: str) -> Value:
        """The vector `0, stride, 2 * stride, …`."""
        return iota(lanes, stride, scalar)

    # --- across lanes ----------------------------------------------------------------------

    def halves(self, value: Value) -> tuple[Value, Value, int]:
        """Lower half, upper half, and how many lanes remain after them (odd counts)."""
        _, lanes = split_type(value.type)
        half = lanes // 2
        low = self.shuffle(value, None, list(range(half)))
        high = self.shuffle(value, None, list(range(half, 2 * half)))
        if half == 1:
            low, high = self.lane(value, 0), self.lane(value, 1)
        return low, high, lanes - 2 * half


__all__ = ["Arithmetic"]
