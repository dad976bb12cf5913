"""Rows that split an axis into parts, and how long the parts are.

Torch says it of the example, by which it decides how many parts there are and which of them is longer; here it follows
from the sizes of a call, and a call whose parts are others than those of the program fails.  Called by the table.

Source: `torch.split`, `torch.chunk`, `torch.tensor_split`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from tilewright.base import symbolic
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.torch.axes import axis_of, from_front
from tilewright.compiler.frontends.torch.call import Call
from tilewright.compiler.frontends.torch.row import Build, Row, row
from tilewright.formats.plan.size_relations import at_least, at_most

Span = tuple[Dim, Dim]
"""Where a part of an axis begins, and its size."""
Spans = Callable[[Call, Dim, Sequence[Dim]], Iterable[Span]]
"""Of a call, the size of an axis, and what torch takes the sizes of the parts to be: the parts."""
Sizes = Callable[[Call, Dim, Sequence[Dim]], Sequence[Dim]]
"""Of the same, the sizes of parts that lie one behind the other."""


def _into(spans: Spans) -> Build:
    """The parts of a tensor along an axis."""

    def build(call: Call) -> Sequence[Tensor]:
        x = call.tensor()
        axis = axis_of(call, x.rank, default=0)
        known = [call.shape(i)[axis] for i in range(len(call.operation.results))]
        return [
            part(call.maker, x, axis, start, size)
            for start, size in spans(call, x.shape[axis], known)
        ]

    return build


def _in_turn(sizes: Sizes) -> Build:
    """The parts of a tensor along an axis, each of which begins where the one before it ends."""

    def spans(call: Call, extent: Dim, known: Sequence[Dim]) -> Iterable[Span]:
        start: Dim = 0
        for size in sizes(call, extent, known):
            yield start, size
            start = start + size

    return _into(spans)


def part(e: NodeMaker, x: Tensor, axis: int, start: Dim, size: Dim) -> Tensor:
    """Some neighbours along an axis, also none."""
    if size == 0:
        return e.full(0, x.dtype, (*x.shape[:axis], 0, *x.shape[axis + 1 :]))
    return e.slice(x, axis, start, size)


def _of_size(call: Call, extent: Dim, known: Sequence[Dim]) -> Sequence[Dim]:
    _fill(call, call.sizes("split_size")[0], extent, len(known), rest=1)
    return known


def _in_chunks(call: Call, extent: Dim, known: Sequence[Dim]) -> Sequence[Dim]:
    chunks, count = call.integer("chunks"), len(known)
    size = symbolic.ceildiv(extent, chunks)
    # Nothing is as many parts of nothing as are asked for.
    rest = symbolic.minimum(size, 1) if count == chunks else 1
    _fill(call, size, extent, count, rest=rest)
    return known


def _fill(call: Call, size: Dim, extent: Dim, count: int, *, rest: Dim) -> None:
    """Assume that there are so many parts of one size, of which the last has at least so much."""
    if isinstance(extent, int):
        return
    call.maker.assume(*at_most(extent, size * count))
    if count > 1:
        least = size * (count - 1) + rest
        call.maker.assume(*at_least(extent, least))


def _as_listed(call: Call, extent: Dim, known: Sequence[Dim]) -> Sequence[Dim]:
    del known
    name = "split_sizes" if call.has("split_sizes") else "split_size"
    sizes = call.sizes(name)
    total: Dim = sum(sizes)
    call.maker.assume(extent, total)
    return sizes


def _evenly(call: Call, extent: Dim, known: Sequence[Dim]) -> Sequence[Dim]:
    """Into as many parts, of which the first are longer by one."""
    call.argument("sections")
    count = len(known)
    return [
        symbolic.floordiv(extent + (count - 1 - index), count) for index in range(count)
    ]


def _at_places(call: Call, extent: Dim, known: Sequence[Dim]) -> Iterable[Span]:
    """From each place to the next, the first from the front and the last to the end; nothing where the next lies before it."""
    del known
    inner = [_within(place, extent) for place in call.sizes("indices")]
    for begin, end in itertools.pairwise((0, *inner, extent)):
        yield begin, symbolic.maximum(end - begin, 0)


def _within(place: Dim, extent: Dim) -> Dim:
    """A place on an axis, counted from the front: one below zero counts from the end, and none lies outside."""
    inside = symbolic.maximum(from_front(place, extent), 0)
    return symbolic.minimum(inside, extent)


ROWS: Final[tuple[Row, ...]] = (
    row("split.Tensor unsafe_split.Tensor split_copy.Tensor", _in_turn(_of_size)),
    row("chunk unsafe_chunk", _in_turn(_in_chunks)),
    row(
        "split_with_sizes split.sizes unsafe_split_with_sizes split_with_sizes_copy",
        _in_turn(_as_listed),
    ),
    row("tensor_split.sections", _in_turn(_evenly)),
    row("tensor_split.indices", _into(_at_places)),
)
