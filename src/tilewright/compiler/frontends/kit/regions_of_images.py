"""Regions of images as pictures of one size: averages of samples, or the largest pixels of parts.

How many samples a region gets is said, or grows with the region: then all have as many places as the largest
needs, and those that are not its own lie outside of the image, where nothing is.

Called by front ends that have the operators.
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
from tilewright.compiler.frontends.kit.rounding import away_from_zero
from tilewright.compiler.frontends.kit.sampled_places import number_like
from tilewright.compiler.frontends.kit.tensor import Tensor

_MOST_SAMPLES: Final = 1 << 16
_MOST_PLACES: Final = 1 << 24
"""Of the samples along one axis of a region: each is a number of the program."""
_OUTSIDE: Final = -2.0


@final
@record
class Pictures:
    """What becomes of regions.

    Attributes:
        height: of each picture.
        width: of each picture.
        scale: from the coordinates of regions to those of the image.
        half: whether the centre of the first pixel lies at a half.
        ratio: samples along each axis of a pixel of a picture; 0: as many as the region's size asks for.
        mode: `avg`, or `max` of samples.
    """

    height: int
    width: int
    scale: float
    half: bool
    ratio: int
    mode: str


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


def _side(e: NodeMaker, regions: Tensor, axis: int, form: Pictures) -> _Side:
    """The regions along an axis: 0 for columns, 1 for rows."""
    dtype = regions.dtype
    scale = e.scalar(form.scale, dtype)
    shift = e.scalar(0.5 if form.half else 0.0, dtype)
    parts = form.height if axis else form.width

    def corner(place: int) -> Tensor:
        given = e.op("mul", e.slice(regions, 1, place, 1), scale)
        return e.unsqueeze(e.op("sub", given, shift), (2,))

    first, last = corner(axis), corner(axis + 2)
    size = e.op("sub", last, first)
    return _Side(first, size if form.half else e.op("max", size, e.scalar(1, dtype)), parts)


def sampled_regions(
    e: NodeMaker, x: Tensor, regions: Tensor, images: Tensor, form: Pictures
) -> Tensor:
    """`[N, C, H, W]` and rows of left, top, right and bottom with their images: `[regions, C, height, width]`."""
    rows, columns = (_side(e, regions, axis, form) for axis in (1, 0))
    channels_last = e.transpose(x, (0, 2, 3, 1))
    if form.ratio >= 1:
        places = [side.places(e, form.ratio) for side in (rows, columns)]
        pooled = e.op("pool_samples", channels_last, images, *places, mode=form.mode)
    else:
        pooled = _by_own_counts(e, channels_last, images, (rows, columns), form.mode)
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


# --- maxima


def largest_of_regions(
    e: NodeMaker, x: Tensor, regions: Tensor, shape: tuple[int, int], scale: float
) -> Tensor:
    """`[N, C, H, W]` and rows of image, left, top, right and bottom: `[regions, C, *shape]`, the largest of each part.

    Along an axis, then along the other; a part with no element is 0.  Pixels are read whole: their channels lie side
    by side.
    """
    edges = e.op("mul", regions, number_like(e, scale, regions))
    if x.rank != 4 or regions.rank != 2 or not e.may_be(regions.shape[1], 5):
        raise ModelError(
            f"regions of type {regions.type} of images of type {x.type}, expected rank 2 with 5 columns and rank 4"
        )
    rows, columns = shape
    batch, depth, height, width = x.shape
    count = regions.shape[0]
    image = e.cast(e.slice(regions, 1, 0, 1), dtypes.i64)
    down, no_row = _elements_of_parts(e, edges, (2, 4), rows, height)
    line = e.op("add", e.op("mul", e.unsqueeze(image, (2,)), e.dim(height)), down)
    lines = e.reshape(e.transpose(x, (0, 2, 3, 1)), (batch * height, width * depth))
    tall = e.op("gather", lines, line, axis=0)
    tall = e.op("reduce_max", tall, axes=(2,), keepdims=False)
    across, no_column = _elements_of_parts(e, edges, (1, 3), columns, width)
    first = e.op("mul", e.iota((count * rows, 1), 0), e.dim(width))
    first = e.reshape(first, (count, rows, 1, 1))
    pixel = e.op("add", first, e.unsqueeze(across, (1,)))
    pixels = e.reshape(tall, (count * rows * width, depth))
    found = e.op("gather", pixels, pixel, axis=0)
    found = e.op("reduce_max", found, axes=(3,), keepdims=False)
    empty = e.op("logical_or", e.unsqueeze(no_row, (2,)), e.unsqueeze(no_column, (1,)))
    found = e.op("where", e.unsqueeze(empty, (3,)), number_like(e, 0, x), found)
    return e.transpose(found, (0, 3, 1, 2))


def _elements_of_parts(
    e: NodeMaker, edges: Tensor, sides: tuple[int, int], count: int, size: Dim
) -> tuple[Tensor, Tensor]:
    """The positions on an axis in each of `count` parts of regions, `[N, count, longest]`; which parts have none.

    The last position of a shorter part comes several times.
    """
    first, last = (away_from_zero(e, e.slice(edges, 1, side, 1)) for side in sides)
    start, end = _parts_of(e, first, last, count, size)
    empty = e.op("less_equal", end, start)
    lengths = e.op("sub", end, start)
    longest = e.op("reduce_max", lengths, axes=(0, 1), keepdims=False)
    longest = e.op("max", longest, number_like(e, 1, longest))
    (steps,) = control.read_sizes(e, e.cast(e.reshape(longest, (1,)), dtypes.i64), "part")
    start, end = (e.unsqueeze(e.cast(t, dtypes.i64), (2,)) for t in (start, end))
    places = e.op("add", start, e.iota((steps,), 0))
    places = e.op("min", places, e.op("sub", end, e.scalar(1, dtypes.i64)))
    return control.inside(e, places, size), empty


def _parts_of(
    e: NodeMaker, first: Tensor, last: Tensor, count: int, size: Dim
) -> tuple[Tensor, Tensor]:
    """Where `count` parts of regions `[N, 1]` begin and end on an axis: `[N, count]`, whole numbers."""
    one, zero = number_like(e, 1, first), number_like(e, 0, first)
    length = e.op("max", e.op("add", e.op("sub", last, first), one), one)
    each = e.op("div", length, number_like(e, count, first))
    index = e.cast(e.iota((count,), 0), first.dtype)
    start = e.op("floor", e.op("mul", index, each))
    end = e.op("ceil", e.op("mul", e.op("add", index, one), each))
    limit = e.cast(e.dim(size), first.dtype)

    def inside(place: Tensor) -> Tensor:
        return e.op("min", e.op("max", e.op("add", place, first), zero), limit)

    return inside(start), inside(end)
