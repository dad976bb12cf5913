"""What only the data of a call decides: places that are true, positions of a slice, axes.

Sizes are computed where the data is and read once (`control.read_sizes`); everything else stays data.  Called by
the rows of front ends, where operands are not known while a model is imported.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import cast, final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.record import record
from tilewright.base.symbolic import Dim, bounds
from tilewright.compiler.frontends.kit import control
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.graph.schema import Array
from tilewright.compiler.ops.shapes import element_count

_MOST_CASES = 64
"""Of operands that choose axes: each case is code of its own."""


def whole(e: NodeMaker, number: int) -> Tensor:
    """An i64."""
    return e.scalar(number, dtypes.i64)


def true_places(
    e: NodeMaker, mask: Tensor, stem: str = "count", count_as: Dim | None = None
) -> Tensor:
    """The places where a vector of bool is true, in order: i64[n], n read from the data, as `count_as` if given."""
    (size,) = mask.shape
    count = e.op("reduce_sum", e.cast(mask, dtypes.i64), axes=(0,), keepdims=True)
    high = size if isinstance(size, int) else None
    if count_as is None:
        (found,) = control.read_sizes(e, count, stem, high)
    else:
        found = count_as
        e.bind_sizes(count, (found,))
    return places_of(e, mask, found)


def places_of(e: NodeMaker, mask: Tensor, count: Dim) -> Tensor:
    """The places where a vector of bool is true, in order: i64[count], which is how many there are."""
    # What is not true goes to one place more, which is cut off.
    behind = e.op("sub", e.op("cumsum", e.cast(mask, dtypes.i64), axis=0), whole(e, 1))
    targets = e.op("where", mask, behind, e.dim(count))
    room = e.full(0, dtypes.i64, (count + 1,))
    filled = e.op("scatter_elements", room, targets, e.iota(mask.shape, 0), axis=0)
    return e.slice(filled, 0, 0, count)


def unraveled(e: NodeMaker, places: Tensor, shape: Sequence[Dim]) -> Tensor:
    """Places in a tensor of `shape` as a matrix with a row per axis."""
    rows: list[Tensor] = []
    rest = places
    for size in reversed(shape[1:]):
        above = _quotient(e, rest, size)
        rows.append(e.op("sub", rest, e.op("mul", above, e.dim(size))))
        rest = above
    rows = [rest, *reversed(rows)]
    return e.concat([e.unsqueeze(row, (0,)) for row in rows[: len(shape)]], 0)


def _quotient(e: NodeMaker, places: Tensor, size: Dim) -> Tensor:
    """The whole part of places in memory over a size, which is 0 only where there is no place.

    Vectors divide no integers.  In f64 the quotient by a size that only a call knows has the same whole part for every
    place below 2**53: the true one is a whole number, or lies at least 1 / size from the next, and rounding moves it less.
    """
    if isinstance(size, int):
        return e.op("div", places, e.dim(size))
    places, by = (e.cast(x, dtypes.f64) for x in (places, e.dim(size)))
    return e.cast(e.op("div", places, by), dtypes.i64)


@final
@record
class Cuts:
    """Of each axis of a slice: first position, step (i64 vectors), and how many."""

    first: Tensor
    step: Tensor
    counts: tuple[Dim, ...]


def cuts(
    e: NodeMaker, sizes: Sequence[Dim], start: Tensor, end: Tensor, step: Tensor
) -> Cuts:
    """`start:end:step` over axes of `sizes`, out-of-range positions clamped.

    Source: ONNX Slice, opset 13.
    """
    size = e.dims(sizes)
    zero, one = whole(e, 0), whole(e, 1)
    given = step
    # A step longer than the axis picks what one as long does, and no sum with it goes beyond 64 bits.
    farthest = e.op("max", size, one)
    step = e.op("max", e.op("min", step, farthest), e.op("neg", farthest))
    forward = e.op("greater", step, zero)

    def limited(position: Tensor, low: Tensor, high: Tensor) -> Tensor:
        negative = e.op("less", position, zero)
        counted = e.op("where", negative, e.op("add", position, size), position)
        return e.op("min", e.op("max", counted, low), high)

    last = e.op("sub", size, one)
    high = e.op("where", forward, size, last)
    first = limited(start, zero, high)
    stop = limited(end, e.op("where", forward, zero, whole(e, -1)), high)
    span = e.op("where", forward, e.op("sub", stop, first), e.op("sub", first, stop))
    stride = e.op("max", e.op("abs", step), one)
    rounded = e.op("add", e.op("max", span, zero), e.op("sub", stride, one))
    # A step of 0 leads nowhere, which is refused as a size.
    count = e.op(
        "where", e.op("equal", step, zero), whole(e, -1), e.op("div", rounded, stride)
    )
    most = _most_between(start, end) if len(sizes) == 1 else None
    # All other counts are sizes.
    note = ", a step of which is 0" if given.array is None else ""
    return Cuts(first, step, control.read_sizes(e, count, "length", most, note=note))


def _most_between(start: Tensor, end: Tensor) -> int | None:
    """How long `start:end` is at most where both are one position with known numbers added; None where they are not."""
    (first, low), (second, high) = _with_number(start), _with_number(end)
    if first is None or first is not second:
        return None
    return max(high - low, 0)  # what is clamped gets shorter


def _with_number(position: Tensor) -> tuple[Value | None, int]:
    """A position as a value and a known number that is added to it."""
    value, number = position.value, 0
    while value is not None and value.node is not None and value.node.op == "add":
        left, right = value.node.present_operands
        known = right if _is_one_number(right) else left
        if not _is_one_number(known):
            break
        node = cast("Node", known.node)
        number += int(np.reshape(cast("Array", node.attributes["value"]), -1)[0])
        value = left if known is right else right
    return value, number


def _is_one_number(value: Value) -> bool:
    node = value.node
    return node is not None and node.op == "constant" and value.type.shape in ((), (1,))


def cut(e: NodeMaker, x: Tensor, axes: Sequence[int], by: Cuts) -> Tensor:
    """A slice whose positions are data."""
    for place, axis in enumerate(axes):
        first, step = (e.slice(t, 0, place, 1) for t in (by.first, by.step))
        count = by.counts[place]
        index = e.op("add", first, e.op("mul", step, e.iota((count,), 0)))
        last = e.op("sub", e.dim(x.shape[axis]), whole(e, 1))
        inside = e.op("max", e.op("min", index, last), whole(e, 0))
        x = e.op("gather", x, inside, axis=axis)
    return x


def spread(e: NodeMaker, values: Tensor, axes: Tensor, rank: int, default: int) -> Tensor:
    """Values that belong to `axes` as one for each axis, `default` where none is given."""
    others = e.constant(np.full(rank, default, np.int64))
    return e.op("scatter_elements", others, axes, values, axis=0)


def require_distinct(e: NodeMaker, axes: Tensor, rank: int) -> None:
    """Let a vector of axes name none of `rank` twice, or the call fails and names the node."""
    if axes.shape == (1,) or not rank:
        return
    zeros, ones = e.full(0, dtypes.i64, (rank,)), e.full(1, dtypes.i64, axes.shape)
    times = e.op("scatter_elements", zeros, axes, ones, axis=0, reduction="add")
    most = e.op("reduce_max", times, axes=(0,), keepdims=True)
    control.read_sizes(e, most, "named", 1, note=", an axis of which is named twice")


def counted(e: NodeMaker, axes: Tensor, rank: int) -> Tensor:
    """Axes, or positions, counted from the front."""
    axes = e.cast(axes, dtypes.i64)
    negative = e.op("less", axes, whole(e, 0))
    return e.op("where", negative, e.op("add", axes, whole(e, rank)), axes)


def by_axes(
    e: NodeMaker,
    axes: Tensor,
    rank: int,
    build: Callable[[tuple[int, ...]], list[Tensor]],
    *,
    allowed: Callable[[int], bool] | None = None,
) -> list[Tensor]:
    """What `build` makes for the set of axes that `axes`, a scalar or a vector, turns out to hold.

    Of a vector of any length every set is possible, none at all among them; what `build` makes has one rank.
    """
    count = element_count(axes.shape)
    possible = [a for a in range(rank) if allowed is None or allowed(a)]
    counts = [count] if isinstance(count, int) else range(len(possible) + 1)
    sets = (c for n in counts for c in itertools.combinations(possible, n))
    found = {sum(1 << a for a in c): c for c in itertools.islice(sets, _MOST_CASES + 1)}
    if len(found) > _MOST_CASES:
        raise UnsupportedError(f"the axes depend on data, in more than {_MOST_CASES} ways")
    # Counts from the end itself, once; an axis that is none fails the call.
    bits = e.op(
        "gather", e.constant(1 << np.arange(rank)), e.reshape(axes, (count,)), axis=0
    )
    if isinstance(count, int):
        code = e.op("reduce_sum", bits, axes=(0,), keepdims=False)
    else:
        code = _each_once(e, bits, rank)
    return control.switch(e, code, list(found), lambda key: build(found[key]))


def by_axis(
    e: NodeMaker,
    axis: Tensor,
    rank: int,
    build: Callable[[int], Tensor],
    *,
    allowed: Callable[[int], bool] | None = None,
) -> Tensor:
    """What `build` makes for the axis that the one element of `axis` turns out to be."""
    one = e.reshape(axis, (1,))  # exporters declare it as a vector of any length, too
    (found,) = by_axes(e, one, rank, lambda axes: [build(axes[0])], allowed=allowed)
    return found


def _each_once(e: NodeMaker, bits: Tensor, rank: int) -> Tensor:
    """The sum of bits, [n] i64 of powers of 2 below `rank`, each counted once: n may be any number, and an axis stand there twice."""
    all_bits = e.constant(1 << np.arange(rank))
    hits = e.op("equal", e.unsqueeze(bits, (1,)), all_bits)
    times = e.op("reduce_sum", e.cast(hits, dtypes.i64), axes=(0,), keepdims=False)
    chosen = e.op("where", e.op("greater", times, whole(e, 0)), all_bits, whole(e, 0))
    return e.op("reduce_sum", chosen, axes=(0,), keepdims=False)


def settled(e: NodeMaker, *operands: Tensor) -> list[Tensor]:
    """Operands that are broadcast, with axes of 0 or 1 elements made 1 where others have more; a run in which they are 0 fails."""
    found: list[Tensor] = []
    for place, x in enumerate(operands):
        shape = list(x.shape)
        for other in operands[:place] + operands[place + 1 :]:
            for axis in range(1, min(x.rank, other.rank) + 1):
                least = bounds(other.shape[-axis])[0]
                most = bounds(shape[-axis])[1]
                if shape[-axis] != 1 and most == 1 and least is not None and least > 1:
                    control.require(e, e.dims((shape[-axis],)), 1, "single")
                    shape[-axis] = 1
        found.append(e.as_type(x, x.type.with_shape(tuple(shape))))
    return found
