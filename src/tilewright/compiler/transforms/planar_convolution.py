"""Convolutions with few filters, with places of the image in the lanes of vectors.

A panel of weights has a filter in every lane: with three filters, thirteen of sixteen lanes add up
nothing.  Channels first, the rows of a padded image lie one behind the other, so a tap reads all
places at one distance from where they are, also across the end of a row: places there are computed
for nothing, which is a kernel's width of every row.  Where only a call knows how long rows are, and so how far apart
taps read, each row has its own lanes.

Called by `legalize_convolution`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, final

from tilewright.base import dtypes, symbolic
from tilewright.base.dtypes import HALVES
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.graph.schema import Trait
from tilewright.compiler.ops.shapes import element_count, ints_or
from tilewright.compiler.passes import Emitter, need
from tilewright.compiler.transforms.contract_forms import (
    convolution_along_line,
    convolution_along_rows,
)
from tilewright.compiler.transforms.matching import (
    is_splat,
    maker,
    reached,
    to_channels_first,
    to_channels_last,
)
from tilewright.compiler.transforms.movement_rewrites import Cut, cuts_of, emit_slice

_MOVE: Final = 16
"""Products that take as long as moving one element to another place of a tensor."""
_SCATTER: Final = 128
"""The same where the channels that lie together do not fill a vector."""
_LEAST_GAIN: Final = 1.1
_OPEN_ROWS_USED: Final = 0.63
"""The part of what lanes compute that is wanted of rows of up to 128 places, in tiles of four vectors of sixteen, on average."""


def as_planar(node: Node, emit: Emitter, lanes: int, columns: int) -> Value | None:
    """A channels-last `conv` without bias as one along a line between moves of the channels.

    The node is one that `can_be_planar`.  `lanes` are the elements of a vector; `columns` are the filters
    whose time the form with filters in lanes takes, those that are not there included.
    """
    image = _image(node)
    need(_pays(node, image, lanes, columns, emit))
    x, w = image.whole, node.operand(1)
    if x.type.dtype in HALVES:
        x, w = (emit.cast(v, dtypes.f32) for v in (x, w))
    if image.stride > 1:
        x, w = _folded_places(x, image, emit), _folded_taps(w, image.stride, emit)
    rank = x.type.rank - 2
    table = emit.op("transpose", [w], {"perm": (*range(1, rank + 2), 0)})
    planes = _planes(x, () if image.stride > 1 else image.pads, emit)
    if image.has_open_rows:
        total = _along_rows(planes, table, image, node, emit)
    else:
        total = _rows(_along_places(planes, table, image, node, emit), image, emit)
    last = emit.op("transpose", [total], {"perm": to_channels_last(rank + 2)})
    return emit.cast(last, node.result.type.dtype)


def _pays(node: Node, image: _Image, lanes: int, columns: int, emit: Emitter) -> bool:
    """Whether products and moves take less time than with filters in lanes, per place."""
    filters, depth, *kernel = (d for d in node.operand(1).type.shape if isinstance(d, int))
    taps = math.prod(kernel) * depth
    into, folded = (_MOVE * d if d > 1 else 0 for d in (depth, depth * image.stride))
    move = _MOVE if filters >= lanes else _SCATTER
    out = move * filters if filters > 1 and not _is_moved_anyway(node.result, emit) else 0
    is_first, wanted_first = _is_first(image.whole), _is_wanted_first(node.result, emit)
    planar = taps * filters / _used(image, lanes) + (0 if wanted_first else out)
    planar += 0 if is_first and image.stride == 1 else folded
    packed = taps * columns + (into if is_first else 0) + (out if wanted_first else 0)
    return planar * _LEAST_GAIN <= packed


def _is_first(x: Value) -> bool:
    """Whether channels-last `x`, or what it is with a border, lies channels first."""
    border = maker(x, "pad")
    source = border.operand() if border is not None else x
    move = maker(source, "transpose")
    return move is not None and move.ints("perm") == to_channels_last(source.type.rank)


def _is_moved_anyway(value: Value, emit: Emitter) -> bool:
    """Whether a value is put together with others, or its axes in an order of no channels."""
    user = emit.edit.sole_user(value)
    while user is not None and (user.has(Trait.ELEMENTWISE) or user.op == "reshape"):
        user = emit.edit.sole_user(user.result)
    if user is None or _brings_channels_forward(user):
        return False
    if user.op != "transpose":
        return user.op == "concat"
    shape = user.operand().type.shape
    order = [axis for axis in user.ints("perm") if shape[axis] != 1]
    return order != sorted(order)


def _is_wanted_first(value: Value, emit: Emitter) -> bool:
    """Whether all that is done with a value before it is moved channels first is elementwise."""
    edit = emit.edit

    def onward(current: Value) -> list[Value]:
        users = edit.users(current)
        return [user.result for user in users if not _brings_channels_forward(user)]

    return all(
        edit.users(current)
        and not edit.is_output(current)
        and all(
            _brings_channels_forward(u) or _keeps_order(u, current)
            for u in edit.users(current)
        )
        for current in reached([value], onward)
    )


def _keeps_order(user: Node, value: Value) -> bool:
    """Whether the elements of the result lie as those of `value`, the batch and channels at the ends."""
    before, after = value.type.shape, user.result.type.shape
    if user.has(Trait.ELEMENTWISE):
        return before == after
    ends = user.op == "reshape" and before[:1] == after[:1] and before[-1:] == after[-1:]
    return ends and [d for d in before if d != 1] == [d for d in after if d != 1]


def _brings_channels_forward(node: Node) -> bool:
    """Whether a transpose puts the last axis behind the first; axes of one element lie anywhere."""
    if node.op != "transpose":
        return False
    shape = node.operand().type.shape
    first, last = 0, len(shape) - 1
    order = [axis for axis in node.ints("perm") if shape[axis] != 1]
    wanted = [axis for axis in (first, last, *range(1, last)) if shape[axis] != 1]
    return order == wanted and shape[last] != 1


@final
@record
class _Image:
    """Where the places of the result lie in a channels-last tensor that has them all.

    whole: what the convolution reads a piece of.
    pads: to put around it: begins, then ends.
    starts: the first place of each axis, in the padded tensor.
    sizes: of the padded tensor.
    wanted: places of the result.
    stride: along the last axis; so many neighbours are channels of one place, and `sizes` says
        how many places that makes.
    """

    whole: Value
    pads: tuple[int, ...]
    starts: tuple[int, ...]
    sizes: tuple[Dim, ...]
    wanted: tuple[Dim, ...]
    stride: int = 1

    @property
    def is_line(self) -> bool:
        """Whether there is one row: no place is behind the end of another one, and its length may be open."""
        return all(size == 1 for size in (*self.sizes[:-1], *self.wanted[:-1]))

    @property
    def has_open_rows(self) -> bool:
        """Whether only a call knows how far apart rows lie."""
        return not self.is_line and not all(isinstance(d, int) for d in self.sizes[1:])

    @property
    def pitches(self) -> tuple[int, ...]:
        """How far apart neighbours along each axis lie in one channel; 1 where there are none."""
        if self.is_line:
            return (1,) * len(self.sizes)
        inner = [size for size in self.sizes[1:] if isinstance(size, int)]  # all of them
        return tuple(math.prod(inner[axis:]) for axis in range(len(self.sizes)))

    @property
    def places(self) -> Dim:
        """From the first wanted place to the last, those between rows included."""
        count: Dim = 1
        for wanted, pitch in zip(self.wanted, self.pitches, strict=True):
            count = count + (wanted - 1) * pitch
        return count


def can_be_planar(node: Node) -> bool:
    """Whether taps are known and do not skip places of the image."""
    x, w = node.operand(0).type, node.operand(1).type
    if node.attributes["layout"] != "NHWC":
        return False
    return (
        x.dtype.is_float
        and node.number("groups") == 1
        and node.optional_operand(2) is None
        and _steps_fold(node)
        and any(taps != 1 for taps in w.shape[2:])
        and all(isinstance(d, int) and d for d in w.shape)
        and not any(d == 0 for d in (*x.shape, *node.result.type.shape))
    )


def _steps_fold(node: Node) -> bool:
    """Whether only the last axis has a stride, and windows are whole multiples of it."""
    *outer, last = node.ints("strides") or (1,)
    if any(step != 1 for step in outer):
        return False
    taps, dilations = node.operand(1).type.shape[-1], node.ints("dilations") or (1,)
    return last == 1 or (symbolic.is_multiple(taps, last) and dilations[-1] == 1)


def _image(node: Node) -> _Image:
    """What the convolution reads; of a slice the tensor behind it, whose rest is not looked at."""
    x, rank = node.operand(0), node.operand(0).type.rank - 2
    pads = ints_or(node.ints("pads"), (0,) * (2 * rank))
    stride = (node.ints("strides") or (1,))[-1]
    wanted = node.result.type.shape[1:-1]
    if stride > 1:
        outer = (x.type.shape[1 + i] + pads[i] + pads[rank + i] for i in range(rank - 1))
        taps = node.operand(1).type.shape[-1] // stride
        sizes = (*outer, wanted[-1] + taps - 1)
        return _Image(x, pads, (0,) * rank, sizes, wanted, stride)
    starts = [0] * rank
    cut = maker(x, "slice")
    if cut is not None and not any(pads) and _leaves_most(cut):
        for axis, (start, _, _) in cuts_of(cut).items():
            assert isinstance(start, int), "a slice that leaves most"
            starts[axis - 1] = start
        x = cut.operand()
    sizes = tuple(x.type.shape[1 + i] + pads[i] + pads[rank + i] for i in range(rank))
    return _Image(x, pads, tuple(starts), sizes, wanted)


def _leaves_most(cut: Node) -> bool:
    """Whether a slice leaves all channels and at least half of each axis, at known ends."""
    shape = cut.operand().type.shape
    for axis, (start, size, step) in cuts_of(cut).items():
        if axis in (0, len(shape) - 1) or not isinstance(start, int) or step != 1:
            return False
        left = symbolic.bounds(2 * size - shape[axis])[0]
        if left is None or left < 0:
            return False
    return all(isinstance(extent, int) for extent in shape[2:-1])


def _used(image: _Image, lanes: int) -> float:
    """The part of what lanes compute that is wanted: rows are as long as those in memory."""
    used = 1.0
    if image.is_line:
        return _part_of_vectors(image.places, lanes)
    if image.has_open_rows:
        return _OPEN_ROWS_USED
    for wanted, size in zip(image.wanted[1:], image.sizes[1:], strict=True):
        assert isinstance(wanted, int), "inner extents are known"
        assert isinstance(size, int), "inner extents are known"
        used *= wanted / size
    return used * _part_of_vectors(image.places, lanes)


def _part_of_vectors(count: Dim, lanes: int) -> float:
    """The part of their lanes that so many elements take."""
    return count / (-(-count // lanes) * lanes) if isinstance(count, int) else 1.0


def _planes(x: Value, pads: Sequence[int], emit: Emitter) -> Value:
    """Channels-last `x` channels first, with a border of zeros; a border that it has goes on last."""
    rank = x.type.rank - 2
    border = maker(x, "pad")
    if border is not None and not any(pads) and _is_border(border):
        around = border.ints("pads")
        pads = (*around[1 : rank + 1], *around[rank + 3 : -1])
        x = border.operand()
    planes = emit.op("transpose", [x], {"perm": to_channels_first(rank + 2)})
    if not any(pads):
        return planes
    return emit.op("pad", [planes], {"pads": (0, 0, *pads[:rank], 0, 0, *pads[rank:])})


def _is_border(pad: Node) -> bool:
    """Whether it puts zeros around places."""
    amounts, rank = pad.dims("pads"), pad.operand().type.rank
    value = pad.optional_operand(1)
    return (
        pad.word("mode") == "constant"
        and (value is None or is_splat(value, 0))
        and all(isinstance(amount, int) and amount >= 0 for amount in amounts)
        and not any(amounts[axis] for axis in (0, rank - 1, rank, -1))
    )


def _folded_places(x: Value, image: _Image, emit: Emitter) -> Value:
    """Channels-last `x`, padded, with as many neighbours of its last axis as channels of one place."""
    rank = x.type.rank - 2
    if any(image.pads):
        pads = (0, *image.pads[:rank], 0, 0, *image.pads[rank:], 0)
        x = emit.op("pad", [x], {"pads": pads})
    *outer, _, depth = x.type.shape
    x = emit_slice(emit, x, {rank: (0, image.sizes[-1] * image.stride, 1)})
    return emit.reshape(x, (*outer, image.sizes[-1], image.stride * depth))


def _folded_taps(w: Value, stride: int, emit: Emitter) -> Value:
    """Weights [F, C, kernel…] for such places."""
    filters, depth, *outer, taps = w.type.shape
    rank = len(outer) + 1
    shape = (filters, depth, *outer, taps // stride, stride)
    split = emit.reshape(w, shape)
    moved = emit.op("transpose", [split], {"perm": (0, rank + 2, *range(1, rank + 2))})
    shape = (filters, stride * depth, *outer, taps // stride)
    return emit.reshape(moved, shape)


def _along_places(
    planes: Value, table: Value, image: _Image, node: Node, emit: Emitter
) -> Value:
    """The convolution of padded planes [N, C, spatial…], as [N, F, places]."""
    n, depth = planes.type.shape[:2]
    dilations = ints_or(node.ints("dilations"), (1,) * len(image.sizes))
    pairs = zip(dilations, image.pitches, strict=True)
    steps = tuple(dilation * pitch for dilation, pitch in pairs)
    first = sum(s * p for s, p in zip(image.starts, image.pitches, strict=True))
    line = emit.reshape(planes, (n, depth, element_count(image.sizes)))
    shapes = (table.type.shape, line.type.shape)
    form = convolution_along_line(*shapes, image.places, steps=steps, first=first)
    return emit.op("contract", [table, line], form)


def _along_rows(
    planes: Value, table: Value, image: _Image, node: Node, emit: Emitter
) -> Value:
    """The convolution of padded planes [N, C, spatial…], as [N, F, wanted…]."""
    dilations = ints_or(node.ints("dilations"), (1,) * len(image.sizes))
    shapes = (table.type.shape, planes.type.shape)
    form = convolution_along_rows(*shapes, image.wanted, dilations)
    return emit.op("contract", [table, planes], form)


def _rows(total: Value, image: _Image, emit: Emitter) -> Value:
    """[N, F, places] as [N, F, spatial…]: what completes a row is not looked at."""
    if image.is_line:
        return emit.reshape(total, (*total.type.shape[:2], *image.wanted))
    whole = image.wanted[0] * image.pitches[0]
    if whole != image.places:
        rest = (0, 0, 0, 0, 0, whole - image.places)
        total = emit.op("pad", [total], {"pads": rest})
    shape = (*total.type.shape[:2], image.wanted[0], *image.sizes[1:])
    rows = emit.reshape(total, shape)
    cuts: dict[int, Cut] = {3 + i: (0, d, 1) for i, d in enumerate(image.wanted[1:])}
    return emit_slice(emit, rows, cuts)
