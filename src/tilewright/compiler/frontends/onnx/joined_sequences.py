"""Sequences of which a call decides how many items there are, and how long each is along one axis: the items joined along it.

Such a sequence comes of a loop that gathers results of several sizes, and of splitting an axis into as many pieces as
data says.  Called by `sequences` and `control`.

Source: ONNX operator reference (Sequence*, SplitToSequence, ConcatFromSequence).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import tilewright.compiler.frontends.onnx.stacked_sequences as lists
from tilewright.base import dtypes
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit import control
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.values import (
    Held,
    JoinedSequence,
    StackedSequence,
    TensorSequence,
)
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.ops.shapes import normal_axis


def joined(e: NodeMaker, held: Held, item: TensorType, axis: int) -> JoinedSequence:
    """A sequence as one whose items are joined along an axis.

    Args:
        e: writes the nodes.
        held: the sequence.
        item: the type of its items, whatever it has along the axis.
        axis: of the items.

    Raises: UnsupportedError for what is no such sequence.
    """
    if isinstance(held, JoinedSequence) and held.axis == axis:
        return held
    if isinstance(held, StackedSequence):
        each = held.items.shape[axis + 1]
        sizes = e.broadcast_to(e.dims((each,)), (held.items.shape[0],))
        items = lists.concat(e, held, axis, new_axis=False)
        return JoinedSequence(items, sizes, axis, held.decided_by)
    if not isinstance(held, TensorSequence):
        raise UnsupportedError("a value is a sequence or something else, depending on data")
    if not held.items:
        items = e.full(0, item.dtype, _open(item.shape, axis))
        return JoinedSequence(items, e.full(0, dtypes.i64, (0,)), axis)
    sizes = e.dims([x.shape[axis] for x in held.items])
    return JoinedSequence(e.concat(list(held.items), axis), sizes, axis)


def pieces(e: NodeMaker, x: Tensor, axis: int, sizes: Tensor) -> JoinedSequence:
    """An axis split into pieces of these sizes, none below zero, which add up to it."""
    sizes = e.cast(sizes, dtypes.i64)
    least = e.op("reduce_min", e.concat([sizes, e.dims((0,))], 0), axes=(0,), keepdims=True)
    control.require(e, least, 0, "least")
    total = e.op("reduce_sum", sizes, axes=(0,), keepdims=True)
    control.expect(
        e, e.op("equal", total, e.dim(x.shape[axis])), f"pieces add up to axis {axis}"
    )
    return JoinedSequence(x, sizes, axis, (sizes,))


def even_pieces(e: NodeMaker, x: Tensor, axis: int, size: Tensor) -> JoinedSequence:
    """An axis of any length in pieces of one size, of which the last may be shorter."""
    one, zero = (e.scalar(n, dtypes.i64) for n in (1, 0))
    each = e.cast(e.reshape(size, ()), dtypes.i64)
    control.expect(e, e.op("less_equal", one, each), "a piece has at least one element")
    length = e.dim(x.shape[axis])
    rounded = e.op("add", length, e.op("sub", each, one))
    count = e.op("div", rounded, e.op("max", each, one))
    high = x.shape[axis]
    most = high if isinstance(high, int) else None
    (found,) = control.read_sizes(e, e.reshape(count, (1,)), "pieces", most)
    begins = e.op("mul", e.iota((found,), 0), each)
    left = e.op("max", e.op("sub", length, begins), zero)
    return JoinedSequence(x, e.op("min", left, each), axis, (size,))


def length(e: NodeMaker, held: JoinedSequence) -> Tensor:
    """How many items there are."""
    return e.dim(held.sizes.shape[0])


def at(e: NodeMaker, held: JoinedSequence, place: Tensor) -> Tensor:
    """The item at a place, counted from the end where it is negative; another is refused in the call."""
    found = lists.place_among(e, place, length(e, held), 1)
    begin, size = _span(e, held, found)
    (count,) = control.read_sizes(e, e.reshape(size, (1,)), "item")
    places = e.op("add", begin, e.iota((count,), 0))
    return e.op("gather", held.items, places, axis=held.axis)


def _span(e: NodeMaker, held: JoinedSequence, place: Tensor) -> tuple[Tensor, Tensor]:
    """Where an item begins, and its size, scalars; behind the last item nothing begins."""
    numbers = e.iota(held.sizes.shape, 0)
    zero = e.scalar(0, dtypes.i64)

    def total(hit: Tensor) -> Tensor:
        kept = e.op("where", hit, held.sizes, zero)
        return e.op("reduce_sum", kept, axes=(0,), keepdims=False)

    return total(e.op("less", numbers, place)), total(e.op("equal", numbers, place))


def insert(
    e: NodeMaker, held: JoinedSequence, x: Tensor, place: Tensor | None
) -> JoinedSequence:
    """With one more item, behind the last where no place is given."""
    _check_item(held, x)
    size = x.shape[held.axis]
    items = e.concat([held.items, x], held.axis)
    sizes = e.concat([held.sizes, e.dims((size,))], 0)
    if place is None:
        return JoinedSequence(items, sizes, held.axis, held.decided_by)
    found = lists.place_among(e, place, length(e, held), 0)
    begin, _ = _span(e, held, found)
    items = _moved(e, items, held.axis, (begin, e.dim(size)))
    sizes = _moved(e, sizes, 0, (found, e.scalar(1, dtypes.i64)))
    return JoinedSequence(items, sizes, held.axis, held.decided_by)


def _moved(e: NodeMaker, x: Tensor, axis: int, to: tuple[Tensor, Tensor]) -> Tensor:
    """`x` with as many of its last elements as said moved to where they begin."""
    begin, count = to
    numbers = e.iota((x.shape[axis],), 0)
    end = e.op("add", begin, count)
    last = e.op("sub", e.dim(x.shape[axis]), count)
    from_end = e.op("add", last, e.op("sub", numbers, begin))
    rest = e.op("where", e.op("less", numbers, end), from_end, e.op("sub", numbers, count))
    source = e.op("where", e.op("less", numbers, begin), numbers, rest)
    return e.op("gather", x, source, axis=axis)


def erase(e: NodeMaker, held: JoinedSequence, place: Tensor | None) -> JoinedSequence:
    """Without one item, the last where no place is given."""
    count, one = length(e, held), e.scalar(1, dtypes.i64)
    last = e.op("sub", count, one)
    found = lists.place_among(e, last if place is None else place, count, 1)
    begin, size = _span(e, held, found)
    items = _without(e, held.items, held.axis, begin, size)
    sizes = _without(e, held.sizes, 0, found, one)
    return JoinedSequence(items, sizes, held.axis, held.decided_by)


def _without(e: NodeMaker, x: Tensor, axis: int, begin: Tensor, count: Tensor) -> Tensor:
    rest = e.op("sub", e.dim(x.shape[axis]), count)
    (left,) = control.read_sizes(e, e.reshape(rest, (1,)), "items")
    numbers = e.iota((left,), 0)
    behind = e.op("sub", numbers, e.op("sub", begin, e.scalar(1, dtypes.i64)))
    is_behind = e.op("less", e.scalar(0, dtypes.i64), behind)
    source = e.op("where", is_behind, e.op("add", numbers, count), numbers)
    return e.op("gather", x, source, axis=axis)


def concat(held: JoinedSequence, axis: int, *, new_axis: bool) -> Tensor:
    """The items along an axis of theirs.

    Raises: UnsupportedError for another axis than that along which they have several sizes.
    """
    if new_axis or normal_axis(axis, held.items.rank) != held.axis:
        raise UnsupportedError(
            f"items that have several sizes along axis {held.axis} are joined along another one",
            hint=f"join them along axis {held.axis}",
        )
    return held.items


def _check_item(held: JoinedSequence, x: Tensor) -> None:
    wanted: Sequence[Dim] = held.items.shape
    if x.dtype != held.items.dtype or x.rank != len(wanted):
        raise UnsupportedError(
            f"a sequence whose length depends on data has items of {held.items.dtype} "
            f"and rank {len(wanted)}, and one of {x.type}"
        )


def common_items(
    sequences: Sequence[Held], inner: Collection[str]
) -> tuple[TensorType | None, int | None]:
    """What items of one of these sequences are like, and along which axis they have several sizes.

    Args:
        sequences: of which data decides which one it is.
        inner: names of sizes that mean nothing where the items are gathered.

    Returns: the type, None where nobody has an item; the axis, None where all items have one type.

    Raises: UnsupportedError for items of several ranks or element types, or of several sizes along two axes.
    """
    types = [type_ for held in sequences for type_ in _item_types(held)]
    axes = {held.axis for held in sequences if isinstance(held, JoinedSequence)}
    if not types:
        return None, None
    first = types[-1]
    if any(t.rank != first.rank or t.dtype != first.dtype for t in types):
        raise UnsupportedError(
            "a sequence whose length depends on data has items of several ranks or element types"
        )
    for axis, sizes in enumerate(zip(*(t.shape for t in types), strict=True)):
        if len(set(sizes)) > 1 or control.mentions(sizes, inner):
            axes.add(axis)
    if len(axes) > 1:
        raise UnsupportedError(
            f"the items of a sequence have several sizes along axes {sorted(axes)}, depending on data",
            hint="give them one size along all axes but one: pad them",
        )
    return first, next(iter(axes), None)


def _item_types(held: Held) -> list[TensorType]:
    if isinstance(held, TensorSequence):
        return [x.type for x in held.items]
    if isinstance(held, StackedSequence):
        return [TensorType(held.items.dtype, held.items.shape[1:])]
    if isinstance(held, JoinedSequence):
        return [held.items.type.with_shape(_open(held.items.shape, held.axis))]
    raise UnsupportedError("a value is a sequence or something else, depending on data")


def _open(shape: Sequence[Dim], axis: int) -> tuple[Dim, ...]:
    """The shape of items that have any size along an axis."""
    return (*shape[:axis], 0, *shape[axis + 1 :])
