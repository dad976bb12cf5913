"""Rows for sorts, whose regions say which of two entries comes first, and for the largest entries.

A sort by keys (`comparators`) is an op of the graph; by any other comparator every entry is compared with
every other one.

Source: StableHLO specification, "sort"; CHLO, "top_k".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.stablehlo.bits import total_order
from tilewright.compiler.frontends.stablehlo.call import Call, real
from tilewright.compiler.frontends.stablehlo.comparators import Key, keys
from tilewright.compiler.frontends.stablehlo.demands import (
    ANY,
    each_kept,
    elements,
    one_shape,
    takes,
    takes_some,
)
from tilewright.compiler.frontends.stablehlo.held import Held, dims_of, on_parts
from tilewright.compiler.frontends.stablehlo.reduction import lifted
from tilewright.compiler.frontends.stablehlo.region_demands import (
    elements_of,
    region,
)
from tilewright.compiler.frontends.stablehlo.row import Row, row

# Every pair of entries is compared: n * n comparisons per line.
MAX_SORTED: Final = 2048


def _sort(call: Call) -> list[Held]:
    inputs = list(call.operands)
    call.flag("is_stable")  # always stable, which is allowed
    sizes = dims_of(inputs[0])
    rank = len(sizes)
    axis = call.integer("dimension", -1)
    axis += rank if axis < 0 else 0
    if not 0 <= axis < rank:
        raise ModelError(f"dimension {axis} does not fit {rank} dimensions")
    if sizes[axis] in (0, 1) or 0 in sizes:
        return inputs
    by = keys(call.region(0))
    if by is not None:
        return _by_keys(call, inputs, axis, by)
    size = sizes[axis]
    if not isinstance(size, int) or size > MAX_SORTED:
        raise UnsupportedError(
            f"a sort of {size} entries by a comparator like this is not supported"
        )
    ranks = _ranks(call, inputs, axis, sizes, size)
    e = call.maker
    return [on_parts(lambda x: _placed(e, x, ranks, axis), held) for held in inputs]


def _by_keys(
    call: Call, inputs: Sequence[Held], axis: int, by: Sequence[Key]
) -> list[Held]:
    """From the last key to the first, each time leaving those that are equal in their order."""
    e = call.maker
    size = dims_of(inputs[0])[axis]
    given = [held for held in inputs for _ in (0, 1)]
    order: Tensor | None = None
    for key in reversed(by):
        (held,) = lifted(call, given, key.region)
        values = _sortable(e, real(held), is_total=key.is_total)
        if order is not None:
            values = e.op("gather_elements", values, order, axis=axis)
        _, places = e.ops("top_k", values, k=(size,), axis=axis, largest=key.largest)
        order = places if order is None else e.op(
            "gather_elements", order, places, axis=axis)  # fmt: skip
    assert order is not None, "there is a key"
    taken = order
    return [
        on_parts(lambda x: e.op("gather_elements", x, taken, axis=axis), held)
        for held in inputs
    ]


def _sortable(e: NodeMaker, x: Tensor, *, is_total: bool) -> Tensor:
    """Whole numbers that are in the order of the elements."""
    if x.dtype.is_bool:
        return e.cast(x, dtypes.u8)
    if not x.dtype.is_float:
        return x
    if not is_total:
        zero = e.scalar(0, x.dtype)
        x = e.op("where", e.op("equal", x, zero), zero, x)
    return total_order(e, x)


def _placed(e: NodeMaker, x: Tensor, ranks: Tensor, axis: int) -> Tensor:
    if not x.dtype.is_bool:
        return e.op("scatter_elements", x, ranks, x, axis=axis)
    numbers = e.cast(x, dtypes.u8)
    found = e.op("scatter_elements", numbers, ranks, numbers, axis=axis)
    return e.cast(found, dtypes.bool_)


def _ranks(
    call: Call, inputs: Sequence[Held], axis: int, sizes: Sequence[Dim], size: int
) -> Tensor:
    """The place of every entry in its sorted line: how many entries of the line come before it."""
    e = call.maker
    shape = [*sizes]
    shape.insert(axis, size)

    def spread(held: Held, place: int) -> Held:
        return on_parts(lambda x: e.broadcast_to(e.unsqueeze(x, (place,)), shape), held)

    # given[i, j]: whether entry i comes before entry j
    given = [spread(held, axis + 1 - turn) for held in inputs for turn in (0, 1)]
    before = real(lifted(call, given)[0])
    order = [*range(before.rank)]
    order[axis], order[axis + 1] = order[axis + 1], order[axis]
    after = e.transpose(before, order)
    places = np.arange(size)
    earlier = (places[:, None] < places[None, :]).reshape(
        [size if a in (axis, axis + 1) else 1 for a in range(before.rank)]
    )
    # Equal entries stay in their order.
    equal = e.op("logical_not", e.op("logical_or", before, after))
    tied = e.op("logical_and", equal, e.constant(earlier))
    counted = e.cast(e.op("logical_or", before, tied), dtypes.i64)
    return e.op("reduce_sum", counted, axes=(axis,), keepdims=False)


def _top_k(call: Call) -> list[Tensor]:
    return top_k(call, call.integer("k"))


def top_k(call: Call, count: Dim) -> list[Tensor]:
    """The largest (smallest) entries of the last axis, and their places."""
    e, x = call.maker, call.tensor(0)
    largest = call.flag("largest", default=True)
    if not x.rank:
        raise ModelError("a number has no largest entries")
    given, axis = _sortable(e, x, is_total=True), x.rank - 1
    values, places = e.ops("top_k", given, k=(count,), axis=axis, largest=largest)
    if x.dtype.is_float:
        values = e.op("gather_elements", x, places, axis=axis)
    return [e.cast(values, x.dtype), e.cast(places, call.dtype(1))]


def _comparator_fits(call: Call) -> None:
    """Two numbers of every input, one after the other, make a truth value."""
    region(0, lambda c: [n for n in elements_of(c) for _ in (0, 1)], "i1")(call)


ROWS: Final[tuple[Row, ...]] = (
    row(
        "sort",
        _sort,
        keeps=True,
        demands=(takes_some(1, 1), elements(ANY), one_shape(), each_kept, _comparator_fits),
    ),
    row("chlo.top_k", _top_k, keeps=True, demands=(takes(1, 2), elements("bsufq"))),
)
