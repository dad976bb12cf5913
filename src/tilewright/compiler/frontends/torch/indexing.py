"""Rows that read and write elements at places that are data.

Where torch lets negative places count from the end (`x[index]`, `take`, `put`, `index_fill`) they do; elsewhere they are out
of range.  What a mask picks has a size that depends on data; it is refused.

Source: the operators of ATen by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from tilewright.base import dtypes, symbolic
from tilewright.base.dtypes import DType
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit import control
from tilewright.compiler.frontends.kit.computed import unraveled
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.torch.axes import (
    axis_of,
    from_front,
    keep_within,
    slice_start,
)
from tilewright.compiler.frontends.torch.call import Call
from tilewright.compiler.frontends.torch.counted import true_places
from tilewright.compiler.frontends.torch.elementwise import to_bool
from tilewright.compiler.frontends.torch.row import Build, Row, row
from tilewright.compiler.frontends.torch.sizes import of_data
from tilewright.compiler.ops.shapes import broadcast_shapes, element_count

_MASK: Final = "an index of truth values picks as many elements as the data says"


def _places(e: NodeMaker, x: Tensor) -> Tensor:
    if x.dtype.is_bool:
        raise UnsupportedError(_MASK)
    return x if x.dtype in (dtypes.i64, dtypes.i32) else e.cast(x, dtypes.i64)


def _embedding(call: Call) -> Tensor:
    indices = _places(call.maker, call.tensor("indices"))
    call.argument("padding_idx")
    return call.op("gather", call.tensor("weight"), indices, axis=0, from_end=False)


def _index_select(call: Call) -> Tensor:
    e, x = call.maker, call.tensor()
    index = _places(e, call.tensor("index"))
    if not x.rank:
        call.argument("dim")
        return _gather_flat(call, x, index)
    axis = axis_of(call, x.rank)
    index = e.reshape(index, (call.shape()[axis],))
    return e.op("gather", x, index, axis=axis, from_end=False)


def _gather_flat(call: Call, x: Tensor, index: Tensor) -> Tensor:
    """Where one of both is a scalar, which counts as a row of one element."""
    e = call.maker
    row, index = (e.reshape(t, (t.shape[0] if t.rank else 1,)) for t in (x, index))
    found = e.op("gather", row, index, axis=0, from_end=False)
    return e.reshape(found, call.shape())


def _gather(call: Call) -> Tensor:
    e, x, index = call.maker, call.tensor(), _places(call.maker, call.tensor("index"))
    if not x.rank or not index.rank:
        call.argument("dim")
        return _gather_flat(call, x, index)
    axis = axis_of(call, x.rank)
    if any(size == 0 for size in index.shape):
        return e.full(0, x.dtype, call.shape())
    x = _cropped(e, x, index.shape, axis)
    return e.op("gather_elements", x, index, axis=axis, from_end=False)


def _cropped(e: NodeMaker, x: Tensor, shape: Sequence[Dim], but: int | None) -> Tensor:
    """The front part of a tensor, as large as an index, but along one axis."""
    for axis, size in enumerate(shape):
        if axis != but and x.shape[axis] != size:
            x = e.slice(x, axis, 0, size)
    return x


def _take(call: Call) -> Tensor:
    e, x = call.maker, call.tensor()
    count: Dim = 1
    for size in x.shape:
        count = count * size
    return e.op("gather", e.reshape(x, (count,)), _places(e, call.tensor("index")), axis=0)


def _index(call: Call) -> Tensor:
    e, x = call.maker, call.tensor()
    indices = call.optional_tensors("indices")
    if any(index is not None and index.dtype.is_bool for index in indices):
        indices = _without_masks(call, indices)
    chosen = [axis for axis, index in enumerate(indices) if index is not None]
    picked = [_places(e, index) for index in indices if index is not None]
    if any(size == 0 for size in call.shape()):
        return e.full(0, x.dtype, call.shape())
    if len(chosen) == 1:
        return e.op("gather", x, picked[0], axis=chosen[0])
    rest = [axis for axis in range(x.rank) if axis not in chosen]
    found = e.op("gather_nd", e.transpose(x, [*chosen, *rest]), _tuples(e, picked))
    together = chosen == list(range(chosen[0], chosen[0] + len(chosen)))
    if not together or chosen[0] == 0:
        return found
    # Neighbouring indices leave their axes where the first of them was.
    wide, front = found.rank - len(rest), chosen[0]
    order = [*range(wide, wide + front), *range(wide), *range(wide + front, found.rank)]
    return e.transpose(found, order)


def _without_masks(call: Call, indices: Sequence[Tensor | None]) -> list[Tensor | None]:
    """A mask as the places where it is true, one index for each of its axes."""
    masks = [index for index in indices if index is not None and index.dtype.is_bool]
    if len(masks) != 1 or not masks[0].rank:
        raise UnsupportedError(_MASK)
    found: list[Tensor | None] = []
    for index in indices:
        if index is None or not index.dtype.is_bool:
            found.append(index)
            continue
        e, places = call.maker, true_places(call, index)
        rows = unraveled(e, places, index.shape)
        found += [
            e.reshape(e.slice(rows, 0, axis, 1), places.shape) for axis in range(index.rank)
        ]
    return found


def _tuples(e: NodeMaker, picked: Sequence[Tensor]) -> Tensor:
    """Places along several axes, as tuples along a new last one."""
    shape: tuple[Dim, ...] = ()
    for index in picked:
        shape = broadcast_shapes(shape, index.shape)
    parts = [
        e.unsqueeze(e.broadcast_to(e.cast(index, dtypes.i64), shape), (len(shape),))
        for index in picked
    ]
    return e.concat(parts, len(shape))


def _index_put(call: Call) -> Tensor:
    e, x = call.maker, call.tensor()
    indices = call.optional_tensors("indices")
    values = e.cast(call.tensor("values"), x.dtype)
    reduction = "add" if call.flag("accumulate") else "none"
    masks = [index for index in indices if index is not None and index.dtype.is_bool]
    if masks:
        return _masked_put(e, x, indices, values, reduction)
    chosen = [axis for axis, index in enumerate(indices) if index is not None]
    picked = [_places(e, index) for index in indices if index is not None]
    rest = [axis for axis in range(x.rank) if axis not in chosen]
    moved = e.transpose(x, [*chosen, *rest])
    tuples = _tuples(e, picked)
    if any(size == 0 for size in tuples.shape) or any(size == 0 for size in x.shape):
        return x
    wide = tuples.rank - 1
    together = chosen == list(range(chosen[0], chosen[0] + len(chosen)))
    kept = [x.shape[axis] for axis in rest]
    front = chosen[0] if together else 0
    shape = (*kept[:front], *tuples.shape[:-1], *kept[front:])
    values = e.broadcast_to(values, shape)
    order = [*range(front, front + wide), *range(front), *range(front + wide, values.rank)]
    written = e.op(
        "scatter_nd", moved, tuples, e.transpose(values, order), reduction=reduction
    )
    back = [0] * x.rank
    for place, axis in enumerate([*chosen, *rest]):
        back[axis] = place
    return e.transpose(written, back)


def _masked_put(
    e: NodeMaker,
    x: Tensor,
    indices: Sequence[Tensor | None],
    values: Tensor,
    reduction: str,
) -> Tensor:
    """One mask and one number: no place has to be known."""
    mask = indices[0]
    if any(index is not None for index in indices[1:]) or mask is None or not mask.rank:
        raise UnsupportedError(_MASK)
    if any(size == 0 for size in (*x.shape, *values.shape)):
        return x
    wide = e.reshape(mask, (*mask.shape, *[1] * (x.rank - mask.rank)))
    rest = x.shape[mask.rank :]
    if values.rank <= len(rest) or values.shape[-len(rest) - 1] == 1:
        # The same for every place that is true.
        kept = values.shape[max(values.rank - len(rest), 0) :]
        found = e.broadcast_to(e.reshape(values, kept), (*mask.shape, *rest))
    else:
        found = _in_order(e, mask, values, rest)
    if reduction == "add":
        found = e.op("logical_or" if x.dtype.is_bool else "add", x, found)
    return e.op("where", wide, found, x)


def _in_order(e: NodeMaker, mask: Tensor, values: Tensor, rest: Sequence[Dim]) -> Tensor:
    """At the n-th place that is true the n-th of the values; elsewhere any of them."""
    count = values.shape[-len(rest) - 1]
    flat = e.cast(e.reshape(mask, (element_count(mask.shape),)), dtypes.i64)
    one = e.scalar(1, dtypes.i64)
    order = e.op("sub", e.op("cumsum", flat, axis=0), one)
    order = control.inside(e, order, symbolic.maximum(count, 1))
    rows = e.broadcast_to(e.reshape(values, values.shape[-len(rest) - 1 :]), (count, *rest))
    if (symbolic.bounds(count)[0] or 0) < 1:
        # Where no place is true there is none of them, and still a row has to be read.
        rows = e.concat([rows, e.full(0, rows.dtype, (1, *rest))], 0)
    return e.reshape(e.op("gather", rows, order, axis=0), (*mask.shape, *rest))


def _masked_fill(call: Call) -> Tensor:
    e, dtype = call.maker, call.dtype()
    mask = to_bool(e, call.tensor("mask"))
    x, value = call.operand("self", dtype), call.operand("value", dtype)
    return e.op("where", mask, value, x)


_LOWEST: Final = {"add": 0, "max": -np.inf, "min": np.inf, "mul": 1}
_REDUCTIONS: Final = {
    "add": "add", "mean": "mean", "amax": "max", "amin": "min", "multiply": "mul", "prod": "mul", "sum": "add",
}  # fmt: skip


def _reduction(call: Call) -> str:
    word = call.text("reduce")
    if word and word not in _REDUCTIONS:
        raise UnsupportedError(f"reduction '{word}' is not supported")
    return _REDUCTIONS[word] if word else "none"


def _scatter(reduction: str = "") -> Build:
    """Elements written at places along one axis, as many as the index has."""

    def build(call: Call) -> Tensor:
        e, x = call.maker, call.tensor()
        combine = reduction or _reduction(call)
        index = _places(e, call.tensor("index"))
        name = "value" if "value" in call.operation.arguments else "src"
        update = call.operand(name, x.dtype)
        keeps = call.flag("include_self", default=True)
        if not x.rank:
            call.argument("dim")
            flat, places, new = (e.reshape(t, (1,)) for t in (x, index, update))
            written = _combined(call, flat, places, new, 0, combine, keeps=keeps)
            return e.reshape(written, ())
        axis = axis_of(call, x.rank)
        return _combined(call, x, index, update, axis, combine, keeps=keeps)

    return build


def _combined(
    call: Call,
    x: Tensor,
    index: Tensor,
    update: Tensor,
    axis: int,
    combine: str,
    *,
    keeps: bool,
) -> Tensor:
    """Elements written at places, together with what was there if `keeps` says so."""
    e = call.maker
    if x.dtype.is_bool and combine != "none":
        bits = [e.cast(t, dtypes.u8) for t in (x, update)]
        word = _OF_BITS.get(combine, combine)
        return to_bool(e, _combined(call, bits[0], index, bits[1], axis, word, keeps=keeps))
    if combine == "mean":
        return _averaged(call, x, index, update, axis, keeps=keeps)
    if not keeps and combine != "none" and index.rank:
        # What is written to begins with what changes nothing.
        begin = e.broadcast_to(_neutral(call, x.dtype, combine), index.shape)
        x = _scattered(call, x, index, begin, axis, "none")
    return _scattered(call, x, index, update, axis, combine)


def _averaged(
    call: Call, x: Tensor, index: Tensor, update: Tensor, axis: int, *, keeps: bool
) -> Tensor:
    """The sum over how many there are; means of whole numbers are rounded down."""
    e = call.maker
    wide = dtypes.f32 if x.dtype in dtypes.HALVES else x.dtype
    number = wide if wide.is_float else dtypes.i64
    ones = e.full(1, number, index.shape)
    counts = e.full(1 if keeps else 0, number, x.shape)
    counts = _scattered(call, counts, index, ones, axis, "add")
    total = e.cast(x, wide)
    if not keeps:
        zeros = e.full(0, wide, index.shape)
        total = _scattered(call, total, index, zeros, axis, "none")
    total = _scattered(call, total, index, e.cast(update, wide), axis, "add")
    below = e.op("max", counts, e.scalar(1, number))
    if wide.is_float:
        return e.cast(e.op("div", total, below), x.dtype)
    below = e.cast(below, x.dtype)
    rest = e.op("mod", total, below)
    return e.op("div", e.op("sub", total, rest), below)


# Any of some truth values is the largest as a byte, all of them the smallest.
_OF_BITS: Final = {"add": "max", "mul": "min"}


def _neutral(call: Call, dtype: DType, combine: str) -> Tensor:
    number = _LOWEST[combine]
    if not dtype.is_float and combine in ("max", "min"):
        limits = np.iinfo(np.dtype(f"{'i' if dtype.is_signed else 'u'}{dtype.itemsize}"))
        number = limits.min if combine == "max" else limits.max
    return call.maker.scalar(number, dtype)


def _scattered(
    call: Call,
    x: Tensor,
    index: Tensor,
    update: Tensor,
    axis: int,
    combine: str,
    *,
    from_end: bool = False,
) -> Tensor:
    e = call.maker
    if any(size == 0 for size in index.shape):
        return x
    if not index.rank:
        index = e.reshape(index, (1,))
    if not update.rank:
        update = e.broadcast_to(update, index.shape)
    update = _cropped(e, update, index.shape, None)
    if x.dtype.is_bool and combine == "none":
        bits = [e.cast(t, dtypes.u8) for t in (x, update)]
        found = e.op(
            "scatter_elements", bits[0], index, bits[1], axis=axis, from_end=from_end
        )
        return e.cast(found, dtypes.bool_)
    return e.op(
        "scatter_elements",
        x,
        index,
        update,
        axis=axis,
        reduction=combine,
        from_end=from_end,
    )


def _index_write(reduction: str) -> Build:
    """Slices written at places along one axis."""

    def build(call: Call) -> Tensor:
        e, x = call.maker, call.tensor()
        index, source = _places(e, call.tensor("index")), call.operand("source", x.dtype)
        alpha = call.number("alpha", 1)
        if alpha != 1 and x.dtype.is_bool:
            source = e.op("logical_and", source, e.scalar(bool(alpha), dtypes.bool_))
        elif alpha != 1:
            source = e.op("mul", source, e.scalar(alpha, x.dtype))
        shape = x.shape
        if not x.rank:
            call.argument("dim")
            x, axis = e.reshape(x, (1,)), 0
        else:
            axis = axis_of(call, x.rank)
        size = index.shape[0] if index.rank else 1
        wanted = (*x.shape[:axis], size, *x.shape[axis + 1 :])
        if any(extent == 0 for extent in wanted):
            return e.reshape(x, shape)
        source = e.broadcast_to(e.reshape(source, wanted), wanted)
        combine = reduction or _reduction(call)
        keeps = call.flag("include_self", default=True)
        if combine == "add" and axis == 0 and not x.dtype.is_bool:
            # Whole rows: a place for each of them, not for each element.
            place = e.reshape(index, (size, 1))
            found = e.op("scatter_nd", x, place, source, reduction="add", from_end=False)
            return e.reshape(found, shape)
        place = e.reshape(index, [size if i == axis else 1 for i in range(x.rank)])
        place = e.broadcast_to(place, wanted)
        found = _combined(call, x, place, source, axis, combine, keeps=keeps)
        return e.reshape(found, shape)

    return build


def _index_fill(call: Call) -> Tensor:
    e, x = call.maker, call.tensor()
    index, value = _places(e, call.tensor("index")), call.operand("value", x.dtype)
    if not x.rank:
        call.argument("dim")
        return e.reshape(value, ())
    axis = axis_of(call, x.rank)
    size = index.shape[0] if index.rank else 1
    wanted = (*x.shape[:axis], size, *x.shape[axis + 1 :])
    place = e.reshape(index, [size if i == axis else 1 for i in range(x.rank)])
    if any(extent == 0 for extent in wanted):
        return x
    place = e.broadcast_to(place, wanted)
    update = e.broadcast_to(e.reshape(value, ()), wanted)
    return _scattered(call, x, place, update, axis, "none", from_end=True)


def _slice_scatter(call: Call) -> Tensor:
    e, x = call.maker, call.tensor()
    axis = axis_of(call, x.rank, default=0)
    source, step = call.operand("src", x.dtype), call.integer("step", 1)
    call.argument("end")
    size, count = x.shape[axis], source.shape[axis]
    start = slice_start(call.size("start", 0), size)
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    source = e.broadcast_to(source, shape)
    if count == 0:
        return x
    if step != 1 or of_data((start,)):
        return _strewn(e, x, source, axis, start, step)
    keep_within(e, start, count, size)
    return replaced(e, x, source, axis, start)


def replaced(e: NodeMaker, x: Tensor, source: Tensor, axis: int, start: Dim) -> Tensor:
    """`x` with neighbours along an axis replaced."""
    size, count = x.shape[axis], source.shape[axis]
    parts: list[Tensor] = []
    if start != 0:
        parts.append(e.slice(x, axis, 0, start))
    parts.append(source)
    end = start + count
    if end != size:
        parts.append(e.slice(x, axis, end, size - end))
    return e.concat(parts, axis)


def _strewn(
    e: NodeMaker, x: Tensor, source: Tensor, axis: int, start: Dim, step: int
) -> Tensor:
    """`x` with every `step`-th slice along an axis replaced."""
    shape = source.shape
    places = e.op("mul", e.iota(shape, axis), e.scalar(step, dtypes.i64))
    places = e.op("add", places, e.dim(start))
    if x.dtype.is_bool:
        bits = [e.cast(t, dtypes.u8) for t in (x, source)]
        found = e.op("scatter_elements", bits[0], places, bits[1], axis=axis)
        return e.cast(found, dtypes.bool_)
    return e.op("scatter_elements", x, places, source, axis=axis)


def _select_scatter(call: Call) -> Tensor:
    e, x = call.maker, call.tensor()
    axis = axis_of(call, x.rank)
    index = call.size("index")
    source = e.unsqueeze(call.operand("src", x.dtype), (axis,))
    if of_data((index,)):
        return _strewn(e, x, source, axis, index, 1)  # it may count from the end
    index = from_front(index, x.shape[axis])
    keep_within(e, index, 1, x.shape[axis])
    return replaced(e, x, source, axis, index)


def _one_hot(call: Call) -> Tensor:
    e, count = call.maker, call.integer("num_classes", -1)
    if count < 0:
        raise UnsupportedError("a number of classes that the data says is not supported")
    values = e.iota((2,), 0)
    # A class that there is not is out of range, which `one_hot` by itself leaves without a one.
    classes = _places(e, call.tensor())
    classes = e.op("gather", e.iota((count,), 0), classes, axis=0, from_end=False)
    return e.op("one_hot", classes, values, depth=(count,), axis=-1)


ROWS: Final[tuple[Row, ...]] = (
    row("embedding", _embedding, ignores=("scale_grad_by_freq",)),
    row("index_select", _index_select),
    row("gather", _gather),
    row("take", _take),
    row("index.Tensor _unsafe_index.Tensor", _index),
    row("index_put _unsafe_index_put", _index_put, ignores=("unsafe",)),
    row("masked_fill.Scalar masked_fill.Tensor", _masked_fill),
    row(
        "scatter.src scatter.value scatter.reduce scatter.value_reduce scatter_reduce.two",
        _scatter(),
    ),
    row("scatter_add", _scatter("add")),
    row("index_add", _index_write("add")),
    row("index_copy", _index_write("none")),
    row("index_reduce", _index_write("")),
    row("index_fill.int_Scalar index_fill.int_Tensor", _index_fill),
    row("slice_scatter", _slice_scatter),
    row("select_scatter", _select_scatter),
    row("one_hot", _one_hot),
)
