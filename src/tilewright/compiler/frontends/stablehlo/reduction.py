"""Rows for reductions, whose regions say what is done to two numbers.

A reduction by one known operation is an op of the graph; any other halves the axis again and again and
imports its region on the halves, as the specification leaves the order open.

Source: StableHLO specification, "reduce", "map".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.base import dtypes
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.kit import control
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.stablehlo.call import Call, element_dtype
from tilewright.compiler.frontends.stablehlo.demands import (
    ANY,
    elements,
    one_shape,
    takes_some,
    tensor_of,
)
from tilewright.compiler.frontends.stablehlo.held import (
    Held,
    dims_of,
    flattened,
    joined,
    on_parts,
    restored,
)
from tilewright.compiler.frontends.stablehlo.region_demands import (
    combines,
    elements_of,
    region,
    starts_fit,
)
from tilewright.compiler.frontends.stablehlo.regions import combination
from tilewright.compiler.frontends.stablehlo.row import Row, row
from tilewright.compiler.frontends.stablehlo.tree import Region

_REDUCE: Final = {
    "add": ("reduce_sum", "add"), "max": ("reduce_max", "max"), "min": ("reduce_min", "min"),
    "mul": ("reduce_prod", "mul"),
}  # fmt: skip
_OF_BOOLS: Final = {
    **dict.fromkeys(("add", "max", "or"), ("reduce_max", "logical_or")),
    **dict.fromkeys(("mul", "min", "and"), ("reduce_min", "logical_and")),
}


def lifted(call: Call, given: Sequence[Held], region: Region | None = None) -> list[Held]:
    """What a region, the first if none is given, gives on whole tensors; what does not depend on them is repeated."""
    shape = dims_of(given[0])
    results = call.lift(call.region(0) if region is None else region, given)
    return [on_parts(lambda x: call.maker.broadcast_to(x, shape), held) for held in results]


def inputs_and_starts(
    call: Call, region: Region | None = None
) -> tuple[list[Held], list[Held]]:
    """The tensors, and as many numbers that their reduction starts with."""
    count = len(call.operands) // 2
    if not count or len(call.operands) % 2:
        raise ModelError("has an input without a start, or none")
    region = call.region(0) if region is None else region
    return promoted(call, call.operands[:count], region), promoted(
        call, call.operands[count:], region
    )


def promoted(call: Call, given: Sequence[Held], region: Region) -> list[Held]:
    """Values in the types that a region computes with, which are theirs or wider ones."""
    (block,) = region.blocks
    types = [element_dtype(value.type) for value in block.arguments[: len(given)]]
    pairs = zip(given, types, strict=True)
    return [on_parts(lambda x, t=t: call.maker.cast(x, t), held) for held, t in pairs]


def _reduce(call: Call) -> list[Held]:
    inputs, starts = inputs_and_starts(call)
    sizes, axes = dims_of(inputs[0]), call.integers("dimensions")
    if len(set(axes)) != len(axes) or any(not 0 <= a < len(sizes) for a in axes):
        raise ModelError(f"dimensions {list(axes)} do not fit {len(sizes)} dimensions")
    e, shape = call.maker, [n for a, n in enumerate(sizes) if a not in axes]
    wide = [on_parts(lambda x: e.broadcast_to(x, shape), start) for start in starts]
    if 0 in [sizes[axis] for axis in axes]:
        return wide
    op = combination(call.region(0)) if len(inputs) == 1 else ""
    (x, *_), (start, *_) = inputs, starts
    if isinstance(x, Tensor) and isinstance(start, Tensor):
        named = (_OF_BOOLS if x.dtype.is_bool else _REDUCE).get(op)
        if named is not None:
            return [_named(e, named, x, start, axes)]
    for axis in sorted(axes, reverse=True):
        if isinstance(dims_of(inputs[0])[axis], int):
            inputs = _halved(call, inputs, axis)
        else:
            inputs = _in_turn(call, inputs, axis)
    return lifted(call, [*wide, *inputs])


def _named(
    e: NodeMaker, op: tuple[str, str], x: Tensor, start: Tensor, axes: Sequence[int]
) -> Tensor:
    """A reduction that is an op; truth values are reduced as the numbers 0 and 1."""
    reduce, combine = op
    numbers = e.cast(x, dtypes.u8) if x.dtype.is_bool else x
    found = e.op(reduce, numbers, axes=tuple(axes), keepdims=False) if axes else numbers
    return e.op(combine, e.cast(found, x.dtype), start)


def _in_turn(call: Call, inputs: Sequence[Held], axis: int) -> list[Held]:
    """One axis, of a size that a call decides and is at least 1, reduced by the region entry by entry."""
    e, size = call.maker, dims_of(inputs[0])[axis]

    def entry(place: Tensor) -> list[Held]:
        return [on_parts(lambda x: control.row_at(e, x, place, axis), h) for h in inputs]

    first = entry(e.scalar(0, dtypes.i64))

    def trip(place: Tensor, so_far: list[Tensor]) -> list[Tensor]:
        return flattened(lifted(call, [*restored(first, so_far), *entry(place)]))

    return restored(first, control.counted(e, size, flattened(first), trip, begin=1))


def _halved(call: Call, inputs: Sequence[Held], axis: int) -> list[Held]:
    """One axis reduced by the region, without the start: neighbours again and again, in their order."""
    e, found = call.maker, list(inputs)

    def sliced(start: int, size: int, step: int) -> list[Held]:
        return [on_parts(lambda x: e.slice(x, axis, start, size, step), h) for h in found]

    size = dims_of(found[0])[axis]
    assert isinstance(size, int), "asked for by the caller"
    while size > 1:
        half, rest = size // 2, sliced(size - 1, 1, 1)
        found = lifted(call, [*sliced(0, half, 2), *sliced(1, half, 2)])
        if size % 2:
            found = [joined(e, [x, y], axis) for x, y in zip(found, rest, strict=True)]
        size = half + size % 2
    return [on_parts(lambda x: e.squeeze(x, (axis,)), held) for held in found]


def _map(call: Call) -> list[Held]:
    """The region on numbers, on all at once."""
    call.integers("dimensions")
    return lifted(call, call.operands)


def _map_fits(call: Call) -> None:
    """All dimensions, and a region on a number of every input that makes one of the result."""
    result = tensor_of(call.operation.results[0].type, "result 0")
    axes = call.integers("dimensions")
    if result.shape is not None and list(axes) != list(range(len(result.shape))):
        raise ModelError(f"dimensions are {list(axes)}, expected all {len(result.shape)}")
    region(0, elements_of, str(result.element))(call)


ROWS: Final[tuple[Row, ...]] = (
    row("map", _map, demands=(takes_some(1, 1), elements(ANY), one_shape(), _map_fits)),
    row(
        "reduce",
        _reduce,
        demands=(takes_some(2, 1), elements(ANY), starts_fit, combines(starts=True)),
    ),
)
