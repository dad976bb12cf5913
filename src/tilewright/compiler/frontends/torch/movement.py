"""Rows that move elements: views, joins, parts, borders, triangles.

Sizes of results are torch's; only where elements come from is computed here.

Source: the operators of ATen by name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from tilewright.base import dtypes, symbolic
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit import computed
from tilewright.compiler.frontends.kit.diagonal import diagonal
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.torch.axes import (
    axes_of,
    axis_of,
    from_front,
    is_within,
    keep_unlike_one,
    keep_within,
    normal,
    slice_start,
)
from tilewright.compiler.frontends.torch.call import Call
from tilewright.compiler.frontends.torch.elementwise import convert
from tilewright.compiler.frontends.torch.promotion import result_type
from tilewright.compiler.frontends.torch.row import Build, Row, row
from tilewright.compiler.frontends.torch.sizes import of_data
from tilewright.formats.plan.size_relations import at_most


def _viewed(call: Call) -> Tensor:
    """Of the sizes that are given, not of those that torch concluded for the example from their product."""
    sizes = call.sizes("size") or call.sizes("shape")
    given = zip(sizes, call.shape(), strict=True)
    shape = [known if wanted == -1 else wanted for wanted, known in given]
    return call.maker.reshape(call.tensor(), shape)


def _to_shape(*ignored: str) -> Build:
    """The same elements in the shape of the result."""

    def build(call: Call) -> Tensor:
        for name in ignored:
            call.argument(name)
        return call.maker.reshape(call.tensor(), call.shape())

    return build


def _unflattened(call: Call) -> Tensor:
    """An axis as several, of which at most one has the size that is left."""
    x, sizes = call.tensor(), call.sizes("sizes")
    axis = normal(call.integer("dim"), x.rank)
    rest: Dim = math.prod(size for size in sizes if size != -1)
    left = symbolic.floordiv(x.shape[axis], rest) if -1 in sizes and rest != 0 else 0
    parts = [left if size == -1 else size for size in sizes]
    return call.maker.reshape(x, (*x.shape[:axis], *parts, *x.shape[axis + 1 :]))


def _expand(call: Call) -> Tensor:
    call.argument("size")
    call.argument("other")
    return call.maker.broadcast_to(call.tensor(), call.shape())


def _permute(call: Call) -> Tensor:
    x = call.tensor()
    return call.maker.transpose(x, [normal(axis, x.rank) for axis in call.integers("dims")])


def _transpose(call: Call) -> Tensor:
    x = call.tensor()
    if not x.rank:
        call.argument("dim0")
        call.argument("dim1")
        return x
    order = list(range(x.rank))
    a, b = (axis_of(call, x.rank, name) for name in ("dim0", "dim1"))
    order[a], order[b] = b, a
    return call.maker.transpose(x, order)


def _turned(call: Call) -> Tensor:
    x = call.tensor()
    return call.maker.transpose(x, list(range(x.rank))[::-1])


def _matrix_turned(call: Call) -> Tensor:
    x = call.tensor()
    order = [*range(x.rank - 2), x.rank - 1, x.rank - 2] if x.rank >= 2 else [0] * x.rank
    return call.maker.transpose(x, order)


def _movedim(call: Call) -> Tensor:
    x = call.tensor()
    source = [normal(axis, x.rank) for axis in call.integers("source")]
    target = [normal(axis, x.rank) for axis in call.integers("destination")]
    rest = iter([axis for axis in range(x.rank) if axis not in source])
    places = dict(zip(target, source, strict=True))
    order = [places[i] if i in places else next(rest) for i in range(x.rank)]
    return call.maker.transpose(x, order) if x.rank else x


def _concatenate(call: Call) -> Tensor:
    e = call.maker
    # What has one empty axis is no part, whatever the others have.
    parts = [x for x in call.tensors("tensors") if x.shape != (0,)]
    if not parts:
        call.argument("dim")
        return e.full(0, call.dtype(), call.shape())
    axis = axis_of(call, parts[0].rank, default=0)
    return e.concat([convert(e, x, call.dtype()) for x in parts], axis)


def _stack(call: Call) -> Tensor:
    e, parts = call.maker, call.tensors("tensors")
    axis = axis_of(call, parts[0].rank + 1, default=0)
    dtype = result_type(parts)
    return e.concat([e.unsqueeze(e.cast(x, dtype), (axis,)) for x in parts], axis)


def _slice(call: Call) -> Tensor:
    e, x = call.maker, call.tensor()
    axis = axis_of(call, x.rank, default=0)
    size, end = call.shape()[axis], call.size("end", x.shape[axis])
    given = of_data((*x.shape, end, call.size("start", 0)))
    if of_data((size,)) and not set(of_data((size,))) & set(given):
        return _computed_slice(call, x, axis, end)
    if size == 0:
        call.size("start", 0)
        call.integer("step", 1)
        return e.full(0, x.dtype, call.shape())
    start, step = slice_start(call.size("start", 0), x.shape[axis]), call.integer("step", 1)
    keep_within(e, start, step * (size - 1) + 1, x.shape[axis])
    return e.slice(x, axis, start, size, step)


def _computed_slice(call: Call, x: Tensor, axis: int, end: Dim) -> Tensor:
    """A slice whose borders are data that may lie outside or count from the end: how long it is, is counted."""
    e = call.maker
    numbers = (call.size("start", 0), end, call.integer("step", 1))
    start, stop, step = (e.reshape(e.dim(number), (1,)) for number in numbers)
    cuts = computed.cuts(e, (x.shape[axis],), start, stop, step)
    call.bind(e.dim(cuts.counts[0]), call.data_size())
    return computed.cut(e, x, (axis,), cuts)


def _narrow(call: Call) -> Tensor:
    x = call.tensor()
    axis = axis_of(call, x.rank)
    start, length = slice_start(call.size("start"), x.shape[axis]), call.size("length")
    keep_within(call.maker, start, length, x.shape[axis])
    return call.maker.slice(x, axis, start, length)


def _select(call: Call) -> Tensor:
    e, x = call.maker, call.tensor()
    axis = axis_of(call, x.rank)
    index = call.size("index")
    place = from_front(index, x.shape[axis])
    if of_data((index,)) or not is_within(place, 1, x.shape[axis]):
        return e.op("gather", x, e.dim(index), axis=axis)  # it may count from the end
    index = place
    return e.squeeze(e.slice(x, axis, index, 1), (axis,))


def _unbind(call: Call) -> Sequence[Tensor]:
    e, x = call.maker, call.tensor()
    axis = axis_of(call, x.rank, default=0)
    return [
        e.squeeze(e.slice(x, axis, index, 1), (axis,))
        for index in range(len(call.operation.results))
    ]


def _flip(call: Call) -> Tensor:
    e, x = call.maker, call.tensor()
    for axis in [normal(axis, x.rank) for axis in call.integers("dims")]:
        if x.rank and x.shape[axis] != 0:
            x = e.slice(x, axis, x.shape[axis] - 1, x.shape[axis], -1)
    return x


def _roll(call: Call) -> Tensor:
    e, x = call.maker, call.tensor()
    shifts, dims = call.sizes("shifts"), call.integers("dims") if call.has("dims") else ()
    shape = x.shape
    if not dims:
        count: Dim = 1
        for size in shape:
            count = count * size
        x, dims = e.reshape(x, (count,)), (0,)
    for shift, axis in zip(shifts, dims, strict=True):
        x = _rolled(e, x, normal(axis, x.rank), shift)
    return e.reshape(x, shape)


def _rolled(e: NodeMaker, x: Tensor, axis: int, shift: Dim) -> Tensor:
    if not x.rank or x.shape[axis] == 0:
        return x
    size = x.shape[axis]
    # Of no elements nothing moves, whatever it is divided by.
    moved = symbolic.mod(shift, symbolic.maximum(size, 1))
    if moved == 0:
        return x
    tail = e.slice(x, axis, size - moved, moved)
    return e.concat([tail, e.slice(x, axis, 0, size - moved)], axis)


def _repeat(call: Call) -> Tensor:
    e, x = call.maker, call.tensor()
    repeats = call.sizes("repeats") if call.has("repeats") else call.sizes("dims")
    if len(repeats) > x.rank:
        x = e.reshape(x, (*[1] * (len(repeats) - x.rank), *x.shape))
    repeats = (*[1] * (x.rank - len(repeats)), *repeats)
    if any(times == 0 for times in repeats):
        return e.full(0, x.dtype, call.shape())
    if all(times == 1 for times in repeats):
        return x
    return e.op("tile", x, repeats=repeats)


def _repeat_interleave(call: Call) -> Tensor:
    e, x = call.maker, call.tensor()
    times = call.size("repeats")
    call.argument("output_size")
    if not call.has("dim"):
        count: Dim = 1
        for size in x.shape:
            count = count * size
        x = e.reshape(x, (count,))
    axis = axis_of(call, x.rank, default=0)
    wide = e.unsqueeze(x, (axis + 1,))
    shape = (*x.shape[: axis + 1], times, *x.shape[axis + 1 :])
    return e.reshape(e.broadcast_to(wide, shape), call.shape())


def border(call: Call, mode: str, amounts: Sequence[Dim]) -> Tensor:
    """A border; torch counts pairs from the last axis, negative ones crop."""
    e, x = call.maker, call.tensor()
    begin: list[Dim] = [0] * x.rank
    end: list[Dim] = [0] * x.rank
    for index in range(len(amounts) // 2):
        axis = x.rank - 1 - index
        begin[axis], end[axis] = amounts[2 * index], amounts[2 * index + 1]
    value = None
    if mode == "constant":
        value = call.operand("value", x.dtype) if call.has("value") else None
    else:
        _check_reach(e, x, mode, begin, end)
    if mode == "wrap":
        x = _cropped(e, x, begin, end)
    if all(amount == 0 for amount in (*begin, *end)):
        return x
    if any(size == 0 for size in x.shape) and mode == "constant":
        number = e.scalar(0, x.dtype) if value is None else value
        return e.broadcast_to(number, call.shape())
    if x.dtype.is_bool:
        bits = e.cast(x, dtypes.u8)
        low = None if value is None else e.cast(value, dtypes.u8)
        found = e.op("pad", bits, low, pads=(*begin, *end), mode=mode)
        return e.cast(found, dtypes.bool_)
    return e.op("pad", x, value, pads=(*begin, *end), mode=mode)


def _check_reach(
    e: NodeMaker, x: Tensor, mode: str, begin: Sequence[Dim], end: Sequence[Dim]
) -> None:
    """Have a call fail whose border needs more than there is, as torch's does; known sizes it has looked at."""
    for size, *amounts in zip(x.shape, begin, end, strict=True):
        room = {"edge": None, "reflect": size - 1, "wrap": size}[mode]
        for amount in amounts:
            if room is None or (isinstance(amount, int) and isinstance(room, int)):
                continue
            most, spare = symbolic.bounds(amount)[1], symbolic.bounds(room - amount)[0]
            if (most is None or most > 0) and (spare is None or spare < 0):
                e.assume(*at_most(amount, room))


def _cropped(e: NodeMaker, x: Tensor, begin: list[Dim], end: list[Dim]) -> Tensor:
    """What is left where amounts are negative, which are done with: torch repeats that, not what was cropped."""
    for axis, amounts in enumerate(zip(begin, end, strict=True)):
        crop, behind = (symbolic.maximum(-amount, 0) for amount in amounts)
        if crop == 0 and behind == 0:
            continue
        left = x.shape[axis] - crop - behind
        most = symbolic.maximum(*amounts)
        if isinstance(left, int) and isinstance(most, int) and left < most:
            raise UnsupportedError(
                f"a border of {most} around {max(left, 0)} that are left"
            )
        x = e.slice(x, axis, crop, left)
        begin[axis], end[axis] = begin[axis] + crop, end[axis] + behind
    return x


_MODES: Final = {
    "circular": "wrap", "constant": "constant", "reflect": "reflect", "replicate": "edge",
}  # fmt: skip


def _pad(call: Call) -> Tensor:
    mode = call.text("mode", "constant")
    if mode not in _MODES:
        raise UnsupportedError(f"padding mode '{mode}' is not supported")
    if mode != "constant":
        call.argument("value")
    return border(call, _MODES[mode], call.sizes("pad"))


def _border(mode: str, name: str) -> Build:
    return lambda call: border(call, mode, call.sizes(name))


def _triangle(*, upper: bool) -> Build:
    def build(call: Call) -> Tensor:
        offset = call.operand("diagonal", dtypes.i64) if call.has("diagonal") else None
        return call.op("trilu", call.tensor(), offset, upper=upper)

    return build


def _diagonal(call: Call) -> Tensor:
    e, x = call.maker, call.tensor()
    offset = call.integer("offset", 0)
    a, b = (axis_of(call, x.rank, n, d) for n, d in (("dim1", 0), ("dim2", 1)))
    rest = [axis for axis in range(x.rank) if axis not in (a, b)]
    x = e.transpose(x, [*rest, a, b])
    return diagonal(e, x, call.shape()[-1], offset)


def _unfold(call: Call) -> Tensor:
    e, x = call.maker, call.tensor()
    if not x.rank:
        x = e.reshape(x, (1,))
        call.integer("dimension")
        axis = 0
    else:
        axis = axis_of(call, x.rank, "dimension")
    size, step = call.integer("size"), call.integer("step")
    keep_within(e, 0, size, x.shape[axis])
    count = call.shape()[axis] if len(call.shape()) > 1 else 1
    starts = e.iota((count, size), 0)
    if step != 1:
        starts = e.op("mul", starts, e.scalar(step, dtypes.i64))
    places = e.op("add", starts, e.iota((count, size), 1))
    found = e.op("gather", x, places, axis=axis)
    order = [*range(axis + 1), *range(axis + 2, found.rank), axis + 1]
    return e.reshape(e.transpose(found, order), call.shape())


def _strided(call: Call) -> Tensor:
    """Elements picked by strides from memory, which a tensor fills in an order of axes that the reader found."""
    e, x = call.maker, call.tensor()
    order = call.integers("order")
    sizes, strides = call.sizes("size"), call.sizes("stride")
    places = e.dim(call.size("storage_offset", 0))
    if any(size == 0 for size in (*sizes, *x.shape)):
        return e.full(0, x.dtype, call.shape())
    for axis, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        steps = e.along(axis, size, len(sizes))
        places = e.op("add", places, e.op("mul", steps, e.dim(stride)))
    memory = e.reshape(e.transpose(x, order), (math.prod(x.shape),))
    return e.op("gather", memory, places, axis=0)


def _squeezed(call: Call) -> Tensor:
    """Without axes of size 1, which torch has found; one more in a call would take away one more axis."""
    x = call.tensor()
    axes = axes_of(call, x.rank)
    if call.operation.arguments.get("dim") == ():
        axes = ()
    for axis in axes:
        keep_unlike_one(call.maker, x.shape[axis])
    return call.maker.reshape(x, call.shape())


def _shuffled(call: Call) -> Tensor:
    """Channels taken apart into groups and dealt out by turns."""
    e, x = call.maker, call.tensor()
    groups = call.integer("groups")
    split = symbolic.floordiv(x.shape[1], groups)
    wide = e.reshape(x, (x.shape[0], groups, split, *x.shape[2:]))
    order = [0, 2, 1, *range(3, wide.rank)]
    return e.reshape(e.transpose(wide, order), x.shape)


def _pixel_shuffle(call: Call) -> Tensor:
    e, x, factor = call.maker, call.tensor(), call.integer("upscale_factor")
    outer, (channels, height, width) = x.shape[:-3], x.shape[-3:]
    split = symbolic.floordiv(channels, factor * factor)
    wide = e.reshape(x, (*outer, split, factor, factor, height, width))
    first = len(outer)
    order = [*range(first), first, first + 3, first + 1, first + 4, first + 2]
    return e.reshape(e.transpose(wide, order), call.shape())


def _pixel_unshuffle(call: Call) -> Tensor:
    e, x, factor = call.maker, call.tensor(), call.integer("downscale_factor")
    outer, (channels, height, width) = x.shape[:-3], x.shape[-3:]
    down = (symbolic.floordiv(height, factor), symbolic.floordiv(width, factor))
    wide = e.reshape(x, (*outer, channels, down[0], factor, down[1], factor))
    first = len(outer)
    order = [*range(first), first, first + 2, first + 4, first + 1, first + 3]
    return e.reshape(e.transpose(wide, order), call.shape())


ROWS: Final[tuple[Row, ...]] = (
    row("view reshape _unsafe_view view_copy _reshape_copy", _viewed),
    row("reshape_as view_as", _to_shape("other")),
    row("flatten.using_ints", _to_shape("start_dim", "end_dim")),
    row("unflatten.int", _unflattened),
    row("ravel", _to_shape()),
    row("unsqueeze unsqueeze_copy", _to_shape("dim")),
    row("squeeze squeeze.dim squeeze.dims squeeze_copy squeeze_copy.dim", _squeezed),
    row("expand expand_copy expand_as broadcast_to", _expand),
    row("permute permute_copy", _permute),
    row("transpose.int transpose_copy.int", _transpose),
    row("t numpy_T t_copy", _turned),
    row("mT adjoint mH", _matrix_turned),
    row("movedim.int movedim.intlist moveaxis.int moveaxis.intlist", _movedim),
    row("cat concat concatenate", _concatenate),
    row("stack", _stack),
    row("slice.Tensor slice_copy.Tensor", _slice),
    row("narrow", _narrow),
    row("select.int select_copy.int", _select),
    row("unbind.int unbind_copy.int", _unbind),
    row("flip", _flip),
    row("roll", _roll),
    row("repeat tile", _repeat),
    row("repeat_interleave.self_int", _repeat_interleave),
    row("constant_pad_nd", _border("constant", "pad")),
    row("pad", _pad),
    row(
        "reflection_pad1d reflection_pad2d reflection_pad3d", _border("reflect", "padding")
    ),
    row(
        "replication_pad1d replication_pad2d replication_pad3d", _border("edge", "padding")
    ),
    row("tril", _triangle(upper=False)),
    row("triu", _triangle(upper=True)),
    row("diagonal diagonal_copy", _diagonal),
    row("unfold unfold_copy", _unfold),
    row("as_strided as_strided_copy", _strided),
    row("channel_shuffle", _shuffled),
    row("pixel_shuffle", _pixel_shuffle),
    row("pixel_unshuffle", _pixel_unshuffle),
)
