"""Sequences whose length a call decides: what their operators are of the one tensor that holds the items.

Such a sequence comes of a loop that carries one, of branches that give different numbers of items, and of splitting an
axis of dynamic size.  Its items have one type.  Called by `sequences` and `control`.

Source: ONNX operator reference (Sequence*, SplitToSequence, ConcatFromSequence).
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.base import dtypes
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit import control
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.values import (
    Held,
    StackedSequence,
    TensorSequence,
)
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.ops.shapes import normal_axis


def item_type(held: Held) -> TensorType | None:
    """The type of the items of a sequence; None where it has none, or they have several.

    Raises: UnsupportedError for what is no sequence.
    """
    if isinstance(held, StackedSequence):
        return TensorType(held.items.dtype, held.items.shape[1:])
    if not isinstance(held, TensorSequence):
        raise UnsupportedError("a value is a sequence or something else, depending on data")
    types = {item.type for item in held.items}
    return types.pop() if len(types) == 1 else None


def stacked(e: NodeMaker, held: Held, item: TensorType | None) -> Tensor:
    """The items of a sequence as one tensor.

    Args:
        e: writes the nodes.
        held: the sequence.
        item: the type of its items, which it may have none of.

    Raises: UnsupportedError where they have several types, or none is known.
    """
    if isinstance(held, StackedSequence):
        return held.items
    found = item_type(held)
    assert isinstance(held, TensorSequence), "looked at"
    if found is None and held.items:
        raise UnsupportedError(
            "a sequence whose length depends on data has items of several types"
        )
    if found is None:
        if item is None:
            raise UnsupportedError("nothing tells the type of the items of a sequence")
        return e.full(0, item.dtype, (0, *item.shape))
    return e.concat([e.unsqueeze(x, (0,)) for x in held.items], 0)


def length(e: NodeMaker, held: StackedSequence) -> Tensor:
    """How many items there are."""
    return e.dim(held.items.shape[0])


def at(e: NodeMaker, held: StackedSequence, place: Tensor) -> Tensor:
    """The item at a place, counted from the end where it is negative; another is refused in the call."""
    found = place_among(e, place, length(e, held), 1)
    return e.op("gather", held.items, found, axis=0)


def insert(
    e: NodeMaker, held: StackedSequence, x: Tensor, place: Tensor | None
) -> StackedSequence:
    """With one more item, behind the last where no place is given."""
    items = held.items
    more = e.concat([items, _as_item(e, x, items)], 0)
    if place is not None:
        count = length(e, held)
        found = place_among(e, place, count, 0)
        numbers = e.iota((more.shape[0],), 0)
        one = e.scalar(1, dtypes.i64)
        before = e.op("less", numbers, found)
        source = e.op(
            "where", e.op("equal", numbers, found), count, e.op("sub", numbers, one)
        )
        more = e.op("gather", more, e.op("where", before, numbers, source), axis=0)
    return StackedSequence(more, held.decided_by)


def erase(e: NodeMaker, held: StackedSequence, place: Tensor | None) -> StackedSequence:
    """Without one item, the last where no place is given."""
    count = length(e, held)
    last = e.op("sub", count, e.scalar(1, dtypes.i64))
    found = place_among(e, last if place is None else place, count, 1)
    (left,) = control.read_sizes(e, e.reshape(last, (1,)), "items")
    numbers = e.iota((left,), 0)
    behind = e.cast(e.op("less_equal", found, numbers), dtypes.i64)
    kept = e.op("gather", held.items, e.op("add", numbers, behind), axis=0)
    return StackedSequence(kept, held.decided_by)


def concat(e: NodeMaker, held: StackedSequence, axis: int, *, new_axis: bool) -> Tensor:
    """The items along an axis of theirs, or along a new one."""
    items = held.items
    rank = items.rank - 1
    if not rank and not new_axis:
        raise ModelError("scalars are joined along a new axis only")
    place = normal_axis(axis, rank + new_axis)
    order = [*range(1, place + 1), 0, *range(place + 1, rank + 1)]
    moved = e.transpose(items, order)
    if new_axis:
        return moved
    shape = moved.shape
    return e.reshape(
        moved, (*shape[:place], shape[place] * shape[place + 1], *shape[place + 2 :])
    )


def split(e: NodeMaker, x: Tensor, axis: int, *, keepdims: bool) -> StackedSequence:
    """A tensor as its slices of one along an axis."""
    order = [axis, *(a for a in range(x.rank) if a != axis)]
    items = e.transpose(x, order)
    return StackedSequence(e.unsqueeze(items, (axis + 1,)) if keepdims else items)


def _as_item(e: NodeMaker, x: Tensor, items: Tensor) -> Tensor:
    wanted: Sequence[Dim] = items.shape[1:]
    if x.dtype != items.dtype or x.rank != len(wanted):
        raise UnsupportedError(
            f"a sequence whose length depends on data has items {items.dtype}{list(wanted)}, and one of {x.type}"
        )
    return e.unsqueeze(x, (0,))


def place_among(e: NodeMaker, place: Tensor, count: Tensor, behind: int) -> Tensor:
    """A position of an item, or up to `behind` = 0 behind the last; one that is none fails the call."""
    given = e.cast(e.reshape(place, ()), dtypes.i64)
    zero = e.scalar(0, dtypes.i64)
    found = e.op("where", e.op("less", given, zero), e.op("add", given, count), given)
    last = e.op("sub", count, e.scalar(behind, dtypes.i64))
    inside = e.op(
        "logical_and", e.op("less_equal", zero, found), e.op("less_equal", found, last)
    )
    control.expect(e, inside, "the position is one of the sequence")
    return found
