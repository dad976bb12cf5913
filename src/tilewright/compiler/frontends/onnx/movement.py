"""Rows for ops that move elements: transpose, concat, split, slice, pad, gather, scatter, tile.

Source: ONNX operator reference (Operators.md), per op in the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from tilewright.base import dtypes, symbolic
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit import computed, control
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.row import MICROSOFT, Row, as_of, row
from tilewright.compiler.frontends.onnx.slices import (
    HUGE,
    check_steps,
    cut_axes,
    cuts,
    is_known,
    known_operands,
)
from tilewright.compiler.ops.shapes import element_count, normal_axis
from tilewright.formats.plan.size_relations import at_least


def _transpose(call: Call) -> Tensor:
    x = call.tensor(0)
    perm = call.integers("perm", tuple(reversed(range(x.rank))))
    if sorted(perm) != list(range(x.rank)):
        raise ModelError(
            f"attribute 'perm' is {list(perm)}, no permutation of {x.rank} axes"
        )
    return call.maker.transpose(x, perm)


def _concat(call: Call) -> Tensor:
    parts = call.tensors()
    default = 1 if call.opset < 4 else None
    return call.maker.concat(parts, call.axis(parts[0].rank, default))


# --- split and slice


def _split_sizes(call: Call, dim: Dim) -> Sequence[Dim]:
    count = call.integer("num_outputs", call.output_count)
    given = call.attributes.integers("split") if call.opset < 13 else None
    if given is None and call.optional(1) is not None:
        given = call.sized(1, "the sizes")
    if given is not None:
        return given
    if count != call.output_count:  # before there are so many
        raise ModelError(f"{count} sizes for {call.output_count} outputs")
    part = symbolic.ceildiv(dim, count)
    return [part] * (count - 1) + [dim - part * (count - 1)]


def split(e: NodeMaker, x: Tensor, axis: int, sizes: Sequence[Dim]) -> list[Tensor]:
    """Pieces of `x` of the given sizes, one after another."""
    start: Dim = 0
    pieces: list[Tensor] = []
    for size in sizes:
        pieces.append(e.slice(x, axis, start, size))
        start = start + size
    rest = start - x.shape[axis]
    e.assume(start, x.shape[axis])
    if isinstance(rest, int) and rest != 0:
        raise ModelError(f"sizes {list(sizes)} do not add up to axis {axis} of {x.type}")
    return pieces


def _split(call: Call) -> list[Tensor]:
    x = call.tensor(0)
    axis = call.axis(x.rank, 0)
    sizes = _split_sizes(call, x.shape[axis])
    if len(sizes) != call.output_count:
        raise ModelError(f"{len(sizes)} sizes for {call.output_count} outputs")
    return split(call.maker, x, axis, sizes)


def _most_axes(count: Dim, rank: int) -> int:
    """How many axes a slice has at most whose positions data counts."""
    high = symbolic.bounds(count)[1]
    return rank if high is None else min(rank, high)


def _slice_by_data(call: Call, x: Tensor) -> Tensor:
    """Positions, steps or axes that data decides; axes that are known are cut alone."""
    e = call.maker
    start, end = (e.cast(call.tensor(i), dtypes.i64) for i in (1, 2))
    (count,) = start.shape
    step, axes = call.optional(4), call.optional(3)
    if step is not None and call.is_known(4):
        check_steps(call.numbers(4, "the steps"))
    if axes is not None and call.is_known(3):
        places = cut_axes(call.numbers(3, "the axes"), x.rank)
        control.agree(e, count, len(places), "axes")
    elif axes is None and isinstance(count, int):
        places = list(range(count))
    else:
        # Positions without axes are those of the first axes, as many as there turn out to be.
        places = list(range(x.rank if axes is not None else _most_axes(count, x.rank)))
        if axes is None:
            axes = e.iota((count,), 0)
        else:
            computed.require_distinct(e, axes, x.rank)
        start = computed.spread(e, start, axes, len(places), 0)
        end = computed.spread(e, end, axes, len(places), HUGE)
        if step is not None:
            step = computed.spread(e, e.cast(step, dtypes.i64), axes, len(places), 1)
    ones = np.ones(len(places), np.int64)
    step = e.constant(ones) if step is None else e.cast(step, dtypes.i64)
    by = computed.cuts(e, [x.shape[a] for a in places], start, end, step)
    return computed.cut(e, x, places, by)


def _slice(call: Call) -> Tensor:
    x = call.tensor(0)
    if not is_known(call):
        return _slice_by_data(call, x)
    kept = [
        cut
        for cut in cuts(x.shape, *known_operands(call))
        if (cut.first, cut.step) != (0, 1) or cut.count != x.shape[cut.axis]
    ]
    if not kept:
        return x
    return call.maker.op(
        "slice",
        x,
        axes=tuple(cut.axis for cut in kept),
        starts=tuple(cut.first for cut in kept),
        sizes=tuple(cut.count for cut in kept),
        steps=tuple(cut.step for cut in kept),
    )


# --- pad


def _pad_amounts(call: Call, rank: int) -> list[Dim]:
    """Amounts per axis, all at the front first, then all at the back."""
    if call.opset < 11:
        return list(call.integers("pads" if call.opset >= 2 else "paddings"))
    if not call.is_known(3):
        return _pads_along(call, rank)
    given = _signed(call)
    if call.optional(3) is None:
        return list(given)
    axes = [normal_axis(a, rank) for a in call.numbers(3, "the axes")]
    if len(given) != 2 * len(axes):
        raise ModelError(f"{len(given)} amounts for {len(axes)} axes")
    amounts: list[Dim] = [0] * (2 * rank)
    for index, axis in enumerate(axes):
        amounts[axis] = given[index]
        amounts[rank + axis] = given[index + len(axes)]
    return amounts


def _pads_along(call: Call, rank: int) -> list[Dim]:
    """Amounts for axes that data decides."""
    e, axes = call.maker, call.tensor(3)
    pads = e.cast(call.tensor(1), dtypes.i64)
    (count,) = axes.shape
    sides = [
        computed.spread(e, e.slice(pads, 0, first, count), axes, rank, 0)
        for first in (0, count)
    ]
    return control.read_signed(e, e.concat(sides, 0), "pad")


def _signed(call: Call) -> Sequence[Dim]:
    """The operand of amounts, of which negative ones crop."""
    e, pads = call.maker, call.tensor(1)
    if e.contents(pads) is not None:
        return call.dims(1, "the amount of padding")
    return control.read_signed(e, e.reshape(pads, (pads.type.element_count,)), "pad")


def _pad_value(call: Call, x: Tensor) -> Tensor | None:
    if call.opset < 11:
        return call.maker.scalar(call.float("value", 0.0), x.dtype)
    value = call.optional(2)
    return None if value is None else call.maker.reshape(value, ())


def _pad(call: Call) -> Tensor:
    x = call.tensor(0)
    mode = call.choice("mode", "constant", ("constant", "edge", "reflect", "wrap"))
    amounts = _pad_amounts(call, x.rank)
    if len(amounts) != 2 * x.rank:
        raise ModelError(f"{len(amounts)} amounts of padding for rank {x.rank}")
    value = _pad_value(call, x)
    if mode == "constant" and value is None:
        value = call.maker.scalar(0, x.dtype)
    return pad(call.maker, x, amounts, mode, value)


def pad(
    e: NodeMaker, x: Tensor, amounts: Sequence[Dim], mode: str, value: Tensor | None
) -> Tensor:
    """`x` with a border; negative amounts crop, before a border is made of what is left."""
    rank = x.rank
    crops = [_cropped(amount, mode) for amount in amounts]
    rests = [x.shape[i] - crops[i] - crops[rank + i] for i in range(rank)]
    grow: list[Dim] = [amount + crop for amount, crop in zip(amounts, crops, strict=True)]
    if mode != "constant":
        grow = [symbolic.maximum(amount, 0) for amount in amounts]
        _require_sources(e, rests, grow, mode)
    for axis, rest in enumerate(rests):
        if crops[axis] != 0 or crops[rank + axis] != 0:
            x = e.slice(x, axis, crops[axis], rest)
    if all(g == 0 for g in grow):
        return x
    return e.op(
        "pad", x, value if mode == "constant" else None, pads=tuple(grow), mode=mode
    )


def _cropped(amount: Dim, mode: str) -> Dim:
    """How much of a side is cut off first.

    Where a call decides it, the op itself crops for a constant border, which is made of nothing that is cut off.
    """
    if isinstance(amount, int) or mode != "constant":
        return symbolic.maximum(-amount, 0)
    return 0


def _require_sources(
    e: NodeMaker, rests: Sequence[Dim], borders: Sequence[Dim], mode: str
) -> None:
    """Let borders be made of what is left of every axis, or the call fails.

    What inputs tell is compared before anything runs; what data tells is read, and the error names the node.
    """
    rank, read = len(rests), e.graph.bound_names()
    unsure: list[tuple[Dim, int]] = []
    for axis, rest in enumerate(rests):
        unsure += _unsure_source(rest, (borders[axis], borders[rank + axis]), mode)
    by_data = [(size, least) for size, least in unsure if control.mentions((size,), read)]
    for size, least in unsure:
        if (size, least) not in by_data:
            e.assume(*at_least(size, least))
    if by_data:
        counts, low = zip(*by_data, strict=True)
        spare = [control.fresh_symbol(e, "padded_from", least) for least in low]
        e.bind_sizes(e.dims(counts), spare)


def _unsure_source(rest: Dim, borders: Sequence[Dim], mode: str) -> list[tuple[Dim, int]]:
    """What a call has to look at, and its least: whether borders of an axis, no less than 0, can be made of `rest` elements.

    They need one; a mirror shows each element once, and not the one that it stands at.

    Raises: ModelError where the model alone says that there are too few.
    Source: onnxruntime Pad, CPU kernel.
    """
    if mode == "reflect":
        needs = [border + symbolic.minimum(border, 1) for border in borders]
        need = symbolic.maximum(*needs)
    else:
        need = symbolic.minimum(symbolic.maximum(*borders), 1)
    least, _ = symbolic.bounds(rest - need)
    if need == 0 or (least is not None and least >= 0):
        return []
    if isinstance(rest, int) and isinstance(need, int):
        raise ModelError(
            f"mode '{mode}' pads an axis of which {rest} elements are left, expected at least {need}"
        )
    return [(rest, need)] if isinstance(need, int) else [(rest - need, 0)]


# --- gather and scatter


def _gather(call: Call) -> Tensor:
    x = call.tensor(0)
    return call.maker.op("gather", x, call.tensor(1), axis=call.axis(x.rank, 0))


def _gather_elements(call: Call) -> Tensor:
    x = call.tensor(0)
    return call.maker.op("gather_elements", x, call.tensor(1), axis=call.axis(x.rank, 0))


def _gather_nd(call: Call) -> Tensor:
    return call.maker.op(
        "gather_nd",
        call.tensor(0),
        call.tensor(1),
        batch_dims=call.integer("batch_dims", 0),
    )


_REDUCTIONS: Final = ("none", "add", "mul", "max", "min")


def _scatter_elements(call: Call) -> Tensor:
    x = call.tensor(0)
    return call.maker.op(
        "scatter_elements",
        x,
        call.tensor(1),
        call.tensor(2),
        axis=call.axis(x.rank, 0),
        reduction=call.choice("reduction", "none", _REDUCTIONS),
    )


def _scatter_nd(call: Call) -> Tensor:
    return call.maker.op(
        "scatter_nd",
        call.tensor(0),
        call.tensor(1),
        call.tensor(2),
        reduction=call.choice("reduction", "none", _REDUCTIONS),
    )


def _tensor_scatter(call: Call) -> Tensor:
    """Updates written into a cache from a position per batch entry on."""
    e, cache, update = call.maker, call.tensor(0), call.tensor(1)
    axis = call.axis(cache.rank, -2)
    mode = call.choice("mode", "linear", ("linear", "circular"))
    place = e.along(axis, update.shape[axis], update.rank)
    start = call.optional(2)
    if start is not None:
        first = e.unsqueeze(e.cast(start, dtypes.i64), range(1, update.rank))
        place = e.op("add", place, first)
    size = e.dim(cache.shape[axis])
    if mode == "circular":
        place = e.op("mod", place, size)
    elif start is not None:
        # A position is none that counts from the end: as one behind the cache it fails the call.
        place = e.op("where", e.op("less", place, computed.whole(e, 0)), size, place)
    places = e.broadcast_to(place, update.shape)
    return e.op("scatter_elements", cache, places, update, axis=axis)


def _compress(call: Call) -> Tensor:
    e, x = call.maker, call.tensor(0)
    condition = call.tensor(1)
    condition = e.reshape(condition, (element_count(condition.shape),))
    if condition.array is None:
        chosen = computed.true_places(e, condition)
    else:
        chosen = e.constant(np.flatnonzero(condition.array).astype(np.int64))
    axis = call.attributes.integer("axis")
    if axis is None:
        return e.op("gather", e.reshape(x, (element_count(x.shape),)), chosen, axis=0)
    return e.op("gather", x, chosen, axis=normal_axis(axis, x.rank))


def _non_zero(call: Call) -> Tensor:
    e, x = call.maker, call.tensor(0)
    if x.array is not None:
        found = np.nonzero(np.atleast_1d(x.array))
        return e.constant(np.array(found, np.int64).reshape(len(found), -1))
    x = x if x.rank else e.reshape(x, (1,))
    flat = e.reshape(x, (element_count(x.shape),))
    mask = flat if x.dtype.is_bool else e.op("not_equal", flat, e.scalar(0, x.dtype))
    return computed.unraveled(e, computed.true_places(e, mask), x.shape)


def _reverse_sequence(call: Call) -> Tensor:
    e, x = call.maker, call.tensor(0)
    time, batch = call.integer("time_axis", 0), call.integer("batch_axis", 1)
    if sorted((time, batch)) != [0, 1]:
        raise ModelError("time and batch axes must be 0 and 1")
    lengths = e.cast(call.tensor(1), dtypes.i64)
    return e.op("reverse_sequence", x, lengths, batch_axis=batch, time_axis=time)


# --- the rest


def _tile(call: Call) -> Tensor:
    x = call.tensor(0)
    if call.opset < 6:
        repeats: list[Dim] = [1] * x.rank
        repeats[normal_axis(call.number(2, "the axis"), x.rank)] = call.number(
            1, "the count"
        )
    else:
        repeats = list(call.sized(1, "the number of repeats"))
    if len(repeats) != x.rank:
        raise ModelError(f"{len(repeats)} repeats for rank {x.rank}")
    if all(r == 1 for r in repeats):
        return x
    return call.maker.op("tile", x, repeats=tuple(repeats))


def _blocks(call: Call, x: Tensor) -> int:
    block = call.integer("blocksize")
    if block < 1 or x.rank != 4:
        raise ModelError(f"attribute 'blocksize' is {block} for {x.type}")
    return block


def _depth_to_space(call: Call) -> Tensor:
    e, x = call.maker, call.tensor(0)
    block = _blocks(call, x)
    n, c, h, w = x.shape
    depth = symbolic.floordiv(c, block * block)
    mode = call.choice("mode", "DCR", ("DCR", "CRD"))
    if mode == "DCR":
        split_shape, perm = (n, block, block, depth, h, w), (0, 3, 4, 1, 5, 2)
    else:
        split_shape, perm = (n, depth, block, block, h, w), (0, 1, 4, 2, 5, 3)
    moved = e.transpose(e.reshape(x, split_shape), perm)
    return e.reshape(moved, (n, depth, h * block, w * block))


def _space_to_depth(call: Call) -> Tensor:
    e, x = call.maker, call.tensor(0)
    block = _blocks(call, x)
    n, c, h, w = x.shape
    rows, columns = symbolic.floordiv(h, block), symbolic.floordiv(w, block)
    mode = call.choice("mode", "DCR", ("DCR", "CRD"))
    perm = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    moved = e.transpose(e.reshape(x, (n, c, rows, block, columns, block)), perm)
    return e.reshape(moved, (n, c * (block * block), rows, columns))


def _trilu(call: Call) -> Tensor:
    e, diagonal = call.maker, call.optional(1)
    k = None if diagonal is None else e.reshape(diagonal, ())
    return e.op("trilu", call.tensor(0), k, upper=call.flag("upper", default=True))


def _unfold(call: Call) -> Tensor:
    """Windows along an axis, the elements of each behind all axes."""
    e, x = call.maker, call.tensor(0)
    axis = normal_axis(call.integer("dim", -1), x.rank)
    size, step = call.integer("size"), call.integer("step", 1)
    if size < 1 or step < 1:
        raise ModelError(f"windows of {size} by steps of {step}")
    count = symbolic.floordiv(x.shape[axis] - size, step) + 1
    first = e.op("mul", e.iota((count, 1), 0), e.scalar(step, dtypes.i64))
    places = e.op("add", first, e.constant(np.arange(size)[None]))
    order = [i for i in range(x.rank + 1) if i != axis + 1]
    return e.transpose(e.op("gather", x, places, axis=axis), [*order, axis + 1])


ROWS: Final[tuple[Row, ...]] = (
    row("Compress", _compress),
    row("Concat", _concat),
    row("DepthToSpace", _depth_to_space),
    row("Gather", _gather),
    row("GatherElements", _gather_elements),
    row("GatherND", _gather_nd),
    row("NonZero", _non_zero),
    row("Pad", _pad),
    row("ReverseSequence", _reverse_sequence),
    row("Scatter", _scatter_elements),
    row("ScatterElements", _scatter_elements),
    row("ScatterND", _scatter_nd),
    row("Slice", _slice),
    row("SpaceToDepth", _space_to_depth),
    row("Split", _split),
    row("TensorScatter", _tensor_scatter),
    row("Tile", _tile),
    row("Transpose", _transpose),
    row("Trilu", _trilu),
    row("GatherND", _gather_nd, domain=MICROSOFT),
    row("Pad", as_of(13, _pad), domain=MICROSOFT),
    row("Trilu", _trilu, domain=MICROSOFT),
    row("UnfoldTensor", _unfold, domain=MICROSOFT),
)
