"""Rows for reductions and sorts, whose regions say what is done to two numbers.

A reduction by one known operation is an op of the graph; any other halves the axis again and again and
imports its region on the halves, as the specification leaves the order open.

Source: StableHLO specification, "reduce", "sort"; CHLO, "top_k".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.stablehlo.call import Call, real
from tilewright.compiler.frontends.stablehlo.held import (
    Held,
    joined,
    on_parts,
    shape_of,
)
from tilewright.compiler.frontends.stablehlo.regions import combination
from tilewright.compiler.frontends.stablehlo.row import Row, row

# Every pair of entries is compared: n * n comparisons per line.
MAX_SORTED: Final = 2048
_REDUCE: Final = {
    "add": "reduce_sum", "max": "reduce_max", "min": "reduce_min", "mul": "reduce_prod",
}  # fmt: skip
_COMBINE: Final = {"add": "add", "max": "max", "min": "min", "mul": "mul"}


def lifted(call: Call, given: Sequence[Held]) -> list[Held]:
    """What the region gives on whole tensors; results that do not depend on them are repeated."""
    shape = shape_of(given[0])
    results = call.lift(call.region(0), given)
    return [on_parts(lambda x: call.maker.broadcast_to(x, shape), held) for held in results]


def inputs_and_starts(call: Call) -> tuple[list[Held], list[Held]]:
    """The tensors, and as many numbers that their reduction starts with."""
    count = len(call.operands) // 2
    if not count or len(call.operands) % 2:
        raise ModelError("has an input without a start, or none")
    return list(call.operands[:count]), list(call.operands[count:])


def _reduce(call: Call) -> list[Held]:
    inputs, starts = inputs_and_starts(call)
    sizes, axes = shape_of(inputs[0]), call.integers("dimensions")
    if len(set(axes)) != len(axes) or any(not 0 <= a < len(sizes) for a in axes):
        raise ModelError(f"dimensions {list(axes)} do not fit {len(sizes)} dimensions")
    e, shape = call.maker, call.shape()
    wide = [on_parts(lambda x: e.broadcast_to(x, shape), start) for start in starts]
    if 0 in [sizes[axis] for axis in axes]:
        return wide
    op = combination(call.region(0)) if len(inputs) == 1 else ""
    (x, *_), (start, *_) = inputs, starts
    is_known = isinstance(x, Tensor) and isinstance(start, Tensor) and op in _REDUCE
    if is_known and not real(x).dtype.is_bool:
        found = e.op(_REDUCE[op], real(x), axes=axes, keepdims=False) if axes else real(x)
        return [e.op(_COMBINE[op], found, real(start))]
    for axis in sorted(axes, reverse=True):
        inputs = _halved(call, inputs, axis)
    return lifted(call, [*wide, *inputs])


def _halved(call: Call, inputs: Sequence[Held], axis: int) -> list[Held]:
    """One axis reduced by the region, without the start: neighbours again and again, in their order."""
    e, found = call.maker, list(inputs)

    def sliced(start: int, size: int, step: int) -> list[Held]:
        return [on_parts(lambda x: e.slice(x, axis, start, size, step), h) for h in found]

    while (size := shape_of(found[0])[axis]) > 1:
        half, rest = size // 2, sliced(size - 1, 1, 1)
        found = lifted(call, [*sliced(0, half, 2), *sliced(1, half, 2)])
        if size % 2:
            found = [joined(e, [x, y], axis) for x, y in zip(found, rest, strict=True)]
    return [on_parts(lambda x: e.squeeze(x, (axis,)), held) for held in found]


# --- sorts -----------------------------------------------------------------------------------


def _sort(call: Call) -> list[Held]:
    """By ranks: how many entries of the line come before each, by the comparator."""
    e, inputs = call.maker, list(call.operands)
    if not inputs:
        raise ModelError("sorts nothing")
    call.flag("is_stable")  # always stable, which is allowed
    sizes = shape_of(inputs[0])
    rank = len(sizes)
    axis = call.integer("dimension", -1)
    axis += rank if axis < 0 else 0
    if not 0 <= axis < rank:
        raise ModelError(f"dimension {axis} does not fit {rank} dimensions")
    if sizes[axis] < 2 or 0 in sizes:
        return inputs
    if sizes[axis] > MAX_SORTED:
        raise UnsupportedError(
            f"a sort of {sizes[axis]} entries by a comparator is not supported"
        )
    ranks = _ranks(call, inputs, axis, sizes)
    return [on_parts(lambda x: _placed(e, x, ranks, axis), held) for held in inputs]


def _placed(e: NodeMaker, x: Tensor, ranks: Tensor, axis: int) -> Tensor:
    if not x.dtype.is_bool:
        return e.op("scatter_elements", x, ranks, x, axis=axis)
    numbers = e.cast(x, dtypes.u8)
    found = e.op("scatter_elements", numbers, ranks, numbers, axis=axis)
    return e.cast(found, dtypes.bool_)


def _ranks(call: Call, inputs: Sequence[Held], axis: int, sizes: Sequence[int]) -> Tensor:
    """The place of every entry in its sorted line."""
    e, size = call.maker, sizes[axis]
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
    e, x = call.maker, call.tensor(0)
    largest = call.flag("largest", default=True)
    given = e.cast(x, dtypes.u8) if x.dtype.is_bool else x
    values, places = e.ops(
        "top_k", given, k=(call.integer("k"),), axis=x.rank - 1, largest=largest
    )
    return [e.cast(values, x.dtype), e.cast(places, call.dtype(1))]


def _map(call: Call) -> list[Held]:
    """The region on numbers, on all at once."""
    call.integers("dimensions")
    return lifted(call, call.operands)


ROWS: Final[tuple[Row, ...]] = (
    row("map", _map),
    row("reduce", _reduce),
    row("sort", _sort, keeps=True),
    row("chlo.top_k", _top_k, keeps=True),
)
