"""Tensors of two numbers, where the places of their elements alone decide which of them is there.

So masks are written that hide later keys: `where(iota(keys) > iota(rows), -inf, 0)`, a triangle of a matrix, an
array with the same in it.  An element is followed back to what makes it, with its place as symbols:

    _levels(value, place)  ->  inside where `bound >= 0`, outside elsewhere

Exact; None for whatever is not surely so.  Called by `attention_scores` and `recognize_attention`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, cast, final

import numpy as np

from tilewright.base import dtypes, symbolic
from tilewright.base.dtypes import DType
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.graph.schema import Array
from tilewright.compiler.ops.ranges import is_at_least
from tilewright.compiler.ops.shapes import broadcast_indices
from tilewright.compiler.passes import Emitter, attempt, given, need
from tilewright.compiler.transforms.matching import constant_of, made, splat_of

HIDING: Final = -1e30
"""A finite score that no other score is added to up to where its power shows."""
_DEPTH: Final = 32  # ops that are followed back
_LARGEST: Final = 1 << 22  # elements of an array that is looked at whole
_FAR: Final = 1 << 24  # sums of so many of them as are followed back do not wrap
_COUNTS: Final = (dtypes.i32, dtypes.i64)
"""Types in which sums of a few places do not wrap; differences of unsigned numbers do."""
_AXIS: Final = "place along "  # no size has such a name
_ROW, _KEY = (symbolic.symbol(f"{_AXIS}{name}", 0) for name in ("rows", "keys"))

Place = Sequence[Dim]


@final
@record
class _Threshold:
    """`inside` where `bound >= 0`, `outside` elsewhere."""

    bound: Dim
    inside: float
    outside: float

    def mapped(self, change: Callable[[float], float]) -> _Threshold:
        """Both numbers changed."""
        return _Threshold(self.bound, change(self.inside), change(self.outside))


# --- numbers of a place ----------------------------------------------------------------------


def _element(value: Value, place: Place, depth: int = _DEPTH) -> Dim:
    """The integer at a place, as a dimension of what is in the place.  Raises: NoMatchError if data decides it."""
    array = constant_of(value)
    if array is not None:
        return _of_progression(array, place)
    node = made(value)
    need(depth and value.type.dtype in _COUNTS)
    if node.schema.places is not None:
        return _element(node.operand(), _source(node, place), depth - 1)
    return given(_ELEMENTS.get(node.op))(node, place, depth - 1)


def _counted(node: Node, place: Place, _: int) -> Dim:
    return place[node.number("axis") % len(place)]


def _size(node: Node, place: Place, _: int) -> Dim:
    (at,) = place
    return node.dims("values")[given(at if isinstance(at, int) else None)]


def _added(node: Node, place: Place, depth: int) -> Dim:
    left, right = (_at(node.operand(i), place, depth) for i in range(2))
    return left + right if node.op == "add" else left - right


_ELEMENTS: Final[Mapping[str, Callable[[Node, Place, int], Dim]]] = {
    "iota": _counted,
    "shape_tensor": _size,
    "add": _added,
    "sub": _added,
    "cast": lambda node, place, depth: _element(node.operand(), place, depth),
}


def _at(value: Value, place: Place, depth: int) -> Dim:
    """The integer of an operand that is broadcast to a result with this place."""
    return _element(value, broadcast_indices(value.type.shape, place), depth)


def _source(node: Node, place: Place) -> Place:
    """Where an element that is moved comes from."""
    assert node.schema.places is not None, "it moves elements"
    return node.schema.places(node.attributes, node.operand().type.shape, place)


def _of_progression(array: Array, place: Place) -> Dim:
    """What an array counts along its axes."""
    need(dtypes.from_numpy(array.dtype) in _COUNTS and 0 < array.size <= _LARGEST)
    first = int(array[(0,) * array.ndim])
    need(abs(first) < _FAR)
    total: Dim = first
    counted = np.full((1,) * array.ndim, first, np.int64)
    for axis, (size, at) in enumerate(zip(array.shape, place, strict=True)):
        if size == 1:
            continue
        second = array[tuple(int(other == axis) for other in range(array.ndim))]
        step = int(second) - first
        need(abs(step) * size < _FAR)
        lined = [-1 if other == axis else 1 for other in range(array.ndim)]
        counted = counted + (step * np.arange(size)).reshape(lined)
        total = total + step * at
    need(np.array_equal(array, counted))
    return total


# --- two numbers -----------------------------------------------------------------------------


def _levels(value: Value, place: Place, depth: int = _DEPTH) -> _Threshold:
    """The two numbers, or truth values, of a tensor, and where which of them is."""
    array = constant_of(value)
    if array is not None:
        return _of_triangle(array, place)
    node = made(value)
    need(depth)
    if node.schema.places is not None:
        return _levels(node.operand(), _source(node, place), depth - 1)
    return given(_LEVELS.get(node.op))(node, place, depth - 1)


_BOUNDS: Final[Mapping[str, Callable[[Dim, Dim], Dim]]] = {
    "less": lambda a, b: b - a - 1,
    "less_equal": lambda a, b: b - a,
    "greater": lambda a, b: a - b - 1,
    "greater_equal": lambda a, b: a - b,
}
"""What is at least 0 where a comparison holds."""

_CHANGES: Final[Mapping[str, Callable[[float, float], float]]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
}


def _compared(node: Node, place: Place, depth: int) -> _Threshold:
    left, right = (_at(node.operand(i), place, depth) for i in range(2))
    return _Threshold(_BOUNDS[node.op](left, right), 1.0, 0.0)


def _cut(node: Node, place: Place, _: int) -> _Threshold:
    """A triangle of a matrix of one number, zeros elsewhere."""
    filled, diagonal = given(splat_of(node.operand())), node.optional_operand(1)
    offset = 0 if diagonal is None else given(splat_of(diagonal))
    behind = place[-1] - place[-2] - int(offset)
    return _Threshold(behind if node.flag("upper") else -behind, float(filled), 0.0)


def _chosen(node: Node, place: Place, depth: int) -> _Threshold:
    """A choice between two numbers, by a truth value that has two levels."""
    x, y = (given(splat_of(node.operand(i))) for i in (1, 2))
    condition = node.operand(0)
    found = _levels(condition, broadcast_indices(condition.type.shape, place), depth)
    return found.mapped(lambda chosen: float(x if chosen else y))


def _changed(node: Node, place: Place, depth: int) -> _Threshold:
    """Two numbers that become two others."""
    one, becomes = _change(node)
    return _levels(one, broadcast_indices(one.type.shape, place), depth).mapped(becomes)


def _change(node: Node) -> tuple[Value, Callable[[float], float]]:
    """The operand that decides, and what each of its numbers becomes: arithmetic of it and one number, casts, `not`."""
    dtype = node.result.type.dtype
    if node.op == "logical_not":
        return node.operand(), lambda x: float(not x)
    if node.op == "cast":
        return node.operand(), lambda x: _as(dtype, x)
    need(node.op in _CHANGES and dtype.is_float)
    change, left, right = _CHANGES[node.op], node.operand(0), node.operand(1)
    x, y = splat_of(left), splat_of(right)
    need((x is None) != (y is None))
    if y is not None:
        return left, lambda a: _as(dtype, change(a, float(y)))
    return right, lambda b: _as(dtype, change(float(cast("float", x)), b))


def _as(dtype: DType, number: float) -> float:
    """A number as the type holds it; what no integer holds is no number."""
    if dtype.is_integer and not math.isfinite(number):
        return math.nan
    with np.errstate(over="ignore"):
        return float(np.float64(number).astype(dtype.numpy))


_LEVELS: Final[Mapping[str, Callable[[Node, Place, int], _Threshold]]] = {
    **dict.fromkeys(_BOUNDS, _compared),
    **dict.fromkeys((*_CHANGES, "logical_not", "cast"), _changed),
    "trilu": _cut,
    "where": _chosen,
}


def _of_triangle(array: Array, place: Place) -> _Threshold:
    """An array of one number up to a diagonal, and another behind it; all of its matrices are alike."""
    need(array.ndim >= 2 and 0 < array.size <= _LARGEST)
    rows, keys = array.shape[-2:]
    kind = dtypes.from_numpy(array.dtype)
    matrices = array.reshape(-1, rows, keys)
    flat = matrices[0]
    need((matrices == flat).all())
    if not kind.is_bool:
        flat = flat.astype(np.float64)
    first = int(np.count_nonzero(flat[0] == flat[0, 0]))
    shown = np.tril(np.ones((rows, keys), bool), first - 1)
    hidden = flat[~shown]
    need(first and hidden.size and _is_one(flat[shown]) and _is_one(hidden))
    inside, outside = float(flat[0, 0]), float(hidden[0])
    return _Threshold(place[-2] + (first - 1) - place[-1], inside, outside)


def _is_one(numbers: np.ndarray) -> bool:
    return bool((numbers == numbers[0]).all())


# --- numbers of another tensor ---------------------------------------------------------------


@final
@record
class TwoNumbers:
    """`inside` where a tensor of truth values, or an array of such, is true, `outside` elsewhere."""

    source: Value | Array
    inside: float
    outside: float

    def condition(self, emit: Emitter) -> Value:
        """The truth values."""
        source = self.source
        return source if isinstance(source, Value) else emit.constant(source)

    def mapped(self, change: Callable[[float], float]) -> TwoNumbers:
        """Both numbers changed."""
        return TwoNumbers(self.source, change(self.inside), change(self.outside))

    def where(self, other: TwoNumbers | None) -> TwoNumbers | None:
        """The same numbers, by the truth values of `other`; None where those are others."""
        mine, theirs = self.source, None if other is None else other.source
        if isinstance(mine, Value) or isinstance(theirs, Value) or theirs is None:
            return self if mine is theirs else None
        if np.array_equal(mine, theirs):
            return self
        is_other = np.array_equal(mine, np.logical_not(theirs))
        return TwoNumbers(theirs, self.outside, self.inside) if is_other else None


def two_numbers(value: Value) -> TwoNumbers | None:
    """The two numbers that floats are, by truth values that stand where they do."""
    changes: list[Callable[[float], float]] = []
    shape, found = value.type.shape, None
    while value.node is not None and (found := attempt(_change, value.node)) is not None:
        value = found[0]
        changes.append(found[1])
        if value.type.shape != shape:
            return None
    levels = _of_truth(value)
    for change in reversed(changes):
        levels = None if levels is None else levels.mapped(change)
    return levels


def _of_truth(value: Value) -> TwoNumbers | None:
    array = constant_of(value)
    if array is None or not value.type.dtype.is_float or not 0 < array.size <= _LARGEST:
        return TwoNumbers(value, 1.0, 0.0) if value.type.dtype.is_bool else None
    high, low = array.max(), array.min()
    is_two = high != low and bool(((array == high) | (array == low)).all())
    return TwoNumbers(array == high, float(high), float(low)) if is_two else None


# --- causal masks ----------------------------------------------------------------------------


def causal_offset(value: Value, scores: Sequence[Dim], *, alone: bool) -> Dim:
    """`o`, at least 0, of what adds 0 to keys up to row + o and hides the others.

    A finite number hides only where nothing else is added: in a row that has nothing but such, scores would
    count again.

    Args:
        value: what is added.
        scores: the shape that it is broadcast to.
        alone: nothing else is added.

    Raises: NoMatchError for anything else.
    """
    shape = value.type.shape
    need(len(shape) >= 2 and tuple(shape[-2:]) == tuple(scores[-2:]))
    found = _levels(value, _place(shape))
    bound, hidden = found.bound, found.outside
    if found.outside == 0:
        bound, hidden = -found.bound - 1, found.inside
    need(0 in (found.inside, found.outside))
    offset = bound - _ROW + _KEY
    need(not any(_is_place(symbol) for symbol in symbolic.symbols(offset)))
    need((hidden <= HIDING if alone else hidden == -math.inf) and is_at_least(offset, 0))
    return offset


def shows_a_key(lost: Value) -> bool:
    """Whether `lost`, which asks in which rows a mask hides every key, asks it of one that shows a key in each."""
    return attempt(_causal_offset_of_keys, lost) is not None


def _causal_offset_of_keys(lost: Value) -> Dim:
    """The offset of a causal mask of which `lost` asks in which rows its largest number hides."""
    question = made(lost, "equal")
    most, mask = made(question.operand(), "reduce_max"), made(question.operand()).operand()
    need(splat_of(question.operand(1)) == -math.inf)
    need([axis % mask.type.rank for axis in most.ints("axes")] == [mask.type.rank - 1])
    return causal_offset(mask, mask.type.shape, alone=True)


def _place(shape: Sequence[Dim]) -> Place:
    """The place of any element of a mask, as symbols."""
    outer = (symbolic.symbol(f"{_AXIS}{axis}", 0) for axis in range(len(shape) - 2))
    return (*outer, _ROW, _KEY)


def _is_place(symbol: symbolic.Symbol) -> bool:
    """Whether a symbol stands for a place, not for a size."""
    return symbol.name.startswith(_AXIS)
