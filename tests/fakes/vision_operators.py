"""The operators of torchvision: its own where it is installed, else others of the same names, written as loops over its definitions.

What it is: what a program that uses torchvision calls, and what eager mode gives for it.
What it is not: torchvision's functions around them.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator
from typing import Any

import torch

Tensor = torch.Tensor
_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, int sampling_ratio, bool aligned) -> Tensor",
    "roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width) -> (Tensor, Tensor)",
    (
        "deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, SymInt stride_w, "
        "SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, SymInt offset_groups, bool use_mask) -> Tensor"
    ),
)
_KEPT: list[Any] = []
"""A library of torch is gone when nothing refers to it."""


def operators() -> Any:
    """What has the operators as attributes: `torch.ops.torchvision`."""
    if importlib.util.find_spec("torchvision"):
        importlib.import_module("torchvision")
    elif not _KEPT:
        library = torch.library.Library("torchvision", "DEF")
        for schema in _SCHEMAS:
            library.define(schema)
            name = schema.partition("(")[0]
            library.impl(name, globals()[name], "CPU")
            torch.library.register_fake(f"torchvision::{name}", globals()[f"{name}_type"])
        _KEPT.append(library)
    return torch.ops.torchvision


def nms(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    kept: list[int] = []
    for i in scores.argsort(descending=True, stable=True).tolist():
        if all(not _overlap(dets[i], dets[j]) > iou_threshold for j in kept):
            kept.append(i)
    return torch.tensor(kept, dtype=torch.int64)


def _overlap(one: Tensor, other: Tensor) -> float:
    shared = (torch.minimum(one, other)[2:] - torch.maximum(one, other)[:2]).clamp(min=0)
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
    return (shared.prod() / (areas[0] + areas[1] - shared.prod())).item()


def nms_type(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    # As torchvision has it, deprecated in torch: a size of two at least.
    size = torch.library.get_ctx().create_unbacked_symint()
    return dets.new_empty(size, dtype=torch.int64)


def _sample(plane: Tensor, y: float, x: float, margin: float) -> Tensor:
    """`[C, H, W]` at a place between pixels; those outside are nothing, or as the border within the margin."""
    height, width = plane.shape[-2:]
    if not (-1 <= y <= height and -1 <= x <= width):
        return plane.new_zeros(plane.shape[0])
    if margin:
        y, x = min(max(y, 0.0), height - 1.0), min(max(x, 0.0), width - 1.0)
    total = plane.new_zeros(plane.shape[0])
    for row in (math.floor(y), math.floor(y) + 1):
        for column in (math.floor(x), math.floor(x) + 1):
            if 0 <= row < height and 0 <= column < width:
                share = (1 - abs(y - row)) * (1 - abs(x - column))
                total = total + share * plane[:, row, column]
    return total


def roi_align(
    x: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int,
    sampling_ratio: int, aligned: bool,
) -> Tensor:  # fmt: skip
    found = x.new_zeros(len(rois), x.shape[1], pooled_height, pooled_width)
    for k, (image, *corners) in enumerate(rois.tolist()):
        left, top, right, bottom = (c * spatial_scale - 0.5 * aligned for c in corners)
        sizes = (bottom - top, right - left)
        each = [
            (size if aligned else max(size, 1.0)) / count
            for size, count in zip(sizes, (pooled_height, pooled_width), strict=True)
        ]
        counts = [
            sampling_ratio if sampling_ratio > 0 else math.ceil(size) for size in each
        ]
        for row, column in _places(pooled_height, pooled_width):
            total = x.new_zeros(x.shape[1])
            for i, j in _places(*counts):
                y = top + (row + (i + 0.5) / counts[0]) * each[0]
                across = left + (column + (j + 0.5) / counts[1]) * each[1]
                total = total + _sample(x[int(image)], y, across, margin=1)
            found[k, :, row, column] = total / max(counts[0] * counts[1], 1)
    return found


def roi_align_type(
    x: Tensor, rois: Tensor, scale: float, height: int, width: int, *rest: Any
) -> Tensor:
    return x.new_empty(rois.shape[0], x.shape[1], height, width)


def roi_pool(
    x: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Tensor, Tensor]:
    shape = (len(rois), x.shape[1], pooled_height, pooled_width)
    found = x.new_zeros(shape)
    for k, (image, *corners) in enumerate(rois.tolist()):
        left, top, right, bottom = (math.floor(c * spatial_scale + 0.5) for c in corners)
        for row, column in _places(pooled_height, pooled_width):
            rows = _part(top, bottom, row, pooled_height, x.shape[2])
            columns = _part(left, right, column, pooled_width, x.shape[3])
            part = x[int(image), :, rows, columns].flatten(1)
            if part.shape[1]:
                found[k, :, row, column] = part.amax(1)
    return found, torch.full(shape, -1, dtype=torch.int32)


def _part(first: int, last: int, place: int, count: int, size: int) -> slice:
    each = max(last - first + 1, 1) / count
    start, end = math.floor(place * each) + first, math.ceil((place + 1) * each) + first
    return slice(min(max(start, 0), size), min(max(end, 0), size))


def roi_pool_type(
    x: Tensor, rois: Tensor, scale: float, height: int, width: int
) -> tuple[Tensor, Tensor]:
    shape = (rois.shape[0], x.shape[1], height, width)
    return x.new_empty(shape), x.new_empty(shape, dtype=torch.int32)


def deform_conv2d(
    x: Tensor, weight: Tensor, offset: Tensor, mask: Tensor, bias: Tensor, stride_h: int, stride_w: int, pad_h: int,
    pad_w: int, dilation_h: int, dilation_w: int, groups: int, offset_groups: int, use_mask: bool,
) -> Tensor:  # fmt: skip
    images, _, rows, columns = offset.shape
    height, width = weight.shape[2:]
    taps = height * width
    sampled = x.new_zeros(images, x.shape[1], taps, rows, columns)
    depth = x.shape[1] // offset_groups
    for image, bank in _places(images, offset_groups):
        channels = slice(bank * depth, (bank + 1) * depth)
        for tap in range(taps):
            number = bank * taps + tap
            for row, column in _places(rows, columns):
                moved = offset[image, 2 * number : 2 * number + 2, row, column].tolist()
                y = row * stride_h - pad_h + tap // width * dilation_h + moved[0]
                across = column * stride_w - pad_w + tap % width * dilation_w + moved[1]
                value = _sample(x[image, channels], y, across, margin=0)
                if use_mask:
                    value = value * mask[image, number, row, column]
                sampled[image, channels, tap, row, column] = value
    parts = sampled.reshape(images, groups, -1, rows * columns)
    filters = weight.reshape(groups, weight.shape[0] // groups, -1)
    found = (filters @ parts).reshape(images, weight.shape[0], rows, columns)
    return found + bias[:, None, None]


def deform_conv2d_type(x: Tensor, weight: Tensor, offset: Tensor, *rest: Any) -> Tensor:
    return x.new_empty(x.shape[0], weight.shape[0], *offset.shape[2:])


def _places(rows: int, columns: int) -> Iterator[tuple[int, int]]:
    return ((row, column) for row in range(rows) for column in range(columns))
