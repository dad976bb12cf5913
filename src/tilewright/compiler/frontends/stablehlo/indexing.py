"""Rows for operations whose places come from data: gather, dynamic slices.

A place in a tensor of several axes is one number, its offset in the flat tensor: gathers read there,
scatters (`scattering`) write there.

Source: StableHLO specification, "gather", "dynamic_slice", "dynamic_update_slice".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.stablehlo.assumed_sizes import assumed_inside
from tilewright.compiler.frontends.stablehlo.call import Call, integer_of, listed, real
from tilewright.compiler.frontends.stablehlo.demands import (
    ANY,
    elements,
    integer_numbers,
    keeps,
    one_shape,
    takes,
    takes_some,
)
from tilewright.compiler.frontends.stablehlo.held import Complex, Held
from tilewright.compiler.frontends.stablehlo.index_demands import (
    GATHERED,
    starts_along_all,
)
from tilewright.compiler.frontends.stablehlo.row import Row, row
from tilewright.compiler.frontends.stablehlo.tree import Attributes
from tilewright.compiler.ops.shapes import element_count

_LARGEST: Final = (1 << 63) - 1
_COST_OF_A_PLACE: Final = 2
"""Elements that are written in the time that one number of the place of a row takes."""


def indices_of(e: NodeMaker, x: Tensor) -> Tensor:
    """Indices as i64; those that are too large for it are the largest number."""
    if not x.dtype.is_integer:
        raise ModelError(f"indices are {x.type}, expected whole numbers")
    if x.dtype is dtypes.u64:
        x = e.op("min", x, e.scalar(_LARGEST, dtypes.u64))
    return e.cast(x, dtypes.i64)


def _vectors(
    e: NodeMaker, indices: Tensor, axis: int
) -> tuple[list[Tensor], tuple[Dim, ...]]:
    """The components of index vectors, each of the shape of the other axes, and that shape."""
    sizes = indices.shape
    if not 0 <= axis <= len(sizes):
        raise ModelError(f"index_vector_dim is {axis} for indices {indices.type}")
    if axis == len(sizes):
        return [indices], sizes
    rest = (*sizes[:axis], *sizes[axis + 1 :])
    count = sizes[axis]
    if not isinstance(count, int):
        raise UnsupportedError("how many components an index has depends on the call")
    columns = [e.squeeze(e.slice(indices, axis, i, 1), (axis,)) for i in range(count)]
    return columns, rest


def _spread(e: NodeMaker, x: Tensor, axes: Sequence[int], rank: int) -> Tensor:
    """The axes of x at places among `rank`, the others of size 1."""
    shape: list[Dim] = [1] * rank
    for axis, size in zip(axes, x.shape, strict=True):
        shape[axis] = size
    return e.reshape(x, shape)


def offset_of(e: NodeMaker, places: Sequence[Tensor], shape: Sequence[Dim]) -> Tensor:
    """The offset of an element in the flat tensor, from its place along every axis."""
    total = e.scalar(0, dtypes.i64)
    for axis, place in enumerate(places):
        stride = e.dim(element_count(shape[axis + 1 :]))
        total = e.op("add", total, e.op("mul", place, stride))
    return total


def places_of(
    call: Call,
    starts: Tensor,
    shape: Sequence[Dim],
    window: Sequence[int],
    numbers: Mapping[str, Sequence[int]],
    sizes: Sequence[Dim],
    vector_axis: int,
) -> tuple[list[Tensor], list[Dim]]:
    """The place of every element of a result (an update) along every axis of the operand.

    Args:
        call: where `maker` comes from.
        starts: where windows begin, i64; clamped already where that is wanted.
        shape: of the operand.
        window: axes of the result that run inside a window.
        numbers: `map`, the axis of the operand that each component of an index is about; `collapsed`;
            `batching` of the operand and `start_batching` of the indices.
        sizes: of windows.
        vector_axis: the axis of `starts` that holds index vectors.

    Returns: one tensor per axis, which broadcast; and the shape of the result.
    """
    e = call.maker
    columns, batch = _vectors(e, starts, vector_axis)
    rank = len(batch) + len(window)
    others = [axis for axis in range(rank) if axis not in window]
    if len(others) != len(batch) or len(columns) != len(numbers["map"]):
        raise ModelError("dimension numbers do not fit the indices")
    windowed = [
        axis
        for axis in range(len(shape))
        if axis not in (*numbers["collapsed"], *numbers["batching"])
    ]
    batches = zip(numbers["batching"], numbers["start_batching"], strict=False)
    pairs = [(axis, own - (own > vector_axis)) for axis, own in batches]
    if len(windowed) != len(window) or not _are_there(
        numbers, pairs, len(shape), len(batch)
    ):
        raise ModelError("dimension numbers do not fit the operand")
    zero = e.scalar(0, dtypes.i64)
    result: list[Dim] = [0] * rank
    for axis, size in zip(others, batch, strict=True):
        result[axis] = size
    places = [zero] * len(shape)
    for component, axis in zip(columns, numbers["map"], strict=True):
        places[axis] = _spread(e, component, others, rank)
    for axis, position in pairs:
        places[axis] = e.along(others[position], batch[position], rank)
    for axis, own in zip(windowed, sorted(window), strict=True):
        result[own] = sizes[axis]
        places[axis] = e.op("add", places[axis], e.along(own, sizes[axis], rank))
    return places, result


def _are_there(
    numbers: Mapping[str, Sequence[int]],
    pairs: Sequence[tuple[int, int]],
    rank: int,
    batches: int,
) -> bool:
    """Whether every axis that is named is there, and axes of batches come in pairs."""
    named = (*numbers["map"], *numbers["collapsed"], *numbers["batching"])
    return (
        len(pairs) == len(numbers["batching"]) == len(numbers["start_batching"])
        and all(0 <= axis < rank for axis in named)
        and all(0 <= position < batches for _, position in pairs)
    )


def _gather(call: Call) -> Held:
    return gather(call, call.integers("slice_sizes"))


def gather(call: Call, sizes: Sequence[Dim]) -> Held:
    """Windows of `sizes` from where index vectors say."""
    numbers = call.fields("dimension_numbers")
    call.flag("indices_are_sorted")
    held = call.held(0)
    starts = indices_of(call.maker, call.tensor(1))
    parts = [held.real, held.imaginary] if isinstance(held, Complex) else [real(held)]
    found = [_gathered(call, x, starts, numbers, sizes) for x in parts]
    return Complex(*found) if len(found) == 2 else found[0]


def vector_axis_of(numbers: Attributes) -> int:
    """The axis of the indices that holds index vectors; text leaves it out where it is the first."""
    found = numbers.get("index_vector_dim")
    return 0 if found is None else integer_of("index_vector_dim", found)


def _gathered(
    call: Call, x: Tensor, starts: Tensor, numbers: Attributes, sizes: Sequence[Dim]
) -> Tensor:
    e, shape = call.maker, x.shape
    if len(sizes) != x.rank or not all(
        assumed_inside(e, 0, n) and assumed_inside(e, n, m)
        for n, m in zip(sizes, shape, strict=True)
    ):
        raise ModelError(f"slice sizes {list(sizes)} do not fit {x.type}")
    axis = vector_axis_of(numbers)
    mapped = listed(numbers, "start_index_map")
    if call.is_empty:
        return e.full(0, x.dtype, call.shape())
    # A window that reaches over the end is moved back.
    columns, batch = _vectors(e, starts, axis)
    whole = (
        *listed(numbers, "collapsed_slice_dims"),
        *listed(numbers, "operand_batching_dims"),
    )
    if any(not 0 <= a < x.rank for a in (*mapped, *whole)):
        raise ModelError("dimension numbers do not fit the operand")
    if not all(assumed_inside(e, sizes[a], 1) for a in whole):
        raise ModelError(
            f"slices of {list(sizes)} have axes of more than one element that the result lacks"
        )
    if len(columns) != len(mapped):
        raise ModelError("start_index_map does not fit the indices")
    zero = e.scalar(0, dtypes.i64)
    clamped = [
        e.op("clip", column, zero, e.dim(shape[a] - sizes[a]))
        for column, a in zip(columns, mapped, strict=True)
    ]
    wide = e.concat([e.unsqueeze(c, (len(batch),)) for c in clamped], len(batch)) if (
        clamped) else e.full(0, dtypes.i64, (*batch, 0))  # fmt: skip
    start_batching = listed(numbers, "start_indices_batching_dims")
    own = {
        "map": mapped,
        "collapsed": listed(numbers, "collapsed_slice_dims"),
        "batching": listed(numbers, "operand_batching_dims"),
        # The axis of vectors is the last one now.
        "start_batching": [a - (a > axis) for a in start_batching],
    }
    window = listed(numbers, "offset_dims")
    places, result = places_of(call, wide, shape, window, own, sizes, len(batch))
    offset = e.broadcast_to(offset_of(e, places, shape), result)
    flat = e.reshape(x, (element_count(shape),))
    return e.op("gather", flat, offset, axis=0)


# --- slices ----------------------------------------------------------------------------------


def _starts(
    call: Call, first: int, shape: Sequence[Dim], sizes: Sequence[Dim]
) -> list[Tensor]:
    """Where a slice begins along every axis, moved so that it lies inside."""
    e = call.maker
    given = [indices_of(e, call.tensor(first + i)) for i in range(len(shape))]
    zero = e.scalar(0, dtypes.i64)
    return [
        e.op("clip", start, zero, e.dim(whole - part))
        for start, whole, part in zip(given, shape, sizes, strict=True)
    ]


def _dynamic_slice(call: Call) -> Held:
    sizes = call.integers("slice_sizes")
    held = call.held(0)
    parts = [held.real, held.imaginary] if isinstance(held, Complex) else [real(held)]
    e, shape = call.maker, parts[0].shape
    if not _fits(e, sizes, shape):
        raise ModelError(f"slice sizes {list(sizes)} do not fit {parts[0].type}")
    starts = _starts(call, 1, shape, sizes)
    for axis, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        if size == shape[axis]:
            continue  # all of it, wherever it should begin
        places = e.op("add", start, e.iota((size,), 0))
        parts = [e.op("gather", x, places, axis=axis) for x in parts]
    return Complex(*parts) if len(parts) == 2 else parts[0]


def _fits(e: NodeMaker, sizes: Sequence[Dim], shape: Sequence[Dim]) -> bool:
    """Whether a part of some sizes lies in a tensor."""
    if len(sizes) != len(shape):
        return False
    return all(assumed_inside(e, n, m) for n, m in zip(sizes, shape, strict=True))


def _dynamic_update_slice(call: Call) -> Held:
    held, update = call.held(0), call.held(1)
    if isinstance(held, Complex) and isinstance(update, Complex):
        pairs = ((held.real, update.real), (held.imaginary, update.imaginary))
        return Complex(*(_updated(call, x, u) for x, u in pairs))
    return _updated(call, real(held), real(update))


def _updated(call: Call, x: Tensor, update: Tensor) -> Tensor:
    e, shape, sizes = call.maker, x.shape, update.shape
    if not _fits(e, sizes, shape):
        raise ModelError(f"update {update.type} does not fit {x.type}")
    if 0 in sizes:
        return x
    cut = [axis for axis, size in enumerate(sizes) if size != shape[axis]]
    if not cut:
        return update  # all of it, wherever it should begin
    starts = _starts(call, 2, shape, sizes)
    if _is_scattered(x, sizes[: cut[-1] + 1]):
        return _scattered(e, x, update, {axis: starts[axis] for axis in cut})
    return _selected(e, x, update, starts)


def _is_scattered(x: Tensor, grid: Sequence[Dim]) -> bool:
    """Whether it costs less to find the place of every row of the update than to look at every place of `x`.

    A loop that carries `x` writes nothing but the rows then.
    """
    count, whole = element_count(grid), element_count(x.shape)
    if not isinstance(count, int) or not isinstance(whole, int):
        return len(grid) == 1 or isinstance(count, int)
    return _COST_OF_A_PLACE * len(grid) * count <= whole


def _scattered(
    e: NodeMaker, x: Tensor, update: Tensor, starts: Mapping[int, Tensor]
) -> Tensor:
    """Rows of the update at their places; they lie along the axes behind the last one that has a start."""
    depth = max(starts) + 1
    grid = update.shape[:depth]
    columns: list[Tensor] = []
    for axis in range(depth):
        place = e.iota((grid[axis],), 0)
        if axis in starts:
            place = e.op("add", starts[axis], place)
        place = e.reshape(place, [n if a == axis else 1 for a, n in enumerate(grid)])
        columns.append(e.unsqueeze(e.broadcast_to(place, grid), (depth,)))
    return e.op("scatter_nd", x, e.concat(columns, depth), update)


def _selected(e: NodeMaker, x: Tensor, update: Tensor, starts: Sequence[Tensor]) -> Tensor:
    """Every place of the operand reads its update, if it has one."""
    shape, sizes = x.shape, update.shape
    inside = e.constant(np.array(True))
    zero = e.scalar(0, dtypes.i64)
    for axis, start in enumerate(starts):
        place = e.op("sub", e.iota((shape[axis],), 0), start)
        last = e.dim(sizes[axis] - 1)
        update = e.op("gather", update, e.op("clip", place, zero, last), axis=axis)
        least = e.op("greater_equal", place, zero)
        here = e.op("logical_and", least, e.op("less_equal", place, last))
        wide = [shape[axis] if a == axis else 1 for a in range(len(shape))]
        inside = e.op("logical_and", inside, e.reshape(here, wide))
    return e.op("where", inside, update, x)


ROWS: Final[tuple[Row, ...]] = (
    row(
        "dynamic_slice",
        _dynamic_slice,
        keeps=True,
        demands=(
            takes_some(),
            elements(ANY, 0),
            keeps(0),
            integer_numbers(1),
            starts_along_all(1),
        ),
    ),
    row(
        "dynamic_update_slice",
        _dynamic_update_slice,
        keeps=True,
        demands=(
            takes_some(2),
            elements(ANY, 0),
            keeps(0, 1),
            one_shape(0),
            integer_numbers(2),
            starts_along_all(2),
        ),
    ),
    row(
        "gather",
        _gather,
        keeps=True,
        demands=(takes(2), elements(ANY, 0), elements("su", 1), keeps(0), *GATHERED),
    ),
)
