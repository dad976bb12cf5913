"""Convolutions in Winograd's domain, where fewer products take less time than they cost in transforms.

Images may be of any size: a choice is made once, for the sizes that are likely.
Which of them, the caller says (`choose_tile`): what a machine multiplies and moves is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, final

from tilewright.base import symbolic
from tilewright.base.dtypes import HALVES, f32
from tilewright.base.symbolic import Dim
from tilewright.compiler.analysis.sizes import estimate
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.ops import catalogue
from tilewright.compiler.passes import Emitter, Rewrite, RewritePass
from tilewright.compiler.transforms.byte_words import in_f32, product_of_words
from tilewright.compiler.transforms.matching import (
    constant_of,
    ints,
    number,
    operand,
    optional_operand,
)

# (images, height and width of the result, channels and filters of a group, taps along each side, groups)
# -> results along each side of a tile; 0 for a convolution that sums its products directly
ChooseTile = Callable[[Sequence[int], int, int, int, int], int]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class WinogradConvolution(RewritePass):
    """Write convolutions of stride 1 as transforms and one matrix product for each pair of points.

    Sums are rounded in another order and after other products: a result differs from the direct sum by a
    few times the rounding of that (docs/numerics.md).  Who wants none of it disables the pass.

    Requires: channels-last, biases apart.  Ensures: types unchanged; filters are transformed by nodes that
    `fold_constants` folds.
    """

    requires: ClassVar[frozenset[str]] = frozenset({"channels-last", "bias-apart"})
    lookup: ClassVar = staticmethod(catalogue.schema)
    level: ClassVar[int] = 1
    choose_tile: ChooseTile
    products: frozenset[str] = frozenset()

    def rewrites(self) -> Mapping[str, Sequence[Rewrite]]:
        """One rewrite."""
        return {"conv": (self.in_points,)}

    def in_points(self, node: Node, emit: Emitter) -> Value | None:
        """`conv(x, w)` is winograd_output(winograd_input(pad(x)) @ winograd_filter(w))."""
        if not _can_be_in_points(node) or product_of_words(node, self.products):
            return None
        x, w = operand(node, 0), operand(node, 1)
        places = node.result.type.shape[:3]
        filters, channels, taps, _ = map(estimate, w.type.shape)
        groups = number(node, "groups")
        # For one image, so that an image of a batch has the bits that it has alone.
        likely = [1, *map(estimate, places[1:])]
        tile = self.choose_tile(likely, channels, filters // groups, taps, groups)
        if not tile:
            return None
        sizes = {"tile": tile, "taps": taps, "groups": groups}
        # Transforms are of f32: those of 16 bits would lose half of the digits.
        padded = _padded(node, in_f32(x, emit), places, tile, emit)
        left = emit.op("winograd_input", [padded], sizes)
        right = emit.op(
            "winograd_filter", [in_f32(w, emit)], {"tile": tile, "groups": groups}
        )
        products = emit.op("matmul", [left, right])
        attributes = {**sizes, "shape": places}
        result = emit.op("winograd_output", [products], attributes)
        dtype = node.result.type.dtype
        return result if dtype is f32 else emit.op("cast", [result], {"dtype": dtype})


def _can_be_in_points(node: Node) -> bool:
    """Whether a node is a convolution of images with square known filters, step by step, of floats."""
    x, w = operand(node, 0), operand(node, 1)
    return (
        node.attributes["layout"] == "NHWC"
        and optional_operand(node, 2) is None
        and x.type.rank == 4
        and {x.type.dtype, w.type.dtype, node.result.type.dtype} <= {f32, *HALVES}
        and all(isinstance(size, int) and size > 0 for size in w.type.shape)
        and all(size != 0 for size in node.result.type.shape)
        and w.type.shape[2] == w.type.shape[3]
        and all(s == 1 for s in (*ints(node, "strides"), *ints(node, "dilations")))
        and constant_of(w) is not None
    )


def _padded(node: Node, x: Value, places: Sequence[Dim], tile: int, emit: Emitter) -> Value:
    """`x` with its padding, and more behind it until the last tiles are whole."""
    top, left, bottom, right = ints(node, "pads") or (0, 0, 0, 0)
    rows, columns = (symbolic.ceildiv(d, tile) * tile - d for d in places[1:])
    pads = (0, top, left, 0, 0, rows + bottom, columns + right, 0)
    return emit.op("pad", [x], {"pads": pads}) if any(p != 0 for p in pads) else x
