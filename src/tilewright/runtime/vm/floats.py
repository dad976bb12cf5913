"""What the float opcodes compute, as functions on Python numbers.

Registers hold Python floats; f32 results are rounded after every operation.  Functions like `exp`
are the C library's, which libraries compute differently in the last place; where it lacks one, it
is computed in double precision and rounded.  The interpreter wires the functions to registers.

Where names promise something else, IREE's interpreter decides (`tests/conformance/vm`): `fma`
rounds twice, so does `rsqrt.f32`, `cmp.ne.o` is true for NaN, casts to integers round to nearest,
halves away from zero.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable, Mapping
from typing import Final, cast

from tilewright.runtime.native.math_library import f32_function
from tilewright.runtime.vm.integers import wrap_i32, wrap_i64

Operation = Callable[..., float]

_F32: Final = struct.Struct("<f")
_F64: Final = struct.Struct("<d")
_I32: Final = struct.Struct("<i")
_I64: Final = struct.Struct("<q")
_F64_BITS: Final = struct.Struct("<Q")


def round_f32(value: float) -> float:
    """The nearest f32; too large values become infinite."""
    try:
        return cast("float", _F32.unpack(_F32.pack(value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


# --- arithmetic in double precision ---------------------------------------------------------------


_INVALID: Final = math.inf - math.inf
"""What this processor makes of an invalid operation: NaN, on x86 with the sign set."""


def _divide(left: float, right: float) -> float:
    if right:
        return left / right
    if math.isnan(left) or math.isnan(right):
        return left + right
    if left == 0:
        return _INVALID
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def _remainder(left: float, right: float) -> float:
    if math.isnan(left) or math.isnan(right):
        return left + right
    if math.isinf(left) or right == 0:
        return _INVALID
    return math.remainder(left, right)


def _multiply_add(first: float, second: float, third: float) -> float:
    return float(first * second + third)


def _multiply_add_f32(first: float, second: float, third: float) -> float:
    return round_f32(round_f32(first * second) + third)


def _round_away(value: float) -> float:
    if not math.isfinite(value):
        return value
    whole = math.floor(abs(value))
    return math.copysign(whole + (abs(value) - whole >= 0.5), value)


def _integral(function: Callable[[float], int]) -> Operation:
    """`ceil`, `floor`, `round` for floats, keeping NaN, infinities and the sign of zero."""
    return lambda a: math.copysign(function(a), a) if math.isfinite(a) else a


def _round_even(value: float) -> float:
    """Halves to even; a half that becomes zero loses its sign."""
    away = _round_away(value)
    if math.isfinite(value) and abs(value - math.trunc(value)) == 0.5 and away % 2:
        return away - math.copysign(1.0, value)
    return away


# --- the mathematical library, with the C library's answers outside the domain ----------------------


def _safe(function: Callable[..., float]) -> Operation:
    """NaN where Python raises ValueError, infinity where it raises OverflowError."""

    def call(*operands: float) -> float:
        try:
            return function(*operands)
        except ValueError:
            return _INVALID
        except OverflowError:
            return math.inf

    return call


def _logarithm(function: Callable[[float], float], pole: float = 0.0) -> Operation:
    safe = _safe(function)
    return lambda a: -math.inf if a == pole else safe(a)


def _power(left: float, right: float) -> float:
    try:
        return math.pow(left, right)
    except ValueError:
        return math.inf if left == 0 else _INVALID
    except OverflowError:
        odd = right == math.trunc(right) and math.fmod(right, 2) != 0
        return -math.inf if left < 0 and odd else math.inf


def _power_integer(value: float, exponent: int) -> float:
    result, factor, left = 1.0, float(value), abs(exponent)
    while left:
        if left & 1:
            result *= factor
        left >>= 1
        if left:
            factor *= factor
    return result if exponent >= 0 else _divide(1.0, result)


def _power_integer_f32(value: float, exponent: int) -> float:
    result, factor, left = 1.0, value, abs(exponent)
    while left:
        if left & 1:
            result = round_f32(result * factor)
        left >>= 1
        if left:
            factor = round_f32(factor * factor)
    return result if exponent >= 0 else round_f32(_divide(1.0, result))


def _root(value: float) -> float:
    return math.sqrt(value) if value >= 0 or math.isnan(value) else _INVALID


def _reciprocal_root(value: float) -> float:
    return _divide(1.0, _root(value))


def _reciprocal_root_f32(value: float) -> float:
    """The root and its reciprocal are each rounded."""
    return round_f32(_divide(1.0, round_f32(_root(value))))


_UNARY: Final[Mapping[str, Operation]] = {
    "abs": math.fabs,
    "neg": lambda a: -a,
    "ceil": _integral(math.ceil),
    "floor": _integral(math.floor),
    "round": _round_away,
    "round.even": _round_even,
    "atan": math.atan,
    "cos": _safe(math.cos),
    "sin": _safe(math.sin),
    "exp": _safe(math.exp),
    "exp2": _safe(math.exp2),
    "expm1": _safe(math.expm1),
    "log": _logarithm(math.log),
    "log10": _logarithm(math.log10),
    "log1p": _logarithm(math.log1p, -1.0),
    "log2": _logarithm(math.log2),
    "rsqrt": _reciprocal_root,
    "sqrt": _root,
    "tanh": math.tanh,
    "erf": math.erf,
}
_BINARY: Final[Mapping[str, Operation]] = {
    # Registers have no type: bytecode of strangers may hand over integers, and theirs grow for ever.
    "add": lambda a, b: float(a + b),
    "sub": lambda a, b: float(a - b),
    "mul": lambda a, b: float(a * b),
    "div": _divide,
    "rem": _remainder,
    "atan2": math.atan2,
    "pow": _power,
    "min": min,
    "max": max,
}
_COMPARE: Final[Mapping[str, Operation]] = {
    "cmp.eq.o": lambda a, b: int(a == b),
    "cmp.eq.u": lambda a, b: int(a == b or a != a or b != b),
    "cmp.ne.o": lambda a, b: int(a != b),
    "cmp.ne.u": lambda a, b: int(a != b),
    "cmp.lt.o": lambda a, b: int(a < b),
    "cmp.lt.u": lambda a, b: int(not a >= b),
    "cmp.lte.o": lambda a, b: int(a <= b),
    "cmp.lte.u": lambda a, b: int(not a > b),
    "cmp.nan": lambda a: int(a != a),
}
_LIBRARY: Final = frozenset(
    [
        "atan",
        "atan2",
        "cos",
        "sin",
        "exp",
        "exp2",
        "expm1",
        "log",
        "log10",
        "log1p",
        "log2",
        "tanh",
        "erf",
        "pow",
    ]
)
"""What the C library has for f32 under the same name with an `f` behind it."""
_EXACT: Final = frozenset(
    {"abs", "neg", "ceil", "floor", "round", "round.even", "min", "max"}
)


# --- conversions ------------------------------------------------------------------------------------


def _to_integer(value: float, bits: int, *, signed: bool) -> int:
    """To nearest, halves away from zero; what does not fit becomes the smallest number."""
    low, high = (-(1 << bits - 1), 1 << bits - 1) if signed else (0, 1 << bits)
    if math.isfinite(value) and low - 1 < value < high:
        return int(_round_away(value))
    return -(1 << bits - 1)


def _rounded(operation: Operation, *operands: float) -> float:
    return round_f32(operation(*operands))


def _big_to_f32(value: int) -> float:
    """One rounding from 64 bits: through double precision, rounded to odd."""
    wide = float(value)
    if int(wide) == value or not math.isfinite(wide):
        return round_f32(wide)
    if not _F64_BITS.unpack(_F64.pack(wide))[0] & 1:
        wide = math.nextafter(wide, math.inf if value > int(wide) else -math.inf)
    return round_f32(wide)


def _conversions() -> dict[str, Operation]:
    table: dict[str, Operation] = {
        "bitcast.i32.f32": lambda a: _F32.unpack(_I32.pack(a))[0],
        "bitcast.f32.i32": lambda a: _I32.unpack(_F32.pack(a))[0],
        "bitcast.i64.f64": lambda a: _F64.unpack(_I64.pack(a))[0],
        "bitcast.f64.i64": lambda a: _I64.unpack(_F64.pack(a))[0],
        "trunc.f64.f32": round_f32,
        "ext.f32.f64": float,
        "cast.si32.f32": lambda a: round_f32(float(a)),
        "cast.ui32.f32": lambda a: round_f32(float(a & 0xFFFFFFFF)),
        "cast.si32.f64": float,
        "cast.ui32.f64": lambda a: float(a & 0xFFFFFFFF),
        "cast.si64.f32": _big_to_f32,
        "cast.ui64.f32": lambda a: _big_to_f32(a & 0xFFFF_FFFF_FFFF_FFFF),
        "cast.si64.f64": float,
        "cast.ui64.f64": lambda a: float(a & 0xFFFF_FFFF_FFFF_FFFF),
    }
    for width in ("f32", "f64"):
        for bits, wrap in ((32, wrap_i32), (64, wrap_i64)):
            for sign in ("s", "u"):
                table[f"cast.{width}.{sign}i{bits}"] = _float_to_int(
                    bits, wrap, signed=sign == "s"
                )
    return table


def _float_to_int(bits: int, wrap: Callable[[int], int], *, signed: bool) -> Operation:
    return lambda a: wrap(_to_integer(a, bits, signed=signed))


def _name(name: str, width: str) -> str:
    """`cmp.eq.o` for f32 is `cmp.eq.f32.o`, `round.even` is `round.f32.even`."""
    base, dot, last = name.rpartition(".")
    return (
        f"{base}.{width}.{last}"
        if dot and last in ("o", "u", "even")
        else f"{name}.{width}"
    )


def _single(name: str, operation: Operation) -> Operation:
    """An operation of f32: the C library's, or the one on doubles, rounded."""
    if name in _LIBRARY:
        found = f32_function(f"{name}f", 1 if name in _UNARY else 2)
        if found is not None:
            return found
    return functools.partial(_rounded, operation)


def _all() -> dict[str, Operation]:
    table = _conversions()
    for width in ("f32", "f64"):
        for name, operation in {**_UNARY, **_BINARY}.items():
            exact = width == "f64" or name in _EXACT
            table[_name(name, width)] = operation if exact else _single(name, operation)
        for name, operation in _COMPARE.items():
            table[_name(name, width)] = operation
    table |= {
        "fma.f32": _multiply_add_f32,
        "fma.f64": _multiply_add,
        "rsqrt.f32": _reciprocal_root_f32,
        "fpowi.f32": _power_integer_f32,
        "fpowi.f64": _power_integer,
    }
    return table


OPERATIONS: Final[Mapping[str, Operation]] = _all()
"""Every float opcode whose result depends on its operands alone, but for select and switch."""
