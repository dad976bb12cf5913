"""What each operator of the kernel IR computes, on numpy arrays.

The one executable statement of the numeric semantics at the top of `ir.py`: the evaluator runs
on it and the expression builder folds constants with it.  Not fast and not generated code; float
functions are computed in f64 and rounded once.

Infinities, NaN and integers that wrap are results like others: who calls this has numpy not warn of
them (`np.errstate`), once around all that it computes.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.errors import InternalError
from tilewright.compiler.kernel import primitives
from tilewright.compiler.kernel.ir import COMPARE_OPS

Values = np.ndarray[Any, np.dtype[Any]]

_EXPONENTS: Final = 64

_erf: Final = np.frompyfunc(math.erf, 1, 1)


def _sigmoid(x: Values) -> Values:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small))


_FLOAT_UNARY: Final[dict[str, Callable[[Values], Values]]] = {
    "exp": np.exp,
    "exp_nonpositive": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "normal_cdf": lambda x: (1 + np.asarray(_erf(x * math.sqrt(0.5)), np.float64)) / 2,
    "erf": lambda x: np.asarray(_erf(x), np.float64),
    "sigmoid": _sigmoid,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "trunc": np.trunc,
}
_ANY_UNARY: Final[dict[str, Callable[[Values], Values]]] = {
    "not": np.invert, "is_nan": np.isnan, "neg": np.negative, "abs": np.abs,
}  # fmt: skip
_ROUNDING: Final = ("floor", "ceil", "round", "trunc")
# Of the operators, what a vector unit does in one instruction, or about so.
ONE_INSTRUCTION: Final = frozenset(
    ("neg", "abs", "floor", "ceil", "round", "trunc", "not", "is_nan", "add", "sub", "mul", "min",
     "max", "and", "or", "xor", "shl", "shr", "copysign")
)  # fmt: skip


def array(value: Any, dtype: DType) -> Values:
    """`value` as an array of `dtype`; Python integers wrap."""
    if dtype.is_integer and isinstance(value, int):
        return _wrapped(value, dtype)
    return np.asarray(value, dtype.numpy)


def _wrapped(value: int, dtype: DType) -> Values:
    value &= (1 << dtype.bits) - 1
    if dtype.is_signed and value >> (dtype.bits - 1):
        value -= 1 << dtype.bits
    return np.asarray(value, dtype.numpy)


def cast(x: Values, dtype: DType) -> Values:
    """Conversion of value: to bool `!= 0`; float to integer truncates, saturates, NaN is 0.

    Floats of a byte or less are reached through f32, smaller integers through the low bits of a byte.
    """
    source = dtypes.from_numpy(x.dtype)
    if source is dtype:
        return x
    if source.bits <= 8 and source not in dtypes.ANY:
        x = np.asarray(x.astype(np.float32 if source.is_float else np.int8))
        return cast(x, dtype)
    if dtype in dtypes.SMALL_FLOATS:
        return np.asarray(x.astype(np.float32).astype(dtype.numpy))
    if dtype in dtypes.SMALL_INTEGERS and not source.is_float:
        low = x.astype(np.int64) & ((1 << dtype.bits) - 1)
        return np.asarray(low.astype(np.int8).astype(dtype.numpy))
    if dtype.is_bool:
        return np.asarray(x != np.zeros((), x.dtype))
    if not (source.is_float and dtype.is_integer):
        return x.astype(dtype.numpy)
    return _saturate(x.astype(np.float64), dtype)


def bitcast(x: Values, dtype: DType, before: int = 1, after: int = 1) -> Values:
    """The same bits as elements of another type: of `before` lanes in the last axis, `after`.

    The first lane is in the low bits.  One lane has no axis.
    """
    if before == after:
        return np.asarray(np.ascontiguousarray(x).reshape(x.shape).view(dtype.numpy))
    lanes = np.ascontiguousarray(x if before > 1 else x[..., None])
    bits = lanes.view(np.dtype(dtype.numpy).newbyteorder("<"))
    return np.asarray(bits if after > 1 else bits[..., 0])


def _saturate(x: Values, dtype: DType) -> Values:
    low = -(1 << (dtype.bits - 1)) if dtype.is_signed else 0
    high = (1 << (dtype.bits - dtype.is_signed)) - 1
    x = np.trunc(np.nan_to_num(x, nan=0.0, posinf=np.inf, neginf=-np.inf))
    inside = np.where((x >= float(low)) & (x < float(high)), x, 0.0)
    wide = np.uint64 if dtype is dtypes.u64 else np.int64
    exact = inside.astype(wide).astype(dtype.numpy)
    top = np.asarray(high, dtype.numpy)
    bottom = np.asarray(low, dtype.numpy)
    return np.where(x >= float(high), top, np.where(x < float(low), bottom, exact))


def unary(op: str, x: Values, dtype: DType) -> Values:
    """`op` of `x`; `dtype` is the result's (bool for `is_nan`, else that of `x`)."""
    if op in _ANY_UNARY:
        return np.asarray(_ANY_UNARY[op](x))
    function = _FLOAT_UNARY.get(op)
    if function is None:
        raise InternalError(f"unknown unary operator '{op}'")
    if not dtype.is_float:
        if op in _ROUNDING:
            return x
        raise InternalError(f"operator '{op}' needs a float, got {dtype}")
    return np.asarray(function(x.astype(np.float64))).astype(dtype.numpy)


def binary(op: str, x: Values, y: Values, dtype: DType) -> Values:
    """`x op y`, both of `dtype`."""
    function = _BINARY.get(op)
    if function is None:
        raise InternalError(f"unknown binary operator '{op}'")
    return np.asarray(function(x, y, dtype)).astype(dtype.numpy, copy=False)


def _div(x: Values, y: Values, dtype: DType) -> Values:
    if dtype.is_float:
        return np.asarray(x / y)
    quotient = np.floor_divide(x, y)
    if not dtype.is_signed:
        return np.asarray(quotient)
    # numpy floors; step up where the floor went below the truncated quotient.
    inexact = (quotient * y != x) & ((x < 0) != (y < 0)) & (y != 0)
    return np.asarray(quotient + inexact.astype(x.dtype))


def _in_f64(function: np.ufunc, x: Values, y: Values, dtype: DType) -> Values:
    """A function of two numbers, of floats in f64 and rounded once."""
    if dtype.is_float:
        x, y = x.astype(np.float64), y.astype(np.float64)
    return np.asarray(function(x, y))


def _pow(x: Values, y: Values, dtype: DType) -> Values:
    if dtype.is_float:
        return _in_f64(np.power, x, y, dtype)
    return primitives.compute(primitives.integer_power(dtype), (x, y))


def _wide(x: Values, dtype: DType) -> Values:
    """Halves in f32, which numpy's functions take."""
    return x if dtype.bits >= 32 else x.astype(np.float32)


_BINARY: Final[dict[str, Callable[[Values, Values, DType], Values]]] = {
    "add": lambda x, y, _: np.asarray(x + y),
    "sub": lambda x, y, _: np.asarray(x - y),
    "mul": lambda x, y, _: np.asarray(x * y),
    "div": _div,
    "mod": lambda x, y, dtype: _in_f64(np.fmod, x, y, dtype),
    "floormod": lambda x, y, dtype: _in_f64(np.mod, x, y, dtype),
    "min": lambda x, y, _: np.asarray(np.minimum(x, y)),
    "max": lambda x, y, _: np.asarray(np.maximum(x, y)),
    "pow": _pow,
    "and": lambda x, y, _: np.asarray(x & y),
    "or": lambda x, y, _: np.asarray(x | y),
    "xor": lambda x, y, _: np.asarray(x ^ y),
    "shl": lambda x, y, _: np.asarray(np.left_shift(x, y)),
    "shr": lambda x, y, _: np.asarray(np.right_shift(x, y)),
    "copysign": lambda x, y, dtype: np.copysign(_wide(x, dtype), _wide(y, dtype)),
    "scale": lambda x, y, dtype: np.ldexp(_wide(x, dtype), y.astype(np.int32)),
}


def compare(op: str, x: Values, y: Values) -> Values:
    """`x op y` as bool; NaN compares false except with `ne`."""
    if op not in COMPARE_OPS:
        raise InternalError(f"unknown comparison '{op}'")
    return np.asarray(getattr(operator, op)(x, y))


def fma(a: Values, b: Values, c: Values, dtype: DType) -> Values:
    """`a * b + c`; the product is exact in the wider type it is computed in (f32 and below)."""
    if not dtype.is_float:
        return np.asarray(a * b + c)
    wide = np.longdouble if dtype is dtypes.f64 else np.float64
    return np.asarray(a.astype(wide) * b.astype(wide) + c.astype(wide)).astype(dtype.numpy)


def horizontal(op: str, x: Values, dtype: DType) -> Values:
    """Combine the last axis with `op`, in pairs (the order of a float sum is not specified)."""
    while x.shape[-1] > 1:
        half = x.shape[-1] // 2
        rest = x[..., 2 * half :]
        x = binary(op, x[..., :half], x[..., half : 2 * half], dtype)
        if rest.shape[-1]:
            x = np.concatenate([x, rest], -1)
    return np.asarray(x[..., 0])


def identity(op: str, dtype: DType) -> float:
    """The neutral element of `add`, `mul`, `min`, `max`, `and`, `or`, `xor` as a number."""
    if op in ("add", "or", "xor"):
        return 0
    if op == "mul":
        return 1
    if dtype.is_bool:
        return op in ("min", "and")
    if op == "and":
        return -1 if dtype.is_signed else (1 << dtype.bits) - 1
    if op not in ("min", "max"):
        raise InternalError(f"operator '{op}' has no neutral element")
    if dtype.is_float:
        return math.inf if op == "min" else -math.inf
    if op == "max":
        return -(1 << (dtype.bits - 1)) if dtype.is_signed else 0
    return (1 << (dtype.bits - dtype.is_signed)) - 1


def is_plain_number(value: float) -> bool:
    """Whether an f32 is above zero, far from the ends of the exponents, and its bits are not all ones.

    Quotients by such a number are products with its reciprocal and one correction (`lowering.multiply_quotients`).
    """
    mantissa, exponent = math.frexp(value)
    return abs(exponent) < _EXPONENTS and 0.5 <= mantissa < 1 - 2.0**-24
