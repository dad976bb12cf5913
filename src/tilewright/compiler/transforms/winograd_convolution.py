"""Convolutions in Winograd's domain, where fewer products take less time than they cost in transforms, or tap by tap.

Images may be of any size: a choice is made once.
Which of them, the caller says (`choose_tile`): what a machine multiplies and moves is not known here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final, final

import numpy as np

from tilewright.base import symbolic
from tilewright.base.dtypes import HALVES, DType, f32, i8, i32, u8
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.analysis.sizes import estimate
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.ops.shapes import ints_or
from tilewright.compiler.ops.winograd import largest_sum
from tilewright.compiler.passes import Emitter, Rewrites, need
from tilewright.compiler.transforms.byte_words import in_f32, product_of_words
from tilewright.compiler.transforms.matching import constant_of
from tilewright.compiler.transforms.phases import Axis, interleaved
from tilewright.compiler.transforms.rewrite_pass import RewritePass
from tilewright.compiler.transforms.split_taps import MOVE, has_taps_apart, split_taps

_MOST_OF_A_BYTE: Final = 255
# (images, height and width of the result, channels and filters of a group, taps along each side, groups, dtype of the sums, steps between taps)
# -> results along each side of a tile; 0 for a convolution that sums its products directly
ChooseTile = Callable[[Sequence[Dim], int, int, int, int, DType, Sequence[int]], int]


@final
@record(kw_only=True)
class WinogradConvolution(RewritePass):
    """Write convolutions of stride 1 as transforms and one matrix product for each pair of points.

    Sums are rounded in another order and after other products: a result differs from the direct sum by a
    few times the rounding of that (docs/numerics.md).  Who wants none of it disables the pass.

    Requires: channels-last, biases apart.  Ensures: types unchanged; filters are transformed by nodes that
    `fold_constants` folds.
    """

    requires: ClassVar[frozenset[str]] = frozenset({"channels-last", "bias-apart"})
    choose_tile: ChooseTile
    products: frozenset[str] = frozenset()

    def rewrites(self) -> Rewrites:
        """Floats, and bytes."""
        return {"conv": (self.by_taps, self.in_points, self.in_whole_points)}

    def by_taps(self, node: Node, emit: Emitter) -> Value | None:
        """A convolution most of whose taps meet the border, if it has more products in either other form."""
        need(has_taps_apart(node))
        places = [estimate(size) for size in node.result.type.shape[1:-1]]
        filters, depth, *kernel = map(estimate, node.operand(1).type.shape)
        products = math.prod((*places, *kernel)) * depth * filters
        tile = self._tile(node, f32) if _can_be_in_points(node) else 0
        if tile:
            steps = zip(places, _steps(node), strict=True)
            tiles = math.prod(-(-size // (step * tile)) * step for size, step in steps)
            each = depth * filters + 2 * MOVE * (depth + filters)
            products = min(products, tiles * (tile + kernel[0] - 1) ** 2 * each)
        return split_taps(node, products, emit)

    def in_points(self, node: Node, emit: Emitter) -> Value | None:
        """`conv(x, w)` is winograd_output(winograd_input(pad(x)) @ winograd_filter(w))."""
        need(_can_be_in_points(node) and not product_of_words(node, self.products))
        tile = self._tile(node, f32)
        need(tile)
        # Transforms are of f32: those of 16 bits would lose half of the digits.
        result = _multiplied(node, tile, lambda x: in_f32(x, emit), {}, emit)
        return emit.cast(result, node.result.type.dtype)

    def in_whole_points(self, node: Node, emit: Emitter) -> Value | None:
        """The same of bytes, exactly, where 16-bit numbers are multiplied."""
        types = (*(node.operand(i).type.dtype for i in (0, 1)), node.result.type.dtype)
        need(types == (u8, i8, i32) and "shorts" in self.products)
        need(_has_square_filters(node))
        w, tile = node.operand(1), self._tile(node, i32)
        need(tile and _largest_sum(w) < largest_sum(tile, estimate(w.type.shape[2])))
        return _multiplied(node, tile, lambda x: x, {"dtype": i32}, emit)

    def _tile(self, node: Node, dtype: DType) -> int:
        """The tile of a convolution; 0 for none."""
        filters, channels, taps, _ = map(estimate, node.operand(1).type.shape)
        groups = node.number("groups")
        # For one image, so that an image of a batch has the bits that it has alone.
        places, own = [1, *node.result.type.shape[1:3]], filters // groups
        return self.choose_tile(places, channels, own, taps, groups, dtype, _steps(node))


def _multiplied(
    node: Node,
    tile: int,
    widened: Callable[[Value], Value],
    product: Mapping[str, object],
    emit: Emitter,
) -> Value:
    """A convolution in tiles of so many results; `widened` makes operands what is transformed."""
    w, groups, places = node.operand(1), node.number("groups"), _places(node)
    sizes = {"tile": tile, "taps": estimate(w.type.shape[2]), "groups": groups}
    padded = _padded(node, widened(node.operand()), places, tile, emit)
    images = _apart(padded, _steps(node), emit)
    left = emit.op("winograd_input", [images], sizes)
    right = emit.op("winograd_filter", [widened(w)], {"tile": tile, "groups": groups})
    products = emit.op("matmul", [left, right], product)
    result = emit.op("winograd_output", [products], {**sizes, "shape": places})
    return _together(result, _steps(node), node.result.type.shape, emit)


# --- taps that skip places -------------------------------------------------------------------


def _steps(node: Node) -> tuple[int, ...]:
    """From a tap to the next, along either side."""
    return ints_or(node.ints("dilations"), (1, 1))


def _places(node: Node) -> tuple[Dim, ...]:
    """Images, height and width of the result; places so many steps apart see the same taps, and are an image of their own."""
    images, *sizes, _ = node.result.type.shape
    steps = _steps(node)
    pairs = zip(sizes, steps, strict=True)
    return (images * math.prod(steps), *(symbolic.ceildiv(n, step) for n, step in pairs))


def _apart(x: Value, steps: tuple[int, ...], emit: Emitter) -> Value:
    """Channels-last images whose sides are whole steps, as images of places so many steps apart."""
    if math.prod(steps) == 1:
        return x
    images, rows, columns, channels = x.type.shape
    down, right = steps
    sides = symbolic.floordiv(rows, down), symbolic.floordiv(columns, right)
    split = emit.reshape(x, (images, sides[0], down, sides[1], right, channels))
    moved = emit.op("transpose", [split], {"perm": (0, 2, 4, 1, 3, 5)})
    return emit.reshape(moved, (images * down * right, *sides, channels))


def _together(
    x: Value, steps: tuple[int, ...], shape: Sequence[Dim], emit: Emitter
) -> Value:
    """Images of places so many steps apart as those of `shape`."""
    if math.prod(steps) == 1:
        return x
    _, *places, filters = x.type.shape
    split = emit.reshape(x, (shape[0], *steps, *places, filters))
    axes = [Axis.of_places(*each) for each in zip(places, steps, strict=True)]
    return interleaved(lambda _: split, axes, 1, 3, shape, emit)


# --- which they are --------------------------------------------------------------------------


def _can_be_in_points(node: Node) -> bool:
    """Whether a node is a convolution of floats as `_has_square_filters` says."""
    x, w = node.operand(0), node.operand(1)
    types = {x.type.dtype, w.type.dtype, node.result.type.dtype}
    return types <= {f32, *HALVES} and _has_square_filters(node)


def _largest_sum(w: Value) -> int:
    """The largest size of a sum of unsigned bytes times filters of signed ones."""
    known = constant_of(w)
    assert known is not None, "filters are known"
    signed = known.astype(np.int64).reshape(known.shape[0], -1)
    sides = (np.maximum(signed, 0).sum(1), np.maximum(-signed, 0).sum(1))
    return _MOST_OF_A_BYTE * max(int(side.max()) for side in sides)


def _has_square_filters(node: Node) -> bool:
    """Whether a node is a convolution of images with square known filters, at every place."""
    x, w = node.operand(0), node.operand(1)
    return (
        node.attributes["layout"] == "NHWC"
        and node.optional_operand(2) is None
        and x.type.rank == 4
        and all(isinstance(size, int) and size > 0 for size in w.type.shape)
        and all(size != 0 for size in node.result.type.shape)
        and w.type.shape[2] == w.type.shape[3]
        and all(s == 1 for s in node.ints("strides"))
        and constant_of(w) is not None
    )


def _padded(node: Node, x: Value, places: Sequence[Dim], tile: int, emit: Emitter) -> Value:
    """`x` with its padding, and more behind it until the last tiles are whole, of places as many steps apart as taps are."""
    top, left, bottom, right = node.ints("pads") or (0, 0, 0, 0)
    wanted = zip(places[1:], _steps(node), node.result.type.shape[1:3], strict=True)
    rows, columns = (symbolic.ceildiv(n, tile) * tile * step - d for n, step, d in wanted)
    pads = (0, top, left, 0, 0, rows + bottom, columns + right, 0)
    return emit.op("pad", [x], {"pads": pads}) if any(p != 0 for p in pads) else x
