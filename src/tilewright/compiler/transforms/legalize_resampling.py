"""Resampling along several axes, one axis after the other where that reads fewer elements.

A result of an image that is made four times as high and as wide has four elements near it, of which two are the same for
all rows between: they are added once.  What lies between the axes is as exact as the image, so narrow floats stay whole.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Final, cast, final

from tilewright.base.dtypes import f32, f64
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.ops.resize import along_axis, has_tables, resampled_axes
from tilewright.compiler.passes import Emitter, Rewrites, need
from tilewright.compiler.transforms.rewrite_pass import RewritePass

_PASS: Final = 4
"""Writing and reading an element in between takes the time of about so many taps."""
_PICKED: Final = 3
"""A tap along an innermost axis, whose elements are picked one by one, takes the time of about so many."""


@final
@record(kw_only=True)
class LegalizeResampling(RewritePass):
    """Resample one axis at a time if that pays.

    Requires: nothing.  Ensures: an image of f32 or f64 whose axes have known sizes, or stay as they are, is resampled in
    the order of axes, or at once, as takes the fewest taps.
    """

    def rewrites(self) -> Rewrites:
        """The one for the one op."""
        return {"resize": (one_axis_at_a_time,)}


def one_axis_at_a_time(node: Node, emit: Emitter) -> Value | None:
    """A resampling as several, if they take less time."""
    x = node.operand()
    taps = _taps(node)
    need(len(taps) >= 2 and x.type.dtype in (f32, f64))
    old = _numbers(x.type.shape)
    new = _numbers(cast("tuple[Dim, ...]", node.attributes["sizes"]))
    at_once = math.prod(new) * math.prod(taps.values()) * _weight(max(taps), len(new))
    orders = itertools.permutations(taps)
    best = min(orders, key=lambda order: _cost(order, taps, old, new))
    need(_cost(best, taps, old, new) < at_once)
    for axis in best:
        x = emit.op("resize", [x], along_axis(node.attributes, x.type.shape, axis))
    return x


def _taps(node: Node) -> dict[int, int]:
    """The taps along each axis that changes; none where they are not all known, or not sums."""
    attributes, shape = node.attributes, node.operand().type.shape
    sizes = cast("tuple[Dim, ...]", attributes["sizes"])
    is_cropped = attributes["coordinate_mode"] == "tf_crop_and_resize"
    known = has_tables(shape, attributes) and 0 not in (*shape, *sizes)
    if not known or is_cropped or attributes["mode"] == "nearest":
        return {}
    found = resampled_axes(shape, attributes)
    return {axis: table.places.shape[1] for axis, table in found.items()}


def _numbers(shape: Sequence[Dim]) -> tuple[int, ...]:
    """The sizes of an image one of whose open axes has one element: what it costs grows with those, whatever the order."""
    return tuple(d if isinstance(d, int) else 1 for d in shape)


def _weight(axis: int, rank: int) -> int:
    return _PICKED if axis == rank - 1 else 1


def _cost(
    order: Sequence[int], taps: Mapping[int, int], old: Sequence[int], new: Sequence[int]
) -> int:
    """Taps, and what takes as long, of resampling axis by axis in an order."""
    shape, total = list(old), 0
    for axis in order:
        shape[axis] = new[axis]
        elements = math.prod(shape)
        total += elements * (taps[axis] * _weight(axis, len(shape)) + _PASS)
    return total - _PASS * math.prod(shape)
