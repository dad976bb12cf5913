"""Functions that no expression of the kernel IR can state: exact remainders, integer powers, huge angles.

They need loops or wide integers, and are rare.  Each is a `Function` without a body: here stands what it
computes, for the evaluator; each printer has machine code of its own for it (`functions` in `printers`).

Source: Payne and Hanek, Radian Reduction for Trigonometric Functions, 1983, for the angles.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.compiler.kernel.ir import Function

Values = np.ndarray[Any, np.dtype[Any]]

TWO_OVER_PI_WORDS: Final = (
    0x0000000000000000, 0xA2F9836E4E441529, 0xFC2757D1F534DDC0, 0xDB6295993C439041,
    0xFE5163ABDEBBC561, 0xB7246E3A424DD2E0, 0x06492EEA09D1921C, 0xFE1DEB1CB129A73E,
    0xE88235F52EBB4484, 0xE99C7026B45F7E41, 0x3991D639835339F4, 0x9C845F8BBDF9283B,
    0x1FF897FFDE05980F, 0xEF2F118B5A0A6D1F, 0x6D367ECF27CB09B7, 0x4F463F669E5FEA2D,
    0x7527BAC7EBE5F17B, 0x3D0739F78A5292EA, 0x6BFB5FB11F8D5D08, 0x56033046FC7B6BAB,
    0xF0CFBC209AF4361D, 0xA9E391615EE61B08,
)  # fmt: skip
"""64 zero bits, then the bits of 2/pi after the point."""
HALF_PI: Final = (
    float.fromhex("0x1.921fb54442d18p+0"),
    float.fromhex("0x1.1a62633145c07p-54"),
)
"""The sum of two f64."""

# --- the functions -----------------------------------------------------------------------------


def float_remainder() -> Function:
    """C's fmod of f64, exact."""
    return Function("fmod", (dtypes.f64, dtypes.f64), dtypes.f64)


def integer_power(dtype: DType) -> Function:
    """`x ** y` of integers, wrapping; a negative exponent truncates."""
    return Function("power", (dtype, dtype), dtype)


def angle_quadrant() -> Function:
    """N of a finite f64 x = n pi/2 + r with |r| <= pi/4, modulo 4 and as i32; any number of others."""
    return Function("angle_quadrant", (dtypes.f64,), dtypes.i32)


def angle_rest() -> Function:
    """R of the same, rounded to f64."""
    return Function("angle_rest", (dtypes.f64,), dtypes.f64)


def angle_error() -> Function:
    """What `angle_rest` lost by rounding, as f64."""
    return Function("angle_error", (dtypes.f64,), dtypes.f64)


# --- what they compute -------------------------------------------------------------------------


def _power(x: Values, y: Values) -> Values:
    negative = np.where(np.abs(x) == 1, np.where(y % 2 == 0, 1, x), 0)
    return np.asarray(np.where(y < 0, negative, np.power(x, np.maximum(y, 0))))


def _reduced(x: float) -> tuple[int, float, float]:
    if not math.isfinite(x):
        return 0, math.nan, math.nan
    bits = 64 * (len(TWO_OVER_PI_WORDS) - 1)
    digits = sum(w << 64 * i for i, w in enumerate(reversed(TWO_OVER_PI_WORDS)))
    two_over_pi = Fraction(digits, 1 << bits)
    turns = Fraction(x) * two_over_pi
    quadrant = round(turns)
    rest = (turns - quadrant) / two_over_pi
    near = float(rest)
    return quadrant % 4, near, float(rest - Fraction(near))


def _part(place: int, dtype: DType) -> Callable[[Values], Values]:
    def compute(x: Values) -> Values:
        found = [_reduced(float(value))[place] for value in x.ravel()]
        return np.asarray(found, dtype.numpy).reshape(x.shape)

    return compute


_PRIMITIVES: Final[dict[str, Callable[..., Values]]] = {
    "fmod": lambda x, y: np.asarray(np.fmod(x, y)),
    "power": _power,
    "angle_quadrant": _part(0, dtypes.i32),
    "angle_rest": _part(1, dtypes.f64),
    "angle_error": _part(2, dtypes.f64),
}


def compute(function: Function, operands: tuple[Values, ...]) -> Values:
    """The value of a primitive.  Raises: KeyError for a function that is none."""
    result = _PRIMITIVES[function.name](*operands)
    return result.astype(function.dtype.numpy, copy=False)
