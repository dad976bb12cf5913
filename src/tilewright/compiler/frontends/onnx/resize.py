"""Rows for resampling: Resize and its predecessor Upsample.

Source: ONNX operator reference (Resize opset 10 to 19, Upsample opset 7 and 9).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

import numpy as np

from tilewright.base import symbolic
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.row import Row, row
from tilewright.compiler.graph.contents import MAX_DENOMINATOR
from tilewright.compiler.ops.shapes import normal_axes

_MODES: Final = {
    "nearest": "nearest",
    "linear": "linear",
    "bilinear": "linear",
    "cubic": "cubic",
}
_COORDINATES: Final = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
    "tf_half_pixel_for_nn",
)
_NEAREST: Final = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def scaled_size(size: Dim, scale: float) -> Dim:
    """`floor(size * scale)`, in single precision as runtimes compute it.

    Raises: UnsupportedError for a dynamic size and a scale that is no short ratio.
    """
    if isinstance(size, int):
        return math.floor(np.float32(size) * np.float32(scale))
    if scale == 1.0:
        return size
    ratio = Fraction(scale)
    if ratio.denominator > MAX_DENOMINATOR:
        raise UnsupportedError(f"scale {scale} of a dynamic dimension is not supported")
    return symbolic.floordiv(size * ratio.numerator, ratio.denominator)


def _axes(call: Call, rank: int) -> tuple[int, ...]:
    axes = call.attributes.integers("axes")
    if axes is None:
        return tuple(range(rank))
    normal_axes(axes, rank)
    return tuple(a % rank for a in axes)


def _is_given(call: Call, index: int) -> bool:
    """Whether operand `index` is there and not the empty vector that stands for absence."""
    tensor = call.optional(index)
    return tensor is not None and tensor.shape != (0,)


def _from_scales(
    call: Call, x: Tensor, index: int, axes: Sequence[int]
) -> tuple[list[Dim], list[float]]:
    values = call.array(index, "the scale").reshape(-1)
    if len(values) != len(axes):
        raise ModelError(f"{len(values)} scales for {len(axes)} axes")
    scales = [1.0] * x.rank
    sizes = list(x.shape)
    for axis, value in zip(axes, values, strict=True):
        scales[axis] = float(value)
        sizes[axis] = scaled_size(x.shape[axis], float(value))
    return sizes, scales


def _from_sizes(
    call: Call, x: Tensor, axes: Sequence[int], policy: str
) -> tuple[list[Dim], list[float] | None]:
    wanted = call.sized(3, "the size") if policy == "stretch" else call.dims(3, "the size")
    if len(wanted) != len(axes):
        raise ModelError(f"{len(wanted)} sizes for {len(axes)} axes")
    sizes = list(x.shape)
    if policy == "stretch":
        for axis, size in zip(axes, wanted, strict=True):
            sizes[axis] = size
        return sizes, None
    ratios = [
        w / s if isinstance(w, int) and isinstance(s, int) and s else math.nan
        for w, s in zip(wanted, (x.shape[a] for a in axes), strict=True)
    ]
    if any(math.isnan(r) for r in ratios):
        raise UnsupportedError(
            "'keep_aspect_ratio_policy' of a dynamic size is not supported"
        )
    ratio = min(ratios) if policy == "not_larger" else max(ratios)
    scales = [1.0] * x.rank
    for axis in axes:
        size = x.shape[axis]
        assert isinstance(size, int)
        sizes[axis] = math.floor(ratio * size + 0.5)
        scales[axis] = ratio
    return sizes, scales


def _region(call: Call, x: Tensor, axes: Sequence[int]) -> np.ndarray | None:
    """The region of tf_crop_and_resize, for all axes."""
    if not _is_given(call, 1):
        return None
    given = call.array(1, "the region").reshape(-1)
    whole = np.concatenate([np.zeros(x.rank), np.ones(x.rank)])
    for index, axis in enumerate(axes):
        whole[axis] = given[index]
        whole[x.rank + axis] = given[len(axes) + index]
    return whole


def _resize(call: Call) -> Tensor:
    x = call.tensor(0)
    axes = _axes(call, x.rank)
    mode = _MODES[call.choice("mode", "nearest", tuple(_MODES))]
    coordinates = call.choice("coordinate_transformation_mode", "half_pixel", _COORDINATES)
    policy = call.choice(
        "keep_aspect_ratio_policy", "stretch", ("stretch", "not_larger", "not_smaller")
    )
    crop = coordinates == "tf_crop_and_resize"
    scales: list[float] | None
    if _is_given(call, 2):
        sizes, scales = _from_scales(call, x, 2, axes)
    elif _is_given(call, 3):
        sizes, scales = _from_sizes(call, x, axes, policy)
    else:
        raise ModelError("neither scales nor sizes are given")
    nearest = call.choice("nearest_mode", "round_prefer_floor", _NEAREST)
    if coordinates == "tf_half_pixel_for_nn":
        coordinates, nearest = "half_pixel", "round_prefer_ceil"
    return call.maker.op(
        "resize",
        x,
        sizes=tuple(sizes),
        mode=mode,
        coordinate_mode=coordinates,
        nearest_mode=nearest,
        cubic_coefficient=call.float("cubic_coeff_a", -0.75),
        exclude_outside=call.flag("exclude_outside"),
        antialias=call.flag("antialias"),
        extrapolation_value=call.float("extrapolation_value", 0.0),
        scales=None if scales is None else np.array(scales),
        roi=_region(call, x, axes) if crop else None,
    )


def _upsample(call: Call) -> Tensor:
    """Upsample, and Resize of opset 10: asymmetric coordinates, rounded down."""
    x = call.tensor(0)
    mode = _MODES[call.choice("mode", "nearest", tuple(_MODES))]
    given = call.attributes.floats("scales") if call.opset < 9 else None
    if given is None:
        sizes, scales = _from_scales(call, x, 1, range(x.rank))
    else:
        if len(given) != x.rank:
            raise ModelError(f"{len(given)} scales for rank {x.rank}")
        scales = list(given)
        sizes = [scaled_size(d, s) for d, s in zip(x.shape, given, strict=True)]
    return call.maker.op(
        "resize",
        x,
        sizes=tuple(sizes),
        mode=mode,
        coordinate_mode="asymmetric",
        nearest_mode="floor",
        scales=np.array(scales),
    )


ROWS: Final[tuple[Row, ...]] = (
    row("Resize", _upsample, since=10, until=10),
    row("Resize", _resize, since=11),
    row("Upsample", _upsample),
)
