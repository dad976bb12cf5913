"""Conversions between data types, with the semantics of the kernel IR.

Float to integer truncates, saturates and gives 0 for NaN; to bool is `!= 0`; `f16` and `bf16` round
to nearest even, from `f64` too, without a library call on any target.  Called by expressions.
"""

from __future__ import annotations

from typing import final

from tilewright.base import dtypes
from tilewright.base.dtypes import HALVES, DType
from tilewright.compiler.printers.llvm_text.arithmetic import Arithmetic
from tilewright.compiler.printers.llvm_text.types import (
    Value,
    constant,
    mangle,
    split_type,
    value_type,
    vector,
)


@final
class Conversions:
    """Emits casts.

    Args:
        arithmetic: where the instructions go.
    """

    def __init__(self, arithmetic: Arithmetic) -> None:
        self.a: Arithmetic = arithmetic

    def cast(self, value: Value, source: DType, target: DType) -> Value:
        """`value` of type `source` as `target`."""
        if source is target:
            return value
        if source in HALVES:
            return self.cast(self.from_half(value, source), dtypes.f32, target)
        if target.is_bool:
            return self._to_bool(value, source)
        if target in HALVES:
            return self._to_half(value, source, target)
        if source.is_float and target.is_float:
            verb = "fpext" if target.bits > source.bits else "fptrunc"
            return self.a.convert(verb, value, value_type(target))
        if source.is_float:
            return self._to_integer(value, target)
        if target.is_float:
            verb = "sitofp" if source.is_integer and source.is_signed else "uitofp"
            return self.a.convert(verb, value, value_type(target))
        return self._resize(value, source, target)

    def _resize(self, value: Value, source: DType, target: DType) -> Value:
        bits = 1 if source.is_bool else source.bits
        if bits == target.bits:
            return value
        if bits > target.bits:
            return self.a.convert("trunc", value, value_type(target))
        verb = "sext" if source.is_integer and source.is_signed else "zext"
        return self.a.convert(verb, value, value_type(target))

    def _to_bool(self, value: Value, source: DType) -> Value:
        _, lanes = split_type(value.type)
        verb = "fcmp une" if source.is_float else "icmp ne"
        return self.a.compare(verb, value, constant(0, source, lanes))

    def _to_integer(self, value: Value, target: DType) -> Value:
        """The whole part, saturated; NaN gives 0.

        LLVM's saturating conversion is one instruction where the target has such; elsewhere it
        takes a vector apart into lanes, so vectors are brought into range first.
        """
        scalar, lanes = split_type(value.type)
        if lanes > 1 and not self.a.can.saturation:
            return self._to_integer_in_range(value, target)
        result = value_type(target)
        verb = "fptosi" if target.is_signed else "fptoui"
        type_ = vector(result, lanes)
        function = f"llvm.{verb}.sat.{mangle(result, lanes)}.{mangle(scalar, lanes)}"
        return self.a.writer.call(type_, function, value, speculate=False)

    def _to_integer_in_range(self, value: Value, target: DType) -> Value:
        a = self.a
        scalar, _ = split_type(value.type)
        fraction = 24 if scalar == "float" else 53
        bits = target.bits - 1 if target.is_signed else target.bits
        low = -(2.0**bits) if target.is_signed else 0.0
        high = 2.0**bits - 1 if bits <= fraction else 2.0**bits - 2.0 ** (bits - fraction)
        # Nothing is greater than NaN, which so becomes the least number: of unsigned ones that is 0.
        ordered = value
        if target.is_signed or bits > fraction:
            ordered = a.select(a.is_nan(value), a.float(value, 0.0), value)
        above = a.compare("fcmp ogt", ordered, a.float(value, low))
        raised = a.select(above, ordered, a.float(value, low))
        below = a.compare("fcmp olt", raised, a.float(value, high))
        inside = a.select(below, raised, a.float(value, high))
        if target.bits < 32:  # conversions to 32 bits are what processors have
            return a.convert(
                "trunc", a.convert("fptosi", inside, "i32"), value_type(target)
            )
        verb = "fptosi" if target.is_signed else "fptoui"
        whole = a.convert(verb, inside, value_type(target))
        if bits <= fraction:
            return whole
        # The greatest integer lies between two floats: what is above the lower one has it.
        beyond = a.compare("fcmp oge", ordered, a.float(value, 2.0**bits))
        return a.select(beyond, a.integer(whole, 2**bits - 1), whole)

    # --- 16-bit floats ---------------------------------------------------------------------

    def from_half(self, value: Value, source: DType) -> Value:
        """The 16 storage bits as f32, exact."""
        if source is dtypes.bf16:
            wide = self.a.convert("zext", value, "i32")
            return self.a.bitcast(self.a.shift("shl", wide, 16), "float")
        if self.a.can.f16c:
            return self.a.convert("fpext", self.a.bitcast(value, "half"), "float")
        return self._soft_from_f16(value)

    def _to_half(self, value: Value, source: DType, target: DType) -> Value:
        if source is dtypes.f64:
            single = self._round_to_odd(value)
        elif source is dtypes.f32:
            single = value
        elif source.is_integer and source.bits > 16:
            # Through f64, exact up to 53 bits, then rounded to odd: one rounding in effect.
            single = self._round_to_odd(self.cast(value, source, dtypes.f64))
        else:
            single = self.cast(value, source, dtypes.f32)
        if target is dtypes.bf16:
            return self._to_bf16(single)
        if self.a.can.f16c:
            return self.a.bitcast(self.a.convert("fptrunc", single, "half"), "i16")
        return self._soft_to_f16(single)

    def _round_to_odd(self, value: Value) -> Value:
        """f64 to f32 with the lowest bit set when inexact, so a second rounding is exact."""
        a = self.a
        nearest = a.convert("fptrunc", value, "float")
        back = a.convert("fpext", nearest, "double")
        inexact = a.compare("fcmp one", back, value)
        too_big = a.compare("fcmp ogt", a.absolute(back), a.absolute(value))
        bits = a.bitcast(nearest, "i32")
        toward_zero = a.select(too_big, a.binary("sub", bits, a.integer(bits, 1)), bits)
        odd = a.binary("or", toward_zero, a.integer(bits, 1))
        return a.bitcast(a.select(inexact, odd, bits), "float")

    def _to_bf16(self, single: Value) -> Value:
        a = self.a
        bits = a.bitcast(single, "i32")
        lowest = a.binary("and", a.shift("lshr", bits, 16), a.integer(bits, 1))
        bias = a.binary("add", lowest, a.integer(bits, 0x7FFF))
        rounded = a.binary("add", bits, bias)
        quiet = a.binary("or", bits, a.integer(bits, 0x400000))
        chosen = a.select(a.is_nan(single), quiet, rounded)
        return a.convert("trunc", a.shift("lshr", chosen, 16), "i16")

    def _soft_from_f16(self, value: Value) -> Value:
        """Shift exponent and mantissa in place, then scale by 2**112: denormals come out right."""
        a = self.a
        wide = a.convert("zext", value, "i32")
        sign = a.shift("shl", a.binary("and", wide, a.integer(wide, 0x8000)), 16)
        magnitude = a.shift("shl", a.binary("and", wide, a.integer(wide, 0x7FFF)), 13)
        small = a.bitcast(magnitude, "float")
        scaled = a.bitcast(a.mul(small, a.float(small, 2.0**112)), "i32")
        special = a.compare("icmp uge", magnitude, a.integer(wide, 0x0F800000))
        infinite = a.binary("or", magnitude, a.integer(wide, 0x7F800000))
        return a.bitcast(a.binary("or", sign, a.select(special, infinite, scaled)), "float")

    def _soft_to_f16(self, single: Value) -> Value:
        a = self.a
        bits = a.bitcast(single, "i32")
        sign = a.binary("and", a.shift("lshr", bits, 16), a.integer(bits, 0x8000))
        magnitude = a.binary("and", bits, a.integer(bits, 0x7FFFFFFF))
        # Denormal results: adding 0.5 leaves the rounded mantissa in the low bits.
        absolute = a.bitcast(magnitude, "float")
        shifted = a.bitcast(a.add(absolute, a.float(absolute, 0.5)), "i32")
        denormal = a.binary("sub", shifted, a.integer(bits, 0x3F000000))
        lowest = a.binary("and", a.shift("lshr", magnitude, 13), a.integer(bits, 1))
        rebias = a.integer(bits, 0xFFF - (112 << 23))
        normal = a.binary("add", a.binary("add", magnitude, rebias), lowest)
        normal = a.shift("lshr", normal, 13)
        tiny = a.compare("icmp ult", magnitude, a.integer(bits, 113 << 23))
        result = a.select(tiny, denormal, normal)
        huge = a.compare("icmp uge", magnitude, a.integer(bits, 143 << 23))
        result = a.select(huge, a.integer(bits, 0x7C00), result)
        nan = a.compare("icmp ugt", magnitude, a.integer(bits, 0x7F800000))
        payload = a.shift("lshr", a.binary("and", magnitude, a.integer(bits, 0x7FFFFF)), 13)
        quiet = a.binary("or", payload, a.integer(bits, 0x7E00))
        result = a.select(nan, quiet, result)
        return a.convert("trunc", a.binary("or", sign, result), "i16")
