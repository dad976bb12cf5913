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
from tilewright.compiler.frontends.kit import control
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.rounding import away_from_zero
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.call import FIXED_SIZE, Call
from tilewright.compiler.frontends.onnx.row import MICROSOFT, Row, row
from tilewright.compiler.graph.schema import TensorType
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


def _flat_index(
    e: NodeMaker,
    places: Sequence[Tensor],
    sizes: Sequence[Dim],
    image: Tensor | None = None,
) -> Tensor:
    """Where pixels at whole positions, those outside moved to the border, lie in an image, or in a row of images."""
    index = image
    for place, size in zip(places, sizes, strict=True):
        whole = e.cast(_clamped(e, place, size), dtypes.i64)
        if index is not None:
            whole = e.op("add", e.op("mul", index, e.dim(size)), whole)
        index = whole
    return _need(index)


def _fetch(
    e: NodeMaker, flat: Tensor, places: Sequence[Tensor], sizes: Sequence[Dim]
) -> tuple[Tensor, Tensor]:
    """Elements of `[N, C, space]` at whole positions `[N, points]`, and which lie inside."""
    index = _flat_index(e, places, sizes)
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
    if grid.rank != x.rank or not call.maker.may_be(grid.shape[-1], rank):
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


# --- overlapping blocks


def _col2im(call: Call) -> Tensor:
    """Blocks added up where they overlap."""
    e, x = call.maker, call.tensor(0)
    image = call.sized(1, "the shape of the image")
    block = call.sized(2, "the shape of a block", low=1)
    rank = len(image)
    dilations = call.integers("dilations", (1,) * rank)
    strides = call.integers("strides", (1,) * rank)
    pads = call.integers("pads", (0,) * (2 * rank))
    if not all(isinstance(d, int) for d in (*image, *block)):
        if not len(block) == len(dilations) == len(strides) == len(pads) // 2 == rank:
            raise ModelError(f"blocks of rank {len(block)} of an image of rank {rank}")
        return _added_up(e, x, image, block, strides, pads, dilations)
    return e.op(
        "col2im",
        x,
        image=image,
        block=block,
        strides=strides,
        pads=pads,
        dilations=dilations,
    )


def _added_up(
    e: NodeMaker,
    x: Tensor,
    image: Sequence[Dim],
    block: Sequence[Dim],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
) -> Tensor:
    """Blocks of an image whose sizes are data: each element has a place in the image with its border."""
    rank = len(image)
    padded = [size + pads[i] + pads[rank + i] for i, size in enumerate(image)]
    counts = [
        symbolic.floordiv(room - dilation * (size - 1) - 1, stride) + 1
        for room, dilation, size, stride in zip(
            padded, dilations, block, strides, strict=True
        )
    ]
    # Sizes of their own: a block that is larger than the image is refused where they are read.
    counts = [
        size
        if isinstance(size, int)
        else control.read_sizes(e, e.dims((size,)), "blocks", low=1)[0]
        for size in counts
    ]
    each = element_count(block)
    channels = symbolic.floordiv(x.shape[1], each)
    control.agree(e, element_count(counts), x.shape[2], "blocks")
    control.agree(e, channels * each, x.shape[1], "elements")
    index = e.scalar(0, dtypes.i64)
    for axis in range(rank):
        inner = [block[axis] if i == axis else 1 for i in range(2 * rank)]
        outer = [counts[axis] if i == rank + axis else 1 for i in range(2 * rank)]
        within = e.op("mul", e.iota(inner, axis), e.dim(dilations[axis]))
        begin = e.op("mul", e.iota(outer, rank + axis), e.dim(strides[axis]))
        place = e.op("add", within, begin)
        index = e.op("add", e.op("mul", index, e.dim(padded[axis])), place)
    elements = element_count((*block, *counts))
    whole = (x.shape[0], channels, elements)
    index = e.broadcast_to(e.reshape(index, (1, 1, elements)), whole)
    room = e.full(0, x.dtype, (*whole[:2], element_count(padded)))
    parts = e.as_type(x, TensorType(x.dtype, whole))
    summed = e.op("scatter_elements", room, index, parts, axis=2, reduction="add")
    result = e.reshape(summed, (*whole[:2], *padded))
    for axis, size in enumerate(image):
        result = e.slice(result, 2 + axis, pads[axis], size)
    return result


# --- maxima of regions


def _max_roi_pool(call: Call) -> Tensor:
    """The largest element of each part of a region, along an axis, then along the other; one with no element is 0.

    Pixels are read whole: their channels lie side by side.
    """
    e, x, regions = call.maker, call.tensor(0), call.tensor(1)
    shape = call.integers("pooled_shape")
    scale = _number(e, call.float("spatial_scale", 1.0), regions)
    edges = e.op("mul", regions, scale)
    if len(shape) != 2:
        raise ModelError(f"attribute 'pooled_shape' has {len(shape)} sizes, expected 2")
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
    found = e.op("where", e.unsqueeze(empty, (3,)), _number(e, 0, x), found)
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
    longest = e.op("max", longest, _number(e, 1, longest))
    (steps,) = control.read_sizes(e, e.cast(e.reshape(longest, (1,)), dtypes.i64), "part")
    start, end = (e.unsqueeze(e.cast(t, dtypes.i64), (2,)) for t in (start, end))
    places = e.op("add", start, e.iota((steps,), 0))
    places = e.op("min", places, e.op("sub", end, e.scalar(1, dtypes.i64)))
    return control.inside(e, places, size), empty


def _parts_of(
    e: NodeMaker, first: Tensor, last: Tensor, count: int, size: Dim
) -> tuple[Tensor, Tensor]:
    """Where `count` parts of regions `[N, 1]` begin and end on an axis: `[N, count]`, whole numbers."""
    one, zero = _number(e, 1, first), _number(e, 0, first)
    length = e.op("max", e.op("add", e.op("sub", last, first), one), one)
    each = e.op("div", length, _number(e, count, first))
    index = e.cast(e.iota((count,), 0), first.dtype)
    start = e.op("floor", e.op("mul", index, each))
    end = e.op("ceil", e.op("mul", e.op("add", index, one), each))
    limit = e.cast(e.dim(size), first.dtype)

    def inside(place: Tensor) -> Tensor:
        return e.op("min", e.op("max", e.op("add", place, first), zero), limit)

    return inside(start), inside(end)


# --- crops


def _crop_and_resize(call: Call) -> Tensor:
    """Regions of images, each resized to one size; what lies outside of its image has a value of its own."""
    e, x, regions = call.maker, call.tensor(0), call.tensor(1)
    mode = call.choice("mode", "bilinear", ("bilinear", "nearest"))
    sizes = call.sized(3, "the size of a crop")
    if x.rank != 4 or len(sizes) != 2:
        raise ModelError(f"crops of rank {len(sizes)} of {x.type}")
    batch, depth, *image = x.shape
    lines = [
        _crop_places(e, regions, axis, count, size)
        for axis, (count, size) in enumerate(zip(sizes, image, strict=True))
    ]
    places = [e.unsqueeze(line, (2 - axis,)) for axis, line in enumerate(lines)]
    pixels = e.reshape(
        e.transpose(x, (0, 2, 3, 1)), (element_count((batch, *image)), depth)
    )
    first = e.unsqueeze(e.cast(call.tensor(2), dtypes.i64), (1, 2))
    total: Tensor | None = None
    nearest = mode == "nearest"
    kinds = [
        [(away_from_zero(e, p), None)] if nearest else _taps(e, p, "linear") for p in places
    ]
    for taps in itertools.product(*kinds):
        index = _flat_index(e, [place for place, _ in taps], image, first)
        value = e.op("gather", pixels, index, axis=0)
        for _, weight in taps:
            if weight is not None:
                value = e.op("mul", value, e.unsqueeze(weight, (3,)))
        total = value if total is None else e.op("add", total, value)
    inside = e.unsqueeze(_inside(e, places, image), (3,))
    outside = _number(e, call.float("extrapolation_value", 0.0), x)
    return e.transpose(e.op("where", inside, _need(total), outside), (0, 3, 1, 2))


def _crop_places(e: NodeMaker, regions: Tensor, axis: int, count: Dim, size: Dim) -> Tensor:
    """Positions in an image, `[N, count]`: from the start of a region to its end, or its middle if there is one."""
    start, end = (e.slice(regions, 1, side, 1) for side in (axis, axis + 2))
    last = _limit(e, size, regions, -1)
    one = _number(e, 1, regions)
    gaps = e.op("sub", e.cast(e.dim(count), regions.dtype), one)
    step = e.op("div", e.op("mul", e.op("sub", end, start), last), e.op("max", gaps, one))
    index = e.cast(e.iota((1, count), 1), regions.dtype)
    spread = e.op("add", e.op("mul", start, last), e.op("mul", index, step))
    both = e.op("mul", e.op("add", start, end), _number(e, 0.5, regions))
    is_one = e.op("less", gaps, one)
    return e.op("where", is_one, e.op("mul", both, last), spread)


# --- grids


def _affine_grid(call: Call) -> Tensor:
    """Positions spread evenly over an image, moved by a matrix per image: `[N, H, W, 2]` or `[N, D, H, W, 3]`."""
    e, theta = call.maker, call.tensor(0)
    sizes = call.sized(1, "the size")[2:]
    rank = len(sizes)
    if rank not in (2, 3) or theta.rank != 3 or theta.shape[1:] != (rank, rank + 1):
        raise ModelError(f"matrices of type {theta.type} for an image of rank {rank}")
    corners = call.flag("align_corners")
    wide = theta.dtype if theta.dtype == dtypes.f64 else dtypes.f32
    matrix = e.cast(theta, wide)
    line = (theta.shape[0], *(1 for _ in sizes), rank)

    def column(index: int) -> Tensor:
        return e.reshape(e.slice(matrix, 2, index, 1), line)

    total = column(rank)
    for axis, size in enumerate(sizes):
        place = e.cast(_spread(e, size, corners=corners), wide)
        place = e.unsqueeze(place, (0, *(1 + i for i in range(rank + 1) if i != axis)))
        product = e.op("mul", column(rank - 1 - axis), place)
        total = e.op("add", total, product)
    return e.cast(total, theta.dtype)


def _spread(e: NodeMaker, size: Dim, *, corners: bool) -> Tensor:
    """Positions from -1 to 1, f64: the centres of pixels, or as far as their outer edges with `corners`."""
    at = e.cast(e.iota((size,), 0), dtypes.f64)
    count = e.cast(e.dim(size), dtypes.f64)
    one, two = e.scalar(1, dtypes.f64), e.scalar(2, dtypes.f64)
    double = e.op("mul", at, two)
    if not corners:
        return e.op("sub", e.op("div", e.op("add", double, one), count), one)
    gaps = e.op("max", e.op("sub", count, one), one)
    spread = e.op("sub", e.op("div", double, gaps), one)
    # One pixel is both corners; onnxruntime takes the last.
    return e.op("where", e.op("equal", count, one), one, spread)


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
    index = _flat_index(e, places, sizes, e.iota((batch, 1, 1, 1), 0))
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
        raise UnsupportedError(
            "weights with a dynamic kernel size are not supported", hint=FIXED_SIZE
        )
    e.check(
        "deform_conv", x, w, offsets, bias, mask, groups=groups, offset_groups=banks,
        strides=call.integers("strides", ()), pads=call.integers("pads", ()),
        dilations=call.integers("dilations", ()),
    )  # fmt: skip
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
    row("AffineGrid", _affine_grid),
    row("Col2Im", _col2im),
    row("DeformConv", _deform_conv),
    row("GridSample", _grid_sample),
    row("MaxRoiPool", _max_roi_pool),
    row("CropAndResize", _crop_and_resize, domain=MICROSOFT),
    row("GridSample", _grid_sample, domain=MICROSOFT),
)
