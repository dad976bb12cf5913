"""Rows whose results have sizes that only data decides: places that are not zero, distinct elements.

Sizes are bound to torch's own symbols, and read once where the data is (`kit.computed`).

Source: the operators of ATen by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.base import dtypes
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit import computed, control
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.torch.axes import axis_of
from tilewright.compiler.frontends.torch.call import Call
from tilewright.compiler.frontends.torch.elementwise import to_bool
from tilewright.compiler.frontends.torch.row import Row, row
from tilewright.compiler.frontends.torch.sizes import of_data
from tilewright.compiler.ops.shapes import broadcast_shapes, element_count

# Every column of slices that are sorted is a sort of its own.
_MOST_COLUMNS: Final = 64


def _number(call: Call) -> Sequence[Tensor]:
    """A number that sizes follow from."""
    call.bind(call.tensor(), call.size("size"))
    return ()


def _flat(e: NodeMaker, x: Tensor) -> Tensor:
    return e.reshape(x, (element_count(x.shape),))


def true_places(call: Call, mask: Tensor) -> Tensor:
    """The places in the flattened mask that are true, as many as the result says."""
    e = call.maker
    if any(extent == 0 for extent in mask.shape):
        return e.full(0, dtypes.i64, (none_of_data(call),))
    return computed.true_places(e, _flat(e, mask), count_as=call.data_size())


def none_of_data(call: Call) -> Dim:
    """The size of a result without elements: torch may take it for data, or know it."""
    unknown = of_data(call.shape())
    for size in unknown:
        call.bind(call.maker.scalar(0, dtypes.i64), size)
    return unknown[0] if unknown else 0


def _nonzero(call: Call) -> Tensor:
    e, x = call.maker, call.tensor()
    places = true_places(call, to_bool(e, x))
    if not x.rank:
        return e.reshape(e.slice(places, 0, 0, 0), call.shape())
    return e.transpose(computed.unraveled(e, places, x.shape), (1, 0))


def _masked_select(call: Call) -> Tensor:
    e, x, mask = call.maker, call.tensor(), call.tensor("mask")
    shape = broadcast_shapes(x.shape, mask.shape)
    x, mask = e.broadcast_to(x, shape), e.broadcast_to(mask, shape)
    places = true_places(call, mask)
    if any(extent == 0 for extent in shape):
        return e.full(0, x.dtype, call.shape())
    return e.op("gather", _flat(e, x), places, axis=0)


def _repeats(call: Call) -> Tensor:
    """Each place as often as its number says."""
    e, repeats = call.maker, e_of_i64(call, "repeats")
    (size,) = call.shape()
    call.argument("output_size")
    if repeats.shape[0] == 0:
        return e.full(0, dtypes.i64, call.shape())
    ends = e.op("cumsum", repeats, axis=0)
    if not isinstance(size, int):
        call.bind(e.op("reduce_sum", repeats, axes=(0,), keepdims=False), call.data_size())
    # How many numbers end at each place, and up to it; the last ones end behind all places.
    room, ones = e.full(0, dtypes.i64, (size + 1,)), e.full(1, dtypes.i64, ends.shape)
    ended = e.op("scatter_elements", room, ends, ones, axis=0, reduction="add")
    found = e.slice(e.op("cumsum", ended, axis=0), 0, 0, size)
    return e.cast(found, call.dtype())


def e_of_i64(call: Call, name: str) -> Tensor:
    """An operand of whole numbers as i64."""
    return call.maker.cast(call.tensor(name), dtypes.i64)


def _bin_counts(call: Call) -> Tensor:
    e, x = call.maker, e_of_i64(call, "self")
    size, least = call.shape()[0], call.size("minlength", 0)
    weights = call.optional("weights")
    if x.shape[0] == 0:
        if not isinstance(size, int):
            call.bind(e.dim(least), size)
        return e.full(0, call.dtype(), (size,))
    most = e.op("reduce_max", x, axes=(0,), keepdims=False)
    count = e.op("max", e.op("add", most, e.scalar(1, dtypes.i64)), e.dim(least))
    if isinstance(size, int):
        # What follows has made torch take the size for known; it is checked.
        control.require(e, count, size, "bins")
    else:
        call.bind(count, call.data_size())
    if weights is None:
        weights = e.full(1, dtypes.i64, x.shape)
    room = e.full(0, call.dtype(), (size,))
    added = e.cast(weights, call.dtype())
    return e.op("scatter_elements", room, x, added, axis=0, reduction="add", from_end=False)


# --- distinct elements --------------------------------------------------------------------------


def _unlike_before(e: NodeMaker, table: Tensor) -> Tensor:
    """Of the rows of a matrix, which are not as the row before; the first one is."""
    rows, columns = table.shape
    # Of as many rows as data says there may be none.
    border = e.full(0, table.dtype, (1, columns))
    earlier = e.slice(e.concat([border, table], 0), 0, 0, rows)
    other = e.cast(e.op("not_equal", table, earlier), dtypes.u8)
    changed = to_bool(e, e.op("reduce_max", other, axes=(1,), keepdims=False))
    is_first = e.op("equal", e.iota((rows,), 0), e.scalar(0, dtypes.i64))
    return e.op("logical_or", is_first, changed)


def _runs(call: Call, table: Tensor, order: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Where runs of equal rows begin, the number of the run of each row before sorting, lengths of runs."""
    e, rows = call.maker, table.shape[0]
    begins = _unlike_before(e, table)
    starts = computed.true_places(e, begins, count_as=call.data_size())
    number = e.op("cumsum", e.cast(begins, dtypes.i64), axis=0)
    number = e.op("sub", number, e.scalar(1, dtypes.i64))
    if order is not None:
        room = e.full(0, dtypes.i64, (rows,))
        number = e.op("scatter_elements", room, order, number, axis=0)
    count = starts.shape[0]
    end = e.reshape(e.dim(rows), (1,))
    ends = e.slice(e.concat([starts, end], 0), 0, 1, count)
    return starts, number, e.op("sub", ends, starts)


def _sorted_rows(e: NodeMaker, table: Tensor) -> tuple[Tensor, Tensor]:
    """The rows of a matrix in order, by the first column that differs, and where each was."""
    rows, columns = table.shape
    if not isinstance(columns, int) or columns > _MOST_COLUMNS:
        raise UnsupportedError(f"slices of {columns} elements in order are not supported")
    order = e.iota((rows,), 0)
    for column in reversed(range(columns)):
        numbers = e.reshape(e.slice(table, 1, column, 1), (rows,))
        held = e.op("gather", numbers, order, axis=0)
        _, places = e.ops("top_k", held, k=(rows,), axis=0, largest=False)
        order = e.op("gather", order, places, axis=0)
    return e.op("gather", table, order, axis=0), order


def _distinct(call: Call, axis: int | None, *, in_order: bool) -> Sequence[Tensor]:
    """Distinct elements, or slices along an axis: all of them in order, or those unlike the one before."""
    e, x = call.maker, call.tensor()
    if any(size == 0 for size in x.shape):
        return _distinct_of_nothing(call)
    held = e.cast(x, dtypes.u8) if x.dtype.is_bool else x
    if axis is None:
        table = e.reshape(held, (element_count(x.shape), 1))
    else:
        order = [axis, *(i for i in range(x.rank) if i != axis)]
        rest = [x.shape[i] for i in order[1:]]
        table = e.transpose(held, order)
        table = e.reshape(table, (x.shape[axis], element_count(tuple(rest))))
    order_of_rows = None
    if in_order:
        table, order_of_rows = _sorted_rows(e, table)
    starts, number, counts = _runs(call, table, order_of_rows)
    picked = e.op("gather", table, starts, axis=0)
    if axis is None:
        values = e.reshape(picked, call.shape(0))
    else:
        shape = [call.shape(0)[axis], *(s for i, s in enumerate(x.shape) if i != axis)]
        back = [*range(1, axis + 1), 0, *range(axis + 1, x.rank)]
        values = e.transpose(e.reshape(picked, shape), back)
    values = to_bool(e, values) if x.dtype.is_bool else values
    return [
        values,
        _if_wanted(call, 1, number, x.shape if axis is None else number.shape),
        _if_wanted(call, 2, counts, counts.shape),
    ]


def _distinct_of_nothing(call: Call) -> Sequence[Tensor]:
    e, shapes = call.maker, [call.shape(place) for place in range(3)]
    for name in ("return_inverse", "return_counts"):
        call.flag(name)
    for size in of_data(size for shape in shapes for size in shape):
        call.bind(e.scalar(0, dtypes.i64), size)
    return [e.full(0, call.dtype(place), shape) for place, shape in enumerate(shapes)]


def _if_wanted(call: Call, place: int, found: Tensor, shape: Sequence[Dim]) -> Tensor:
    """A result that is empty where nobody asked for it."""
    wanted = call.flag(("", "return_inverse", "return_counts")[place])
    if not wanted and call.shape(place) == (0,):
        return call.maker.full(0, dtypes.i64, (0,))
    return call.maker.reshape(found, shape)


def _unique(call: Call) -> Sequence[Tensor]:
    call.argument("sorted")
    return _distinct(call, None, in_order=True)


def _unique_slices(call: Call) -> Sequence[Tensor]:
    call.argument("sorted")
    return _distinct(call, axis_of(call, call.tensor().rank), in_order=True)


def _unlike_neighbours(call: Call) -> Sequence[Tensor]:
    axis = axis_of(call, call.tensor().rank) if call.has("dim") else None
    return _distinct(call, axis, in_order=False)


ROWS: Final[tuple[Row, ...]] = (
    row("_local_scalar_dense item", _number),
    row("nonzero", _nonzero),
    row("masked_select", _masked_select),
    row("repeat_interleave.Tensor", _repeats),
    row("bincount", _bin_counts),
    row("_unique2", _unique),
    row("unique_dim", _unique_slices),
    row("unique_consecutive", _unlike_neighbours),
)
