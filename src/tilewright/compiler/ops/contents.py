"""How the contents of results follow from those of operands: what rows of ops name.

Elements are booleans, dimensions or ratios of them (`graph/contents.py`).  A rule that cannot decide raises
`UndecidedError`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from tilewright.base import symbolic
from tilewright.base.dtypes import DType
from tilewright.base.symbolic import Dim, Expr
from tilewright.compiler.graph.contents import (
    Attributes,
    Contents,
    Follow,
    Operands,
    Ratio,
    UndecidedError,
)

# --- arithmetic on single elements ------------------------------------------------------------


def _make(numerator: Dim, denominator: int) -> Ratio:
    if denominator < 0:
        numerator, denominator = numerator * -1, -denominator
    ratio = Ratio(numerator, denominator)
    whole = ratio.integer
    return ratio if whole is None else Ratio(whole)


def _lift(
    integers: Callable[[Dim, Dim], Dim], ratios: Callable[[Ratio, Ratio], Ratio]
) -> Callable[[Any, Any], Any]:
    """One function over the integer and the float domain."""

    def apply(left: Any, right: Any) -> Any:
        if isinstance(left, Ratio):
            return ratios(left, right)
        return integers(left, right)

    return apply


def _common(left: Ratio, right: Ratio) -> tuple[Dim, Dim, int]:
    """Both numerators over one denominator."""
    return (
        left.numerator * right.denominator,
        right.numerator * left.denominator,
        left.denominator * right.denominator,
    )


def _add_ratio(left: Ratio, right: Ratio) -> Ratio:
    a, b, denominator = _common(left, right)
    return _make(a + b, denominator)


def _sub_ratio(left: Ratio, right: Ratio) -> Ratio:
    a, b, denominator = _common(left, right)
    return _make(a - b, denominator)


def _mul_ratio(left: Ratio, right: Ratio) -> Ratio:
    return _make(left.numerator * right.numerator, left.denominator * right.denominator)


def _div_ratio(left: Ratio, right: Ratio) -> Ratio:
    above = left.numerator * right.denominator
    below = right.numerator * left.denominator
    if isinstance(below, int) and below != 0:
        return _make(above, below)
    if isinstance(below, Expr) and symbolic.mod(above, below) == 0:
        return Ratio(symbolic.floordiv(above, below))
    raise UndecidedError("division by an unknown number")


def _extreme_ratio(name: str) -> Callable[[Ratio, Ratio], Ratio]:
    def pick(left: Ratio, right: Ratio) -> Ratio:
        a, b, _ = _common(left, right)
        chosen = symbolic.minimum(a, b) if name == "min" else symbolic.maximum(a, b)
        if chosen == a:
            return left
        if chosen == b:
            return right
        if left.denominator == right.denominator == 1:
            return Ratio(chosen)
        raise UndecidedError("order of two ratios")

    return pick


def _nonnegative(value: Dim) -> bool:
    lower = symbolic.bounds(value)[0]
    return lower is not None and lower >= 0


def _truncated_division(left: Dim, right: Dim) -> Dim:
    """Integer division that rounds toward zero."""
    if isinstance(left, int) and isinstance(right, int):
        if right == 0:
            raise UndecidedError("division by zero")
        quotient = abs(left) // abs(right)
        return quotient if (left < 0) == (right < 0) else -quotient
    if isinstance(right, int) and right < 0:
        return _truncated_division(left, -right) * -1
    if not _nonnegative(left) or not _positive(right):
        raise UndecidedError("sign of a quotient")
    return symbolic.floordiv(left, right)


def _positive(value: Dim) -> bool:
    lower = symbolic.bounds(value)[0]
    return lower is not None and lower >= 1


def _mod(left: Dim, right: Dim) -> Dim:
    if not _positive(right):
        raise UndecidedError("sign of a divisor")
    lower = symbolic.bounds(right)[0]
    if isinstance(left, int) and lower is not None and -lower <= left < 0:
        # An index counted from the end, as exporters wrap it.
        return right + left
    return symbolic.mod(left, right)


def _power(base: Any, exponent: Any) -> Any:
    power = exponent.integer if isinstance(exponent, Ratio) else exponent
    if not isinstance(power, int) or not 0 <= power <= 8:
        raise UndecidedError("exponent")
    result: Any = Ratio(1) if isinstance(base, Ratio) else 1
    for _ in range(power):
        result = _mul(result, base)
    return result


def _difference(left: Any, right: Any) -> tuple[int | None, int | None]:
    """Bounds of `left - right`."""
    if isinstance(left, Ratio):
        a, b, _ = _common(left, right)
        return symbolic.bounds(a - b)
    return symbolic.bounds(left - right)


def _is_equal(left: Any, right: Any) -> bool:
    lower, upper = _difference(left, right)
    if lower == 0 and upper == 0:
        return True
    if (lower is not None and lower > 0) or (upper is not None and upper < 0):
        return False
    raise UndecidedError("equality of two dimensions")


def _is_less(left: Any, right: Any) -> bool:
    lower, upper = _difference(left, right)
    if upper is not None and upper < 0:
        return True
    if lower is not None and lower >= 0:
        return False
    raise UndecidedError("order of two dimensions")


_add: Final = _lift(lambda a, b: a + b, _add_ratio)
_mul: Final = _lift(lambda a, b: a * b, _mul_ratio)
_min: Final = _lift(symbolic.minimum, _extreme_ratio("min"))
_max: Final = _lift(symbolic.maximum, _extreme_ratio("max"))


def _floor(value: Any) -> Any:
    if not isinstance(value, Ratio):
        return value
    return Ratio(symbolic.floordiv(value.numerator, value.denominator))


def _ceil(value: Any) -> Any:
    if not isinstance(value, Ratio):
        return value
    return Ratio(symbolic.ceildiv(value.numerator, value.denominator))


def _round(value: Any) -> Any:
    whole = value.integer if isinstance(value, Ratio) else value
    if whole is None:
        raise UndecidedError("rounding of a ratio")
    return value


def _absolute(value: Any) -> Any:
    if _is_less(value, Ratio(0) if isinstance(value, Ratio) else 0):
        return _negative(value)
    return value


def _negative(value: Any) -> Any:
    if isinstance(value, Ratio):
        return Ratio(value.numerator * -1, value.denominator)
    return value * -1


def _sign(value: Any) -> Any:
    zero: Any = Ratio(0) if isinstance(value, Ratio) else 0
    sign = 1 if _is_less(zero, value) else (0 if _is_equal(value, zero) else -1)
    return Ratio(sign) if isinstance(value, Ratio) else sign


def _rectified(value: Any) -> Any:
    return _max(value, _zero_like(value))


def _cast_element(value: Any, source: DType, to: DType) -> Any:
    if to.is_bool:
        return value if source.is_bool else not _is_equal(value, _zero_like(value))
    if source.is_bool:
        value = int(value)
    if to.is_float:
        return value if isinstance(value, Ratio) else Ratio(value)
    if not isinstance(value, Ratio):
        return value
    if not _nonnegative(value.numerator):
        whole = value.integer
        if whole is None:
            raise UndecidedError("sign of a truncated ratio")
        return whole
    return symbolic.floordiv(value.numerator, value.denominator)


def _zero_like(value: Any) -> Any:
    return Ratio(0) if isinstance(value, Ratio) else 0


# --- whole arrays -----------------------------------------------------------------------------


def _map(function: Callable[..., Any], *arrays: np.ndarray[Any, Any]) -> Any:
    """`function` over broadcast object arrays; results stay objects, also for rank 0."""
    views = np.broadcast_arrays(*arrays)
    result = np.empty(views[0].shape, object)
    for index in np.ndindex(result.shape):
        result[index] = function(*(v[index] for v in views))
    return result


def _numbers(contents: Contents) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The elements as plain integers.  Raises: UndecidedError when one is symbolic."""
    if not all(isinstance(v, int) for v in contents.elements.flat):
        raise UndecidedError("symbolic index")
    return contents.elements.astype(np.int64)


def _integers(dims: Sequence[Dim]) -> tuple[int, ...]:
    if not all(isinstance(d, int) for d in dims):
        raise UndecidedError("symbolic attribute")
    return tuple(int(d) for d in dims if isinstance(d, int))


def converted(operands: Operands, attributes: Attributes) -> Any:
    """Conversion of value."""
    (x,) = operands
    to = attributes["dtype"]
    return _map(lambda v: _cast_element(v, x.dtype, to), x.elements)


def chosen(operands: Operands, _: Attributes) -> Any:
    """Elements of one operand or the other, where the condition is decided."""
    return _map(lambda c, a, b: a if c else b, *(o.elements for o in operands))


def remainder(operands: Operands, attributes: Attributes) -> Any:
    """Remainder with the sign of the divisor."""
    if attributes.get("fmod") and not all(
        not isinstance(v, int | Expr) or _nonnegative(v) for v in operands[0].elements.flat
    ):
        raise UndecidedError("sign of a remainder")
    if operands[0].dtype.is_float:
        raise UndecidedError("remainder of ratios")
    return _map(_mod, operands[0].elements, operands[1].elements)


def gathered(operands: Operands, attributes: Attributes) -> Any:
    """Slices at indices that are known."""
    x, indices = operands[0].elements, _numbers(operands[1])
    axis = int(attributes["axis"])
    size = x.shape[axis]
    low = -size if attributes.get("from_end", True) else 0
    if np.any(indices < low) or np.any(indices >= size):
        raise UndecidedError("index out of range")
    return np.take(x, np.where(indices < 0, indices + size, indices), axis=axis)


def sliced(operands: Operands, attributes: Attributes) -> Any:
    """A cut at places that are known."""
    x = operands[0].elements
    starts = _integers(attributes["starts"])
    sizes = _integers(attributes["sizes"])
    steps = attributes["steps"] or (1,) * len(starts)
    rows = zip(attributes["axes"], starts, sizes, steps, strict=True)
    for axis, start, size, step in rows:
        x = np.take(x, [start + step * i for i in range(size)], axis=axis)
    return x


def _reduced(combine: Callable[[Any, Any], Any]) -> Follow:
    def rule(operands: Operands, attributes: Attributes) -> Any:
        (x,) = operands
        result = x.elements
        axes = sorted({a % result.ndim for a in attributes["axes"]}) if result.ndim else []
        for axis in reversed(axes):
            pieces = [np.take(result, [i], axis=axis) for i in range(result.shape[axis])]
            if not pieces:
                raise UndecidedError("empty reduction")
            total = pieces[0]
            for piece in pieces[1:]:
                total = _map(combine, total, piece)
            result = total
        if not attributes["keepdims"]:
            result = result.reshape(
                [d for i, d in enumerate(result.shape) if i not in axes]
            )
        return result

    return rule


def clamped(operands: Operands, _: Attributes) -> Any:
    """Limited by one bound or two."""
    result = operands[0].elements
    for bound, bound_by in zip(operands[1:], (_max, _min), strict=False):
        result = _map(bound_by, result, bound.elements)
    return result


def filled(operands: Operands, attributes: Attributes) -> Any:
    """One shape broadcast to another."""
    return np.broadcast_to(operands[0].elements, _integers(attributes["shape"]))


def reshaped(operands: Operands, attributes: Attributes) -> Any:
    """The same elements under another shape."""
    return operands[0].elements.reshape(_integers(attributes["shape"]))


def transposed(operands: Operands, attributes: Attributes) -> Any:
    """Axes in another order."""
    return operands[0].elements.transpose(attributes["perm"])


def joined(operands: Operands, attributes: Attributes) -> Any:
    """Operands one behind the other."""
    return np.concatenate([x.elements for x in operands], axis=attributes["axis"])


def repeated(operands: Operands, attributes: Attributes) -> Any:
    """The operand several times along each axis."""
    return np.tile(operands[0].elements, _integers(attributes["repeats"]))


def _each(function: Callable[..., Any]) -> Follow:
    """A function of single elements, over operands that broadcast."""
    return lambda operands, _: _map(function, *(x.elements for x in operands))


SUM: Final = _each(_add)
DIFFERENCE: Final = _each(_lift(lambda a, b: a - b, _sub_ratio))
PRODUCT: Final = _each(_mul)
QUOTIENT: Final = _each(_lift(_truncated_division, _div_ratio))
SMALLER: Final = _each(_min)
LARGER: Final = _each(_max)
POWER: Final = _each(_power)
EQUAL: Final = _each(_is_equal)
NOT_EQUAL: Final = _each(lambda a, b: not _is_equal(a, b))
LESS: Final = _each(_is_less)
LESS_EQUAL: Final = _each(lambda a, b: not _is_less(b, a))
GREATER: Final = _each(lambda a, b: _is_less(b, a))
GREATER_EQUAL: Final = _each(lambda a, b: not _is_less(a, b))
BOTH: Final = _each(lambda a, b: a and b)
EITHER: Final = _each(lambda a, b: a or b)
ONE: Final = _each(lambda a, b: a != b)
SAME: Final = _each(lambda v: v)
NEGATIVE: Final = _each(_negative)
ABSOLUTE: Final = _each(_absolute)
SIGN: Final = _each(_sign)
FLOOR: Final = _each(_floor)
CEILING: Final = _each(_ceil)
ROUNDED: Final = _each(_round)
NOT: Final = _each(lambda v: not v)
RECTIFIED: Final = _each(_rectified)
TOTAL: Final = _reduced(_add)
TOTAL_PRODUCT: Final = _reduced(_mul)
SMALLEST: Final = _reduced(_min)
LARGEST: Final = _reduced(_max)
