"""Resampling where what decides it is data: sizes, scales or a region that only a call knows.

The op `resize` needs numbers for its tables; here positions and weights are computed beside the image, axis by axis, by
the same formulas (`ops/resize.py`), coordinates in f64.  Called by the rows of front ends.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final, cast, final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.dtypes import f32, f64, i64
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit import control
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.kit.wide import Wide, polynomial
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.ops import catalogue
from tilewright.compiler.ops.resize import along_axis, has_tables, resampled_axes


@final
@record
class Resampling:
    """How an image is resampled; the names and words are those of the op `resize`."""

    mode: str
    coordinate_mode: str = "half_pixel"
    nearest_mode: str = "round_prefer_floor"
    cubic_coefficient: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False
    extrapolation_value: float = 0.0
    single: bool = False
    reciprocal: bool = False

    @property
    def attributes(self) -> dict[str, object]:
        """Those of the op."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @property
    def is_cropped(self) -> bool:
        """Whether a region of the image is what is resampled."""
        return self.coordinate_mode == "tf_crop_and_resize"


Scale = float | Tensor | None
"""How many times longer an axis becomes: a number, a scalar of f64, or None for what its sizes say."""
Number = float | Tensor
_WRITTEN_OUT: Final = 16
"""Up to so many taps are written one after the other."""


def resampled(
    e: NodeMaker,
    x: Tensor,
    sizes: Sequence[Dim],
    scales: Sequence[Scale],
    region: np.ndarray | Tensor | None,
    how: Resampling,
) -> Tensor:
    """`x` resampled to `sizes`, by the op where it has a kernel for them.

    Args:
        e: writes the nodes.
        x: the image.
        sizes: of every axis of the result.
        scales: of every axis; they decide where an element of the result lies in `x`.
        region: of a cropped image, first all starts, then all ends, as shares of the axes.
        how: the rest.
    """
    held = _numbers(scales)
    if held is not False and not isinstance(region, Tensor):
        attributes = how.attributes | {"sizes": tuple(sizes), "scales": held, "roi": region}
        op = catalogue.lookup("resize")
        if x.array is not None or op.supports([x.type], op.complete(attributes)):
            return e.op("resize", x, **attributes)
        is_sum = x.dtype.is_float and not how.is_cropped
        by_axis = _axis_by_axis(e, x, attributes) if is_sum else None
        if by_axis is not None:
            return by_axis
    if isinstance(region, np.ndarray):
        region = e.constant(region.astype(np.float64))
    return _Computed(e, how).image(x, sizes, scales, region)


def _axis_by_axis(
    e: NodeMaker, x: Tensor, attributes: Mapping[str, object]
) -> Tensor | None:
    """The op along one axis after the other, what becomes shorter first, floats rounded once; None where one has no kernel."""
    sizes = cast("Sequence[Dim]", attributes["sizes"])
    pairs = zip(x.shape, sizes, strict=True)
    if not has_tables(x.shape, attributes) or 0 in (*x.shape, *sizes):
        return None
    shares = [
        new / old if isinstance(old, int) and isinstance(new, int) else 1.0
        for old, new in pairs
    ]
    op, image, steps = catalogue.lookup("resize"), TensorType(_wide(x), x.shape), []
    for axis in sorted(range(x.rank), key=shares.__getitem__):
        step = along_axis(attributes, image.shape, axis)
        if not resampled_axes(image.shape, step):
            continue
        if not op.supports([image], op.complete(step)):
            return None
        steps.append(step)
        image = image.with_shape(cast("Sequence[Dim]", step["sizes"]))
    wide = e.cast(x, image.dtype)
    for step in steps:
        wide = e.op("resize", wide, **step)
    return e.cast(wide, x.dtype)


def _numbers(scales: Sequence[Scale]) -> np.ndarray | bool | None:
    """The scales as numbers; None where sizes decide, False where they are no numbers."""
    if all(s is None for s in scales):
        return None
    if any(s is None or isinstance(s, Tensor) for s in scales):
        return False
    return np.array(scales)


@final
@record
class _Line:
    """One axis: where the elements of the result lie, f64[count]; its size; how much longer it becomes."""

    axis: int
    place: Tensor
    size: Dim
    scale: Tensor


@final
class _Computed:
    """Writes the nodes of one resampling."""

    def __init__(self, e: NodeMaker, how: Resampling) -> None:
        self.e: NodeMaker = e
        self.how: Resampling = how
        self._real: dtypes.DType = f32 if how.single else f64

    def image(
        self,
        x: Tensor,
        sizes: Sequence[Dim],
        scales: Sequence[Scale],
        region: Tensor | None,
    ) -> Tensor:
        """All axes, one after another; rounded once."""
        e, how = self.e, self.how
        lines: list[_Line] = []
        for axis, (count, scale) in enumerate(zip(sizes, scales, strict=True)):
            same = count == x.shape[axis] and (scale is None or scale == 1.0)
            if not same or how.is_cropped:
                lines.append(self._line(x, axis, count, scale, region))
        nearest = how.mode == "nearest"
        wide = x if nearest else e.cast(x, _wide(x))
        # The last axis first: its elements are picked one by one, and most images become larger.
        for line in reversed(lines):
            wide = self._nearest(wide, line) if nearest else self._weighted(wide, line)
        if how.is_cropped:
            wide = self._extrapolated(wide, lines)
        if wide.dtype != x.dtype and not x.dtype.is_float:
            wide = e.op("round", wide)
        return e.cast(wide, x.dtype)

    # --- arithmetic in f64

    def _f64(self, number: Number | Dim) -> Tensor:
        if isinstance(number, Tensor):
            return self.e.cast(number, f64)
        if isinstance(number, int | float):
            return self.e.scalar(number, f64)
        return self.e.cast(self.e.dim(number), f64)

    def _op(self, name: str, *operands: Number) -> Tensor:
        return self.e.op(name, *map(self._f64, operands))

    # --- coordinates

    def _line(
        self, x: Tensor, axis: int, count: Dim, scale: Scale, region: Tensor | None
    ) -> _Line:
        size = x.shape[axis]
        if scale is None:
            longest = self._op("max", self._f64(size), 1)
            factor = self._op("div", self._f64(count), longest)
            width: Number | Dim = count
        else:
            factor = self._f64(scale)
            width = self.e.op("mul", self._as_real(factor), self._as_real(size))
        at = self.e.cast(self.e.iota((count,), 0), f64)
        if region is not None:
            place = self._cropped(at, size, count, region, axis)
        else:
            place = self.e.cast(self._place(at, (size, count, width), factor), f64)
        return _Line(axis, place, size, factor)

    def _as_real(self, number: Number | Dim) -> Tensor:
        """In the precision of coordinates."""
        return self.e.cast(self._f64(number), self._real)

    def _place(
        self, at: Tensor, lengths: tuple[Dim, Dim, Number | Dim], scale: Tensor
    ) -> Tensor:
        """Where elements of the result lie: of the axis, of the result, and what a scale makes of the one."""
        e, mode, real = self.e, self.how.coordinate_mode, self._as_real
        size, count, width = map(real, lengths)

        def op(name: str, *operands: Number) -> Tensor:
            return e.op(name, *map(real, operands))

        def shrunk(place: Tensor) -> Tensor:
            if self.how.reciprocal:
                return op("mul", place, self._op("div", 1, scale))
            return op("div", place, scale)

        if mode == "asymmetric":
            return shrunk(at)
        if mode == "align_corners":
            last = op("sub", size, 1)
            spread = op("div", op("mul", at, last), op("sub", width, 1))
            return e.op("where", e.op("equal", width, real(1)), real(0), spread)
        centers = shrunk(op("add", at, 0.5))
        if mode == "centers":
            # What is as long as before stays as it is, as the op has it.
            return e.op("where", e.op("equal", real(scale), real(1)), real(at), centers)
        if mode == "half_pixel_symmetric":
            missing = op("sub", 1, op("div", count, op("mul", scale, size)))
            # Before the half goes off: see `ops.resize`.
            centers = op("add", centers, op("mul", op("mul", size, 0.5), missing))
        centred = op("sub", centers, 0.5)
        if mode == "pytorch_half_pixel":
            return e.op("where", e.op("equal", count, real(1)), real(0), centred)
        return centred

    def _cropped(
        self, at: Tensor, size: Dim, count: Dim, region: Tensor, axis: int
    ) -> Tensor:
        e, op = self.e, self._op
        half = region.shape[0]
        assert isinstance(half, int), "a vector that was put together for all axes"
        start, end = (
            e.reshape(e.slice(region, 0, place, 1), ())
            for place in (axis, axis + half // 2)
        )
        last = op("sub", self._f64(size), 1)
        gaps = op("sub", self._f64(count), 1)
        step = op("div", op("mul", op("sub", end, start), last), gaps)
        spread = op("add", op("mul", start, last), op("mul", at, step))
        middle = op("mul", op("mul", op("add", start, end), 0.5), last)
        return e.op("where", e.op("equal", self._f64(count), self._f64(1)), middle, spread)

    # --- elements

    def _inside(self, place: Tensor, size: Dim) -> Tensor:
        """Places as indices of an axis, those outside moved to its ends."""
        last = self._op("sub", self._f64(size), 1)
        return self.e.cast(self._op("max", self._op("min", place, last), 0), i64)

    def _nearest(self, x: Tensor, line: _Line) -> Tensor:
        op, rule, place = self._op, self.how.nearest_mode, line.place
        if rule == "round_prefer_floor":
            place = op("ceil", op("sub", place, 0.5))
        elif rule == "round_prefer_ceil":
            place = op("floor", op("add", place, 0.5))
        else:
            place = op(rule, place)
        return self.e.op("gather", x, self._inside(place, line.size), axis=line.axis)

    def _weighted(self, x: Tensor, line: _Line) -> Tensor:
        if self.how.antialias:
            return self._many_taps(x, line)
        offsets = np.array((0, 1) if self.how.mode == "linear" else (-1, 0, 1, 2))
        column = self.e.constant(offsets[:, None].astype(np.float64))
        return self._summed(x, line, column, None)

    def _summed(
        self, x: Tensor, line: _Line, offsets: Tensor, stretch: Tensor | None
    ) -> Tensor:
        """The sum of a known number of taps, a column of `offsets`, written out."""
        # One tensor for the taps of all places, and one for their weights: each is one kernel.
        place = self.e.unsqueeze(line.place, (0,))
        taps = self._op("add", self._op("sub", self._op("ceil", place), 1), offsets)
        weights = self._weight(taps, place, line.size, stretch)
        if self.how.exclude_outside or stretch is not None:
            whole = self.e.op("reduce_sum", weights, axes=(0,), keepdims=True)
            weights = self._op("div", weights, whole)
        inside, weights = self._inside(taps, line.size), self.e.cast(weights, x.dtype)
        count = offsets.shape[0]
        assert isinstance(count, int), "a known number of taps"
        products = [
            self._product(x, self._row(inside, i), self._row(weights, i), line.axis)
            for i in range(count)
        ]
        return functools.reduce(lambda a, b: self.e.op("add", a, b), products)

    def _row(self, x: Tensor, index: int) -> Tensor:
        """A row of a matrix."""
        return self.e.reshape(self.e.slice(x, 0, index, 1), x.shape[1:])

    def _product(self, x: Tensor, places: Tensor, weights: Tensor, axis: int) -> Tensor:
        """The elements at `places`, times their weights: vectors, or matrices with an axis for taps."""
        e = self.e
        taken = e.op("gather", x, places, axis=axis)
        behind = range(places.rank, places.rank + x.rank - axis - 1)
        return e.op("mul", taken, e.unsqueeze(e.cast(weights, x.dtype), behind))

    def _many_taps(self, x: Tensor, line: _Line) -> Tensor:
        """As many taps as the wider kernel of a smaller image has, which the scale decides."""
        e, op = self.e, self._op
        stretch = op("min", line.scale, 1)
        radius = 1 if self.how.mode == "linear" else 2
        start = op("add", op("floor", op("div", -radius, stretch)), 1)
        most = e.cast(e.reshape(op("sub", 2, op("mul", start, 2)), (1,)), i64)
        (count,) = _sizes(e, most, "taps")
        if isinstance(count, int) and count <= _WRITTEN_OUT:
            column = op("add", start, e.cast(e.iota((count, 1), 0), f64))
            return self._summed(x, line, column, stretch)
        offsets = op("add", start, e.cast(e.iota((1, count), 1), f64))
        place = e.unsqueeze(line.place, (1,))
        taps = op("add", op("sub", op("ceil", place), 1), offsets)
        weights = self._weight(taps, place, line.size, stretch)
        whole = e.op("reduce_sum", weights, axes=(1,), keepdims=True)
        inside = self._inside(taps, line.size)
        products = self._product(x, inside, op("div", weights, whole), line.axis)
        return e.op("reduce_sum", products, axes=(line.axis + 1,), keepdims=False)

    def _weight(
        self, tap: Tensor, place: Tensor, size: Dim, stretch: Tensor | None
    ) -> Tensor:
        op, e = self._op, self.e
        distance = op("abs", op("sub", tap, place))
        if stretch is not None:
            distance = op("mul", distance, stretch)
        weight = self._kernel(distance)
        if not self.how.exclude_outside:
            return weight
        zero = self._f64(0)
        before = e.op("less", tap, zero)
        behind = e.op("greater_equal", tap, self._f64(size))
        return e.op("where", e.op("logical_or", before, behind), zero, weight)

    def _kernel(self, distance: Tensor) -> Tensor:
        """The weight of a tap so far from the wanted place."""
        op, e, zero = self._op, self.e, self._f64(0)
        if self.how.mode == "linear":
            return op("max", op("sub", 1, distance), zero)
        a = self.how.cubic_coefficient
        x = Wide(e, distance)
        near = polynomial(x, (a + 2, -(a + 3), 0, 1))
        far = polynomial(x, (a, -5 * a, 8 * a, -4 * a))
        return near.where(x.at_most(1), far.where(x.less(2), 0)).tensor

    def _extrapolated(self, x: Tensor, lines: Sequence[_Line]) -> Tensor:
        """The value for what lies outside of the image, along any axis."""
        e = self.e
        value = e.scalar(self.how.extrapolation_value, x.dtype)
        for line in lines:
            last = self._op("sub", self._f64(line.size), 1)
            before = e.op("less", line.place, self._f64(0))
            behind = e.op("greater", line.place, last)
            outside = e.op("logical_or", before, behind)
            lined = e.unsqueeze(outside, range(1, x.rank - line.axis))
            x = e.op("where", lined, value, x)
        return x


_WIDE: Final = (dtypes.f16, dtypes.bf16, dtypes.f32)


def _wide(x: Tensor) -> dtypes.DType:
    """What is computed in: whole numbers need all bits of theirs."""
    return dtypes.f32 if x.dtype in _WIDE else f64


def _sizes(e: NodeMaker, values: Tensor, stem: str) -> Sequence[Dim]:
    """A vector of sizes: numbers where they are known."""
    if values.array is not None:
        found: Any = values.array.tolist()
        return tuple(found)
    return control.read_sizes(e, values, stem)
