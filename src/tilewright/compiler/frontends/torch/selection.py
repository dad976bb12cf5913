"""Rows that pick elements by their order: largest ones, sorted ones, the place among sorted ones.

Source: the operators of ATen by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.base import dtypes
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.torch.axes import axis_of, keep_filled
from tilewright.compiler.frontends.torch.call import Call
from tilewright.compiler.frontends.torch.elementwise import to_bool
from tilewright.compiler.frontends.torch.row import Build, Row, row
from tilewright.compiler.frontends.torch.running_extremes import running_extremes


def _sorted(call: Call, count: Dim, axis: int, *, largest: bool) -> tuple[Tensor, Tensor]:
    """Elements along an axis in order, equal ones as they stood, and where they were."""
    e, x = call.maker, call.tensor()
    if x.shape[axis] == 0 or count == 0:
        return e.full(0, x.dtype, call.shape(0)), e.full(0, dtypes.i64, call.shape(1))
    if x.dtype.is_bool:
        values, places = e.ops(
            "top_k", e.cast(x, dtypes.u8), k=(count,), axis=axis, largest=largest
        )
        return to_bool(e, values), places
    values, places = e.ops("top_k", x, k=(count,), axis=axis, largest=largest)
    return values, places


def _top_k(call: Call) -> Sequence[Tensor]:
    x, count = call.tensor(), call.size("k")
    call.flag("sorted", default=True)
    largest = call.flag("largest", default=True)
    if not x.rank:
        call.argument("dim")
        return _alone(call, count)
    return _sorted(call, count, axis_of(call, x.rank, default=-1), largest=largest)


def _alone(call: Call, count: Dim = 1) -> Sequence[Tensor]:
    if count != 1:
        raise UnsupportedError("of one element there is one")
    return call.tensor(), call.maker.scalar(0, dtypes.i64)


def _sort(call: Call) -> Sequence[Tensor]:
    x = call.tensor()
    call.argument("stable")
    down = call.flag("descending")
    if not x.rank:
        call.argument("dim")
        return _alone(call)
    axis = axis_of(call, x.rank, default=-1)
    return _sorted(call, x.shape[axis], axis, largest=down)


def _arg_sort(call: Call) -> Tensor:
    e, x = call.maker, call.tensor()
    call.argument("stable")
    down = call.flag("descending")
    if not x.rank:
        call.argument("dim")
        return e.scalar(0, dtypes.i64)
    axis = axis_of(call, x.rank, default=-1)
    if x.shape[axis] == 0:
        return e.full(0, dtypes.i64, call.shape())
    held = e.cast(x, dtypes.u8) if x.dtype.is_bool else x
    return e.ops("top_k", held, k=(x.shape[axis],), axis=axis, largest=down)[1]


def _kth(call: Call) -> Sequence[Tensor]:
    e, x = call.maker, call.tensor()
    count, keep = call.integer("k"), call.flag("keepdim")
    if not x.rank:
        call.argument("dim")
        return _alone(call)
    axis = axis_of(call, x.rank, default=-1)
    found = e.ops("top_k", x, k=(count,), axis=axis, largest=False)
    last = [e.slice(part, axis, count - 1, 1) for part in found]
    return last if keep else [e.squeeze(part, (axis,)) for part in last]


def _median(call: Call) -> Sequence[Tensor]:
    e, x = call.maker, call.tensor()
    keep = call.flag("keepdim")
    if not x.rank:
        call.argument("dim")
        return _alone(call)
    axis = axis_of(call, x.rank)
    size = x.shape[axis]
    if size == 0:
        raise UnsupportedError("a median of no elements is not supported")
    keep_filled(e, size)
    values, places = e.ops("top_k", x, k=(size,), axis=axis, largest=False)
    middle = (size - 1) // 2
    picked = [e.slice(part, axis, middle, 1) for part in (values, places)]
    if x.dtype.is_float:
        # What is not a number stands at the end; one of them is enough.
        last, where = (e.slice(part, axis, size - 1, 1) for part in (values, places))
        is_lost = e.op("is_nan", last)
        picked = [
            e.op("where", is_lost, a, b) for a, b in zip((last, where), picked, strict=True)
        ]
    return picked if keep else [e.squeeze(part, (axis,)) for part in picked]


def _median_of_all(call: Call) -> Tensor:
    e, x = call.maker, call.tensor()
    count: Dim = 1
    for size in x.shape:
        count = count * size
    if count == 0:
        raise UnsupportedError("a median of no elements is not supported")
    keep_filled(e, count)
    flat = e.reshape(x, (count,))
    values, _ = e.ops("top_k", flat, k=(count,), axis=0, largest=False)
    picked = e.slice(values, 0, (count - 1) // 2, 1)
    if x.dtype.is_float:
        last = e.slice(values, 0, count - 1, 1)
        picked = e.op("where", e.op("is_nan", last), last, picked)
    return e.reshape(picked, ())


def _median_of_numbers(call: Call) -> Sequence[Tensor]:
    """The median of what is a number; where nothing is, the first element."""
    e, x = call.maker, call.tensor()
    keep = call.flag("keepdim")
    if not x.rank:
        call.argument("dim")
        return _alone(call)
    found = _numbers_median(call, x, axis_of(call, x.rank))
    axis = axis_of(call, x.rank)
    return found if keep else [e.squeeze(part, (axis,)) for part in found]


def _numbers_median(call: Call, x: Tensor, axis: int) -> list[Tensor]:
    e, size = call.maker, x.shape[axis]
    if size == 0:
        raise UnsupportedError("a median of no elements is not supported")
    sorted_, places = e.ops("top_k", x, k=(size,), axis=axis, largest=False)
    if x.dtype.is_float:
        numbers = e.cast(e.op("logical_not", e.op("is_nan", x)), dtypes.i64)
        count = e.op("reduce_sum", numbers, axes=(axis,), keepdims=True)
    else:
        shape = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
        count = e.broadcast_to(e.dim(size), shape)
    one, zero = e.scalar(1, dtypes.i64), e.scalar(0, dtypes.i64)
    middle = e.op(
        "max", e.op("div", e.op("sub", count, one), e.scalar(2, dtypes.i64)), zero
    )
    return [e.op("gather_elements", part, middle, axis=axis) for part in (sorted_, places)]


def _median_of_all_numbers(call: Call) -> Tensor:
    e, x = call.maker, call.tensor()
    count: Dim = 1
    for size in x.shape:
        count = count * size
    return e.reshape(_numbers_median(call, e.reshape(x, (count,)), 0)[0], ())


def _running_extreme(op: str) -> Build:
    """The extreme of all up to here, and the last place where it is."""

    def build(call: Call) -> Sequence[Tensor]:
        e, x = call.maker, call.tensor()
        if not x.rank:
            call.argument("dim")
            return _alone(call)
        axis = axis_of(call, x.rank)
        if x.shape[axis] == 0:
            return x, e.full(0, dtypes.i64, x.shape)
        held = e.cast(x, dtypes.u8) if x.dtype.is_bool else x
        values, places = running_extremes(e, held, axis, op)
        return (to_bool(e, values) if x.dtype.is_bool else values), places

    return build


def _bucketize(call: Call) -> Tensor:
    edges = call.tensor("boundaries")
    return _places_among(call, call.operand("self", edges.dtype), edges)


def _search_sorted(call: Call) -> Tensor:
    edges = call.tensor("sorted_sequence")
    if call.has("sorter"):
        places, last = call.tensor("sorter"), edges.rank - 1
        edges = call.op("gather_elements", edges, places, axis=last, from_end=False)
    return _places_among(call, call.operand("self", edges.dtype), edges)


def _places_among(call: Call, x: Tensor, edges: Tensor) -> Tensor:
    """How many edges lie before (with `right` also at) each element."""
    e = call.maker
    call.argument("out_int32")
    right = call.flag("right") or call.text("side") == "right"
    if edges.rank == 1:
        edges = e.reshape(edges, (*[1] * x.rank, edges.shape[0]))
    else:
        edges = e.unsqueeze(edges, (edges.rank - 1,))
    if edges.shape[-1] == 0:
        return e.full(0, call.dtype(), call.shape())
    wide = e.unsqueeze(x, (x.rank,))
    before = e.op("less_equal" if right else "less", edges, wide)
    if x.dtype.is_float:
        # What is not a number lies behind all that is one.
        before = e.op("logical_or", before, e.op("is_nan", wide))
    counted = e.cast(before, dtypes.i64)
    found = e.op("reduce_sum", counted, axes=(counted.rank - 1,), keepdims=False)
    return e.cast(e.broadcast_to(found, call.shape()), call.dtype())


ROWS: Final[tuple[Row, ...]] = (
    row("topk", _top_k),
    row("sort sort.stable", _sort),
    row("argsort argsort.stable", _arg_sort),
    row("kthvalue", _kth),
    row("median.dim", _median),
    row("median", _median_of_all),
    row("nanmedian.dim", _median_of_numbers),
    row("nanmedian", _median_of_all_numbers),
    row("cummax", _running_extreme("reduce_max")),
    row("cummin", _running_extreme("reduce_min")),
    row("bucketize.Tensor bucketize.Scalar", _bucketize),
    row("searchsorted.Tensor searchsorted.Scalar", _search_sorted),
)
