"""The row for RoiAlign: regions of images as pictures of one size, of samples that are averaged.

How many samples a region gets is said, or grows with the region: then all have as many places as the largest
needs, and those that are not its own lie outside of the image, where nothing is.

Called by the importer, through the table.

Source: ONNX operator reference (RoiAlign).
"""

from __future__ import annotations

from typing import Final, final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.errors import ModelError
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit import control
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.row import Row, row

_MOST_SAMPLES: Final = 1 << 16
_MOST_PLACES: Final = 1 << 24
"""Of the samples along one axis of a region: each is a number of the program."""
_OUTSIDE: Final = -2.0


@final
@record
class _Side:
    """Regions along one axis: where they begin, and their sizes, both `[regions, 1, 1]`; in how many parts."""

    first: Tensor
    size: Tensor
    parts: int

    def places(self, e: NodeMaker, samples: int) -> Tensor:
        """`[regions, parts, samples]`, as many samples of each region."""
        if self.parts * samples > _MOST_PLACES:
            raise ModelError(
                f"{samples} samples in each of {self.parts} parts, expected at most {_MOST_PLACES} in all"
            )
        steps = (np.arange(self.parts * samples) + 0.5) / (self.parts * samples)
        fractions = steps.reshape(1, self.parts, samples)
        fractions = e.constant(fractions.astype(self.size.dtype.numpy))
        return e.op("add", self.first, e.op("mul", self.size, fractions))

    def counts(self, e: NodeMaker) -> Tensor:
        """As many samples as a part has pixels, rounded up: f32 `[regions, 1, 1]`; what is no number is too many."""
        part = e.op("div", self.size, e.scalar(self.parts, self.size.dtype))
        count = e.op("max", e.op("ceil", e.cast(part, dtypes.f32)), _f32(e, 0))
        fits = e.op("less_equal", count, _f32(e, _MOST_SAMPLES))
        return e.op("where", fits, count, _f32(e, 2 * _MOST_SAMPLES))

    def own_places(self, e: NodeMaker, counts: Tensor, most: Dim, mode: str) -> Tensor:
        """`[regions, parts, most]`: of each region as many as it has; the others are its last, or outside."""
        number = e.cast(e.iota((1, 1, most), 2), dtypes.f32)
        part = e.cast(e.iota((1, self.parts, 1), 1), dtypes.f32)
        is_own = e.op("less", number, counts)
        if mode == "max":
            number = e.op("min", number, e.op("sub", counts, _f32(e, 1)))
            is_own = e.op("less", _f32(e, 0), counts)
        step = e.op("div", e.op("add", number, _f32(e, 0.5)), counts)
        fraction = e.op("div", e.op("add", part, step), _f32(e, self.parts))
        dtype = self.size.dtype
        place = e.op("add", self.first, e.op("mul", self.size, e.cast(fraction, dtype)))
        return e.op("where", is_own, place, e.scalar(_OUTSIDE, dtype))


def _f32(e: NodeMaker, number: float) -> Tensor:
    return e.scalar(number, dtypes.f32)


def _side(call: Call, regions: Tensor, axis: int, parts: int, *, half: bool) -> _Side:
    """The regions along an axis: 0 for columns, 1 for rows."""
    e, dtype = call.maker, regions.dtype
    scale = e.scalar(call.float("spatial_scale", 1.0), dtype)
    shift = e.scalar(0.5 if half else 0.0, dtype)

    def corner(place: int) -> Tensor:
        given = e.op("mul", e.slice(regions, 1, place, 1), scale)
        return e.unsqueeze(e.op("sub", given, shift), (2,))

    first, last = corner(axis), corner(axis + 2)
    size = e.op("sub", last, first)
    return _Side(first, size if half else e.op("max", size, e.scalar(1, dtype)), parts)


def _roi_align(call: Call) -> Tensor:
    e, x, regions = call.maker, call.tensor(0), call.tensor(1)
    mode = call.choice("mode", "avg", ("avg", "max"))
    height, width = call.integer("output_height", 1), call.integer("output_width", 1)
    ratio = call.integer("sampling_ratio", 0)
    default = "half_pixel" if call.opset >= 16 else "output_half_pixel"
    half = call.string("coordinate_transformation_mode", default) == "half_pixel"
    rows = _side(call, regions, 1, height, half=half)
    columns = _side(call, regions, 0, width, half=half)
    images = e.cast(call.tensor(2), dtypes.i64)
    channels_last = e.transpose(x, (0, 2, 3, 1))
    if ratio >= 1:
        places = [side.places(e, ratio) for side in (rows, columns)]
        pooled = e.op("pool_samples", channels_last, images, *places, mode=mode)
    else:
        pooled = _by_own_counts(e, channels_last, images, (rows, columns), mode)
    return e.transpose(pooled, (0, 3, 1, 2))


def _by_own_counts(
    e: NodeMaker, x: Tensor, images: Tensor, sides: tuple[_Side, _Side], mode: str
) -> Tensor:
    """Of each region as many samples as its size asks for."""
    counts = [side.counts(e) for side in sides]
    peaks = [
        e.reshape(e.op("reduce_max", c, axes=(0, 1, 2), keepdims=False), (1,))
        for c in counts
    ]
    sizes = e.op("max", e.concat(peaks, 0), _f32(e, 1))
    most = control.read_sizes(e, e.cast(sizes, dtypes.i64), "samples", _MOST_SAMPLES, low=1)
    places = [
        side.own_places(e, count, size, mode)
        for side, count, size in zip(sides, counts, most, strict=True)
    ]
    pooled = e.op("pool_samples", x, images, *places, mode=mode)
    if mode == "max":
        return pooled
    # An average of all places is less than one of a region's own.
    own = e.op("max", e.op("mul", counts[0], counts[1]), _f32(e, 1))
    total = e.cast(e.dim(most[0] * most[1]), dtypes.f32)
    factor = e.unsqueeze(e.op("div", total, own), (3,))
    return e.op("mul", pooled, e.cast(factor, pooled.dtype))


ROWS: Final[tuple[Row, ...]] = (row("RoiAlign", _roi_align),)
