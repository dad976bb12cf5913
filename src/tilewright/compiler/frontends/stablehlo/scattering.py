"""Rows for scatters, whose regions say what becomes of an element and its update.

Updates that fall outside are dropped.  By a region that is one known operation
a scatter is an op of the graph; by any other updates come one after the other, or at once where no two of them meet.

Source: StableHLO specification, "scatter".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit import control
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.stablehlo.call import Call, listed, real
from tilewright.compiler.frontends.stablehlo.demands import (
    takes_some,
)
from tilewright.compiler.frontends.stablehlo.held import (
    Complex,
    Held,
    dims_of,
    flattened,
    on_parts,
    restored,
)
from tilewright.compiler.frontends.stablehlo.index_demands import (
    SCATTERED,
)
from tilewright.compiler.frontends.stablehlo.indexing import (
    indices_of,
    offset_of,
    places_of,
    vector_axis_of,
)
from tilewright.compiler.frontends.stablehlo.reduction import lifted, promoted
from tilewright.compiler.frontends.stablehlo.regions import combination
from tilewright.compiler.frontends.stablehlo.row import Row, row
from tilewright.compiler.frontends.stablehlo.tree import Region
from tilewright.compiler.ops.shapes import element_count

_UPDATES: Final = {"add": "add", "max": "max", "min": "min", "mul": "mul", "second": "none"}
_OF_BOOLS: Final = {**_UPDATES, "or": "max", "and": "min"}
_LINEAR: Final = ("add", "none")


def _scatter(call: Call) -> list[Held]:
    count = (len(call.operands) - 1) // 2
    inputs, updates = (
        promoted(call, part, call.region(0))
        for part in (call.operands[:count], call.operands[count + 1 :])
    )
    call.flag("indices_are_sorted")
    unique = call.flag("unique_indices")
    e, shape, given = call.maker, dims_of(inputs[0]), dims_of(updates[0])
    if count == 1 and 0 not in (*shape, *given):
        rows = _rows_written(call, inputs[0], updates[0])
        if rows is not None:
            return [rows]
    offsets = _offsets(call, indices_of(e, call.tensor(count)), shape, given)
    if 0 in given or 0 in shape:
        return list(inputs)
    size = element_count(shape)
    flat = [on_parts(lambda x: e.reshape(x, (size,)), held) for held in inputs]
    found = scatter_flat(call, call.region(0), flat, offsets, updates, unique=unique)
    return [on_parts(lambda x: e.reshape(x, shape), held) for held in found]


def _rows_written(call: Call, x: Held, update: Held) -> Held | None:
    """Whole rows of leading axes at index vectors, as `x.at[i, j].add(u)` writes them; None for another scatter."""
    mode = _mode(call.region(0), [x])
    if not isinstance(x, Tensor) or not isinstance(update, Tensor) or not mode:
        return None
    e, indices = call.maker, indices_of(call.maker, call.tensor(1))
    depth = _depth_of_rows(call, indices.rank, x.shape, update.shape)
    if depth is None:
        return None
    if vector_axis_of(call.fields("scatter_dimension_numbers")) == indices.rank:
        indices = e.unsqueeze(indices, (indices.rank,))
    last = indices.rank - 1
    places = [e.squeeze(e.slice(indices, last, a, 1), (last,)) for a in range(depth)]
    inside, many = _inside(e, places, x.shape[:depth]), element_count(x.shape[:depth])
    offset = offset_of(e, places, x.shape[:depth])
    rows = e.reshape(x, (many, *x.shape[depth:]))
    # Behind the last row there is none, and what is written there is dropped.
    where = e.unsqueeze(e.op("where", inside, offset, e.dim(many)), (offset.rank,))
    found = e.op("scatter_nd", rows, where, update, reduction=mode, drops=True)
    return e.reshape(found, x.shape)


def _depth_of_rows(
    call: Call, rank: int, shape: Sequence[Dim], given: Sequence[Dim]
) -> int | None:
    """How many leading axes an index vector has a place along, where updates are whole rows behind them."""
    numbers = call.fields("scatter_dimension_numbers")
    leading = listed(numbers, "inserted_window_dims")
    depth = len(leading)
    batch = len(given) - (len(shape) - depth)
    window = tuple(range(batch, len(given)))
    is_whole = (
        depth > 0
        and leading == tuple(range(depth))
        and listed(numbers, "scatter_dims_to_operand_dims") == leading
        and not listed(numbers, "input_batching_dims")
        and listed(numbers, "update_window_dims") == window
        and vector_axis_of(numbers) == batch
        and rank == batch + (rank > batch)
        and tuple(given[batch:]) == tuple(shape[depth:])
    )
    return depth if is_whole and (depth == 1 or rank > batch) else None


def _offsets(
    call: Call, indices: Tensor, shape: Sequence[Dim], given: Sequence[Dim]
) -> Tensor:
    """Where every element of an update of shape `given` goes in the flat tensor; its end: nowhere."""
    e, numbers, rank = call.maker, call.fields("scatter_dimension_numbers"), len(shape)
    axis = vector_axis_of(numbers)
    window = listed(numbers, "update_window_dims")
    inserted = listed(numbers, "inserted_window_dims")
    batching = listed(numbers, "input_batching_dims")
    windowed = [a for a in range(rank) if a not in (*inserted, *batching)]
    if len(windowed) != len(window) or any(not 0 <= w < len(given) for w in window):
        raise ModelError("dimension numbers do not fit the updates")
    sizes: list[Dim] = [1] * rank
    for a, own in zip(windowed, sorted(window), strict=True):
        sizes[a] = given[own]
    own = {
        "map": listed(numbers, "scatter_dims_to_operand_dims"),
        "collapsed": inserted,
        "batching": batching,
        "start_batching": listed(numbers, "scatter_indices_batching_dims"),
    }
    places, result = places_of(call, indices, shape, window, own, sizes, axis)
    if len(result) != len(given):
        raise ModelError("dimension numbers do not fit the updates")
    inside = _inside(e, places, shape)
    nowhere = e.dim(element_count(shape))
    offset = e.op("where", inside, offset_of(e, places, shape), nowhere)
    return e.broadcast_to(offset, given)


def _inside(e: NodeMaker, places: Sequence[Tensor], shape: Sequence[Dim]) -> Tensor:
    """Whether an element exists."""
    found = e.constant(np.array(True))
    zero = e.scalar(0, dtypes.i64)
    for place, size in zip(places, shape, strict=True):
        least = e.op("greater_equal", place, zero)
        most = e.op("less", place, e.dim(size))
        found = e.op("logical_and", found, e.op("logical_and", least, most))
    return found


def scatter_flat(
    call: Call,
    region: Region,
    inputs: Sequence[Held],
    offsets: Tensor,
    updates: Sequence[Held],
    *,
    unique: bool = False,
) -> list[Held]:
    """Vectors with updates at offsets; those at their end, one too far, are dropped.

    Args:
        call: who asks.
        region: what becomes of an element of every input and an update of each.
        inputs: vectors of one length.
        offsets: where updates go, i64, of their shape.
        updates: as many tensors of one shape.
        unique: whether no two updates go to one element.
    """
    e = call.maker
    many = element_count(offsets.shape)
    places = e.reshape(offsets, (many,))
    given = [on_parts(lambda x: e.reshape(x, (many,)), held) for held in updates]
    mode = _mode(region, inputs)
    if mode:
        return [_written(e, inputs[0], places, given[0], mode)]
    if unique:
        old = [on_parts(lambda x: _read(e, x, places), held) for held in inputs]
        new = _combined(call, region, old, given)
        pairs = zip(inputs, new, strict=True)
        return [_written(e, x, places, value, "none") for x, value in pairs]
    return _in_turn(call, region, inputs, places, given)


def _combined(
    call: Call, region: Region, old: Sequence[Held], updates: Sequence[Held]
) -> list[Held]:
    """What becomes of elements and their updates.  Raises: ModelError unless that is one value each."""
    found = lifted(call, [*old, *updates], region)
    if len(found) != len(old):
        raise ModelError(f"its region gives {len(found)} values, expected {len(old)}")
    return found


def _read(e: NodeMaker, x: Tensor, places: Tensor) -> Tensor:
    """What stands at places; what has none is read where nobody looks at it."""
    last = e.op("sub", e.dim(x.shape[0]), e.scalar(1, dtypes.i64))
    return e.op("gather", x, e.op("min", places, last), axis=0)


def _mode(region: Region, inputs: Sequence[Held]) -> str:
    """What a scatter by a region is called; empty where it has no name."""
    if len(inputs) > 1:
        return ""
    (held,) = inputs
    is_bool = isinstance(held, Tensor) and held.dtype.is_bool
    found = (_OF_BOOLS if is_bool else _UPDATES).get(combination(region), "")
    return "" if isinstance(held, Complex) and found not in _LINEAR else found


def _written(e: NodeMaker, held: Held, places: Tensor, updates: Held, mode: str) -> Held:
    if isinstance(held, Complex) and isinstance(updates, Complex):
        return Complex(
            _written_part(e, held.real, places, updates.real, mode),
            _written_part(e, held.imaginary, places, updates.imaginary, mode),
        )
    return _written_part(e, real(held), places, real(updates), mode)


def _written_part(
    e: NodeMaker, x: Tensor, places: Tensor, updates: Tensor, mode: str
) -> Tensor:
    return e.op("scatter_elements", x, places, updates, axis=0, reduction=mode, drops=True)


def _in_turn(
    call: Call,
    region: Region,
    inputs: Sequence[Held],
    places: Tensor,
    updates: Sequence[Held],
) -> list[Held]:
    """One update after the other."""
    e, (many,) = call.maker, places.shape

    def trip(turn: Tensor, rest: list[Tensor]) -> list[Tensor]:
        vectors = restored(inputs, rest)
        place = e.reshape(control.row_at(e, places, turn, 0), (1,))
        old = [on_parts(lambda x: _read(e, x, place), held) for held in vectors]
        one = [on_parts(lambda x: control.row_at(e, x, turn, 0), h) for h in updates]
        one = [on_parts(lambda x: e.reshape(x, (1,)), held) for held in one]
        new = _combined(call, region, old, one)
        pairs = zip(vectors, new, strict=True)
        written = [_written(e, x, place, value, "none") for x, value in pairs]
        return flattened(written)

    return restored(inputs, control.counted(e, many, flattened(inputs), trip))


ROWS: Final[tuple[Row, ...]] = (
    row("scatter", _scatter, demands=(takes_some(3, 1), *SCATTERED)),
)
