"""What is known at import time about the elements of small tensors.

Shapes travel through ONNX models as data: `Shape`, `Gather`, `Concat`, arithmetic, `Reshape`.  The
graph IR has no shape tensors, so the importer follows the *contents* of small tensors here: arrays
of integers, symbolic dimensions, ratios of them and decided booleans.  One function per graph op;
what cannot be decided raises `UndecidedError` and the op is emitted as ordinary computation.  Not
constant folding (arrays without symbols go through the ops' own oracles).  Called by `emitter`.

Semantics: element domain follows the dtype: bool -> bool, integer -> Dim, float -> Ratio.  Values
are taken as mathematical numbers; integers do not wrap, ratios do not round.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, final

import numpy as np

from tilewright.base import symbolic
from tilewright.base.dtypes import DType
from tilewright.base.errors import TilewrightError
from tilewright.base.symbolic import Dim, Expr
from tilewright.compiler.graph.schema import Array

MAX_ELEMENTS: Final = 1024
MAX_DENOMINATOR: Final = 1 << 16
MAX_NUMBER: Final = (1 << 63) - 1
MAX_DEGREE: Final = 16
MAX_TERMS: Final = 64


@final
class UndecidedError(TilewrightError):
    """The contents do not follow from what is known; never reaches a user."""


@final
@dataclass(frozen=True, slots=True)
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
@dataclass(frozen=True, slots=True, eq=False)
class Contents:
    """The known elements of a tensor: an object array of bool, Dim or Ratio."""

    dtype: DType
    elements: np.ndarray[Any, np.dtype[np.object_]]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.elements.shape

    @property
    def constant(self) -> Array | None:
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


def from_array(array: Array, dtype: DType) -> Contents:
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


# --- arithmetic on single elements


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
        result = _ARITHMETIC["mul"](result, base)
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


_ARITHMETIC: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "add": _lift(lambda a, b: a + b, _add_ratio),
    "sub": _lift(lambda a, b: a - b, _sub_ratio),
    "mul": _lift(lambda a, b: a * b, _mul_ratio),
    "div": _lift(_truncated_division, _div_ratio),
    "min": _lift(symbolic.minimum, _extreme_ratio("min")),
    "max": _lift(symbolic.maximum, _extreme_ratio("max")),
    "pow": _power,
    "equal": _is_equal,
    "not_equal": lambda a, b: not _is_equal(a, b),
    "less": _is_less,
    "less_equal": lambda a, b: not _is_less(b, a),
    "greater": lambda a, b: _is_less(b, a),
    "greater_equal": lambda a, b: not _is_less(a, b),
    "logical_and": lambda a, b: a and b,
    "logical_or": lambda a, b: a or b,
    "logical_xor": lambda a, b: a != b,
}


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


_UNARY: Final[dict[str, Callable[[Any], Any]]] = {
    "identity": lambda v: v,
    "neg": _negative,
    "abs": _absolute,
    "sign": _sign,
    "floor": _floor,
    "ceil": _ceil,
    "round": _round,
    "logical_not": lambda v: not v,
    "relu": lambda v: _ARITHMETIC["max"](v, Ratio(0) if isinstance(v, Ratio) else 0),
}


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


# --- whole arrays

Attributes = Mapping[str, Any]
Operands = Sequence[Contents]
Rule = Callable[[Operands, Attributes], np.ndarray[Any, np.dtype[np.object_]]]


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


def _cast(operands: Operands, attributes: Attributes) -> Any:
    (x,) = operands
    to = attributes["dtype"]
    return _map(lambda v: _cast_element(v, x.dtype, to), x.elements)


def _where(operands: Operands, _: Attributes) -> Any:
    return _map(lambda c, a, b: a if c else b, *(o.elements for o in operands))


def _mod_rule(operands: Operands, attributes: Attributes) -> Any:
    if attributes.get("fmod") and not all(
        not isinstance(v, int | Expr) or _nonnegative(v) for v in operands[0].elements.flat
    ):
        raise UndecidedError("sign of a remainder")
    if operands[0].dtype.is_float:
        raise UndecidedError("remainder of ratios")
    return _map(_mod, operands[0].elements, operands[1].elements)


def _gather(operands: Operands, attributes: Attributes) -> Any:
    x, indices = operands[0].elements, _numbers(operands[1])
    axis = int(attributes["axis"])
    size = x.shape[axis]
    if np.any(indices < -size) or np.any(indices >= size):
        raise UndecidedError("index out of range")
    return np.take(x, np.where(indices < 0, indices + size, indices), axis=axis)


def _slice(operands: Operands, attributes: Attributes) -> Any:
    x = operands[0].elements
    starts = _integers(attributes["starts"])
    sizes = _integers(attributes["sizes"])
    rows = zip(attributes["axes"], starts, sizes, attributes["steps"], strict=True)
    for axis, start, size, step in rows:
        x = np.take(x, [start + step * i for i in range(size)], axis=axis)
    return x


def _reduce(combine: Callable[[Any, Any], Any]) -> Rule:
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


def _clip(operands: Operands, _: Attributes) -> Any:
    result = operands[0].elements
    for bound, name in zip(operands[1:], ("max", "min"), strict=False):
        result = _map(_ARITHMETIC[name], result, bound.elements)
    return result


def _full(operands: Operands, attributes: Attributes) -> Any:
    return np.broadcast_to(operands[0].elements, _integers(attributes["shape"]))


_RULES: Final[dict[str, Rule]] = {
    "cast": _cast,
    "where": _where,
    "mod": _mod_rule,
    "gather": _gather,
    "slice": _slice,
    "clip": _clip,
    "full": _full,
    "broadcast_to": _full,
    "reshape": lambda o, a: o[0].elements.reshape(_integers(a["shape"])),
    "transpose": lambda o, a: o[0].elements.transpose(a["perm"]),
    "concat": lambda o, a: np.concatenate([x.elements for x in o], axis=a["axis"]),
    "tile": lambda o, a: np.tile(o[0].elements, _integers(a["repeats"])),
    "reduce_sum": _reduce(_ARITHMETIC["add"]),
    "reduce_prod": _reduce(_ARITHMETIC["mul"]),
    "reduce_min": _reduce(_ARITHMETIC["min"]),
    "reduce_max": _reduce(_ARITHMETIC["max"]),
}


def follow(op: str, operands: Operands, attributes: Attributes, dtype: DType) -> Contents:
    """The contents of the only result of graph op `op`.

    Raises: UndecidedError when they do not follow, or the op is none of those followed.
    """
    if op in _UNARY:
        elements = _map(_UNARY[op], operands[0].elements)
    elif op in _ARITHMETIC:
        left, right = operands
        elements = _map(_ARITHMETIC[op], left.elements, right.elements)
    elif op in _RULES:
        elements = _boxed(_RULES[op](operands, attributes))
    else:
        raise UndecidedError(f"op '{op}'")
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
