"""Convolutions whose taps lie so far apart that many of them see nothing but the border, as a product for each tap.

    conv(x, w), steps of 12 in an image of 33 x 33  ->  sum of pad(conv(slice(x), w[tap])), a tap each

A tap is multiplied where it meets the image, and one that never does is left out: with 3 x 3 taps 12 apart, each 33 x 33
places of the result have 0.57 of the products.  Nothing is read twice, and no weight is stored twice.

Called by `winograd_convolution`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import reduce
from itertools import product
from typing import Final, final

from tilewright.base.dtypes import HALVES, f32
from tilewright.base.record import record
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.ops.shapes import window_steps
from tilewright.compiler.passes import Emitter, need
from tilewright.compiler.transforms.matching import constant_of, fixed
from tilewright.compiler.transforms.movement_rewrites import Cut, emit_slice

MOVE: Final = 8
"""Products that take as long as moving an element, in vectors, to another place."""


@final
@record
class _Tap:
    """A tap along one axis, where it meets the image.

    at: in the filter.
    first, count: the results that see it there.
    start: what the first of them reads.
    """

    at: int
    first: int
    count: int
    start: int


def split_taps(node: Node, products: float, emit: Emitter) -> Value | None:
    """A convolution that `has_taps_apart` as a sum over taps; `products` are those of another form, moves among them."""
    filters, depth, *kernel = map(fixed, node.operand(1).type.shape)
    axes = [tuple(_met(node, axis)) for axis in range(len(kernel))]
    seen = math.prod(sum(tap.count for tap in taps) for taps in axes)
    need(0 < seen * (depth * filters + MOVE * (depth + filters)) <= products)
    parts = (_part(node, taps, emit) for taps in product(*axes))
    total = reduce(lambda total, part: emit.op("add", [total, part]), parts)
    return emit.cast(total, node.result.type.dtype)


def has_taps_apart(node: Node) -> bool:
    """Whether a node is a convolution of floats with known filters whose taps skip places of images of known size."""
    x, w = node.operand().type, node.operand(1)
    return (
        node.attributes["layout"] == "NHWC"
        and node.attributes["dtype"] is None
        and node.optional_operand(2) is None
        and node.number("groups") == 1
        and any(step > 1 for step in node.ints("dilations"))
        and all(isinstance(size, int) for size in x.shape[1:])
        and x.dtype.is_float
        and constant_of(w) is not None
    )


def _met(node: Node, axis: int) -> Iterator[_Tap]:
    """The taps along an axis that meet the image in some result."""
    size, count = (fixed(v.type.shape[1 + axis]) for v in (node.operand(), node.result))
    taps = fixed(node.operand(1).type.shape[2 + axis])
    strides, pads, dilations = window_steps(node.attributes, node.result.type.rank - 2)
    stride = strides[axis]
    for at in range(taps):
        start = at * dilations[axis] - pads[axis]
        first = max(0, -(start // stride))
        end = min(count, (size - 1 - start) // stride + 1)
        if first < end:
            yield _Tap(at, first, end - first, start + first * stride)


def _part(node: Node, taps: tuple[_Tap, ...], emit: Emitter) -> Value:
    """What one tap adds to each result, in f32 where that has 16 bits."""
    x, w, whole = node.operand(), node.operand(1), node.result.type.shape
    strides, _, _ = window_steps(node.attributes, len(taps))
    cuts: dict[int, Cut] = {
        axis: (tap.start, tap.count, stride)
        for axis, (tap, stride) in enumerate(zip(taps, strides, strict=True), 1)
    }
    ones: dict[int, Cut] = {axis: (tap.at, 1, 1) for axis, tap in enumerate(taps, 2)}
    operands = [emit_slice(emit, x, cuts), emit_slice(emit, w, ones)]
    if x.type.dtype in HALVES:
        operands = [emit.cast(value, f32) for value in operands]
    part = emit.op("conv", operands, {"layout": "NHWC"})
    behind = (
        fixed(size) - tap.first - tap.count
        for tap, size in zip(taps, whole[1:], strict=False)
    )
    pads = (0, *(tap.first for tap in taps), 0, 0, *behind, 0)
    return emit.op("pad", [part], {"pads": pads}) if any(pads) else part
