"""The distinct elements of a tensor, or its distinct slices: how many there are is read from the data.

Made of ops whose sizes are known: a stable sort, marks where a group begins, places of the marks.  Called by the
rows of front ends.
"""

from __future__ import annotations

from typing import Final, final

from tilewright.base import dtypes
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit import computed, control
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.ops.shapes import element_count, normal_axis

_WRITTEN_OUT: Final = 4
"""Slices of up to so many elements are sorted without a loop."""


@final
@record
class Distinct:
    """What is in a tensor, once each.

    Attributes:
        values: the distinct elements, or slices along the axis.
        places: i64, where each is first.
        inverse: i64, for every element or slice, which of the values it is.
        counts: i64, how often each is there.
    """

    values: Tensor
    places: Tensor
    inverse: Tensor
    counts: Tensor


def distinct(
    e: NodeMaker, x: Tensor, axis: int | None = None, *, in_order: bool = True
) -> Distinct:
    """The distinct elements of `x`, or its distinct slices along `axis`.

    NaN is one value, behind all others; 0 and -0 are one.  Slices are compared from their first element on.

    Args:
        e: writes the nodes.
        x: of any element type.
        axis: None for elements.
        in_order: from the smallest to the largest, else as they first appear.

    Source: ONNX Unique, opset 11; numpy.unique for NaN.
    """
    if axis is None:
        x, axis = e.reshape(x, (element_count(x.shape),)), 0
    axis = normal_axis(axis, x.rank)
    rows = _rows(e, x, axis)
    size = rows.shape[0]
    order = _order(e, rows)
    begins = _begins(e, e.op("gather", rows, order, axis=0))
    group = e.op(
        "sub", e.op("cumsum", e.cast(begins, dtypes.i64), axis=0), computed.whole(e, 1)
    )
    places = e.op("gather", order, computed.true_places(e, begins, "distinct"), axis=0)
    (count,) = places.shape
    ones, none = e.full(1, dtypes.i64, (size,)), e.full(0, dtypes.i64, (count,))
    counts = e.op("scatter_elements", none, group, ones, axis=0, reduction="add")
    inverse = _scattered(e, size, order, group)
    if not in_order:
        places, picks = _sorted(e, places)
        counts = e.op("gather", counts, picks, axis=0)
        rank = _scattered(e, count, picks, e.iota((count,), 0))
        inverse = e.op("gather", rank, inverse, axis=0)
    return Distinct(e.op("gather", x, places, axis=axis), places, inverse, counts)


def _rows(e: NodeMaker, x: Tensor, axis: int) -> Tensor:
    """The slices along an axis as rows of a matrix whose elements can be ordered."""
    others = [i for i in range(x.rank) if i != axis]
    moved = e.transpose(x, (axis, *others))
    rows = e.reshape(moved, (x.shape[axis], element_count([x.shape[i] for i in others])))
    if x.dtype in dtypes.NUMERIC:
        return rows
    return e.cast(rows, dtypes.f32 if x.dtype.is_float else dtypes.i16)


def _sorted(e: NodeMaker, x: Tensor) -> tuple[Tensor, Tensor]:
    """A vector from the smallest to the largest, and where the elements were; equal ones keep their order."""
    values, places = e.ops("top_k", x, k=(x.shape[0],), axis=0, largest=False)
    return values, places


def _order(e: NodeMaker, rows: Tensor) -> Tensor:
    """Which row comes when: sorted by every column, from the last to the first."""
    size, width = rows.shape
    columns = e.transpose(rows, (1, 0))
    start = e.iota((size,), 0)

    def by_column(order: Tensor, column: Tensor) -> Tensor:
        _, picks = _sorted(e, e.op("gather", column, order, axis=0))
        return e.op("gather", order, picks, axis=0)

    if isinstance(width, int) and width <= _WRITTEN_OUT:
        order = start
        for place in reversed(range(width)):
            order = by_column(order, e.squeeze(e.slice(columns, 0, place, 1), (0,)))
        return order
    one = computed.whole(e, 1)

    def go_on(state: list[Tensor]) -> Tensor:
        return e.op("greater_equal", state[0], computed.whole(e, 0))

    def trip(state: list[Tensor]) -> list[Tensor]:
        place, order = state
        column = control.row_at(e, columns, place, 0)
        return [e.op("sub", place, one), by_column(order, column)]

    last = e.op("sub", e.dim(width), one)
    return control.loop(e, [last, start], go_on, trip)[1]


def _begins(e: NodeMaker, rows: Tensor) -> Tensor:
    """Whether a row is another than the one before it; true for the first."""
    (size, _), zero = rows.shape, computed.whole(e, 0)
    place = e.iota((size,), 0)
    before = e.op("max", e.op("sub", place, computed.whole(e, 1)), zero)
    other = e.op("gather", rows, before, axis=0)
    differs = e.op("not_equal", rows, other)
    if rows.dtype.is_float:
        numbers = e.op("logical_not", _both_nan(e, rows, other))
        differs = e.op("logical_and", differs, numbers)
    count = e.op("reduce_sum", e.cast(differs, dtypes.i64), axes=(1,), keepdims=False)
    is_other = e.op("greater", count, zero)
    return e.op("logical_or", is_other, e.op("equal", place, zero))


def _both_nan(e: NodeMaker, x: Tensor, y: Tensor) -> Tensor:
    return e.op("logical_and", e.op("is_nan", x), e.op("is_nan", y))


def _scattered(e: NodeMaker, size: Dim, places: Tensor, values: Tensor) -> Tensor:
    """A vector with each value at its place."""
    room = e.full(0, dtypes.i64, (size,))
    return e.op("scatter_elements", room, places, values, axis=0)
