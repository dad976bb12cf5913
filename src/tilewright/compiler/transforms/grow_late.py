"""Images grow behind the products of their channels, where that is less work.

Resampling and a convolution of 1 x 1 are linear along different axes, so their order is free.  A decoder that makes the
features of several levels equally large, puts them side by side and mixes their channels multiplies each level at its own
size instead, and grows and adds the results.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import reduce
from typing import ClassVar, Final, cast, final

from tilewright.base.dtypes import f32, f64
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.graph.schema import Array
from tilewright.compiler.passes import Emitter, Rewrites, need
from tilewright.compiler.transforms.fold_scales import channel_axis_of
from tilewright.compiler.transforms.matching import is_constant, maker
from tilewright.compiler.transforms.movement_rewrites import emit_slice
from tilewright.compiler.transforms.rewrite_pass import RewritePass

_SAMPLE: Final = 32
"""Resampling an element takes the time of about so many products: it is read, weighed and written, a vector at a time."""
_IMAGE_AXES: Final = slice(2, None)
"""Of the weights of a convolution: the axes of its window."""


@final
@record(kw_only=True)
class GrowLate(RewritePass):
    """Mix the channels of an image before it grows.

    Requires: biases apart.  Ensures: a product of channels with constant weights does not read a grown image of f32 or
    f64, or several such side by side, where mixing channels first takes fewer products, nobody else reads them, and the
    images' sizes are known.  Rounds differently.
    """

    requires: ClassVar[frozenset[str]] = frozenset({"bias-apart"})

    def rewrites(self) -> Rewrites:
        """One for both products of channels."""
        return {"conv": (mix_channels_first,), "matmul": (mix_channels_first,)}


def mix_channels_first(node: Node, emit: Emitter) -> Value | None:
    """f(concat(grow(x), y)) is grow(f(x)) + f(y), each f with the weights of its channels."""
    x, axis = node.operand(), channel_axis_of(node)
    need(_mixes_channels(node) and emit.edit.sole_user(x) is node)
    parts = _side_by_side(x, axis)
    grown = [_grown(part, axis, emit) for part in parts]
    need(_is_less_work(node, parts, grown, axis))
    terms = _Terms(node, emit, axis)
    for grows, run in itertools.groupby(
        zip(parts, grown, strict=True), lambda pair: pair[1]
    ):
        # Neighbours that do not grow are multiplied as they were.
        terms.add(emit.concat([part for part, _ in run], axis), grows)
    # What grows is added first: one kernel computes it element by element, and a product adds that to its own sums.
    return reduce(lambda a, b: emit.op("add", [a, b]), terms.ordered())


class _Terms:
    """The terms of the sum that takes the place of a product of channels."""

    def __init__(self, node: Node, emit: Emitter, axis: int) -> None:
        self.node: Node = node
        self.emit: Emitter = emit
        self.axis: int = axis
        self.start: Dim = 0
        self._grown: list[Value] = []
        self._plain: list[Value] = []

    def add(self, part: Value, grows: Node | None) -> None:
        """The term of the next channels, which `grows` makes large."""
        count = part.type.shape[self.axis]
        source = part if grows is None else grows.operand()
        weights = self._weights(count)
        self.start = self.start + count
        term = self.emit.op(self.node.op, [source, weights], self.node.attributes)
        if grows is None:
            self._plain.append(term)
            return
        sizes = list(cast("tuple[Dim, ...]", grows.attributes["sizes"]))
        sizes[self.axis] = term.type.shape[self.axis]
        form = {**grows.attributes, "sizes": tuple(sizes)}
        self._grown.append(self.emit.op("resize", [term], form))

    def ordered(self) -> list[Value]:
        """All terms, those that grow in front."""
        return [*self._grown, *self._plain]

    def _weights(self, count: Dim) -> Value:
        weights = self.node.operand(1)
        axis = 0 if self.node.op == "matmul" else 1
        return emit_slice(self.emit, weights, {axis: (self.start, count, 1)})


def _mixes_channels(node: Node) -> bool:
    """Whether every result is a sum over the channels of one place, times known weights."""
    x, w = node.operand(), node.operand(1)
    known = is_constant(w) and all(isinstance(d, int) for d in w.type.shape)
    if not known or x.type.dtype is not w.type.dtype or x.type.dtype not in (f32, f64):
        return False
    if node.op == "matmul":
        return w.type.rank == 2 and x.type.rank > 2
    return (
        all(d == 1 for d in w.type.shape[_IMAGE_AXES])
        and all(step == 1 for step in node.ints("strides"))
        and not any(node.ints("pads"))
        and node.number("groups") == 1
        and node.optional_operand(2) is None
    )


def _side_by_side(x: Value, axis: int) -> Sequence[Value]:
    """What `x` puts side by side along its channels, or itself."""
    whole = maker(x, "concat")
    if whole is None or whole.number("axis") % x.type.rank != axis:
        return [x]
    return whole.present_operands


def _grown(part: Value, axis: int, emit: Emitter) -> Node | None:
    """The node that makes `part` a larger image of the same channels, for one reader."""
    node = maker(part, "resize")
    if node is None or emit.edit.sole_user(part) is None:
        return None
    # What lies outside the image has a number of its own there, which weights would be applied to.
    if node.word("coordinate_mode") == "tf_crop_and_resize":
        return None
    source = node.operand().type.shape
    before, after = _places(source, axis), _places(part.type.shape, axis)
    scales = node.attributes["scales"]
    keeps_channels = source[axis] == part.type.shape[axis] and (
        scales is None or cast("Array", scales)[axis] == 1
    )
    return node if keeps_channels and before and after and before < after else None


def _around(shape: Sequence[Dim], axis: int) -> tuple[Dim, ...]:
    return tuple(size for i, size in enumerate(shape) if i != axis % len(shape))


def _places(shape: Sequence[Dim], axis: int) -> int:
    """Places of an image that has one batch if their number is open; 0 if the image's sizes are."""
    sizes = [d for i, d in enumerate(shape) if i not in (0, axis)]
    batch = shape[0] if axis and isinstance(shape[0], int) else 1
    if not all(isinstance(d, int) for d in sizes):
        return 0
    return batch * math.prod(cast("list[int]", sizes))


def _is_less_work(
    node: Node, parts: Sequence[Value], grown: Sequence[Node | None], axis: int
) -> bool:
    """Whether the products that are spared take longer than what more resampling there may be."""
    filters, places = node.result.type.shape[axis], _places(node.result.type.shape, axis)
    channels = [part.type.shape[axis] for part in parts]
    if not any(grown) or not places or not isinstance(filters, int):
        return False
    # Sums broadcast where what stands side by side must not.
    if any(
        _around(part.type.shape, axis) != _around(node.result.type.shape, axis)
        for part in parts
    ):
        return False
    products = samples = 0
    for count, grows in zip(channels, grown, strict=True):
        if not isinstance(count, int):
            return False
        if grows is not None:
            spared = places - _places(grows.operand().type.shape, axis)
            products += spared * count * filters
            samples += places * (filters - count)
    # Several products instead of one write and read their results.
    runs = sum(1 for _ in itertools.groupby(grown))
    samples += places * filters * (runs - 1) // 2
    return products > _SAMPLE * samples
