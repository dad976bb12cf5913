"""The extreme of all elements up to each, along an axis of any size, and where it is.

In a block every place looks at all before it; then each block looks at the ends of those before it.  That is `n * B + (n / B)^2`
comparisons of `n` elements in blocks of `B`, where a table of all pairs would be `n^2`.  Called by the rows of `cummax` and
`cummin`.

Source: `torch.cummax`, `torch.cummin`: of equal elements the last counts, and what is not a number stays the extreme.
"""

from __future__ import annotations

from typing import Final

from tilewright.base import dtypes
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.tensor import Tensor

_BLOCK: Final = 128
"""Elements of a block."""


def running_extremes(e: NodeMaker, x: Tensor, axis: int, op: str) -> tuple[Tensor, Tensor]:
    """Values and places along an axis of at least one element.

    Args:
        e: writes the nodes.
        x: numbers.
        axis: counted from the first.
        op: `reduce_max` or `reduce_min`.

    Shapes: both results have that of `x`; places are i64.
    """
    size = x.shape[axis]
    if isinstance(size, int) and size <= _BLOCK:
        return _by_table(e, x, axis, op)
    count = (size + _BLOCK - 1) // _BLOCK
    behind = [0] * x.rank
    padded: list[Dim] = [*behind, *behind]
    padded[x.rank + axis] = (
        count * _BLOCK - size
    )  # behind all, so no place that is there sees it
    wide = e.op("pad", x, None, pads=tuple(padded))
    before, rest = x.shape[:axis], x.shape[axis + 1 :]
    blocks = e.reshape(wide, (*before, count, _BLOCK, *rest))
    values, places = _by_table(e, blocks, axis + 1, op)
    begin = e.op("mul", e.iota(places.shape, axis), e.scalar(_BLOCK, dtypes.i64))
    values, places = _joined(e, values, e.op("add", places, begin), axis, op)
    whole = (*before, count * _BLOCK, *rest)
    return (
        e.slice(e.reshape(values, whole), axis, 0, size),
        e.slice(e.reshape(places, whole), axis, 0, size),
    )


def _joined(
    e: NodeMaker, values: Tensor, places: Tensor, axis: int, op: str
) -> tuple[Tensor, Tensor]:
    """Of blocks along one axis, each running along the next, what runs along both.

    Shapes: values, places: [..., blocks, elements, ...].
    """
    ends, ends_at = (
        e.squeeze(e.slice(part, axis + 1, _BLOCK - 1, 1), (axis + 1,))
        for part in (values, places)
    )
    ends, block_of = _by_table(e, ends, axis, op)
    ends_at = e.op("gather_elements", ends_at, block_of, axis=axis)
    # What stood at the end of the block before; the first block has none, and keeps its own.
    past, past_at = (
        e.broadcast_to(e.unsqueeze(_after_one(e, part, axis), (axis + 1,)), values.shape)
        for part in (ends, ends_at)
    )
    named = "greater_equal" if op == "reduce_max" else "less_equal"
    own = e.op(named, values, past)
    if values.dtype.is_float:
        own = e.op("logical_or", own, e.op("is_nan", values))
    first = e.op("equal", e.iota(values.shape, axis), e.scalar(0, dtypes.i64))
    own = e.op("logical_or", own, first)
    return e.op("where", own, values, past), e.op("where", own, places, past_at)


def _after_one(e: NodeMaker, x: Tensor, axis: int) -> Tensor:
    """Moved by one place along an axis; what comes in is 0."""
    pads: list[Dim] = [0] * (2 * x.rank)
    pads[axis] = 1
    return e.slice(e.op("pad", x, None, pads=tuple(pads)), axis, 0, x.shape[axis])


def _by_table(e: NodeMaker, x: Tensor, axis: int, op: str) -> tuple[Tensor, Tensor]:
    """Every place looks at all of the axis, and counts those that are not behind it."""
    size = x.shape[axis]
    shape = (*x.shape[: axis + 1], size, *x.shape[axis + 1 :])
    wide = e.broadcast_to(e.unsqueeze(x, (axis,)), shape)
    table = (size, size, *[1] * (x.rank - axis - 1))
    seen = e.op("greater_equal", e.iota(table, 0), e.iota(table, 1))
    first = e.unsqueeze(e.slice(x, axis, 0, 1), (axis,))
    values = e.op(op, e.op("where", seen, wide, first), axes=(axis + 1,), keepdims=False)
    # The last of equal ones: elements behind are left out by turning the first away.
    matches = e.op("equal", wide, e.unsqueeze(values, (axis + 1,)))
    if x.dtype.is_float:
        matches = e.op("logical_or", matches, e.op("is_nan", wide))
    matches = e.cast(e.op("logical_and", matches, seen), dtypes.u8)
    places = e.op("arg_max", matches, axis=axis + 1, keepdims=False, select_last=True)
    return values, places
