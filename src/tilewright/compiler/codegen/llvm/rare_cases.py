"""Functions for rare cases, private to a module, called behind a branch or lane by lane.

Reduction of huge angles, the exact float remainder, integer powers: what needs loops or tables and
must not slow the usual case down.  Called by `math`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, final

from tilewright.compiler.codegen.llvm.arithmetic import Arithmetic
from tilewright.compiler.codegen.llvm.tables import HALF_PI, TWO_OVER_PI_WORDS
from tilewright.compiler.codegen.llvm.types import Value, mangle, number, split_type
from tilewright.compiler.codegen.llvm.writer import FunctionWriter

# (arithmetic, quadrant, the two parts of the rest) to the sine or cosine
Quarter = Callable[[Arithmetic, Value, Value, Value], Value]

_ATTRIBUTES: Final = 'nounwind noinline "no-builtins"'
_UNLIKELY: Final = "!prof !0"
_METADATA: Final = '!0 = !{!"branch_weights", i32 1, i32 100000}'


@final
@dataclass(frozen=True, slots=True)
class RareCase:
    """A private function on scalars of one type."""

    name: str
    scalar: str


@final
class RareCases:
    """Defines the functions on first use and emits their calls."""

    def __init__(self, arithmetic: Arithmetic) -> None:
        self.a: Arithmetic = arithmetic
        self.writer: FunctionWriter = arithmetic.writer

    # --- calls -----------------------------------------------------------------------------

    def each_lane(self, case: RareCase, *operands: Value) -> Value:
        """The function applied to every lane."""
        type_ = operands[0].type
        text = f"call {type_} @{self._wrapper(case, type_, len(operands))}"
        return self.a.op(type_, f"{text}({', '.join(map(str, operands))})", *operands)

    def cold(
        self, condition: Value, usual: Value, case: RareCase, *operands: Value
    ) -> Value:
        """`usual`; where the condition holds in some lane, its exact results in those lanes."""
        writer = self.writer
        name = self._wrapper(case, usual.type, len(operands))
        before = writer.scope.block
        some = self._any(condition)
        rare = writer.block("cold")
        writer.push(rare, barrier=True)
        arguments = ", ".join(map(str, operands))
        exact = writer.here(usual.type, f"call {usual.type} @{name}({arguments})")
        chosen = self.a.select(condition, exact, usual)
        after = writer.block("warm")
        writer.scope.block.terminator = f"br label %{after.label}"
        self.writer.declarations[_METADATA] = _METADATA
        before.terminator = (
            f"br i1 {some.text}, label %{rare.label}, label %{after.label}, {_UNLIKELY}"
        )
        last = writer.scope.block
        writer.pop(after)
        result = writer.fresh("m")
        after.phis.append(
            f"{result} = phi {usual.type} [ {usual.text}, %{before.label} ], "
            f"[ {chosen.text}, %{last.label} ]"
        )
        return Value(result, usual.type, writer.level)

    def _any(self, mask: Value) -> Value:
        _, lanes = split_type(mask.type)
        if lanes == 1:
            return mask
        bits = self.a.op(f"i{lanes}", f"bitcast {mask} to i{lanes}", mask)
        return self.a.compare("icmp ne", bits, self.a.integer(bits, 0))

    def _wrapper(self, case: RareCase, type_: str, count: int) -> str:
        """A function that applies the case lane by lane, converting where the types differ."""
        scalar, lanes = split_type(type_)
        if scalar == case.scalar and lanes == 1:
            return case.name
        name = f"{case.name}.{mangle(scalar, lanes)}"
        if name not in self.writer.declarations:
            self.writer.declarations[name] = self._wrapper_text(case, name, type_, count)
        return name

    def _wrapper_text(self, case: RareCase, name: str, type_: str, count: int) -> str:
        scalar, lanes = split_type(type_)
        writer = FunctionWriter()
        a = Arithmetic(writer, self.a.can)
        parameters = [Value(f"%x{i}", type_) for i in range(count)]
        result = Value("poison", type_)
        for lane in range(lanes):
            items = [a.lane(p, lane) for p in parameters]
            if scalar != case.scalar:
                items = [a.convert("fpext", item, case.scalar) for item in items]
            call = f"call {case.scalar} @{case.name}({', '.join(map(str, items))})"
            item = writer.here(case.scalar, call)
            if scalar != case.scalar:
                item = a.convert("fptrunc", item, scalar)
            result = item if lanes == 1 else a.with_lane(result, lane, item)
        writer.scope.block.terminator = f"ret {result}"
        return _definition(name, type_, parameters, writer)

    # --- remainder and powers --------------------------------------------------------------

    def float_rest(self) -> RareCase:
        """The exact remainder of f64."""
        if "tw_fmod" not in self.writer.declarations:
            for name, last in (("umax", "i64"), ("umin", "i64"), ("ctlz", "i1")):
                self.writer.declare("i64", f"llvm.{name}.i64", "i64", last)
            self.writer.declarations["tw_fmod"] = _FMOD
        return RareCase("tw_fmod", "double")

    def integer_power(self, scalar: str, *, signed: bool) -> RareCase:
        """`x ** y` of integers."""
        name = f"tw_power_{'s' if signed else 'u'}{scalar[1:]}"
        text = _POWER.replace("NAME", name).replace("INT", scalar)
        text = text.replace("NEGATIVE", "%negative.signed" if signed else "false")
        self.writer.declarations.setdefault(name, text)
        return RareCase(name, scalar)

    # --- huge angles -----------------------------------------------------------------------

    def large_angle(
        self, condition: Value, usual: Value, x: Value, *, turn: int, quarter: Quarter
    ) -> Value:
        """`usual`, with sines (or cosines, turn 1) of huge arguments put right."""
        name = f"tw_circular_{turn}"
        if name not in self.writer.declarations:
            self.writer.declarations[name] = ""  # the place before what it uses
            self.writer.declarations[name] = self._circular_text(name, quarter)
        return self.cold(condition, usual, RareCase(name, "double"), x)

    def _circular_text(self, name: str, quarter: Quarter) -> str:
        words = ", ".join(f"i64 {_signed(word)}" for word in TWO_OVER_PI_WORDS)
        count = len(TWO_OVER_PI_WORDS)
        self.writer.declarations["tw_two_over_pi"] = (
            f"@.tw.two_over_pi = internal constant [{count} x i64] [{words}], align 64"
        )
        writer = FunctionWriter()
        writer.declarations = self.writer.declarations
        a = Arithmetic(writer, self.a.can)
        x = Value("%x0", "double")
        quadrant, r, low = _reduce_exactly(a, x)
        value = quarter(a, quadrant, r, low)
        known = a.compare("fcmp olt", a.absolute(x), a.float(x, float("inf")))
        writer.scope.block.terminator = (
            f"ret {a.select(known, value, a.float(x, float('nan')))}"
        )
        return _definition(name, "double", [x], writer)


def _reduce_exactly(a: Arithmetic, x: Value) -> tuple[Value, Value, Value]:
    """X = n pi/2 + r + low for 2**26 < |x| < infinity: n mod 4, then the parts of the rest.

    The mantissa times 192 bits of 2/pi, taken from where multiples of 4 have gone.
    Source: Payne and Hanek, Radian Reduction for Trigonometric Functions, 1983.
    """
    bits = a.bitcast(x, "i64")
    exponent = a.binary("and", a.shift("lshr", bits, 52), a.integer(bits, 0x7FF))
    exponent = a.intrinsic("umin", exponent, a.integer(bits, 0x7FE))
    fraction = a.binary("and", bits, a.integer(bits, (1 << 52) - 1))
    mantissa = a.binary("or", fraction, a.integer(bits, 1 << 52))
    # x = mantissa * 2**(exponent - 1075); the table begins with 64 zero bits.
    place = a.binary("add", exponent, a.integer(bits, 64 - 2 - 1075))
    place = a.intrinsic("smax", place, a.integer(bits, 0))
    window = _window(a, place)
    wide = [a.convert("zext", word, "i128") for word in window]
    factor = a.convert("zext", mantissa, "i128")
    low = a.binary("mul", factor, wide[2])
    middle = a.binary("mul", factor, wide[1])
    middle = a.binary("add", middle, a.shift("lshr", low, 64))
    top = a.binary("mul", a.shift("shl", factor, 64), wide[0])
    total = a.binary("add", middle, top)
    quadrant = a.convert("trunc", a.shift("lshr", total, 126), "i32")
    third = a.convert("trunc", low, "i64")
    last = a.convert("zext", a.shift("lshr", third, 62), "i128")
    angle = a.binary("or", a.shift("shl", total, 2), last)
    negative = a.compare("icmp slt", angle, a.integer(angle, 0))
    quadrant = a.binary("add", quadrant, a.convert("zext", negative, "i32"))
    size = a.select(negative, a.binary("sub", a.integer(angle, 0), angle), angle)
    r, low_part = _to_radians(a, size)
    below = a.compare("icmp slt", bits, a.integer(bits, 0))
    flip = a.binary("xor", negative, below)
    minus_quadrant = a.binary("sub", a.integer(quadrant, 0), quadrant)
    quadrant = a.select(below, minus_quadrant, quadrant)

    def signed(value: Value) -> Value:
        return a.select(flip, a.op("double", f"fneg {value}", value), value)

    return quadrant, signed(r), signed(low_part)


def _window(a: Arithmetic, place: Value) -> list[Value]:
    """Three words of the table from bit `place` on."""
    word = a.shift("lshr", place, 6)
    shift = a.binary("and", place, a.integer(place, 63))
    rest = a.binary("xor", shift, a.integer(place, 63))
    base = Value("@.tw.two_over_pi", "ptr")
    words: list[Value] = []
    for i in range(4):
        index = a.binary("add", word, number(i))
        index = a.intrinsic("umin", index, number(len(TWO_OVER_PI_WORDS) - 1))
        address = a.op("ptr", f"getelementptr i64, {base}, {index}", index)
        words.append(a.writer.here("i64", f"load i64, {address}, align 8"))
    return [
        a.binary(
            "or",
            a.binary("shl", words[i], shift),
            a.binary("lshr", a.shift("lshr", words[i + 1], 1), rest),
        )
        for i in range(3)
    ]


def _to_radians(a: Arithmetic, size: Value) -> tuple[Value, Value]:
    """`size` / 2**128 quarter turns (below one half) as two f64 in radians."""
    flag = Value("false", "i1")
    a.writer.declare("i128", "llvm.ctlz.i128", "i128", "i1")
    zeros = a.op("i128", f"call i128 @llvm.ctlz.i128({size}, {flag})", size)
    zeros = a.intrinsic("umin", zeros, a.integer(size, 127))
    normal = a.binary("shl", size, zeros)
    top = a.convert("trunc", a.shift("lshr", normal, 64 + 11), "i64")
    rest = a.convert("trunc", a.shift("lshr", a.shift("shl", normal, 53), 75), "i64")
    exponent = a.convert("trunc", zeros, "i64")
    bias = a.binary("sub", a.integer(exponent, 1023 - 53), exponent)
    unit = a.bitcast(a.shift("shl", bias, 52), "double")
    high = a.mul(a.convert("uitofp", top, "double"), unit)
    low = a.mul(a.convert("uitofp", rest, "double"), a.mul(unit, a.float(unit, 2.0**-53)))
    first, second = (a.float(unit, part) for part in HALF_PI)
    r = a.mul(high, first)
    error = a.fma(high, first, a.op("double", f"fneg {r}", r))
    error = a.fma(high, second, a.fma(low, first, error))
    total = a.add(r, error)
    return total, a.sub(error, a.sub(total, r))


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def _definition(
    name: str, type_: str, parameters: list[Value], writer: FunctionWriter
) -> str:
    head = f"define internal {type_} @{name}({', '.join(map(str, parameters))})"
    return "\n".join([f"{head} {_ATTRIBUTES} {{", *writer.text(), "}"])


_FMOD: Final = """\
define internal double @tw_fmod(double %x, double %y) nounwind noinline "no-builtins" {
entry:
  %xb = bitcast double %x to i64
  %yb = bitcast double %y to i64
  %sign = and i64 %xb, -9223372036854775808
  %xm = and i64 %xb, 9223372036854775807
  %ym = and i64 %yb, 9223372036854775807
  %x.bad = icmp uge i64 %xm, 9218868437227405312
  %y.bad = icmp ugt i64 %ym, 9218868437227405312
  %y.zero = icmp eq i64 %ym, 0
  %bad1 = or i1 %x.bad, %y.bad
  %bad = or i1 %bad1, %y.zero
  br i1 %bad, label %invalid, label %valid
invalid:
  %product = fmul double %x, %y
  %nan = fdiv double %product, %product
  ret double %nan
valid:
  %smaller = icmp ult i64 %xm, %ym
  br i1 %smaller, label %same, label %split
same:
  ret double %x
split:
  %xe0 = lshr i64 %xm, 52
  %ye0 = lshr i64 %ym, 52
  %xf = and i64 %xm, 4503599627370495
  %yf = and i64 %ym, 4503599627370495
  %x.normal = icmp ne i64 %xe0, 0
  %y.normal = icmp ne i64 %ye0, 0
  %xh = select i1 %x.normal, i64 4503599627370496, i64 0
  %yh = select i1 %y.normal, i64 4503599627370496, i64 0
  %xs = or i64 %xf, %xh
  %ys = or i64 %yf, %yh
  %xe = call i64 @llvm.umax.i64(i64 %xe0, i64 1)
  %ye = call i64 @llvm.umax.i64(i64 %ye0, i64 1)
  %count = sub i64 %xe, %ye
  %start = urem i64 %xs, %ys
  br label %test
test:
  %left = phi i64 [ %count, %split ], [ %next, %step ]
  %r = phi i64 [ %start, %split ], [ %reduced, %step ]
  %over = icmp eq i64 %left, 0
  br i1 %over, label %done, label %step
step:
  %many = call i64 @llvm.umin.i64(i64 %left, i64 11)
  %next = sub i64 %left, %many
  %grown = shl i64 %r, %many
  %reduced = urem i64 %grown, %ys
  br label %test
done:
  %none = icmp eq i64 %r, 0
  %zero = bitcast i64 %sign to double
  br i1 %none, label %nothing, label %pack
nothing:
  ret double %zero
pack:
  %lz = call i64 @llvm.ctlz.i64(i64 %r, i1 false)
  %want = sub i64 %lz, 11
  %most = sub i64 %ye, 1
  %up = call i64 @llvm.umin.i64(i64 %want, i64 %most)
  %shifted = shl i64 %r, %up
  %exp0 = sub i64 %ye, %up
  %hidden = lshr i64 %shifted, 52
  %exp1 = sub i64 %exp0, 1
  %exp2 = shl i64 %exp1, 52
  %bits = add i64 %exp2, %shifted
  %signed = or i64 %bits, %sign
  %result = bitcast i64 %signed to double
  ret double %result
}"""

_POWER: Final = """\
define internal INT @NAME(INT %x, INT %y) nounwind noinline "no-builtins" {
entry:
  %negative.signed = icmp slt INT %y, 0
  br i1 NEGATIVE, label %fraction, label %loop
fraction:
  %is.one = icmp eq INT %x, 1
  %is.minus = icmp eq INT %x, -1
  %lowest = and INT %y, 1
  %even = icmp eq INT %lowest, 0
  %unit = select i1 %even, INT 1, INT -1
  %if.minus = select i1 %is.minus, INT %unit, INT 0
  %small = select i1 %is.one, INT 1, INT %if.minus
  ret INT %small
loop:
  %base = phi INT [ %x, %entry ], [ %squared, %step ]
  %left = phi INT [ %y, %entry ], [ %halved, %step ]
  %total = phi INT [ 1, %entry ], [ %multiplied, %step ]
  %over = icmp eq INT %left, 0
  br i1 %over, label %done, label %step
step:
  %bit = and INT %left, 1
  %take = icmp ne INT %bit, 0
  %product = mul INT %total, %base
  %multiplied = select i1 %take, INT %product, INT %total
  %squared = mul INT %base, %base
  %halved = lshr INT %left, 1
  br label %loop
done:
  ret INT %total
}"""
