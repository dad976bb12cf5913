"""Ops of detection models: pooled samples, overlapping boxes, folded blocks, moved taps."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Final, cast

import numpy as np

from tilewright.base import dtypes, symbolic
from tilewright.base.dtypes import FLOATS, NUMERIC, i64
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.schema import Attributes, TensorType
from tilewright.compiler.kernel import numerics
from tilewright.compiler.kernel.builder import KernelBuilder, compute_dtype
from tilewright.compiler.kernel.ir import Expression
from tilewright.compiler.ops.bodies import (
    Operands,
    Results,
    copy_nest,
    given,
    picking_nest,
    wrapped_index,
)
from tilewright.compiler.ops.declaration import (
    IndexRange,
    OpDecl,
    Types,
    attr,
    declare,
    operand,
    optional,
)
from tilewright.compiler.ops.shapes import (
    check_groups,
    check_positive,
    check_same,
    check_same_shape,
    element_count,
    first,
    ints_or,
    need,
    window_count,
    window_steps,
)

Ints = tuple[int, ...]


def _bilinear(plane: np.ndarray, y: np.ndarray, x: np.ndarray) -> list[np.ndarray]:
    """The four weighted neighbours of points in [C, H, W] planes; 0 far outside."""
    height, width = plane.shape[-2:]
    inside = (y >= -1) & (y <= height) & (x >= -1) & (x <= width)
    y, x = np.clip(y, 0, height - 1), np.clip(x, 0, width - 1)
    with np.errstate(invalid="ignore"):
        top, left = np.floor(y).astype(np.int64), np.floor(x).astype(np.int64)
    # Places that are no numbers count as outside and read the first pixel.
    top, left = np.clip(top, 0, height - 1), np.clip(left, 0, width - 1)
    bottom, right = np.minimum(top + 1, height - 1), np.minimum(left + 1, width - 1)
    down, along = y - top, x - left
    corners = (
        (top, left, (1 - down) * (1 - along)),
        (top, right, (1 - down) * along),
        (bottom, left, down * (1 - along)),
        (bottom, right, down * along),
    )
    return [plane[:, r, c] * np.where(inside, w, 0) for r, c, w in corners]


# --- pooled samples --------------------------------------------------------------------------


def _samples_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    x, images, ys, xs = (need(types, i) for i in range(4))
    del attributes
    if x.rank != 4 or images.rank != 1 or ys.rank != 3 or xs.rank != 3:
        raise ModelError(f"pool_samples of {x} at rows {ys} and columns {xs}")
    for places in (ys, xs):
        check_same(f"regions of {places}", places.shape[0], images.shape[0])
        if places.shape[2] == 0:
            raise ModelError(f"pool_samples of no samples at {places}")
    shape = (images.shape[0], ys.shape[1], xs.shape[1], x.shape[-1])
    return (x.with_shape(shape),)


def _samples_oracle(
    x: np.ndarray, images: np.ndarray, ys: np.ndarray, xs: np.ndarray, *, mode: str
) -> np.ndarray:  # fmt: skip
    planes = np.moveaxis(x.astype(np.float64), -1, 1)
    result = np.zeros((images.size, ys.shape[1], xs.shape[1], x.shape[-1]))
    for number, row, column in np.ndindex(*result.shape[:3]):
        picked = (
            places[number, at].astype(np.float64)
            for places, at in ((ys, row), (xs, column))
        )
        y, z = (grid.ravel() for grid in np.meshgrid(*picked, indexing="ij"))
        parts = _bilinear(planes[images[number]], y, z)
        best = mode == "max"
        result[number, row, column] = (
            np.max(np.stack(parts), (0, 2)) if best else np.add.reduce(parts).mean(-1)
        )
    return numerics.cast(result, dtypes.from_numpy(x.dtype))


def _taps(
    b: KernelBuilder, place: Expression, size: Dim
) -> tuple[list[tuple[Dim, Expression]], Expression]:
    """The two pixels around `place` with their weights, and whether it is near the image."""
    dtype = place.dtype
    last = b.index(size - 1)
    inside = b.and_(b.ge(place, -1), b.le(place, b.cast(b.index(size), dtype)))
    clipped = b.min(b.max(place, 0), b.cast(last, dtype))
    low = b.floor(clipped)
    part = b.sub(clipped, low)
    # Places that are no numbers read the border, where nothing foreign is.
    near = b.max(b.min(b.cast(low, i64), last), 0)
    far = b.min(b.add(near, 1), last)
    pairs = ((near, b.sub(1, part)), (far, part))
    return [(b.as_index(index), weight) for index, weight in pairs], inside


def _samples_body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    """All channels of a sample take the same places and weights: they are the lanes."""
    x, images, ys, xs = (given(operands, i) for i in range(4))
    (result,) = results
    op = "max" if attributes["mode"] == "max" else "add"
    samples = (ys.shape[2], xs.shape[2])
    total = b.temporary(compute_dtype(x.dtype), result.shape, "total")
    with picking_nest(b, result.shape, x.shape[:3], ("r", "h", "w", "c")) as place:
        region, row, column, channel = place
        image = wrapped_index(b, b.load(images, (region,)), x.shape[0])
        b.store(total, place, numerics.identity(op, total.dtype))
        with b.reduce(samples, ("y", "x")) as (y, z):
            rows, in_rows = _taps(b, b.read(ys, (region, row, y)), x.shape[1])
            columns, in_columns = _taps(b, b.read(xs, (region, column, z)), x.shape[2])
            inside = b.and_(in_rows, in_columns)
            parts: list[Expression] = []
            for (i, above), (j, beside) in itertools.product(rows, columns):
                weight = b.select(inside, b.mul(above, beside), 0)
                parts.append(b.mul(b.read(x, (image, i, j, channel)), weight))
            joined = parts[0]
            for part in parts[1:]:
                joined = b.binary(op, joined, part)
            b.accumulate(op, total, place, joined)
        value = b.load(total, place)
        count = b.cast(b.index(samples[0] * samples[1]), value.dtype)
        b.write(result, place, value if op == "max" else b.div(value, count))


def _images(types: Types, _: Attributes) -> tuple[IndexRange, ...]:
    size = need(types, 0).shape[0]
    return (IndexRange(1, 0, size, 0, size - 1),)


pool_samples: Final = declare(
    name="pool_samples",
    summary="Bilinear samples of x[image] at rows[r, h, :] times columns[r, w, :], pooled",
    operands=(
        operand("x", FLOATS), operand("images", (i64,)), operand("rows", FLOATS, like="x"),
        operand("columns", FLOATS, like="x"),
    ),
    attributes=(attr("mode", "string", "avg"),),
    infer=_samples_infer,
    evaluate=_samples_oracle,
    body=_samples_body,
    indices=_images,
    cases=(
        "[2,6,5,35] [3]:=0,1,1 [3,2,2]:=-1.5,-0.5,0,2.25,3,4.5,5,5.75,6,7 [3,3,2]",
        "[2,6,5,35] [3]:=0,1,1 [3,2,2]:=-1.5,-0.5,0,2.25,3,4.5,5,5.75 [3,3,2]; mode=max",
        "f32[1,5,6,3] [2]:=0 [2,1,1]:=1.5,9 [2,3,1]",
        "f32[1,5,6,3] [2]:=0 [2,2,3]:=1.5,9 [2,3,1]",
        "f32[1,1,1,1] [1]:=0 [1,1,3]:=0.5 [1,1,3]:=-0.5",
        "f32[1,5,6,3] [0] [0,1,2] [0,2,2]",
    ),
    source="ONNX RoiAlign, opset 22; the positions are computed outside",
)  # fmt: skip

# --- col2im ----------------------------------------------------------------------------------


def _fold_window(attributes: Attributes) -> tuple[Ints, Ints, Ints, Ints]:
    block = cast("Ints", attributes["block"])
    rank = len(block)
    return block, *window_steps(attributes, rank)


def _fold_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    x, image = first(types), cast("tuple[Dim, ...]", attributes["image"])
    block, strides, pads, dilations = _fold_window(attributes)
    if x.rank != 3 or not len(image) == len(block) == len(strides) == len(dilations):
        raise ModelError(f"col2im of {x} to image {list(image)} with block {block}")
    if len(pads) != 2 * len(block):
        raise ModelError(f"{len(pads)} pads for {len(block)} spatial dimensions")
    for subject, values in (
        ("blocks", block),
        ("strides", strides),
        ("dilations", dilations),
    ):
        check_positive(f"{subject} are", values)
    counts = [
        window_count(
            image[i], block[i], strides[i], dilations[i], ceil_mode=False,
            pads=(pads[i], pads[len(block) + i]),
        )
        for i in range(len(block))
    ]  # fmt: skip
    check_same(f"columns of {x}", x.shape[2], element_count(counts))
    check_groups("elements of blocks", x.shape[1], math.prod(block))
    channels = x.shape[1] // math.prod(block)
    return (x.with_shape((x.shape[0], channels, *image)),)


def _fold_oracle(x: np.ndarray, *, image: Ints, **attributes: Any) -> np.ndarray:
    block, strides, pads, dilations = _fold_window(attributes)
    rank = len(block)
    channels = x.shape[1] // math.prod(block)
    padded = [image[i] + pads[i] + pads[rank + i] for i in range(rank)]
    counts = [
        (padded[i] - (block[i] - 1) * dilations[i] - 1) // strides[i] + 1
        for i in range(rank)
    ]
    columns = x.astype(np.float64).reshape(x.shape[0], channels, *block, *counts)
    total = np.zeros((x.shape[0], channels, *padded))
    for tap in itertools.product(*(range(n) for n in block)):
        cut = tuple(
            slice(t * d, t * d + (n - 1) * s + 1, s)
            for t, d, n, s in zip(tap, dilations, counts, strides, strict=True)
        )
        total[(slice(None), slice(None), *cut)] += columns[(slice(None), slice(None), *tap)]
    inner = tuple(slice(pads[i], pads[i] + image[i]) for i in range(rank))
    return numerics.cast(
        np.ascontiguousarray(total[(slice(None), slice(None), *inner)]),
        dtypes.from_numpy(x.dtype),
    )


def _fold_body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    """Every element of the image sums the columns of the blocks that cover it."""
    x, (result,) = given(operands, 0), results
    block, strides, pads, dilations = _fold_window(attributes)
    rank = len(block)
    counts = [
        window_count(
            result.shape[2 + i], block[i], strides[i], dilations[i], ceil_mode=False,
            pads=(pads[i], pads[rank + i]),
        )
        for i in range(rank)
    ]  # fmt: skip
    total = b.temporary(compute_dtype(x.dtype), result.shape, "total")
    with b.nest(result.shape) as place:
        b.store(total, place, 0)
        with b.reduce(block, tuple(f"k{i}" for i in range(rank))) as taps:
            row, column, inside = place[1], cast("Dim", 0), b.const(True, dtypes.bool_)
            for i in range(rank):
                reach = place[2 + i] + pads[i] - taps[i] * dilations[i]
                start = symbolic.floordiv(reach, strides[i])
                row, column = row * block[i] + taps[i], column * counts[i] + start
                inside = b.and_(inside, b.within(start, 0, counts[i]))
                rest = b.index(symbolic.mod(reach, strides[i]))
                inside = b.and_(inside, b.eq(rest, 0))
            value = b.read(x, (place[0], row, column), inside)
            b.accumulate("add", total, place, value)
    copy_nest(b, total, result)


col2im: Final = declare(
    name="col2im",
    summary="Columns of blocks added into images: the adjoint of taking the blocks",
    operands=(operand("x", NUMERIC),),
    attributes=(
        attr("image", "dims"), attr("block", "ints"), attr("strides", "ints", ()),
        attr("pads", "ints", ()), attr("dilations", "ints", ()),
    ),
    infer=_fold_infer,
    evaluate=_fold_oracle,
    body=_fold_body,
    cases=(
        "f32[1,4,9]; image=(4,4) block=(2,2)",
        "[1,6,4]; image=(5,) block=(2,)",
        "f32[2,18,20]; image=(7,9) block=(3,3) strides=(2,2) pads=(1,1,1,1)",
        "f32[1,12,20]; image=(5,6) block=(2,3) dilations=(2,1) pads=(1,0,0,1)",
    ),
    source="ONNX Col2Im, opset 18",
)  # fmt: skip

# --- deformable convolution ------------------------------------------------------------------


def _deform_sizes(x: TensorType, w: TensorType, attributes: Attributes) -> tuple[Dim, ...]:
    given = (cast("Ints", attributes[n]) for n in ("strides", "dilations", "pads"))
    strides, dilations, pads = map(ints_or, given, ((1, 1), (1, 1), (0, 0, 0, 0)))
    return tuple(
        window_count(
            x.shape[2 + i], w.shape[2 + i], strides[i], dilations[i], ceil_mode=False,
            pads=(pads[i], pads[2 + i]),
        )
        for i in range(2)
    )  # fmt: skip


def _deform_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    x, w, offset = need(types, 0), need(types, 1), need(types, 2)
    if x.rank != 4 or w.rank != 4 or offset.rank != 4:
        raise ModelError(f"deform_conv of {x} with weights {w} and offsets {offset}")
    groups, moved = (cast("int", attributes[n]) for n in ("groups", "offset_groups"))
    check_groups("filters", w.shape[0], groups)
    check_groups("input channels", x.shape[1], moved)
    check_same(f"input channels of {x} and weights {w}", x.shape[1], w.shape[1] * groups)
    taps = element_count(w.shape[2:])
    images, places = x.shape[0], offset.shape[2:]
    wanted = (images, 2 * moved * taps, *_deform_sizes(x, w, attributes))
    check_same_shape("offsets of deform_conv", offset, offset.with_shape(wanted))
    bias, mask = types[3], types[4]
    if bias is not None:
        check_same_shape("bias of deform_conv", bias, bias.with_shape((w.shape[0],)))
    if mask is not None:
        wanted = (images, moved * taps, *places)
        check_same_shape("mask of deform_conv", mask, mask.with_shape(wanted))
    return (x.with_shape((x.shape[0], w.shape[0], offset.shape[2], offset.shape[3])),)


def _sampled(plane: np.ndarray, y: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Bilinear samples of [C, H, W] planes that fade to zero across the border."""
    framed = np.pad(plane, ((0, 0), (1, 1), (1, 1)))
    height, width = framed.shape[-2:]
    y, x = np.clip(y + 1, 0, height - 1), np.clip(x + 1, 0, width - 1)
    return np.add.reduce(_bilinear(framed, y, x))


def _deform_oracle(  # noqa: PLR0913 - the operands and attributes of the op
    x: np.ndarray, w: np.ndarray, offset: np.ndarray, bias: np.ndarray | None,
    mask: np.ndarray | None, *, groups: int, offset_groups: int, strides: Sequence[int],
    pads: Sequence[int], dilations: Sequence[int],
) -> np.ndarray:  # fmt: skip
    kernel, (rows, columns) = w.shape[2:], offset.shape[2:]
    taps = kernel[0] * kernel[1]
    step, pad = ints_or(tuple(strides), (1, 1)), ints_or(tuple(pads), (0, 0, 0, 0))
    spread = ints_or(tuple(dilations), (1, 1))
    images = x.shape[0]
    moved = offset.astype(np.float64).reshape(images, offset_groups, taps, 2, rows, columns)
    weight = np.ones((images, offset_groups, taps, rows, columns))
    if mask is not None:
        weight = mask.astype(np.float64).reshape(weight.shape)
    base_y = np.arange(rows)[:, None] * step[0] - pad[0]
    base_x = np.arange(columns)[None, :] * step[1] - pad[1]
    depth = x.shape[1] // offset_groups
    samples = np.zeros((images, x.shape[1], taps, rows, columns))
    for image, part, tap in np.ndindex(images, offset_groups, taps):
        row, column = divmod(tap, kernel[1])
        y = base_y + row * spread[0] + moved[image, part, tap, 0]
        at = base_x + column * spread[1] + moved[image, part, tap, 1]
        channels = slice(part * depth, (part + 1) * depth)
        planes = x[image, channels].astype(np.float64)
        samples[image, channels, tap] = _sampled(planes, y, at) * weight[image, part, tap]
    filters = w.astype(np.float64).reshape(groups, w.shape[0] // groups, -1)
    grouped = samples.reshape(images, groups, filters.shape[-1], rows * columns)
    value = np.matmul(filters, grouped).reshape(images, w.shape[0], rows, columns)
    if bias is not None:
        value = value + bias.astype(np.float64).reshape(-1, 1, 1)
    return numerics.cast(value, dtypes.from_numpy(x.dtype))


deform_conv: Final = declare(
    name="deform_conv",
    summary="Convolution whose taps are moved by learned offsets and weighted by a mask",
    operands=(
        operand("x", FLOATS), operand("w", FLOATS, like="x"), operand("offset", FLOATS, like="x"),
        optional("bias", FLOATS, like="x"), optional("mask", FLOATS, like="x"),
    ),
    attributes=(
        attr("groups", "int", 1), attr("offset_groups", "int", 1), attr("strides", "ints", ()),
        attr("pads", "ints", ()), attr("dilations", "ints", ()),
    ),
    infer=_deform_infer,
    evaluate=_deform_oracle,
    cases=(
        "f32[1,2,4,4] f32[3,2,2,2] f32[1,8,3,3]:unit f32[3]",
        "f32[0,2,4,4] f32[3,2,2,2] f32[0,8,3,3]",
    ),
    on_host="the oracle of what models are imported as: gathers of the taps and a product",
    source="ONNX DeformConv, opset 22",
)  # fmt: skip

OPS: Final[tuple[OpDecl, ...]] = (pool_samples, col2im, deform_conv)
