"""Functions of a kernel, private to its module: primitives, and expressions over arguments.

What needs loops, tables or wide integers and must not slow the usual case down: it is called behind a
branch or lane by lane.  Called by `expressions`, which prints the bodies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from tilewright.compiler.kernel.ir import Expression, Function
from tilewright.compiler.kernel.primitives import HALF_PI, TWO_OVER_PI_WORDS
from tilewright.compiler.printers.llvm_text.arithmetic import Arithmetic
from tilewright.compiler.printers.llvm_text.types import (
    Value,
    number,
    split_type,
    value_type,
    vector,
)
from tilewright.compiler.printers.llvm_text.writer import FunctionWriter

BodyPrinter = Callable[[FunctionWriter, Expression, list[Value]], Value]
"""Prints a function's body, given the writer of its text and its arguments."""

_ATTRIBUTES: Final = 'nounwind noinline "no-builtins"'
_UNLIKELY: Final = '{!"branch_weights", i32 1, i32 100000}'


@final
class Functions:
    """Defines functions on first use and emits their calls."""

    def __init__(self, arithmetic: Arithmetic, print_body: BodyPrinter) -> None:
        self.a: Arithmetic = arithmetic
        self.writer: FunctionWriter = arithmetic.writer
        self.print_body: BodyPrinter = print_body

    # --- calls -----------------------------------------------------------------------------

    def call(self, function: Function, operands: list[Value]) -> Value:
        """The function applied to every lane."""
        _, lanes = split_type(operands[0].type)
        type_ = value_type(function.dtype, lanes)
        text = f"call {type_} @{self._wrapper(function, operands)}"
        return self.a.op(type_, f"{text}({', '.join(map(str, operands))})", *operands)

    def cold(self, condition: Value, usual: Value, exact: Callable[[], Value]) -> Value:
        """`usual`; where the condition holds in some lane, what `exact` emits in those lanes."""
        writer = self.writer
        before = writer.scope.block
        some = self.a.any_lane(condition)
        rare = writer.block("cold")
        writer.push(rare, barrier=True)
        chosen = self.a.select(condition, exact(), usual)
        after = writer.block("warm")
        writer.scope.block.terminator = f"br label %{after.label}"
        weights = f"!prof {writer.metadata(_UNLIKELY)}"
        before.terminator = (
            f"br i1 {some.text}, label %{rare.label}, label %{after.label}, {weights}"
        )
        last = writer.scope.block
        writer.pop(after)
        result = writer.fresh("m")
        after.phis.append(
            f"{result} = phi {usual.type} [ {usual.text}, %{before.label} ], "
            f"[ {chosen.text}, %{last.label} ]"
        )
        return Value(result, usual.type, writer.level)

    def _wrapper(self, function: Function, operands: list[Value]) -> str:
        """A function that applies another lane by lane; the name of the other for scalars."""
        scalar = self._scalar(function)
        _, lanes = split_type(operands[0].type)
        if lanes == 1:
            return scalar
        name = f"{scalar}.v{lanes}"
        declarations = self.writer.declarations
        if name not in declarations:
            types = [operand.type for operand in operands]
            declarations[name] = self._wrapper_text(function, name, scalar, types)
        return name

    def _wrapper_text(
        self, function: Function, name: str, scalar: str, types: list[str]
    ) -> str:
        writer = FunctionWriter()
        a = Arithmetic(writer, self.a.can)
        parameters = [Value(f"%x{i}", type_) for i, type_ in enumerate(types)]
        _, lanes = split_type(types[0])
        unit = value_type(function.dtype)
        result = Value("poison", vector(unit, lanes))
        for lane in range(lanes):
            items = ", ".join(str(a.lane(p, lane)) for p in parameters)
            item = writer.here(unit, f"call {unit} @{scalar}({items})")
            result = a.with_lane(result, lane, item)
        writer.scope.block.terminator = f"ret {result}"
        return _definition(name, result.type, parameters, writer)

    def _scalar(self, function: Function) -> str:
        """The name of the function for scalars, defined by now."""
        declarations = self.writer.declarations
        name = f"tw_{function.name}"
        if function.name == "power":
            name = f"tw_power_{function.dtype.name}"
        if name in declarations:
            return name
        declarations[name] = ""  # the place before what it uses
        if function.body is not None:
            declarations[name] = self._body_text(function, name, function.body)
        elif function.name == "fmod":
            for intrinsic, last in (("umax", "i64"), ("umin", "i64"), ("ctlz", "i1")):
                self.writer.declare("i64", f"llvm.{intrinsic}.i64", "i64", last)
            declarations[name] = _FMOD
        elif function.name == "power":
            negative = "%negative.signed" if function.dtype.is_signed else "false"
            text = _POWER.replace("NAME", name).replace("INT", value_type(function.dtype))
            declarations[name] = text.replace("NEGATIVE", negative)
        else:
            declarations[name] = self._angle_text(function, name)
        return name

    def _body_text(self, function: Function, name: str, body: Expression) -> str:
        writer, parameters = self._inner(function)
        result = self.print_body(writer, body, parameters)
        writer.scope.block.terminator = f"ret {result}"
        return _definition(name, value_type(function.dtype), parameters, writer)

    def _inner(self, function: Function) -> tuple[FunctionWriter, list[Value]]:
        """A writer that declares in the same module, and the parameters."""
        writer = FunctionWriter()
        writer.declarations = self.writer.declarations
        types = map(value_type, function.parameters)
        return writer, [Value(f"%x{i}", type_) for i, type_ in enumerate(types)]

    def _angle_text(self, function: Function, name: str) -> str:
        """One of the results of the reduction of huge angles."""
        words = ", ".join(f"i64 {_signed(word)}" for word in TWO_OVER_PI_WORDS)
        count = len(TWO_OVER_PI_WORDS)
        self.writer.declarations["tw_two_over_pi"] = (
            f"@.tw.two_over_pi = internal constant [{count} x i64] [{words}], align 64"
        )
        writer, parameters = self._inner(function)
        parts = _reduce_exactly(Arithmetic(writer, self.a.can), parameters[0])
        place = ("angle_quadrant", "angle_rest", "angle_error").index(function.name)
        writer.scope.block.terminator = f"ret {parts[place]}"
        return _definition(name, value_type(function.dtype), parameters, writer)


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
