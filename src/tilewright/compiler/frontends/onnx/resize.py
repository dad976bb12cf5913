"""Rows for resampling: Resize and its predecessor Upsample.

Source: ONNX operator reference (Resize opset 10 to 19, Upsample opset 1, 7 and 9).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Final, cast

import numpy as np

from tilewright.base import symbolic
from tilewright.base.dtypes import f32, f64, i64
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit import control
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.resampling import Resampling, Scale, resampled
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.row import Row, row
from tilewright.compiler.graph.contents import MAX_DENOMINATOR
from tilewright.compiler.graph.schema import Array
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
_OUR_NAMES: Final = {"tf_half_pixel_for_nn": "centers"}
_NEAREST: Final = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
_MOST: Final = 1 << 62
"""No size is larger."""


def scaled_size(size: Dim, scale: float) -> Dim | None:
    """`floor(size * scale)`, in single precision as runtimes compute it.

    None: the size is dynamic and the scale is no short ratio, so the size has to be computed.

    Raises: ModelError for a scale that is negative or not finite.
    """
    if not 0 <= scale < math.inf:
        raise ModelError(f"scale {scale} is not a finite number of at least 0")
    if isinstance(size, int):
        return math.floor(np.float32(size) * np.float32(scale))
    if scale == 1.0:
        return size
    ratio = Fraction(scale)
    if ratio.denominator > MAX_DENOMINATOR:
        return None
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
) -> tuple[list[Dim], list[Scale]]:
    given = call.tensor(index)
    if given.array is None and not given.stand_in:
        return _from_computed_scales(call.maker, x, given, axes)
    values = call.array(index, "the scale").reshape(-1)
    if len(values) != len(axes):
        raise ModelError(f"{len(values)} scales for {len(axes)} axes")
    numbers = [1.0] * x.rank
    for axis, value in zip(axes, values, strict=True):
        numbers[axis] = float(value)
    return _sized_by(call.maker, x, numbers)


def _sized_by(
    e: NodeMaker, x: Tensor, scales: Sequence[float]
) -> tuple[list[Dim], list[Scale]]:
    """The sizes that numbers make, beside them."""
    sizes = [scaled_size(d, s) for d, s in zip(x.shape, scales, strict=True)]
    computed = {
        axis: e.scalar(scales[axis], f32) for axis, size in enumerate(sizes) if size is None
    }
    return _with_computed(e, x, sizes, computed), list(scales)


def _with_computed(
    e: NodeMaker, x: Tensor, sizes: Sequence[Dim | None], scales: Mapping[int, Tensor]
) -> list[Dim]:
    """Sizes of which those that are None are computed, by the scales of their axes."""
    if not scales:
        return [size for size in sizes if size is not None]
    # In single precision, as runtimes compute it.
    longer = [
        e.op("floor", e.op("mul", e.cast(e.dim(x.shape[axis]), f32), e.cast(scale, f32)))
        for axis, scale in scales.items()
    ]
    counts = e.concat([e.reshape(_counted(e, n), (1,)) for n in longer], 0)
    read = control.read_sizes(e, counts, "size", note=", a scale of which makes no size")
    found = dict(zip(scales, read, strict=True))
    return [found[axis] if size is None else size for axis, size in enumerate(sizes)]


def _counted(e: NodeMaker, x: Tensor) -> Tensor:
    """Whole numbers of floats as i64; what is none of a size (NaN, infinity) is -1, which is refused as one."""
    zero, most = (e.scalar(n, x.dtype) for n in (0, _MOST))
    is_size = e.op("logical_and", e.op("less_equal", zero, x), e.op("less", x, most))
    # No processor agrees with another about integers of NaN.
    safe = e.op("where", is_size, x, e.scalar(-1, x.dtype))
    return e.cast(safe, i64)


def _from_computed_scales(
    e: NodeMaker, x: Tensor, given: Tensor, axes: Sequence[int]
) -> tuple[list[Dim], list[Scale]]:
    """Scales that are data; those of a concatenation that are numbers leave their axes alone or known."""
    if given.shape != (len(axes),):
        raise ModelError(f"scales of type {given.type} for {len(axes)} axes")
    numbers = _known_numbers(given, len(axes))
    elements = [e.reshape(e.slice(given, 0, i, 1), ()) for i in range(len(axes))]
    sizes = cast("list[Dim | None]", list(x.shape))
    scales = cast("list[Scale]", [1.0] * x.rank)
    unknown: dict[int, Tensor] = {}
    for axis, number, element in zip(axes, numbers, elements, strict=True):
        scales[axis] = e.cast(element, f64) if number is None else number
        sizes[axis] = None if number is None else scaled_size(x.shape[axis], number)
        if sizes[axis] is None:
            unknown[axis] = element
    return _with_computed(e, x, sizes, unknown), scales


def _known_numbers(given: Tensor, count: int) -> list[float | None]:
    """The elements that are numbers, of a vector that is joined of numbers and computed pieces."""
    node = None if given.value is None else given.value.node
    if node is None or node.op != "concat":
        return [None] * count
    found: list[float | None] = []
    for piece in node.present_operands:
        made = piece.node
        if made is not None and made.op == "constant":
            found += np.reshape(cast("Array", made.attributes["value"]), -1).tolist()
        else:
            found += [None] * cast("int", piece.type.shape[0])
    return found


def _from_sizes(
    call: Call, x: Tensor, axes: Sequence[int], policy: str
) -> tuple[list[Dim], list[Scale]]:
    wanted = call.sized(3, "the size")
    if len(wanted) != len(axes):
        raise ModelError(f"{len(wanted)} sizes for {len(axes)} axes")
    sizes, scales = list(x.shape), cast("list[Scale]", [None] * x.rank)
    if policy == "stretch":
        for axis, size in zip(axes, wanted, strict=True):
            sizes[axis] = size
        return sizes, scales
    scales = cast("list[Scale]", [1.0] * x.rank)
    e, word = call.maker, "min" if policy == "not_larger" else "max"
    own = [x.shape[a] for a in axes]
    if all(isinstance(d, int) and d for d in own) and all(
        isinstance(w, int) for w in wanted
    ):
        shares = np.array(wanted) / np.array(own)
        ratio = float(shares.min() if word == "min" else shares.max())
        for axis, size in zip(axes, own, strict=True):
            scales[axis], sizes[axis] = ratio, math.floor(ratio * cast("int", size) + 0.5)
        return sizes, scales
    old = e.cast(e.dims(own), f64)
    ratios = e.op("div", e.cast(e.dims(wanted), f64), old)
    chosen = e.op(f"reduce_{word}", ratios, axes=(0,), keepdims=False)
    rounded = e.op("floor", e.op("add", e.op("mul", old, chosen), e.scalar(0.5, f64)))
    counts = control.read_sizes(e, _counted(e, rounded), "size")
    for axis, count in zip(axes, counts, strict=True):
        scales[axis], sizes[axis] = chosen, count
    return sizes, scales


def _region(call: Call, x: Tensor, axes: Sequence[int]) -> np.ndarray | Tensor | None:
    """The region of tf_crop_and_resize, for all axes."""
    if not _is_given(call, 1):
        return None
    whole = np.concatenate([np.zeros(x.rank), np.ones(x.rank)])
    places = np.array([*axes, *(x.rank + axis for axis in axes)])
    e, given = call.maker, call.tensor(1)
    if given.array is None and not given.stand_in:
        others, at = e.constant(whole), e.constant(places.astype(np.int64))
        return e.op("scatter_elements", others, at, e.cast(given, f64), axis=0)
    whole[places] = call.array(1, "the region").reshape(-1)
    return whole


def _resize(call: Call) -> Tensor:
    x = call.tensor(0)
    axes = _axes(call, x.rank)
    mode = _MODES[call.choice("mode", "nearest", tuple(_MODES))]
    coordinates = call.choice("coordinate_transformation_mode", "half_pixel", _COORDINATES)
    policy = call.choice(
        "keep_aspect_ratio_policy", "stretch", ("stretch", "not_larger", "not_smaller")
    )
    if _is_given(call, 2):
        sizes, scales = _from_scales(call, x, 2, axes)
    elif _is_given(call, 3):
        sizes, scales = _from_sizes(call, x, axes, policy)
    else:
        raise ModelError("neither scales nor sizes are given")
    how = Resampling(
        mode=mode,
        coordinate_mode=_OUR_NAMES.get(coordinates, coordinates),
        nearest_mode=call.choice("nearest_mode", "round_prefer_floor", _NEAREST),
        cubic_coefficient=call.float("cubic_coeff_a", -0.75),
        exclude_outside=call.flag("exclude_outside"),
        antialias=call.flag("antialias"),
        extrapolation_value=call.float("extrapolation_value", 0.0),
        single=mode == "nearest",
    )
    region = _region(call, x, axes) if how.is_cropped else None
    return resampled(call.maker, x, sizes, scales, region, how)


def _attribute_scales(call: Call) -> Sequence[float] | None:
    """The factors, where they are attributes: before opset 7 of pictures only, one for each side."""
    if call.opset >= 9:
        return None
    if call.opset >= 7:
        return call.attributes.floats("scales")
    return 1.0, 1.0, call.float("height_scale"), call.float("width_scale")


def _upsample(call: Call) -> Tensor:
    """Upsample: asymmetric coordinates, rounded down."""
    x, sizes, scales = _upsampled_sizes(call)
    return resampled(call.maker, x, sizes, scales, None, _asymmetric(call))


def _oldest_resize(call: Call) -> Tensor:
    """Resize of opset 10: as Upsample, but the nearest place is rounded up along axes that get shorter.

    Source: ONNX operator reference, Resize opset 10, its case `resize_downsample_nearest`.
    """
    e, how = call.maker, _asymmetric(call)
    x, sizes, scales = _upsampled_sizes(call)
    if how.mode == "nearest":
        shrunk = _with_one(e, scales, "min")
        between = [
            symbolic.minimum(d, size) if isinstance(s, Tensor) else d if s == 1.0 else size
            for d, size, s in zip(x.shape, sizes, shrunk, strict=True)
        ]
        x = resampled(e, x, between, shrunk, None, replace(how, nearest_mode="ceil"))
        scales = _with_one(e, scales, "max")
    return resampled(e, x, sizes, scales, None, how)


def _with_one(e: NodeMaker, scales: Sequence[Scale], word: str) -> list[Scale]:
    """The smaller or larger of each scale and 1."""
    pick = min if word == "min" else max
    return [
        e.op(word, s, e.scalar(1.0, f64)) if isinstance(s, Tensor)
        else None if s is None
        else pick(s, 1.0)
        for s in scales
    ]  # fmt: skip


def _asymmetric(call: Call) -> Resampling:
    mode = _MODES[call.choice("mode", "nearest", tuple(_MODES))]
    return Resampling(
        mode, coordinate_mode="asymmetric", nearest_mode="floor", single=mode == "nearest"
    )


def _upsampled_sizes(call: Call) -> tuple[Tensor, list[Dim], list[Scale]]:
    """The image, and size and scale of every axis of the result."""
    x = call.tensor(0)
    given = _attribute_scales(call)
    if given is None:
        return x, *_from_scales(call, x, 1, range(x.rank))
    if len(given) != x.rank:
        raise ModelError(f"{len(given)} scales for rank {x.rank}")
    return x, *_sized_by(call.maker, x, given)


ROWS: Final[tuple[Row, ...]] = (
    row("Resize", _oldest_resize, since=10, until=10),
    row("Resize", _resize, since=11),
    row("Upsample", _upsample),
)
