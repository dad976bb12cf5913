"""What is known about the elements of small tensors before anything runs.

Shapes travel through models as data: ONNX's `Shape`, `Gather`, `Concat`, arithmetic, `Reshape`.  The graph IR has no
shape tensors, so front ends follow the *contents* of small tensors: arrays of integers, symbolic dimensions, ratios of
them and decided booleans.  An op's row says how its result follows (`OpSchema.contents`, rules in `ops/contents.py`);
what cannot be decided raises `UndecidedError` and the op is emitted as ordinary computation.  Not constant folding
(arrays without symbols go through the ops' own oracles).

Semantics: element domain follows the dtype: bool -> bool, integer -> Dim, float -> Ratio.  Values are taken as
mathematical numbers; integers do not wrap, ratios do not round.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final, final

import numpy as np

from tilewright.base import symbolic
from tilewright.base.dtypes import DType
from tilewright.base.errors import TilewrightError
from tilewright.base.record import record
from tilewright.base.symbolic import Dim, Expr

MAX_ELEMENTS: Final = 1024
MAX_DENOMINATOR: Final = 1 << 16
MAX_NUMBER: Final = (1 << 63) - 1
MAX_DEGREE: Final = 16
MAX_TERMS: Final = 64


@final
class UndecidedError(TilewrightError):
    """The contents do not follow from what is known; never reaches a user."""


@final
@record
class Ratio:
    """`numerator / denominator`, a float computed from dimensions; the denominator is >= 1."""

    numerator: Dim
    denominator: int = 1

    @property
    def integer(self) -> Dim | None:
        """The value when it surely is an integer."""
        if symbolic.is_multiple(self.numerator, self.denominator):
            return symbolic.floordiv(self.numerator, self.denominator)
        return None


@final
@record(eq=False)
class Contents:
    """The known elements of a tensor: an object array of bool, Dim or Ratio."""

    dtype: DType
    elements: np.ndarray[Any, np.dtype[np.object_]]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.elements.shape

    @property
    def constant(self) -> np.ndarray[Any, Any] | None:
        """The elements as an ordinary array, when no symbol is among them."""
        flat: list[object] = []
        for item in self.elements.flat:
            value = item
            if isinstance(item, Ratio):
                value = (
                    item.numerator / item.denominator
                    if isinstance(item.numerator, int)
                    else item.numerator
                )
            if isinstance(value, Expr):
                return None
            flat.append(value)
        try:
            return np.array(flat, self.dtype.numpy).reshape(self.shape)
        except OverflowError:
            raise UndecidedError("value does not fit its type") from None


def known(dtype: DType, items: Sequence[object], shape: tuple[int, ...]) -> Contents:
    """Contents from a flat list of elements."""
    elements = np.empty(len(items), object)
    for index, item in enumerate(items):
        elements[index] = item
    return Contents(dtype, elements.reshape(shape))


def from_array(array: np.ndarray[Any, Any], dtype: DType) -> Contents:
    """Contents of a constant.  Raises: UndecidedError when it is large or not finite."""
    if array.size > MAX_ELEMENTS:
        raise UndecidedError("too large")
    values = array.reshape(-1).tolist()
    if dtype.is_float:
        values = [_ratio(float(v)) for v in values]
    return known(dtype, [int(v) if dtype.is_integer else v for v in values], array.shape)


def _ratio(value: float) -> Ratio:
    if not math.isfinite(value):
        raise UndecidedError("not finite")
    fraction = Fraction(value)
    if fraction.denominator > MAX_DENOMINATOR:
        raise UndecidedError("no short ratio")
    return Ratio(fraction.numerator, fraction.denominator)


# --- following one op

Operands = Sequence[Contents]
Attributes = Mapping[str, Any]
Follow = Callable[[Operands, Attributes], "np.ndarray[Any, np.dtype[np.object_]]"]
"""(contents of the present operands, attributes) -> the elements of the only result."""


def follow(
    rule: Follow | None, operands: Operands, attributes: Attributes, dtype: DType
) -> Contents:
    """The contents of a result, of elements of `dtype`, by the rule of its op.

    Raises: UndecidedError when they do not follow, or there is no rule.
    """
    if rule is None:
        raise UndecidedError("the op is not followed")
    elements = _boxed(rule(operands, attributes))
    if elements.size > MAX_ELEMENTS or any(_is_absurd(v) for v in elements.flat):
        raise UndecidedError("too large")
    return Contents(dtype, elements)


def _boxed(value: Any) -> np.ndarray[Any, np.dtype[np.object_]]:
    """`value` as an object array; numpy hands out the bare element of a rank 0 result."""
    if isinstance(value, np.ndarray):
        return value
    boxed = np.empty((), object)
    boxed[()] = value
    return boxed


def _is_absurd(value: object) -> bool:
    """Whether a number outgrew what shapes need; hostile models square them again and again."""
    if isinstance(value, Ratio):
        return value.denominator > MAX_DENOMINATOR**2 or _is_absurd(value.numerator)
    if isinstance(value, Expr):
        degree = max(len(monomial) for monomial, _ in value.terms)
        return degree > MAX_DEGREE or len(value.terms) > MAX_TERMS
    return isinstance(value, int) and abs(value) > MAX_NUMBER
