"""Rows for operations whose places come from data: gather, scatter, dynamic slices.

A place in a tensor of several axes is one number, its offset in the flat tensor: gathers read there,
scatters write there.  Updates that fall outside go to one more element, which is dropped.

Source: StableHLO specification, "gather", "scatter", "dynamic_slice", "dynamic_update_slice".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.stablehlo.call import Call, integer_of, listed, real
from tilewright.compiler.frontends.stablehlo.held import Complex, Held
from tilewright.compiler.frontends.stablehlo.movement import sizes_of
from tilewright.compiler.frontends.stablehlo.regions import combination
from tilewright.compiler.frontends.stablehlo.row import Row, row
from tilewright.compiler.frontends.stablehlo.tree import Attributes, Region

_LARGEST: Final = (1 << 63) - 1


def indices_of(e: NodeMaker, x: Tensor) -> Tensor:
    """Indices as i64; those that are too large for it are the largest number."""
    if x.dtype is dtypes.u64:
        x = e.op("min", x, e.scalar(_LARGEST, dtypes.u64))
    return e.cast(x, dtypes.i64)


def _vectors(
    e: NodeMaker, indices: Tensor, axis: int
) -> tuple[list[Tensor], tuple[int, ...]]:
    """The components of index vectors, each of the shape of the other axes, and that shape."""
    sizes = sizes_of(indices)
    if not 0 <= axis <= len(sizes):
        raise ModelError(f"index_vector_dim is {axis} for indices {indices.type}")
    if axis == len(sizes):
        return [indices], sizes
    rest = (*sizes[:axis], *sizes[axis + 1 :])
    columns = [e.squeeze(e.slice(indices, axis, i, 1), (axis,)) for i in range(sizes[axis])]
    return columns, rest


def _along(e: NodeMaker, size: int, axis: int, rank: int) -> Tensor:
    """`0 .. size - 1` along one axis of several."""
    return e.constant(
        np.arange(size).reshape([size if a == axis else 1 for a in range(rank)])
    )


def _spread(e: NodeMaker, x: Tensor, axes: Sequence[int], rank: int) -> Tensor:
    """The axes of x at places among `rank`, the others of size 1."""
    shape = [1] * rank
    for axis, size in zip(axes, sizes_of(x), strict=True):
        shape[axis] = size
    return e.reshape(x, shape)


def _offset(e: NodeMaker, places: Sequence[Tensor], shape: Sequence[int]) -> Tensor:
    """The offset of an element in the flat tensor, from its place along every axis."""
    total = e.scalar(0, dtypes.i64)
    for axis, place in enumerate(places):
        stride = e.scalar(math.prod(shape[axis + 1 :]), dtypes.i64)
        total = e.op("add", total, e.op("mul", place, stride))
    return total


def _places(
    call: Call,
    starts: Tensor,
    shape: Sequence[int],
    window: Sequence[int],
    numbers: Mapping[str, Sequence[int]],
    vector_axis: int,
) -> tuple[list[Tensor], int]:
    """The place of every element of a result (an update) along every axis of the operand.

    Args:
        call: where `maker` comes from.
        starts: where windows begin, i64; clamped already where that is wanted.
        shape: of the operand.
        window: axes of the result that run inside a window.
        numbers: `map`, the axis of the operand that each component of an index is about; `collapsed`;
            `batching` of the operand and `start_batching` of the indices.
        vector_axis: the axis of `starts` that holds index vectors.

    Returns: one tensor per axis, which broadcast; and the rank of the result.
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
    if len(windowed) != len(window):
        raise ModelError("dimension numbers do not fit the operand")
    sizes = numbers["sizes"]
    zero = e.scalar(0, dtypes.i64)
    places = [zero] * len(shape)
    for component, axis in zip(columns, numbers["map"], strict=True):
        places[axis] = _spread(e, component, others, rank)
    for axis, own in zip(numbers["batching"], numbers["start_batching"], strict=True):
        position = own - (own > vector_axis)
        places[axis] = _along(e, batch[position], others[position], rank)
    for axis, own in zip(windowed, sorted(window), strict=True):
        places[axis] = e.op("add", places[axis], _along(e, sizes[axis], own, rank))
    return places, rank


def _gather(call: Call) -> Held:
    return gather(call, call.integers("slice_sizes"))


def gather(call: Call, sizes: Sequence[int]) -> Held:
    """Windows of `sizes` from where index vectors say."""
    numbers = call.fields("dimension_numbers")
    call.flag("indices_are_sorted")
    held = call.held(0)
    starts = indices_of(call.maker, call.tensor(1))
    parts = [held.real, held.imaginary] if isinstance(held, Complex) else [real(held)]
    found = [_gathered(call, x, starts, numbers, sizes) for x in parts]
    return Complex(*found) if len(found) == 2 else found[0]


def _vector_axis(numbers: Attributes) -> int:
    """The axis of the indices that holds index vectors; text leaves it out where it is the first."""
    found = numbers.get("index_vector_dim")
    return 0 if found is None else integer_of("index_vector_dim", found)


def _gathered(
    call: Call, x: Tensor, starts: Tensor, numbers: Attributes, sizes: Sequence[int]
) -> Tensor:
    e, shape = call.maker, sizes_of(x)
    if len(sizes) != x.rank or any(
        not 0 <= n <= m for n, m in zip(sizes, shape, strict=True)
    ):
        raise ModelError(f"slice sizes {list(sizes)} do not fit {x.type}")
    axis = _vector_axis(numbers)
    mapped = listed(numbers, "start_index_map")
    result = call.shape()
    if 0 in result:
        return e.full(0, x.dtype, result)
    # A window that reaches over the end is moved back.
    columns, batch = _vectors(e, starts, axis)
    if len(columns) != len(mapped):
        raise ModelError("start_index_map does not fit the indices")
    zero = e.scalar(0, dtypes.i64)
    clamped = [
        e.op("clip", column, zero, e.scalar(shape[a] - sizes[a], dtypes.i64))
        for column, a in zip(columns, mapped, strict=True)
    ]
    wide = e.concat([e.unsqueeze(c, (len(batch),)) for c in clamped], len(batch)) if (
        clamped) else e.constant(np.zeros((*batch, 0), np.int64))  # fmt: skip
    start_batching = listed(numbers, "start_indices_batching_dims")
    own = {
        "map": mapped,
        "collapsed": listed(numbers, "collapsed_slice_dims"),
        "batching": listed(numbers, "operand_batching_dims"),
        # The axis of vectors is the last one now.
        "start_batching": [a - (a > axis) for a in start_batching],
        "sizes": sizes,
    }
    window = listed(numbers, "offset_dims")
    places, _ = _places(call, wide, shape, window, own, len(batch))
    offset = e.broadcast_to(_offset(e, places, shape), result)
    flat = e.reshape(x, (math.prod(shape),))
    return e.op("gather", flat, offset, axis=0)


# --- scatter ---------------------------------------------------------------------------------

_UPDATES: Final = {"add": "add", "max": "max", "min": "min", "mul": "mul", "second": "none"}
_OF_BOOLS: Final = {**_UPDATES, "or": "max", "and": "min"}
_LINEAR: Final = ("add", "none")


def _scatter(call: Call) -> Held:
    if len(call.operands) != 3:
        raise UnsupportedError("a scatter into several tensors is not supported")
    call.flag("indices_are_sorted")
    call.flag("unique_indices")
    numbers = call.fields("scatter_dimension_numbers")
    held, updates = call.held(0), call.held(2)
    indices = indices_of(call.maker, call.tensor(1))
    if isinstance(held, Complex) and isinstance(updates, Complex):
        mode = update_mode(call.region(0), dtypes.f32)
        if mode not in _LINEAR:
            raise UnsupportedError("complex numbers are scattered by sums alone")
        pairs = ((held.real, updates.real), (held.imaginary, updates.imaginary))
        return Complex(*(_scattered(call, x, indices, u, numbers, mode) for x, u in pairs))
    x = real(held)
    mode = update_mode(call.region(0), x.dtype)
    return _scattered(call, x, indices, real(updates), numbers, mode)


def update_mode(region: Region, dtype: dtypes.DType) -> str:
    """What a scatter by this region is called.  Raises: UnsupportedError if it has no name."""
    known = _OF_BOOLS if dtype.is_bool else _UPDATES
    found = known.get(combination(region))
    if found is None:
        raise UnsupportedError("an update by a region like this is not supported")
    return found


def _scattered(
    call: Call,
    x: Tensor,
    indices: Tensor,
    updates: Tensor,
    numbers: Attributes,
    mode: str,
) -> Tensor:
    e, shape = call.maker, sizes_of(x)
    axis = _vector_axis(numbers)
    window = listed(numbers, "update_window_dims")
    inserted = listed(numbers, "inserted_window_dims")
    batching = listed(numbers, "input_batching_dims")
    windowed = [a for a in range(x.rank) if a not in (*inserted, *batching)]
    if len(windowed) != len(window) or any(not 0 <= w < updates.rank for w in window):
        raise ModelError("dimension numbers do not fit the updates")
    sizes = [1] * x.rank
    for a, own in zip(windowed, sorted(window), strict=True):
        sizes[a] = sizes_of(updates)[own]
    if 0 in sizes_of(updates) or 0 in shape:
        return x
    own = {
        "map": listed(numbers, "scatter_dims_to_operand_dims"),
        "collapsed": inserted,
        "batching": batching,
        "start_batching": listed(numbers, "scatter_indices_batching_dims"),
        "sizes": sizes,
    }
    places, rank = _places(call, indices, shape, window, own, axis)
    if rank != updates.rank:
        raise ModelError("dimension numbers do not fit the updates")
    inside = _inside(e, places, shape)
    count = math.prod(shape)
    offset = e.op("where", inside, _offset(e, places, shape), e.scalar(count, dtypes.i64))
    offset = e.broadcast_to(offset, updates.shape)
    return e.reshape(scatter_flat(e, e.reshape(x, (count,)), offset, updates, mode), shape)


def scatter_flat(
    e: NodeMaker, x: Tensor, offsets: Tensor, updates: Tensor, mode: str
) -> Tensor:
    """The vector x with updates at offsets; those at its end, one too far, are dropped."""
    (count,), many = sizes_of(x), math.prod(sizes_of(updates))
    written = e.op(
        "scatter_elements",
        e.concat([x, e.full(0, x.dtype, (1,))], 0),
        e.reshape(offsets, (many,)),
        e.reshape(updates, (many,)),
        axis=0,
        reduction=mode,
    )
    return e.slice(written, 0, 0, count)


def _inside(e: NodeMaker, places: Sequence[Tensor], shape: Sequence[int]) -> Tensor:
    """Whether an element exists."""
    found = e.constant(np.array(True))
    zero = e.scalar(0, dtypes.i64)
    for place, size in zip(places, shape, strict=True):
        least = e.op("greater_equal", place, zero)
        most = e.op("less", place, e.scalar(size, dtypes.i64))
        found = e.op("logical_and", found, e.op("logical_and", least, most))
    return found


# --- slices ----------------------------------------------------------------------------------


def _starts(
    call: Call, first: int, shape: Sequence[int], sizes: Sequence[int]
) -> list[Tensor]:
    """Where a slice begins along every axis, moved so that it lies inside."""
    e = call.maker
    given = [indices_of(e, call.tensor(first + i)) for i in range(len(shape))]
    zero = e.scalar(0, dtypes.i64)
    return [
        e.op("clip", start, zero, e.scalar(whole - part, dtypes.i64))
        for start, whole, part in zip(given, shape, sizes, strict=True)
    ]


def _dynamic_slice(call: Call) -> Held:
    sizes = call.integers("slice_sizes")
    held = call.held(0)
    parts = [held.real, held.imaginary] if isinstance(held, Complex) else [real(held)]
    e, shape = call.maker, sizes_of(parts[0])
    if len(sizes) != len(shape) or any(n > m for n, m in zip(sizes, shape, strict=True)):
        raise ModelError(f"slice sizes {list(sizes)} do not fit {parts[0].type}")
    starts = _starts(call, 1, shape, sizes)
    for axis, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        if size == shape[axis]:
            continue  # all of it, wherever it should begin
        places = e.op("add", start, _count_up(e, size))
        parts = [e.op("gather", x, places, axis=axis) for x in parts]
    return Complex(*parts) if len(parts) == 2 else parts[0]


def _count_up(e: NodeMaker, size: int) -> Tensor:
    """`0 .. size - 1`."""
    return e.constant(np.arange(size))


def _dynamic_update_slice(call: Call) -> Held:
    held, update = call.held(0), call.held(1)
    if isinstance(held, Complex) and isinstance(update, Complex):
        pairs = ((held.real, update.real), (held.imaginary, update.imaginary))
        return Complex(*(_updated(call, x, u) for x, u in pairs))
    return _updated(call, real(held), real(update))


def _updated(call: Call, x: Tensor, update: Tensor) -> Tensor:
    """Every place of the operand reads its update, if it has one."""
    e, shape, sizes = call.maker, sizes_of(x), sizes_of(update)
    if len(shape) != len(sizes) or any(n > m for n, m in zip(sizes, shape, strict=True)):
        raise ModelError(f"update {update.type} does not fit {x.type}")
    if 0 in sizes:
        return x
    inside = e.constant(np.array(True))
    zero = e.scalar(0, dtypes.i64)
    for axis, start in enumerate(_starts(call, 2, shape, sizes)):
        place = e.op("sub", _count_up(e, shape[axis]), start)
        last = e.scalar(sizes[axis] - 1, dtypes.i64)
        update = e.op("gather", update, e.op("clip", place, zero, last), axis=axis)
        least = e.op("greater_equal", place, zero)
        here = e.op("logical_and", least, e.op("less_equal", place, last))
        wide = [shape[axis] if a == axis else 1 for a in range(len(shape))]
        inside = e.op("logical_and", inside, e.reshape(here, wide))
    return e.op("where", inside, update, x)


ROWS: Final[tuple[Row, ...]] = (
    row("dynamic_slice", _dynamic_slice, keeps=True),
    row("dynamic_update_slice", _dynamic_update_slice, keeps=True),
    row("gather", _gather, keeps=True),
    row("scatter", _scatter),
)
