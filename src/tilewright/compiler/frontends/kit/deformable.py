"""Convolution whose taps are moved by offsets that are data, and weighted by a mask.

Every tap is sampled where its offset says; then a product with the weights.  Pixels are read whole: their
channels lie side by side, and take the same places and weights.

Called by front ends that have the operator.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import final

import numpy as np

from tilewright.base import symbolic
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.sampled_places import (
    existing,
    flat_index,
    lie_inside,
    neighbours,
    number_like,
)
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.ops.shapes import element_count


@final
@record
class MovedTaps:
    """How the windows of a deformable convolution lie; what is empty is one step, or no border.

    Attributes:
        groups: of filters and channels.
        banks: groups of channels with offsets of their own.
        strides: of windows.
        dilations: of the taps of a window.
        pads: in front of rows and columns, and behind them.
    """

    groups: int
    banks: int
    strides: Sequence[int]
    dilations: Sequence[int]
    pads: Sequence[int]


def deformable_convolution(
    e: NodeMaker,
    x: Tensor,
    w: Tensor,
    offsets: Tensor,
    bias: Tensor | None,
    mask: Tensor | None,
    form: MovedTaps,
) -> Tensor:
    """`[N, C, H, W]` and `[F, C / groups, height, width]` with sizes that are known: `[N, F, rows, columns]`.

    Offsets are `[N, banks * taps * 2, rows, columns]`, masks `[N, banks * taps, rows, columns]`.

    Raises: UnsupportedError for other ranks than those of images, ModelError for what does not fit.
    """
    if x.rank != 4 or offsets.rank != 4:
        raise UnsupportedError(f"deformable convolution of {x.type} is not supported")
    e.check(
        "deform_conv", x, w, offsets, bias, mask, groups=form.groups, offset_groups=form.banks,
        strides=tuple(form.strides), pads=tuple(form.pads), dilations=tuple(form.dilations),
    )  # fmt: skip
    taps = [size for size in w.shape[2:] if isinstance(size, int)]
    sizes, points = offsets.shape[2:], element_count(offsets.shape[2:])
    batch, channels = x.shape[:2]
    count, depth = taps[0] * taps[1], symbolic.floordiv(channels, form.banks)
    rows = element_count((batch, *x.shape[2:], form.banks))
    pixels = e.reshape(e.transpose(x, (0, 2, 3, 1)), (rows, depth))
    offsets = e.reshape(offsets, (batch, form.banks, count, 2, *sizes))
    places = [_places(e, offsets, axis, taps, form) for axis in (0, 1)]
    if mask is not None:
        mask = e.reshape(mask, (batch, form.banks, count, points))
        mask = e.transpose(mask, (0, 3, 1, 2))
    gathered = _bilinear(e, pixels, places, mask, x.shape[2:])
    result = _product(e, gathered, w, form.groups)
    result = e.reshape(result, (batch, w.shape[0], *sizes))
    if bias is None:
        return result
    return e.op("add", result, e.reshape(bias, (*bias.shape, 1, 1)))


def _places(
    e: NodeMaker, offsets: Tensor, axis: int, taps: Sequence[int], form: MovedTaps
) -> Tensor:
    """Where the taps read along an axis: `[N, banks, taps, 2, rows, columns]` to `[N, points, banks, taps]`."""
    stride = (form.strides or (1, 1))[axis]
    dilation = (form.dilations or (1, 1))[axis]
    pad = (form.pads or (0, 0, 0, 0))[axis]
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
    index = flat_index(e, places, sizes, e.iota((batch, 1, 1, 1), 0))
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
    for taps in itertools.product(*(neighbours(e, p, "linear") for p in places)):
        whole = [p for p, _ in taps]
        value = e.op("gather", pixels, _pixels(e, whole, sizes), axis=0)
        inside = e.unsqueeze(lie_inside(e, whole, sizes), (4,))
        value = e.op("where", inside, value, number_like(e, 0, pixels))
        weight = mask
        for _, factor in taps:
            weight = factor if weight is None else e.op("mul", weight, existing(factor))
        value = e.op("mul", value, e.unsqueeze(existing(weight), (4,)))
        total = value if total is None else e.op("add", total, value)
    return existing(total)


def _product(e: NodeMaker, gathered: Tensor, w: Tensor, groups: int) -> Tensor:
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
