"""Identities of ops that move elements, as rewrites for `simplify` and `convert_layout`.

All are exact.  Chains of the same kind become one op, and what is a view becomes a `reshape`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, cast

from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.ops.movement import nearest_step
from tilewright.compiler.ops.ranges import is_at_least
from tilewright.compiler.passes import Emitter, Rewrites, attempt, given, need
from tilewright.compiler.transforms.matching import (
    constant_of,
    inverse,
    made,
    maker,
    permuted,
    splat_of,
)


def drop_same_type(node: Node, _: Emitter) -> Value | None:
    """A reshape, broadcast, tile or cast to the type that x has is x."""
    x = node.operand()
    return x if x.type == node.result.type else None


# --- reshape, transpose, broadcast -----------------------------------------------------------


def last_of_several(node: Node, emit: Emitter) -> Value | None:
    """Only the last of several reshapes, or broadcasts, matters."""
    inner = maker(node.operand(), node.op)
    return None if inner is None else emit.op(node.op, [inner.operand()], node.attributes)


def transpose_of_transpose(node: Node, emit: Emitter) -> Value | None:
    """Two permutations are one."""
    inner = made(node.operand(), "transpose")
    perm = permuted(inner.ints("perm"), node.ints("perm"))
    return emit.op("transpose", [inner.operand()], {"perm": perm})


def transpose_of_units(node: Node, emit: Emitter) -> Value | None:
    """A permutation that keeps the order of all axes longer than 1 moves nothing."""
    x, perm = node.operand(), node.ints("perm")
    if perm == tuple(range(x.type.rank)):
        return x
    long_axes = [p for p in perm if x.type.shape[p] != 1]
    need(long_axes == sorted(long_axes))
    return emit.reshape(x, node.result.type.shape)


def transpose_across_units(node: Node, emit: Emitter) -> Value | None:
    """Two permutations with a reshape between that only drops or adds unit axes are one."""
    view = made(node.operand(), "reshape")
    made(view.operand(), "transpose")
    source, target = view.operand().type.shape, view.result.type.shape
    mine = [a for a, d in enumerate(source) if d != 1]
    theirs = [a for a, d in enumerate(target) if d != 1]
    need([source[a] for a in mine] == [target[a] for a in theirs])
    place = dict(zip(theirs, mine, strict=True))
    long_axes = [place[p] for p in node.ints("perm") if p in place]
    units = [a for a, d in enumerate(source) if d == 1]
    moved = emit.op("transpose", [view.operand()], {"perm": (*units, *long_axes)})
    return emit.reshape(moved, node.result.type.shape)


def broadcast_of_units(node: Node, emit: Emitter) -> Value | None:
    """A broadcast that only adds unit axes is a reshape."""
    x = node.operand()
    need(x.type.element_count == node.result.type.element_count)
    need(x.type.element_count != 0)
    return emit.reshape(x, node.result.type.shape)


def tile_of_units(node: Node, emit: Emitter) -> Value | None:
    """A tile along axes of size 1 is a broadcast."""
    x, repeats = node.operand(), node.dims("repeats")
    pairs = zip(x.type.shape, repeats, strict=True)
    need(all(size == 1 or times == 1 for size, times in pairs))
    return emit.op("broadcast_to", [x], {"shape": node.result.type.shape})


def tile_of_open_sizes(node: Node, emit: Emitter) -> Value | None:
    """Repetitions of an axis of unknown size are an axis of their own: no place is a remainder."""
    pairs = [*zip(node.dims("repeats"), node.operand().type.shape, strict=True)]
    need(any(times != 1 and not isinstance(size, int) for times, size in pairs))
    units = [n for times, size in pairs for n in ((size,) if times == 1 else (1, size))]
    whole = [n for times, size in pairs for n in ((size,) if times == 1 else (times, size))]
    apart = emit.reshape(node.operand(), tuple(units))
    several = emit.op("broadcast_to", [apart], {"shape": tuple(whole)})
    return emit.reshape(several, node.result.type.shape)


def scatter_between_transposes(node: Node, emit: Emitter) -> Value | None:
    """Slices along axes that were brought to the front and go back are written where they lie: caches as torch has them."""
    scatter, back = made(node.operand(), "scatter_nd"), node.ints("perm")
    turned = made(scatter.operand(0), "transpose")
    _, places, new = scatter.present_operands
    perm, count, dtype = turned.ints("perm"), places.type.rank - 1, places.type.dtype
    depth = cast("int", places.type.shape[-1])
    need(emit.edit.sole_user(scatter.result) is node)
    need(back == inverse(perm))
    need(depth and [*perm[depth:]] == sorted(perm[depth:]))
    # The axes in front of the last that is chosen come first: rows are written in the order of memory.
    last = max(perm[:depth])
    outer = count + last + 1 - depth
    is_row = outer < new.type.rank
    # Of single elements places are as many as updates.
    need(is_row or depth == count == 1)
    order = (*range(count, outer), *range(count), *range(outer, new.type.rank))
    emit = replace(emit, location=scatter.location)
    x, updates = turned.operand(), emit.op("transpose", [new], {"perm": order})
    shape, attributes = {"shape": (*updates.type.shape[:outer], 1)}, scatter.attributes
    if not is_row:
        line = emit.reshape(places, updates.type.shape[-1:])
        wide = emit.op("broadcast_to", [line], {"shape": updates.type.shape})
        return emit.op("scatter_elements", [x, wide, updates], attributes | {"axis": last})
    columns = [
        emit.op("broadcast_to", [emit_slice(emit, places, {count: (axis, 1, 1)})], shape)
        if axis < depth
        else emit.op("iota", [], {**shape, "axis": axis - depth, "dtype": dtype})
        for axis in back[: last + 1]
    ]
    return emit.op("scatter_nd", [x, emit.concat(columns, outer), updates], attributes)


# --- slice -----------------------------------------------------------------------------------

Cut = tuple[Dim, Dim, int]  # start, size, step


def cuts_of(node: Node) -> dict[int, Cut]:
    """The (start, size, step) of every axis that a slice names."""
    rank = node.operand().type.rank
    axes = [a % rank for a in node.ints("axes")]
    steps = node.ints("steps") or (1,) * len(axes)
    rows = zip(node.dims("starts"), node.dims("sizes"), steps, strict=True)
    return dict(zip(axes, rows, strict=True))


def emit_slice(emit: Emitter, x: Value, cuts: Mapping[int, Cut]) -> Value:
    """A slice with those of these cuts that leave something out, or `x` when there are none."""
    real = {axis: cut for axis, cut in cuts.items() if cut != (0, x.type.shape[axis], 1)}
    if not real:
        return x
    axes = tuple(sorted(real))
    starts, sizes, steps = zip(*(real[axis] for axis in axes), strict=True)
    attributes = {"axes": axes, "starts": starts, "sizes": sizes, "steps": steps}
    return emit.op("slice", [x], attributes)


def slice_of_everything(node: Node, emit: Emitter) -> Value | None:
    """Axes that are kept whole need no cut."""
    x, cuts = node.operand(), cuts_of(node)
    is_whole = any(cut == (0, x.type.shape[axis], 1) for axis, cut in cuts.items())
    return emit_slice(emit, x, cuts) if is_whole else None


def slice_of_slice(node: Node, emit: Emitter) -> Value | None:
    """Two slices are one."""
    inner = made(node.operand(), "slice")
    cuts = cuts_of(inner)
    for axis, (start, size, step) in cuts_of(node).items():
        base, _, stride = cuts.get(axis, (0, 0, 1))
        extent = inner.operand().type.shape[axis]
        cuts[axis] = (base + start * stride, size, nearest_step(step * stride, extent))
    return emit_slice(emit, inner.operand(), cuts)


def slice_of_concat(node: Node, emit: Emitter) -> Value | None:
    """A slice that stays within one operand of a concatenation is a slice of that operand."""
    joined = made(node.operand(), "concat")
    axis = joined.number("axis") % joined.result.type.rank
    cuts = cuts_of(node)
    start, size, step = cuts.get(axis, (0, joined.result.type.shape[axis], 1))
    need(step == 1)
    offset: Dim = 0
    for part in joined.present_operands:
        extent = part.type.shape[axis]
        end = offset + extent
        if is_at_least(start, offset) and is_at_least(end, start + size):
            return emit_slice(emit, part, cuts | {axis: (start - offset, size, 1)})
        offset = end
    return None


# --- concat ----------------------------------------------------------------------------------


def concat_of_one(node: Node, emit: Emitter) -> Value | None:
    """Empty operands of a concatenation can go, a single one is the result."""
    axis = node.number("axis") % node.result.type.rank
    filled = [v for v in node.present_operands if v.type.shape[axis] != 0]
    need(len(filled) != len(node.operands) or len(filled) <= 1)
    if len(filled) == 1:
        return filled[0] if filled[0].type == node.result.type else None
    return emit.op("concat", filled, node.attributes) if filled else None


def concat_of_concat(node: Node, emit: Emitter) -> Value | None:
    """A concatenation within one along the same axis is spread out."""
    rank = node.result.type.rank
    axis = node.number("axis") % rank
    operands: list[Value] = []
    for value in node.present_operands:
        inner = maker(value, "concat")
        alone = inner is not None and emit.edit.sole_user(value) is node
        if inner is not None and alone and inner.number("axis") % rank == axis:
            operands.extend(inner.present_operands)
        else:
            operands.append(value)
    need(len(operands) != len(node.operands))
    return emit.op("concat", operands, node.attributes)


def concat_of_slices(node: Node, emit: Emitter) -> Value | None:
    """Neighbouring slices of one tensor, put together again, are one slice."""
    axis = node.number("axis") % node.result.type.rank
    operands: list[Value] = []
    for value in node.present_operands:
        joined = attempt(_join, emit, operands[-1], value, axis) if operands else None
        if joined is None:
            operands.append(value)
        else:
            operands[-1] = joined
    need(len(operands) != len(node.operands))
    return emit.op("concat", operands, node.attributes)


def _join(emit: Emitter, left: Value, right: Value, axis: int) -> Value:
    first, second = made(left, "slice"), made(right, "slice")
    one, two = cuts_of(first), cuts_of(second)
    need(first.operand() is second.operand() and axis in one and axis in two)
    (start, size, step), (next_start, next_size, next_step) = one.pop(axis), two.pop(axis)
    need(step == next_step == 1 and start + size == next_start and one == two)
    return emit_slice(emit, first.operand(), one | {axis: (start, size + next_size, 1)})


# --- pad, gather, reduce ---------------------------------------------------------------------


def pad_of_nothing(node: Node, _: Emitter) -> Value | None:
    """A pad by zero elements is x."""
    return node.operand() if all(p == 0 for p in node.dims("pads")) else None


def pad_of_pad(node: Node, emit: Emitter) -> Value | None:
    """Two pads with the same constant are one."""
    inner = made(node.operand(), "pad")
    need(node.word("mode") == "constant" and inner.word("mode") == "constant")
    need(_pad_value(inner) is not None and _pad_value(inner) == _pad_value(node))
    pairs = [*zip(inner.dims("pads"), node.dims("pads"), strict=True)]
    need(all(_adds_up(first, then) for first, then in pairs))
    pads = [first + then for first, then in pairs]
    operands = [inner.operand(), *inner.operands[1:]]
    return emit.op("pad", operands, {**inner.attributes, "pads": tuple(pads)})


def _adds_up(first: Dim, then: Dim) -> bool:
    """Whether two amounts on one side are one: a border where something was cropped does not bring it back."""
    if is_at_least(first, 0):
        return is_at_least(then, 0) or is_at_least(first + then, 0)
    return is_at_least(0, first) and is_at_least(0, then)


def _pad_value(node: Node) -> float | None:
    value = node.optional_operand(1)
    return 0.0 if value is None else splat_of(value)


def gather_of_one(node: Node, emit: Emitter) -> Value | None:
    """A gather at one known place is a slice, where the place is there for every size."""
    x, index = node.operand(0), given(constant_of(node.operand(1)))
    need(index.size == 1)
    axis = node.number("axis") % x.type.rank
    place: Dim = int(index.reshape(())[()])
    if isinstance(place, int) and place < 0 and node.attributes.get("from_end", True):
        place = x.type.shape[axis] + place
    # A slice looks at nothing; a gather is checked.
    need(is_at_least(place, 0) and is_at_least(x.type.shape[axis] - 1, place))
    cut = emit_slice(emit, x, {axis: (place, 1, 1)})
    return emit.reshape(cut, node.result.type.shape)


def reduce_of_units(node: Node, emit: Emitter) -> Value | None:
    """A sum, mean, product, maximum or minimum over axes of size 1 is a reshape."""
    x, axes = node.operand(), node.ints("axes")
    need(axes and all(x.type.shape[a] == 1 for a in axes))
    return emit.reshape(x, node.result.type.shape)


def mean_of_kept(node: Node, emit: Emitter) -> Value | None:
    """A reshape that drops the axes that a reduction kept belongs into the reduction."""
    inner = made(node.operand(), *_REDUCTIONS)
    need(inner.flag("keepdims"))
    need(emit.edit.sole_user(inner.result) is node)
    x = inner.operand()
    axes = {a % x.type.rank for a in inner.ints("axes")}
    kept = tuple(d for i, d in enumerate(x.type.shape) if i not in axes)
    need(kept == node.result.type.shape)
    return emit.op(inner.op, [x], {**inner.attributes, "keepdims": False})


_REDUCTIONS: Final = (
    "reduce_sum", "reduce_mean", "reduce_prod", "reduce_max", "reduce_min",
)  # fmt: skip

VIEW_REWRITES: Final[Rewrites] = {
    "reshape": (drop_same_type, last_of_several, mean_of_kept),
    "transpose": (transpose_of_units, transpose_of_transpose, transpose_across_units),
}

REWRITES: Final[Rewrites] = {
    **VIEW_REWRITES,
    "transpose": (*VIEW_REWRITES["transpose"], scatter_between_transposes),
    "broadcast_to": (drop_same_type, last_of_several, broadcast_of_units),
    "tile": (drop_same_type, tile_of_units, tile_of_open_sizes),
    "slice": (slice_of_everything, slice_of_slice, slice_of_concat),
    "concat": (concat_of_one, concat_of_concat, concat_of_slices),
    "pad": (pad_of_nothing, pad_of_pad),
    "gather": (gather_of_one,),
    **cast("Rewrites", dict.fromkeys(_REDUCTIONS, (reduce_of_units,))),
}
