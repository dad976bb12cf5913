"""The rows for RoiAlign and MaxRoiPool: regions of images as pictures of one size.

Called by the importer, through the table.

Source: ONNX operator reference (RoiAlign, MaxRoiPool).
"""

from __future__ import annotations

from typing import Final

from tilewright.base import dtypes
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.kit.regions_of_images import (
    Pictures,
    largest_of_regions,
    sampled_regions,
)
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.row import Row, row


def _roi_align(call: Call) -> Tensor:
    e = call.maker
    default = "half_pixel" if call.opset >= 16 else "output_half_pixel"
    form = Pictures(
        height=call.integer("output_height", 1),
        width=call.integer("output_width", 1),
        scale=call.float("spatial_scale", 1.0),
        half=call.string("coordinate_transformation_mode", default) == "half_pixel",
        ratio=call.integer("sampling_ratio", 0),
        mode=call.choice("mode", "avg", ("avg", "max")),
    )
    images = e.cast(call.tensor(2), dtypes.i64)
    return sampled_regions(e, call.tensor(0), call.tensor(1), images, form)


def _max_roi_pool(call: Call) -> Tensor:
    shape = call.integers("pooled_shape")
    if len(shape) != 2:
        raise ModelError(f"attribute 'pooled_shape' has {len(shape)} sizes, expected 2")
    scale = call.float("spatial_scale", 1.0)
    rows, columns = shape
    return largest_of_regions(
        call.maker, call.tensor(0), call.tensor(1), (rows, columns), scale
    )


ROWS: Final[tuple[Row, ...]] = (
    row("RoiAlign", _roi_align),
    row("MaxRoiPool", _max_roi_pool),
)
