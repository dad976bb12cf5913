"""Rows that sample images at computed places: GridSample, RoiAlign, and Col2Im.

Every tap is one gather from the flattened image; weights and borders are ordinary arithmetic.

Source: ONNX operator reference (GridSample opset 16 to 22, RoiAlign opset 10 to 22, Col2Im).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final

import numpy as np

from tilewright.base import dtypes, symbolic
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.row import MICROSOFT, Row, row
from tilewright.compiler.ops.shapes import element_count

_CUBIC: Final = -0.75


def _number(e: NodeMaker, value: float, like: Tensor) -> Tensor:
    return e.scalar(value, like.dtype)


def _need(x: Tensor | None) -> Tensor:
    assert x is not None
    return x


def _limit(e: NodeMaker, size: Dim, like: Tensor, offset: float = 0) -> Tensor:
    """`size + offset` as a float."""
    whole = e.cast(e.dim(size), like.dtype)
    return e.op("add", whole, _number(e, offset, like)) if offset else whole


def _unnormalized(e: NodeMaker, place: Tensor, size: Dim, *, align: bool) -> Tensor:
    """A coordinate in -1 .. 1 as a position in the image."""
    shifted = e.op("add", place, _number(e, 1, place))
    half = _number(e, 0.5, place)
    if align:
        return e.op("mul", e.op("mul", shifted, half), _limit(e, size, place, -1))
    scaled = e.op("mul", shifted, _limit(e, size, place))
    return e.op("mul", e.op("sub", scaled, _number(e, 1, place)), half)


def _clamped(e: NodeMaker, place: Tensor, size: Dim) -> Tensor:
    return e.op("clip", place, _number(e, 0, place), _limit(e, size, place, -1))


def _reflected(e: NodeMaker, place: Tensor, size: Dim, *, align: bool) -> Tensor:
    """A position folded back at both borders."""
    low = 0.0 if align else -0.5
    span = _limit(e, size, place, -1 if align else 0)
    span = e.op("max", span, _number(e, 1e-30, place))
    offset = e.op("sub", place, _number(e, low, place))
    double = e.op("mul", span, _number(e, 2, place))
    turned = e.op("mod", e.op("abs", offset), double)
    folded = e.op("min", turned, e.op("sub", double, turned))
    return e.op("add", folded, _number(e, low, place))


def _inside(e: NodeMaker, places: Sequence[Tensor], sizes: Sequence[Dim]) -> Tensor:
    """Which whole positions lie in the image."""
    inside: Tensor | None = None
    for place, size in zip(places, sizes, strict=True):
        low = e.op("greater_equal", place, _number(e, 0, place))
        high = e.op("less_equal", place, _limit(e, size, place, -1))
        ok = e.op("logical_and", low, high)
        inside = ok if inside is None else e.op("logical_and", inside, ok)
    return _need(inside)


def _fetch(
    e: NodeMaker, flat: Tensor, places: Sequence[Tensor], sizes: Sequence[Dim]
) -> tuple[Tensor, Tensor]:
    """Elements of `[N, C, space]` at whole positions `[N, points]`, and which lie inside."""
    index: Tensor | None = None
    for place, size in zip(places, sizes, strict=True):
        whole = e.cast(_clamped(e, place, size), dtypes.i64)
        index = (
            whole if index is None else e.op("add", e.op("mul", index, e.dim(size)), whole)
        )
    index = _need(index)
    spread = e.broadcast_to(
        e.unsqueeze(index, (1,)), (flat.shape[0], flat.shape[1], index.shape[1])
    )
    inside = e.unsqueeze(_inside(e, places, sizes), (1,))
    return e.op("gather_elements", flat, spread, axis=2), inside


def _cubic_weights(e: NodeMaker, t: Tensor) -> list[Tensor]:
    """Weights of the four taps around a place with fraction `t`."""

    def polynomial(x: Tensor, coefficients: Sequence[float]) -> Tensor:
        total = _number(e, coefficients[0], x)
        for c in coefficients[1:]:
            total = e.op("add", e.op("mul", total, x), _number(e, c, x))
        return total

    a = _CUBIC
    near, far = (a + 2, -(a + 3), 0.0, 1.0), (a, -5 * a, 8 * a, -4 * a)
    one, two = _number(e, 1, t), _number(e, 2, t)
    rest = e.op("sub", one, t)
    return [
        polynomial(e.op("add", t, one), far),
        polynomial(t, near),
        polynomial(rest, near),
        polynomial(e.op("sub", two, t), far),
    ]


def _taps(e: NodeMaker, place: Tensor, mode: str) -> list[tuple[Tensor, Tensor | None]]:
    """Whole positions and weights along one axis."""
    if mode == "nearest":
        return [(e.op("round", place), None)]
    base = e.op("floor", place)
    fraction = e.op("sub", place, base)
    one = _number(e, 1, place)
    if mode == "linear":
        weights = [e.op("sub", one, fraction), fraction]
        return [(base, weights[0]), (e.op("add", base, one), weights[1])]
    offsets = (-1, 0, 1, 2)
    return [
        (e.op("add", base, _number(e, o, place)), w)
        for o, w in zip(offsets, _cubic_weights(e, fraction), strict=True)
    ]


def _bordered(
    e: NodeMaker, place: Tensor, size: Dim, padding: str, *, align: bool
) -> Tensor:
    if padding == "reflection":
        place = _reflected(e, place, size, align=align)
    return place if padding == "zeros" else _clamped(e, place, size)


def _grid_sample(call: Call) -> Tensor:
    e, x, grid = call.maker, call.tensor(0), call.tensor(1)
    known = {"linear": "linear", "bilinear": "linear", "nearest": "nearest",
             "cubic": "cubic", "bicubic": "cubic"}  # fmt: skip
    mode = known[call.choice("mode", "linear", tuple(known))]
    padding = call.choice("padding_mode", "zeros", ("zeros", "border", "reflection"))
    align = call.flag("align_corners")
    sizes, rank = x.shape[2:], x.rank - 2
    if grid.rank != x.rank or grid.shape[-1] != rank:
        raise ModelError(f"grid {grid.type} does not fit {x.type}")
    points = element_count(grid.shape[1:-1])
    flat = e.reshape(x, (x.shape[0], x.shape[1], element_count(sizes)))
    columns: list[list[tuple[Tensor, Tensor | None]]] = []
    for axis, size in enumerate(sizes):
        # The grid names the last axis of the image first.
        part = e.slice(grid, grid.rank - 1, rank - 1 - axis, 1)
        place = e.cast(e.reshape(part, (grid.shape[0], points)), x.dtype)
        place = _unnormalized(e, place, size, align=align)
        if mode != "cubic":
            place = _bordered(e, place, size, padding, align=align)
        columns.append(_taps(e, place, mode))
    total: Tensor | None = None
    for taps in itertools.product(*columns):
        places = [p for p, _ in taps]
        if mode == "cubic":
            places = [
                _bordered(e, p, s, padding, align=align)
                for p, s in zip(places, sizes, strict=True)
            ]
        value, inside = _fetch(e, flat, places, sizes)
        value = e.op("where", inside, value, _number(e, 0, x))
        for _, weight in taps:
            if weight is not None:
                value = e.op("mul", value, e.unsqueeze(weight, (1,)))
        total = value if total is None else e.op("add", total, value)
    assert total is not None
    return e.reshape(total, (x.shape[0], x.shape[1], *grid.shape[1:-1]))


# --- regions of interest


def _roi_places(
    call: Call, start: Tensor, end: Tensor, count: int, ratio: int, *, half: bool
) -> Tensor:
    """Sample positions `[regions, count * ratio]` along one axis."""
    e = call.maker
    scale = _number(e, call.float("spatial_scale", 1.0), start)
    shift = _number(e, 0.5 if half else 0.0, start)
    first = e.op("sub", e.op("mul", start, scale), shift)
    last = e.op("sub", e.op("mul", end, scale), shift)
    size = e.op("sub", last, first)
    if not half:
        size = e.op("max", size, _number(e, 1, start))
    steps = (np.arange(count * ratio) + 0.5) / (count * ratio)
    fractions = e.constant(steps.astype(start.dtype.numpy))
    return e.op("add", first, e.op("mul", size, fractions))


def _roi_align(call: Call) -> Tensor:
    e, x, regions, batch = call.maker, call.tensor(0), call.tensor(1), call.tensor(2)
    mode = call.choice("mode", "avg", ("avg", "max"))
    height, width = call.integer("output_height", 1), call.integer("output_width", 1)
    ratio = call.integer("sampling_ratio", 0)
    default = "half_pixel" if call.opset >= 16 else "output_half_pixel"
    named = call.string("coordinate_transformation_mode", default)
    if ratio < 1:
        raise UnsupportedError("'sampling_ratio' 0 makes the amount of work depend on data")
    corners = [e.slice(regions, 1, i, 1) for i in range(4)]
    half = named == "half_pixel"
    pooled = e.op(
        "pool_samples",
        e.transpose(x, (0, 2, 3, 1)),
        e.cast(batch, dtypes.i64),
        _roi_places(call, corners[1], corners[3], height, ratio, half=half),
        _roi_places(call, corners[0], corners[2], width, ratio, half=half),
        samples=ratio,
        mode=mode,
    )
    return e.transpose(pooled, (0, 3, 1, 2))


# --- overlapping blocks


def _col2im(call: Call) -> Tensor:
    """Blocks added up where they overlap."""
    e, x = call.maker, call.tensor(0)
    image = call.numbers(1, "the shape of the image")
    block = call.numbers(2, "the shape of a block")
    rank = len(image)
    dilations = call.integers("dilations", (1,) * rank)
    strides = call.integers("strides", (1,) * rank)
    pads = call.integers("pads", (0,) * (2 * rank))
    return e.op(
        "col2im",
        x,
        image=image,
        block=block,
        strides=strides,
        pads=pads,
        dilations=dilations,
    )


# --- deformable convolution


def _deform_places(call: Call, offsets: Tensor, axis: int, taps: tuple[int, int]) -> Tensor:
    """Where the taps read along an axis: `[N, banks, taps, 2, rows, columns]` to `[N, points, banks, taps]`."""
    e = call.maker
    stride = call.integers("strides", (1, 1))[axis]
    dilation = call.integers("dilations", (1, 1))[axis]
    pad = call.integers("pads", (0, 0, 0, 0))[axis]
    batch, banks, count, _, *sizes = offsets.shape
    moved = e.squeeze(e.slice(offsets, 3, axis, 1), (3,))
    moved = e.transpose(moved, (0, 3, 4, 1, 2))
    line: list[Dim] = [1, 1, 1, 1, 1]
    line[1 + axis] = sizes[axis]
    base = e.op("mul", e.iota(line, 1 + axis), e.dim(stride))
    steps = np.indices(taps)[axis].reshape(1, 1, 1, 1, -1) * dilation - pad
    base = e.op("add", base, e.constant(steps.astype(np.int64)))
    place = e.op("add", moved, e.cast(base, moved.dtype))
    return e.reshape(place, (batch, element_count(sizes), banks, count))


def _pixels(e: NodeMaker, places: Sequence[Tensor], sizes: Sequence[Dim]) -> Tensor:
    """Where the pixels at whole positions `[N, points, banks, taps]` begin in `[N, space, banks]`."""
    batch, _, banks, _ = places[0].shape
    index = e.iota((batch, 1, 1, 1), 0)
    for place, size in zip(places, sizes, strict=True):
        whole = e.cast(_clamped(e, place, size), dtypes.i64)
        index = e.op("add", e.op("mul", index, e.dim(size)), whole)
    index = e.op("mul", index, e.dim(banks))
    return e.op("add", index, e.iota((1, 1, banks, 1), 2))


def _bilinear(
    e: NodeMaker,
    pixels: Tensor,
    places: Sequence[Tensor],
    mask: Tensor | None,
    sizes: Sequence[Dim],
) -> Tensor:
    """Weighted sum of the neighbours that lie inside: `[N, points, banks, taps, depth]`."""
    total: Tensor | None = None
    for taps in itertools.product(*(_taps(e, p, "linear") for p in places)):
        whole = [p for p, _ in taps]
        value = e.op("gather", pixels, _pixels(e, whole, sizes), axis=0)
        inside = e.unsqueeze(_inside(e, whole, sizes), (4,))
        value = e.op("where", inside, value, _number(e, 0, pixels))
        weight = mask
        for _, factor in taps:
            weight = factor if weight is None else e.op("mul", weight, _need(factor))
        value = e.op("mul", value, e.unsqueeze(_need(weight), (4,)))
        total = value if total is None else e.op("add", total, value)
    return _need(total)


def _deform_conv(call: Call) -> Tensor:
    """Every tap is sampled where its offset says; then a product with the weights.

    Pixels are read whole: their channels lie side by side, and take the same places and weights.
    """
    e, x, w, offsets = call.maker, call.tensor(0), call.tensor(1), call.tensor(2)
    bias, mask = call.optional(3), call.optional(4)
    groups, banks = call.integer("group", 1), call.integer("offset_group", 1)
    call.integers("kernel_shape", ())
    if x.rank != 4 or offsets.rank != 4:
        raise UnsupportedError(f"deformable convolution of {x.type} is not supported")
    height, width = w.shape[2:]
    if not isinstance(height, int) or not isinstance(width, int):
        raise UnsupportedError("weights with a dynamic kernel size are not supported")
    sizes, points = offsets.shape[2:], element_count(offsets.shape[2:])
    batch, channels = x.shape[:2]
    count, depth = height * width, symbolic.floordiv(channels, banks)
    rows = element_count((batch, *x.shape[2:], banks))
    pixels = e.reshape(e.transpose(x, (0, 2, 3, 1)), (rows, depth))
    offsets = e.reshape(offsets, (batch, banks, count, 2, *sizes))
    places = [_deform_places(call, offsets, axis, (height, width)) for axis in (0, 1)]
    if mask is not None:
        mask = e.reshape(mask, (batch, banks, count, points))
        mask = e.transpose(mask, (0, 3, 1, 2))
    gathered = _bilinear(e, pixels, places, mask, x.shape[2:])
    result = _deform_product(e, gathered, w, groups)
    result = e.reshape(result, (batch, w.shape[0], *sizes))
    if bias is None:
        return result
    return e.op("add", result, e.reshape(bias, (*bias.shape, 1, 1)))


def _deform_product(e: NodeMaker, gathered: Tensor, w: Tensor, groups: int) -> Tensor:
    """`[N, points, banks, taps, depth]` times `[F, C / groups, height, width]`: `[N, F, points]`."""
    batch, points, banks, count, depth = gathered.shape
    filters = symbolic.floordiv(w.shape[0], groups)
    if groups == 1:
        each = element_count((banks, count, depth))
        w = e.transpose(e.reshape(w, (filters, banks, depth, count)), (1, 3, 2, 0))
        columns = e.reshape(gathered, (batch, points, each))
        return e.transpose(
            e.op("matmul", columns, e.reshape(w, (each, filters))), (0, 2, 1)
        )
    each = symbolic.floordiv(element_count((banks, depth)), groups) * count
    columns = e.transpose(gathered, (0, 2, 4, 3, 1))
    columns = e.reshape(columns, (batch, groups, each, points))
    product = e.op("matmul", e.reshape(w, (groups, filters, each)), columns)
    return e.reshape(product, (batch, w.shape[0], points))


ROWS: Final[tuple[Row, ...]] = (
    row("Col2Im", _col2im),
    row("DeformConv", _deform_conv),
    row("GridSample", _grid_sample),
    row("RoiAlign", _roi_align),
    row("GridSample", _grid_sample, domain=MICROSOFT),
)
