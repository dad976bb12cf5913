"""Rows that sample images at computed places: grids, crops, moved taps of convolutions, and Col2Im.

Every tap is one gather from the flattened image; weights and borders are ordinary arithmetic.

Source: ONNX operator reference (GridSample opset 16 to 22, DeformConv, Col2Im).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final

from tilewright.base import dtypes, symbolic
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit import control
from tilewright.compiler.frontends.kit.deformable import MovedTaps, deformable_convolution
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.rounding import away_from_zero
from tilewright.compiler.frontends.kit.sampled_places import (
    clamped,
    existing,
    flat_index,
    lie_inside,
    neighbours,
    number_like,
    size_like,
)
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.call import FIXED_SIZE, Call
from tilewright.compiler.frontends.onnx.row import MICROSOFT, Row, row
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.ops.shapes import element_count


def _unnormalized(e: NodeMaker, place: Tensor, size: Dim, *, align: bool) -> Tensor:
    """A coordinate in -1 .. 1 as a position in the image."""
    shifted = e.op("add", place, number_like(e, 1, place))
    half = number_like(e, 0.5, place)
    if align:
        return e.op("mul", e.op("mul", shifted, half), size_like(e, size, place, -1))
    scaled = e.op("mul", shifted, size_like(e, size, place))
    return e.op("mul", e.op("sub", scaled, number_like(e, 1, place)), half)


def _reflected(e: NodeMaker, place: Tensor, size: Dim, *, align: bool) -> Tensor:
    """A position folded back at both borders."""
    low = 0.0 if align else -0.5
    span = size_like(e, size, place, -1 if align else 0)
    span = e.op("max", span, number_like(e, 1e-30, place))
    offset = e.op("sub", place, number_like(e, low, place))
    double = e.op("mul", span, number_like(e, 2, place))
    turned = e.op("mod", e.op("abs", offset), double)
    folded = e.op("min", turned, e.op("sub", double, turned))
    return e.op("add", folded, number_like(e, low, place))


def _fetch(
    e: NodeMaker, flat: Tensor, places: Sequence[Tensor], sizes: Sequence[Dim]
) -> tuple[Tensor, Tensor]:
    """Elements of `[N, C, space]` at whole positions `[N, points]`, and which lie inside."""
    index = flat_index(e, places, sizes)
    spread = e.broadcast_to(
        e.unsqueeze(index, (1,)), (flat.shape[0], flat.shape[1], index.shape[1])
    )
    inside = e.unsqueeze(lie_inside(e, places, sizes), (1,))
    return e.op("gather_elements", flat, spread, axis=2), inside


def _bordered(
    e: NodeMaker, place: Tensor, size: Dim, padding: str, *, align: bool
) -> Tensor:
    if padding == "reflection":
        place = _reflected(e, place, size, align=align)
    return place if padding == "zeros" else clamped(e, place, size)


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
        columns.append(neighbours(e, place, mode))
    total: Tensor | None = None
    for taps in itertools.product(*columns):
        places = [p for p, _ in taps]
        if mode == "cubic":
            places = [
                _bordered(e, p, s, padding, align=align)
                for p, s in zip(places, sizes, strict=True)
            ]
        value, inside = _fetch(e, flat, places, sizes)
        value = e.op("where", inside, value, number_like(e, 0, x))
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
        [(away_from_zero(e, p), None)] if nearest else neighbours(e, p, "linear")
        for p in places
    ]
    for taps in itertools.product(*kinds):
        index = flat_index(e, [place for place, _ in taps], image, first)
        value = e.op("gather", pixels, index, axis=0)
        for _, weight in taps:
            if weight is not None:
                value = e.op("mul", value, e.unsqueeze(weight, (3,)))
        total = value if total is None else e.op("add", total, value)
    inside = e.unsqueeze(lie_inside(e, places, image), (3,))
    outside = number_like(e, call.float("extrapolation_value", 0.0), x)
    return e.transpose(e.op("where", inside, existing(total), outside), (0, 3, 1, 2))


def _crop_places(e: NodeMaker, regions: Tensor, axis: int, count: Dim, size: Dim) -> Tensor:
    """Positions in an image, `[N, count]`: from the start of a region to its end, or its middle if there is one."""
    start, end = (e.slice(regions, 1, side, 1) for side in (axis, axis + 2))
    last = size_like(e, size, regions, -1)
    one = number_like(e, 1, regions)
    gaps = e.op("sub", e.cast(e.dim(count), regions.dtype), one)
    step = e.op("div", e.op("mul", e.op("sub", end, start), last), e.op("max", gaps, one))
    index = e.cast(e.iota((1, count), 1), regions.dtype)
    spread = e.op("add", e.op("mul", start, last), e.op("mul", index, step))
    both = e.op("mul", e.op("add", start, end), number_like(e, 0.5, regions))
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


def _deform_conv(call: Call) -> Tensor:
    x, w, offsets = call.tensor(0), call.tensor(1), call.tensor(2)
    call.integers("kernel_shape", ())
    if not all(isinstance(size, int) for size in w.shape[2:]):
        raise UnsupportedError(
            "weights with a dynamic kernel size are not supported", hint=FIXED_SIZE
        )
    form = MovedTaps(
        groups=call.integer("group", 1),
        banks=call.integer("offset_group", 1),
        strides=call.integers("strides", ()),
        dilations=call.integers("dilations", ()),
        pads=call.integers("pads", ()),
    )
    bias, mask = call.optional(3), call.optional(4)
    return deformable_convolution(call.maker, x, w, offsets, bias, mask, form)


ROWS: Final[tuple[Row, ...]] = (
    row("AffineGrid", _affine_grid),
    row("Col2Im", _col2im),
    row("DeformConv", _deform_conv),
    row("GridSample", _grid_sample),
    row("CropAndResize", _crop_and_resize, domain=MICROSOFT),
    row("GridSample", _grid_sample, domain=MICROSOFT),
)
