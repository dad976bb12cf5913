"""Mathematical functions as polynomials, inline, for any number of lanes; no library is called.

Accuracy (tests measure it): exp 1 ulp, log 2, tanh, erf, sigmoid 4, sin and cos 2 at any size of the
argument, pow 2; NaN, infinities, zeros of both signs and denormals as in IEEE 754.  Rare arguments
(huge angles, large `fmod` quotients) go to functions of `rare_cases`, behind a branch.  Called by
expressions.
"""

from __future__ import annotations

import math
import struct
from typing import Final, final

from tilewright.base.errors import InternalError
from tilewright.compiler.codegen.llvm.arithmetic import Arithmetic
from tilewright.compiler.codegen.llvm.rare_cases import RareCases
from tilewright.compiler.codegen.llvm.tables import (
    F64,
    HALF_PI_PARTS,
    LARGE_ANGLE,
    LN2_PARTS,
    LOG2_E,
    TABLES,
    TWO_OVER_PI,
    TWO_THIRDS,
    Coefficients,
    Table,
)
from tilewright.compiler.codegen.llvm.types import Value, split_type, vector

MAX_SMALL_POWER: Final = 4
"""Constant integer exponents up to this become products."""


@final
class Math:
    """Emits mathematical functions of f32 and f64 operands.

    Args:
        arithmetic: where the instructions go.
    """

    def __init__(self, arithmetic: Arithmetic) -> None:
        self.a: Arithmetic = arithmetic
        self.rare: RareCases = RareCases(arithmetic)

    def unary(self, op: str, x: Value) -> Value:
        """`op(x)`."""
        functions = {
            "exp": self.exp, "log": self.log, "tanh": self.tanh, "sigmoid": self.sigmoid,
            "erf": self.erf, "sin": self.sin, "cos": self.cos, "rsqrt": self.rsqrt,
        }  # fmt: skip
        function = functions.get(op)
        if function is None:
            raise InternalError(f"no machine code for '{op}' on {x.type}")
        return function(x)

    def binary(self, op: str, x: Value, y: Value) -> Value:
        """`op(x, y)`."""
        functions = {"pow": self.power, "mod": self.rest, "floormod": self.floor_rest}
        function = functions.get(op)
        if function is None:
            raise InternalError(f"no machine code for '{op}' on {x.type}")
        return function(x, y)

    def _table(self, x: Value) -> Table:
        return TABLES[split_type(x.type)[0]]

    # --- pieces ----------------------------------------------------------------------------

    def polynomial(self, x: Value, coefficients: Coefficients) -> Value:
        """Horner's rule; lowest power first."""
        total = self.a.float(x, coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            total = self.a.fma(total, x, self.a.float(x, coefficient))
        return total

    def _bits(self, x: Value) -> Value:
        return self.a.bitcast(x, f"i{self._table(x).bits}")

    def _float(self, bits: Value) -> Value:
        return self.a.bitcast(
            bits, "float" if split_type(bits.type)[0] == "i32" else "double"
        )

    def _copy_sign(self, magnitude: Value, sign: Value) -> Value:
        return self.a.intrinsic("copysign", magnitude, sign)

    def _split_exponent(self, x: Value) -> tuple[Value, Value, Value]:
        """`x = n ln2 + r`: n as a float, its sum with the magic number, r."""
        a, t = self.a, self._table(x)
        shifted = a.fma(x, a.float(x, LOG2_E), a.float(x, t.magic))
        n = a.sub(shifted, a.float(x, t.magic))
        r = a.fma(n, a.float(x, -t.ln2[0]), x)
        r = a.fma(n, a.float(x, -t.ln2[1]), r)
        return n, shifted, r

    def _power_of_two(self, shifted: Value) -> Value:
        """2**n from the magic sum, for n of normal numbers."""
        t = self._table(shifted)
        bits = self.a.shift("shl", self._bits(shifted), t.mantissa)
        one = self.a.integer(bits, ((1 << (t.bits - t.mantissa - 2)) - 1) << t.mantissa)
        return self._float(self.a.binary("add", bits, one))

    def _scale(self, y: Value, n: Value, shifted: Value) -> Value:
        """`y * 2**n` with one rounding, for n of any finite result."""
        _scalar, lanes = split_type(y.type)
        t = self._table(y)
        if self.a.can.scalef and lanes * t.bits == 512:
            return self._scalef(y, n)
        a = self.a
        magic = a.integer(self._bits(y), _bit_pattern(t.magic, t))
        whole = a.binary("sub", self._bits(shifted), magic)
        half = a.shift("ashr", whole, 1)
        rest = a.binary("sub", whole, half)
        one = a.integer(whole, ((1 << (t.bits - t.mantissa - 2)) - 1) << t.mantissa)
        for part in (half, rest):
            factor = a.binary("add", a.shift("shl", part, t.mantissa), one)
            y = a.mul(y, self._float(factor))
        return y

    def _scalef(self, y: Value, n: Value) -> Value:
        kind = "ps" if split_type(y.type)[0] == "float" else "pd"
        lanes = split_type(y.type)[1]
        name = f"llvm.x86.avx512.mask.scalef.{kind}.512"
        mask = f"i{lanes}"
        self.a.writer.declare(y.type, name, y.type, y.type, y.type, mask, "i32")
        text = (
            f"call {y.type} @{name}({y}, {n}, {y.type} zeroinitializer, {mask} -1, i32 4)"
        )
        return self.a.op(y.type, text, y, n)

    # --- exponentials ----------------------------------------------------------------------

    def exp(self, x: Value) -> Value:
        """e**x."""
        a, t = self.a, self._table(x)
        low, high = t.exp_range
        bounded = a.extreme("min", x, a.float(x, high))
        bounded = a.extreme("max", bounded, a.float(x, low))
        n, shifted, r = self._split_exponent(bounded)
        return self._scale(self._exp_near(r), n, shifted)

    def _exp_near(self, r: Value) -> Value:
        """e**r for |r| <= ln2/2."""
        a = self.a
        tail = self.polynomial(r, self._table(r).exp)
        return a.add(a.fma(a.mul(r, r), tail, r), a.float(r, 1.0))

    def sigmoid(self, x: Value) -> Value:
        """1 / (1 + e**-x), without overflow: e**-|x| <= 1."""
        a = self.a
        small = self.exp(a.op(x.type, f"fneg {a.absolute(x)}", a.absolute(x)))
        one = a.float(x, 1.0)
        positive = a.compare("fcmp oge", x, a.float(x, 0.0))
        return a.div(a.select(positive, one, small), a.add(one, small))

    def _expm1(self, x: Value) -> Value:
        """e**x - 1 without cancellation, for |x| below 40."""
        a, t = self.a, self._table(x)
        _, shifted, r = self._split_exponent(x)
        near = a.fma(a.mul(r, r), self.polynomial(r, t.expm1), r)
        scale = self._power_of_two(shifted)
        return a.fma(scale, near, a.sub(scale, a.float(x, 1.0)))

    def tanh(self, x: Value) -> Value:
        """(e**2a - 1) / (e**2a + 1) of a = |x|, through e**2a - 1."""
        a, t = self.a, self._table(x)
        size = a.extreme("min", a.absolute(x), a.float(x, t.tanh_end))
        grown = self._expm1(a.add(size, size))
        return self._copy_sign(a.div(grown, a.add(grown, a.float(x, 2.0))), x)

    def erf(self, x: Value) -> Value:
        """1 - e**-q of |x|, through e**-q - 1; in f64 near 0 a polynomial."""
        a, t = self.a, self._table(x)
        size = a.absolute(x)
        bounded = a.extreme("min", size, a.float(x, t.erf_end))
        if t.bits == 32:
            q = a.fma(bounded, self.polynomial(bounded, t.erf_far), bounded)
            return self._copy_sign(self._expm1(a.op(q.type, f"fneg {q}", q)), x)
        near = a.fma(x, self.polynomial(a.mul(x, x), t.erf_near), x)
        place = a.sub(bounded, a.float(x, t.erf_center))
        q = self.polynomial(place, t.erf_far)
        _, shifted, r = self._split_exponent(a.op(q.type, f"fneg {q}", q))
        vanishing = a.mul(self._exp_near(r), self._power_of_two(shifted))
        far = self._copy_sign(a.sub(a.float(x, 1.0), vanishing), x)
        return a.select(a.compare("fcmp olt", size, a.float(x, t.erf_split)), near, far)

    # --- logarithm and powers --------------------------------------------------------------

    def _mantissa(self, x: Value) -> tuple[Value, Value]:
        """F and e with x = (1 + f) * 2**e, sqrt(1/2) <= 1 + f < sqrt(2), for finite x > 0."""
        a, t = self.a, self._table(x)
        tiny = a.compare("fcmp olt", x, a.float(x, t.least_normal))
        lift = t.mantissa + 1
        normal = a.select(tiny, a.mul(x, a.float(x, 2.0**lift)), x)
        bits = self._bits(normal)
        root = _bit_pattern(math.sqrt(0.5), t)
        offset = a.binary("sub", bits, a.integer(bits, root))
        exponent = a.shift("ashr", offset, t.mantissa)
        mantissa = a.binary("sub", bits, a.shift("shl", exponent, t.mantissa))
        f = a.sub(self._float(mantissa), a.float(x, 1.0))
        if t.bits == 64:
            exponent = a.convert("trunc", exponent, "i32")
        e = a.convert("sitofp", exponent, t.scalar)
        e = a.select(tiny, a.sub(e, a.float(x, float(lift))), e)
        return f, e

    def log(self, x: Value) -> Value:
        """Natural logarithm, as the one of 1 + f plus e times that of 2."""
        t = self._table(x)
        f, e = self._mantissa(x)
        result = self._log_f32(f, e, t) if t.bits == 32 else self._log_f64(f, e, t)
        return self._log_special(x, result)

    def _log_f32(self, f: Value, e: Value, t: Table) -> Value:
        a = self.a
        square = a.mul(f, f)
        tail = a.mul(a.mul(square, f), self.polynomial(f, t.log))
        tail = a.fma(e, a.float(f, t.ln2[1]), tail)
        tail = a.fma(square, a.float(f, -0.5), tail)
        return a.fma(e, a.float(f, t.ln2[0]), a.add(f, tail))

    def _log_f64(self, f: Value, e: Value, t: Table) -> Value:
        a = self.a
        s = a.div(f, a.add(f, a.float(f, 2.0)))
        square = a.mul(s, s)
        series = a.mul(square, self.polynomial(square, t.log))
        half = a.mul(a.mul(f, f), a.float(f, 0.5))
        tail = a.fma(s, a.add(half, series), a.mul(e, a.float(f, t.ln2[1])))
        tail = a.sub(a.sub(half, tail), f)
        return a.sub(a.mul(e, a.float(f, t.ln2[0])), tail)

    def _log_special(self, x: Value, result: Value) -> Value:
        a = self.a
        zero, infinity = a.float(x, 0.0), a.float(x, math.inf)
        at_zero = a.float(x, -math.inf)
        below = a.select(a.compare("fcmp olt", x, zero), a.float(x, math.nan), x)
        special = a.select(a.compare("fcmp oeq", x, zero), at_zero, below)
        above = a.compare("fcmp ogt", x, zero)
        finite = a.compare("fcmp olt", x, infinity)
        return a.select(a.binary("and", above, finite), result, special)

    def rsqrt(self, x: Value) -> Value:
        """1 / sqrt(x)."""
        return self.a.div(self.a.float(x, 1.0), self.a.intrinsic("sqrt", x))

    def constant_power(self, x: Value, exponent: float) -> Value | None:
        """X ** exponent by products or a root; None when that does not apply."""
        a = self.a
        if exponent == 0.5:
            root = a.add(a.intrinsic("sqrt", x), a.float(x, 0.0))
            bottom = a.compare("fcmp oeq", x, a.float(x, -math.inf))
            return a.select(bottom, a.float(x, math.inf), root)
        size = abs(exponent)
        if not (exponent.is_integer() and 1 <= size <= MAX_SMALL_POWER):
            return None
        square = a.mul(x, x)
        result = {1: x, 2: square, 3: a.mul(square, x), 4: a.mul(square, square)}[int(size)]
        return result if exponent > 0 else a.div(a.float(x, 1.0), result)

    def power(self, x: Value, y: Value) -> Value:
        """X ** y as e**(y log|x|), the product in twice the precision; signs and special cases."""
        a = self.a
        scalar, _ = split_type(x.type)
        size = a.absolute(x)
        if scalar == "float":
            wide = a.mul(a.convert("fpext", y, "double"), self._log_wide(size))
            result = a.convert("fptrunc", self.exp(wide), "float")
        else:
            result = self._power_f64(size, y)
        return self._power_special(x, y, result)

    def _log_wide(self, size: Value) -> Value:
        return self.log(self.a.convert("fpext", size, "double"))

    def _power_f64(self, size: Value, y: Value) -> Value:
        a = self.a
        high, low = self._log_pair(size)
        special = self._log_special(size, high)
        usual = a.compare("fcmp oeq", special, high)
        product = a.mul(y, special)
        _, error = self._product(y, high)
        error = a.fma(y, low, error)
        small = a.compare("fcmp olt", a.absolute(product), a.float(y, 2000.0))
        keep = a.binary("and", usual, small)
        keep = a.binary("and", keep, a.compare("fcmp ord", error, error))
        error = a.select(keep, error, a.float(y, 0.0))
        least, most = F64.exp_range
        bounded = a.extreme("min", product, a.float(y, most))
        bounded = a.extreme("max", bounded, a.float(y, least))
        n, shifted, r = self._split_exponent(bounded)
        return self._scale(self._exp_near(a.add(r, error)), n, shifted)

    def _log_pair(self, x: Value) -> tuple[Value, Value]:
        """log(x) as the sum of two f64, about 64 bits, for finite x > 0."""
        a = self.a
        f, e = self._mantissa(x)
        bottom = a.add(f, a.float(f, 2.0))
        bottom_low = a.sub(f, a.sub(bottom, a.float(f, 2.0)))
        s = a.div(f, bottom)
        back, back_low = self._product(s, bottom)
        left = a.sub(a.sub(a.sub(f, back), back_low), a.mul(s, bottom_low))
        s_low = a.div(left, bottom)
        z, z_low = self._product(s, s)
        z_low = a.fma(a.add(s, s), s_low, z_low)
        inner = a.mul(z, self.polynomial(z, F64.log[1:]))
        v, v_low = self._sum(a.float(f, TWO_THIRDS[0]), inner)
        v_low = a.add(v_low, a.float(f, TWO_THIRDS[1]))
        w, w_low = self._product(z, v)
        w_low = a.fma(z, v_low, a.fma(z_low, v, w_low))
        q, q_low = self._product(s, w)
        q_low = a.fma(s, w_low, a.fma(s_low, w, q_low))
        high, low = self._sum(a.add(s, s), q)
        low = a.add(a.add(low, a.add(s_low, s_low)), q_low)
        whole, rest = self._sum(a.mul(e, a.float(f, LN2_PARTS[0])), high)
        second, third = self._product(e, a.float(f, LN2_PARTS[1]))
        low = a.add(a.add(rest, low), a.fma(e, a.float(f, LN2_PARTS[2]), third))
        whole, rest = self._sum(whole, second)
        return self._sum(whole, a.add(rest, low))

    def _product(self, x: Value, y: Value) -> tuple[Value, Value]:
        """X * y and its rounding error, of f64."""
        a = self.a
        product = a.mul(x, y)
        if a.can.fma:
            return product, a.fma(x, y, a.op(x.type, f"fneg {product}", product))
        x_high, x_low = self._halves(x)
        y_high, y_low = self._halves(y)
        error = a.sub(a.mul(x_high, y_high), product)
        error = a.add(a.add(error, a.mul(x_high, y_low)), a.mul(x_low, y_high))
        return product, a.add(error, a.mul(x_low, y_low))

    def _halves(self, x: Value) -> tuple[Value, Value]:
        """X as the sum of two numbers of at most 26 bits."""
        a = self.a
        wide = a.mul(x, a.float(x, 2.0**27 + 1))
        high = a.sub(wide, a.sub(wide, x))
        return high, a.sub(x, high)

    def _sum(self, x: Value, y: Value) -> tuple[Value, Value]:
        """X + y and its rounding error."""
        a = self.a
        total = a.add(x, y)
        part = a.sub(total, x)
        return total, a.add(a.sub(x, a.sub(total, part)), a.sub(y, part))

    def _power_special(self, x: Value, y: Value, result: Value) -> Value:
        a = self.a
        zero, one, infinity = a.float(x, 0.0), a.float(x, 1.0), a.float(x, math.inf)
        whole = a.compare("fcmp oeq", a.rounded("trunc", y), y)
        half = a.mul(y, a.float(y, 0.5))
        even = a.compare("fcmp oeq", a.rounded("trunc", half), half)
        odd = a.binary("and", whole, a.compare("icmp eq", even, a.integer(even, 0)))
        result = a.select(odd, self._copy_sign(result, x), result)
        bottom = a.op(x.type, f"fneg {infinity}", infinity)
        negative = a.binary(
            "and", a.compare("fcmp olt", x, zero), a.compare("fcmp one", x, bottom)
        )
        # An infinite exponent counts as even; of NaN `whole` is false and the result NaN anyway.
        undefined = a.binary(
            "and", negative, a.compare("icmp eq", whole, a.integer(whole, 0))
        )
        result = a.select(undefined, a.float(x, math.nan), result)
        endless = a.compare("fcmp oeq", a.absolute(y), infinity)
        unit = a.compare("fcmp oeq", a.absolute(x), one)
        trivial = a.binary(
            "or", a.compare("fcmp oeq", y, zero), a.binary("and", unit, endless)
        )
        trivial = a.binary("or", trivial, a.compare("fcmp oeq", x, one))
        return a.select(trivial, one, result)

    def integer_power(self, x: Value, y: Value, *, signed: bool) -> Value:
        """`x ** y` of integers, wrapping; negative exponents truncate."""
        return self.rare.each_lane(
            self.rare.integer_power(split_type(x.type)[0], signed=signed), x, y
        )

    # --- angles ----------------------------------------------------------------------------

    def sin(self, x: Value) -> Value:
        """Sine; of a zero that zero."""
        a = self.a
        value = self._circular(x, turn=0)
        return a.select(a.compare("fcmp oeq", x, a.float(x, 0.0)), x, value)

    def cos(self, x: Value) -> Value:
        """Cosine."""
        return self._circular(x, turn=1)

    def _circular(self, x: Value, *, turn: int) -> Value:
        a = self.a
        if self._table(x).bits == 32:
            quadrant, r, low = self._reduce(a.convert("fpext", x, "double"))
            r = a.convert("fptrunc", a.add(r, low), "float")
            low = None
        else:
            quadrant, r, low = self._reduce(x)
        usual = self.quarter(quadrant, r, low, turn=turn)
        large = a.compare("fcmp ogt", a.absolute(x), a.float(x, LARGE_ANGLE))

        def quarter(a: Arithmetic, quadrant: Value, r: Value, low: Value) -> Value:
            return Math(a).quarter(quadrant, r, low, turn=turn)

        return self.rare.large_angle(large, usual, x, turn=turn, quarter=quarter)

    def _reduce(self, x: Value) -> tuple[Value, Value, Value]:
        """f64 x = n pi/2 + r + low: n as integer bits, then the two parts of the rest."""
        a, t = self.a, F64
        shifted = a.fma(x, a.float(x, TWO_OVER_PI), a.float(x, t.magic))
        n = a.sub(shifted, a.float(x, t.magic))
        first, second, third = (a.float(x, part) for part in HALF_PI_PARTS)
        near = a.sub(x, a.mul(n, first))
        step = a.mul(n, second)
        minus = a.op(step.type, f"fneg {step}", step)
        r, error = self._sum(near, minus)
        low = a.sub(error, a.mul(n, third))
        r, low = self._sum(r, low)
        quadrant = a.convert("trunc", self._bits(shifted), "i32")
        return quadrant, r, low

    def quarter(self, quadrant: Value, r: Value, low: Value | None, *, turn: int) -> Value:
        """sin(r + low + (quadrant + turn) pi/2) for |r| <= pi/4."""
        a, t = self.a, self._table(r)
        square = a.mul(r, r)
        cube = a.mul(square, r)
        tail = a.mul(cube, self.polynomial(square, t.sin))
        half = a.mul(square, a.float(r, 0.5))
        near_one = a.sub(a.float(r, 1.0), half)
        correction = a.mul(a.mul(square, square), self.polynomial(square, t.cos))
        if low is not None:
            tail = a.fma(low, near_one, tail)
            correction = a.sub(correction, a.mul(r, low))
        sine = a.add(r, tail)
        lost = a.sub(a.sub(a.float(r, 1.0), near_one), half)
        cosine = a.add(near_one, a.add(lost, correction))
        turned = a.binary("add", quadrant, a.integer(quadrant, turn)) if turn else quadrant
        bit = a.binary("and", turned, a.integer(turned, 1))
        swap = a.compare("icmp ne", bit, a.integer(turned, 0))
        value = a.select(swap, cosine, sine)
        flip = a.shift("shl", a.binary("and", turned, a.integer(turned, 2)), 30)
        if t.bits == 64:
            flip = a.shift("shl", a.convert("zext", flip, "i64"), 32)
        return self._float(a.binary("xor", self._bits(value), flip))

    # --- remainders ------------------------------------------------------------------------

    def rest(self, x: Value, y: Value) -> Value:
        """The remainder of the truncated quotient, exact (C's fmod)."""
        a = self.a
        scalar, _ = split_type(x.type)
        if scalar == "double":
            return self.rare.each_lane(self.rare.float_rest(), x, y)
        wide_x, wide_y = a.convert("fpext", x, "double"), a.convert("fpext", y, "double")
        quotient = a.rounded("trunc", a.div(wide_x, wide_y))
        # Exact: both factors have 24 bits.
        left = a.sub(wide_x, a.mul(quotient, wide_y))
        usual = self._copy_sign(a.convert("fptrunc", left, "float"), x)
        small = a.compare("fcmp olt", a.absolute(quotient), a.float(wide_x, 2.0**24))
        bounded = a.compare("fcmp olt", a.absolute(y), a.float(y, math.inf))
        small = a.binary("and", small, bounded)
        large = a.binary("xor", small, a.integer(small, 1))
        return self.rare.cold(large, usual, self.rare.float_rest(), x, y)

    def floor_rest(self, x: Value, y: Value) -> Value:
        """The remainder with the sign of the divisor."""
        a = self.a
        rest = self.rest(x, y)
        zero = a.float(x, 0.0)
        nonzero = a.compare("fcmp une", rest, zero)
        below, downward = a.compare("fcmp olt", rest, zero), a.compare("fcmp olt", y, zero)
        differs = a.binary("and", nonzero, a.binary("xor", below, downward))
        moved = a.select(differs, a.add(rest, y), rest)
        return a.select(nonzero, moved, self._copy_sign(zero, y))


def _bit_pattern(value: float, t: Table) -> int:
    code, kind = ("<f", "<i") if t.bits == 32 else ("<d", "<q")
    return int(struct.unpack(kind, struct.pack(code, value))[0])


__all__ = ["Math", "vector"]
