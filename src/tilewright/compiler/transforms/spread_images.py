"""Images whose places would meet in one set of a cache, with channels between them that nobody reads.

    pad(x, borders), places 4096 bytes apart  ->  pad(x, borders and 16 channels), places 4160 bytes apart

A register tile of a convolution reads a dozen places side by side, channel after channel.  Where these lie a power of two
apart, the lines that hold them push each other out of the first level cache.  A border is stored by who makes the image, so
channels behind it cost nothing; of a window of one place that moves by several, the places that it sees are picked first.
What is read, and in which order it is added, stays.

Called by `legalize_convolution`; `pack_matmul` does the same for the rows of a matrix.  Whether a machine gains by it, the caller says (`choose_gap`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from tilewright.base.dtypes import DType
from tilewright.base.symbolic import Dim
from tilewright.compiler.analysis.sizes import estimate
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.passes import Emitter
from tilewright.compiler.transforms.contract_forms import Window
from tilewright.compiler.transforms.matching import maker
from tilewright.compiler.transforms.movement_rewrites import Cut, emit_slice

ChooseGap = Callable[[Sequence[Dim], Dim, int, DType], int]
"""(rows of the product, channels of a place, places from one that is read to the next, dtype) -> channels to leave between places, or 0."""
_LEAST_READS: Final = 256
"""Products of an element for which it is worth a move of its own."""


def spread_image(
    node: Node, x: Value, window: Window, choose_gap: ChooseGap | None, emit: Emitter
) -> tuple[Value, Window]:
    """The image of a convolution with places that crowd no cache, and the window that reads it.

    `x` is channels last and has its borders.
    """
    rows = node.result.type.shape[:-1]
    channels, dtype = x.type.shape[-1], x.type.dtype

    def gap(at: Window) -> int:
        step = at.strides[-1] if at.strides else 1
        return choose_gap(rows, channels, step, dtype) if choose_gap is not None else 0

    more = gap(window)
    if not more:
        return x, window
    border = maker(x, "pad")
    if border is not None and border.word("mode") == "constant":
        *pads, last = border.dims("pads")
        spread = {**border.attributes, "pads": (*pads, last + more)}
        return emit.op("pad", border.operands, spread), window
    kernel = node.operand(1).type.shape[2:]
    if all(size == 1 for size in kernel) and any(s != 1 for s in window.strides):
        more = gap(Window())
        if not more or _reads(node, rows, rows) < _LEAST_READS:
            return x, window
        x, window = _picked(x, rows, window, emit), Window()
    elif _reads(node, rows, x.type.shape[:-1]) < _LEAST_READS:
        return x, window
    behind = (0,) * (2 * x.type.rank - 1)
    return emit.op("pad", [x], {"pads": (*behind, more)}), window


def _reads(node: Node, rows: Sequence[Dim], places: Sequence[Dim]) -> int:
    """Products of each element of an image of so many places."""
    filters, _, *kernel = map(estimate, node.operand(1).type.shape)
    results = math.prod(map(estimate, rows))
    products = filters // node.number("groups") * math.prod(kernel) * results
    return products // max(1, math.prod(map(estimate, places)))


def _picked(x: Value, rows: Sequence[Dim], window: Window, emit: Emitter) -> Value:
    """The places that a window of one place sees."""
    cuts: dict[int, Cut] = {
        axis: (0, rows[axis], stride) for axis, stride in enumerate(window.strides, 1)
    }
    return emit_slice(emit, x, cuts)
