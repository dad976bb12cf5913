"""Functions that kernels call: primitives with text of their own, and expressions over arguments.

Called by `expressions`, which prints the bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, final

from tilewright.compiler.kernel.ir import Expression, Form, Function
from tilewright.compiler.kernel.primitives import HALF_PI, TWO_OVER_PI_WORDS
from tilewright.compiler.printers.c_text.definitions import Definitions, chosen
from tilewright.compiler.printers.c_text.types import Value, unsigned, value_type, word

BodyPrinter = Callable[[Expression, list[Value]], tuple[list[str], str]]
"""Prints a function's body: the lines before its result, and that."""

_POWER: Final = """\
  T result = 1;
  if (NEGATIVE) return a == 1 ? 1 : a == (T)-1 ? (b % 2 == 0 ? 1 : a) : 0;
  for (; b != 0; b = (T)((U)b >> 1)) {
    if (b & 1) result = (T)((U)result * (U)a);
    a = (T)((U)a * (U)a);
  }
  return result;"""
# The mantissa times 192 bits of 2/pi, taken from where multiples of 4 have gone.
_REDUCE: Final = """\
  static const uint64_t two_over_pi[] = {WORDS};
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  const int exponent = (int)(bits >> 52 & 0x7ff);
  const uint64_t mantissa = (bits & ((UINT64_C(1) << 52) - 1)) | UINT64_C(1) << 52;
  // x = mantissa * 2**(exponent - 1075); the table begins with 64 zero bits.
  int place = (exponent < 0x7fe ? exponent : 0x7fe) + 64 - 2 - 1075;
  if (place < 0) place = 0;
  uint64_t window[3];
  for (int i = 0; i < 3; ++i) {
    const int word = place / 64 + i, shift = place % 64;
    const uint64_t next = word + 1 < COUNT ? two_over_pi[word + 1] : 0;
    window[i] = word >= COUNT ? 0 : shift == 0 ? two_over_pi[word] : two_over_pi[word] << shift | next >> (64 - shift);
  }
  const tw_wide low = (tw_wide)mantissa * window[2];
  const tw_wide total = ((tw_wide)mantissa << 64) * window[0] + (tw_wide)mantissa * window[1] + (low >> 64);
  uint32_t quadrant = (uint32_t)(total >> 126);
  tw_wide angle = total << 2 | (uint64_t)low >> 62;
  const int above = (int)(angle >> 127);  // nearer to the next quadrant
  quadrant += (uint32_t)above;
  if (above) angle = -angle;
  int zeros = 0;
  while (zeros < 127 && (angle >> 127) == 0) angle <<= 1, ++zeros;
  const double unit = __builtin_ldexp(0x1p-53, -zeros);
  const double high = (double)(uint64_t)(angle >> 75) * unit;
  const double rest = (double)(uint64_t)(angle << 53 >> 75) * (unit * 0x1p-53);
  const double r = high * HALF_PI_0;
  const double lost = __builtin_fma(high, HALF_PI_0, -r) + (high * HALF_PI_1 + rest * HALF_PI_0);
  const double sum = r + lost;
  const int is_negative = (int)(bits >> 63), flip = above != is_negative;
  tw_angle_t result = {(int32_t)(is_negative ? 0u - quadrant : quadrant), sum, lost - (sum - r)};
  if (flip) {
    result.rest = -result.rest;
    result.error = -result.error;
  }
  return result;"""


# What says that a compiler has a feature of aarch64; those of x86-64 are named alike.
_MACROS: Final = {
    "dotprod": "__ARM_FEATURE_DOTPROD",
    "i8mm": "__ARM_FEATURE_MATMUL_INT8",
}


def _condition(form: Form) -> str:
    """What the preprocessor asks before a form is used."""
    names = [_MACROS.get(name, f"__{name.upper()}__") for name in sorted(form.features)]
    return " && ".join(f"defined({name})" for name in names)


@final
class Functions:
    """Defines functions on first use and prints their calls."""

    def __init__(self, definitions: Definitions, print_body: BodyPrinter) -> None:
        self.definitions: Definitions = definitions
        self.print_body: BodyPrinter = print_body

    def call(
        self, function: Function, operands: list[Value], forms: Sequence[Form] = ()
    ) -> Value:
        """The function applied to every lane, by an instruction where the compiler has one of these forms."""
        name = self._defined(function)
        lanes, types = operands[0].lanes, list(function.parameters)
        machine = [(_condition(form), form.c) for form in forms]
        if machine:
            self.definitions.include_intrinsics()
        name = self.definitions.in_lanes(name, function.dtype, types, lanes, machine)
        texts = ", ".join(operand.text for operand in operands)
        return Value(f"{name}({texts})", function.dtype, lanes)

    def call_whole(
        self, name: str, meaning: Expression, operands: list[Value], forms: Sequence[Form]
    ) -> Value:
        """A function of whole vectors, by an instruction where the compiler has one of these forms."""
        dtype, lanes = meaning.dtype, meaning.lanes
        name = f"tw_{name}_{word(dtype)}x{lanes}"
        if name not in self.definitions.texts:
            if forms:
                self.definitions.include_intrinsics()
            types = [self.definitions.vector(x.dtype, lanes) for x in operands]
            type_ = self.definitions.vector(dtype, lanes)
            letters = zip("abc", operands, strict=False)
            arguments = [Value(letter, x.dtype, lanes) for letter, x in letters]
            lines, result = self.print_body(meaning, arguments)
            body = "\n".join(f"  {line}" for line in (*lines, f"return {result};"))
            machine = [(_condition(form), form.c) for form in forms]
            self.definitions.function(name, type_, types, chosen(machine, type_, body))
        texts = ", ".join(operand.text for operand in operands)
        return Value(f"{name}({texts})", dtype, lanes)

    def _defined(self, function: Function) -> str:
        name = f"tw_{function.name}_{word(function.dtype)}"
        if name in self.definitions.texts:
            return name
        type_ = value_type(function.dtype)
        types = [value_type(parameter) for parameter in function.parameters]
        if function.body is not None:
            arguments = [
                Value(letter, dtype)
                for letter, dtype in zip("abc", function.parameters, strict=False)
            ]
            lines, result = self.print_body(function.body, arguments)
            body = "\n".join([*lines, f"return {result};"])
            self.definitions.function(name, type_, types, body)
        elif function.name == "fmod":
            self.definitions.function(name, type_, types, "return __builtin_fmod(a, b);")
        elif function.name == "power":
            negative = "b < 0" if function.dtype.is_signed else "0"
            body = _POWER.replace("NEGATIVE", negative).replace(
                "U", unsigned(function.dtype)
            )
            body = body.replace("(T)", f"({type_})").replace("T result", f"{type_} result")
            self.definitions.function(name, type_, types, body)
        else:
            self._angle(name, type_, function.name.removeprefix("angle_"))
        return name

    def _angle(self, name: str, type_: str, part: str) -> None:
        """One of the results of the reduction of huge angles."""
        self.definitions.define("tw_wide", "typedef unsigned __int128 tw_wide;")
        self.definitions.define(
            "tw_angle_t",
            "typedef struct tw_angle_t {\n  int32_t quadrant;\n  double rest, error;\n} tw_angle_t;",
        )
        words = ", ".join(f"UINT64_C(0x{word:016x})" for word in TWO_OVER_PI_WORDS)
        text = _REDUCE.replace("WORDS", words).replace("COUNT", str(len(TWO_OVER_PI_WORDS)))
        for i, number in enumerate(HALF_PI):
            text = text.replace(f"HALF_PI_{i}", number.hex())
        self.definitions.define(
            "tw_reduced_angle",
            f"static tw_angle_t tw_reduced_angle(double x) {{\n{text}\n}}",
        )
        self.definitions.function(
            name, type_, ["double"], f"return tw_reduced_angle(a).{part};"
        )
