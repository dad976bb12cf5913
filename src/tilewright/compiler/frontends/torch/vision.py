"""Rows for the operators of torchvision: boxes that overlap no better one, regions of images, taps that are moved.

They are found by name, so torchvision is not imported here.

Source: `torchvision.ops` reference pages, `torchvision/csrc/ops/cpu` for what those leave open.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import numpy as np

import tilewright.compiler.frontends.torch.border as border
from tilewright.base import dtypes
from tilewright.compiler.frontends.kit import computed
from tilewright.compiler.frontends.kit.deformable import MovedTaps, deformable_convolution
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.regions_of_images import (
    Pictures,
    largest_of_regions,
    sampled_regions,
)
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.torch.call import Call
from tilewright.compiler.frontends.torch.counted import none_of_data
from tilewright.compiler.frontends.torch.row import Row, row
from tilewright.compiler.frontends.torch.substitutes import Substitute, Tracing


def _suppressed(call: Call) -> Tensor:
    """The places of boxes that overlap no better one, the best first."""
    e, boxes, scores = call.maker, call.tensor("dets"), call.tensor("scores")
    threshold = call.number("iou_threshold")
    if boxes.dtype != dtypes.f32:
        raise UnsupportedError(f"boxes of {boxes.dtype} are not supported")
    count = boxes.shape[0]
    if count == 0:
        return e.full(0, dtypes.i64, (none_of_data(call),))
    low, high = e.slice(boxes, 1, 0, 2), e.slice(boxes, 1, 2, 2)
    # A box that ends before it begins overlaps none; the op would turn it around.
    boxes = e.concat([low, e.op("max", low, high)], 1)
    picked = e.op(
        "non_max_suppression",
        e.unsqueeze(boxes, (0,)),
        e.reshape(scores, (1, 1, count)),
        e.dim(count),
        e.scalar(_not_above(threshold), dtypes.f32),
        None,
        room=(count,),
        center_point_box=False,
    )
    picked = e.reshape(picked, (count,))
    is_one = e.op("greater_equal", picked, computed.whole(e, 0))
    places = computed.true_places(e, is_one, count_as=call.data_size())
    return e.op("gather", picked, places, axis=0)


def _not_above(threshold: float) -> float:
    """The largest f32 that is not above the threshold: torchvision compares with one of 64 bits."""
    near = np.float32(threshold)
    is_above = float(near) > threshold
    return float(np.nextafter(near, np.float32(-np.inf)) if is_above else near)


def _scale(call: Call) -> float:
    return float(call.number("spatial_scale"))


def _aligned_regions(call: Call) -> Tensor:
    e, regions = call.maker, call.tensor("rois")
    form = Pictures(
        height=call.integer("pooled_height"),
        width=call.integer("pooled_width"),
        scale=_scale(call),
        half=call.flag("aligned"),
        ratio=max(0, call.integer("sampling_ratio")),
        mode="avg",
    )
    count = regions.shape[0]
    images = e.reshape(e.cast(e.slice(regions, 1, 0, 1), dtypes.i64), (count,))
    corners = e.slice(regions, 1, 1, 4)
    return sampled_regions(e, call.tensor("input"), corners, images, form)


def _largest_of_regions(call: Call) -> Sequence[Tensor | None]:
    """The largest elements; where each was is for gradients alone."""
    shape = call.integer("pooled_height"), call.integer("pooled_width")
    x, regions = call.tensor("input"), call.tensor("rois")
    return [largest_of_regions(call.maker, x, regions, shape, _scale(call)), None]


def _deformable_convolution(call: Call) -> Tensor:
    x, w, offsets = (call.tensor(name) for name in ("input", "weight", "offset"))
    if not all(isinstance(size, int) for size in w.shape[2:]):
        raise UnsupportedError("weights with a kernel of a size that a call decides")
    pads = call.integer("pad_h"), call.integer("pad_w")
    form = MovedTaps(
        groups=call.integer("groups"),
        banks=call.integer("offset_groups"),
        strides=(call.integer("stride_h"), call.integer("stride_w")),
        dilations=(call.integer("dilation_h"), call.integer("dilation_w")),
        pads=(*pads, *pads),
    )
    has_mask, given = call.flag("use_mask"), call.tensor("mask")
    mask = given if has_mask else None
    return deformable_convolution(
        call.maker, x, w, offsets, call.tensor("bias"), mask, form
    )


# --- sizes of results


def sizes_from_none() -> AbstractContextManager[None]:
    """While this thread traces in this context, sizes that data decides may be none or one.

    torchvision asks torch for a size of boxes without saying how small it may be, which torch takes for two at least:
    a call that keeps one box would fail.
    """
    return _SIZES.used()


def _from_none(theirs: Callable[..., Any], tracing: Tracing) -> Callable[..., Any]:
    @functools.wraps(theirs)
    def create(asked: Any, **limits: Any) -> Any:
        return theirs(asked, **({"min": 0} if tracing.depth else {}) | limits)

    return create


_SIZES: Final = Substitute(
    lambda: border.load()._library.fake_impl.FakeImplCtx,
    "create_unbacked_symint",
    _from_none,
)

ROWS: Final[tuple[Row, ...]] = (
    row("torchvision::nms", _suppressed),
    row("torchvision::roi_align", _aligned_regions),
    row("torchvision::roi_pool", _largest_of_regions),
    row("torchvision::deform_conv2d", _deformable_convolution),
)
