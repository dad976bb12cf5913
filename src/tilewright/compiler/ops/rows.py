"""Ops that pass several times over independent rows: softmax and the normalisations.

Bodies are chains of nests through row-sized temporaries; the rows schedule localises them.  The
mean and the variance are taken in two passes (no cancellation), in the compute type.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, Final, cast

import numpy as np

from tilewright.base import dtypes
from tilewright.base.dtypes import FLOATS
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.schema import Attributes, TensorType, Trait
from tilewright.compiler.kernel import numerics
from tilewright.compiler.kernel.builder import KernelBuilder, Source, compute_dtype
from tilewright.compiler.kernel.ir import Buffer, Expression
from tilewright.compiler.ops import layouts
from tilewright.compiler.ops.bodies import (
    Operands,
    Results,
    full_indices,
    given,
    kept_indices,
    maybe,
    reduce_rows,
)
from tilewright.compiler.ops.declaration import (
    Body,
    OpDecl,
    Types,
    attr,
    declare,
    operand,
    optional,
)
from tilewright.compiler.ops.shapes import (
    broadcast_indices,
    broadcast_shapes,
    broadcast_sizes,
    channel_axis,
    check_groups,
    check_same,
    first,
    like_first_along_axis,
    normal_axis,
    spatial_axes,
)

_ROWS: Final = Trait.PURE | Trait.ROWWISE


def _widened(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64)


def _rounded(value: Any, x: np.ndarray) -> np.ndarray:
    return numerics.cast(np.asarray(value, np.float64), dtypes.from_numpy(x.dtype))


def _row_mean(
    b: KernelBuilder, x: Source, axes: Sequence[int], total: Buffer, name: str
) -> Buffer:
    """`total / count` in a nest of its own."""
    count: Dim = 1
    for axis in axes:
        count = count * x.shape[axis]
    mean = b.temporary(total.dtype, total.shape, name)
    with b.nest(total.shape) as outer:
        divisor = b.cast(b.index(count), total.dtype)
        b.store(mean, outer, b.div(b.load(total, outer), divisor))
    return mean


# --- softmax ---------------------------------------------------------------------------------


def _shifted(x: np.ndarray, axis: int) -> np.ndarray:
    wide = _widened(x)
    return wide - np.max(wide, axis=axis, keepdims=True, initial=-np.inf)


def _softmax_oracle(x: np.ndarray, *, axis: int) -> np.ndarray:
    powers = np.exp(_shifted(x, axis))
    return _rounded(powers / np.sum(powers, axis=axis, keepdims=True), x)


def _log_softmax_oracle(x: np.ndarray, *, axis: int) -> np.ndarray:
    shifted = _shifted(x, axis)
    return _rounded(shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True)), x)


def _row_maximum(b: KernelBuilder, x: Source, axis: int) -> Buffer:
    return reduce_rows(b, "max", x, (axis,), lambda indices, _: b.read(x, indices))


@contextmanager
def _row_by_row(
    b: KernelBuilder, shape: Sequence[Dim], axis: int
) -> Generator[tuple[Dim, ...]]:
    """A nest over all elements, the loop along `axis` innermost: passes over a row then share what is around it."""
    with (
        b.nest(kept_indices((axis,), shape)) as outer,
        b.nest((shape[axis],)) as inner,
    ):
        yield full_indices((axis,), outer, inner)


def _softmax_body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    x, (result,) = given(operands, 0), results
    axis = normal_axis(cast("int", attributes["axis"]), len(x.shape))
    top = _row_maximum(b, x, axis)
    # Powers of an open number fit no register, and workgroups would share what memory holds them; the result has room
    # for those of its type.
    is_open = axis < len(x.shape) - 1 or not isinstance(x.shape[axis], int)
    fits = is_open and result.dtype is top.dtype
    powers = result if fits else b.temporary(top.dtype, x.shape, "powers")
    by_row = fits or isinstance(x.shape[axis], int)
    with _row_by_row(b, x.shape, axis if by_row else len(x.shape) - 1) as indices:
        shifted = b.sub(b.read(x, indices), b.load(top, kept_indices((axis,), indices)))
        b.store(powers, indices, b.exp_nonpositive(shifted))
    total = reduce_rows(
        b, "add", powers, (axis,), lambda indices, _: b.load(powers, indices)
    )
    scale = b.temporary(top.dtype, top.shape, "scale")
    with b.nest(top.shape) as outer:
        b.store(scale, outer, b.div(b.const(1, top.dtype), b.load(total, outer)))
    with _row_by_row(b, x.shape, axis if by_row else len(x.shape) - 1) as indices:
        factor = b.load(scale, kept_indices((axis,), indices))
        b.write(result, indices, b.mul(b.load(powers, indices), factor))


def _log_softmax_body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    x, (result,) = given(operands, 0), results
    axis = normal_axis(cast("int", attributes["axis"]), len(x.shape))
    top = _row_maximum(b, x, axis)

    def power(indices: tuple[Dim, ...], outer: tuple[Dim, ...]) -> Expression:
        return b.exp_nonpositive(b.sub(b.read(x, indices), b.load(top, outer)))

    total = reduce_rows(b, "add", x, (axis,), power)
    shift = b.temporary(top.dtype, top.shape, "shift")
    with b.nest(top.shape) as outer:
        b.store(shift, outer, b.log(b.load(total, outer)))
    with _row_by_row(b, x.shape, axis) as indices:
        outer = kept_indices((axis,), indices)
        shifted = b.sub(b.read(x, indices), b.load(top, outer))
        b.write(result, indices, b.sub(shifted, b.load(shift, outer)))


_SOFTMAX_CASES: Final = (
    "[3,17]; axis=-1",
    "[3,5,7]; axis=1",
    "[2,3,33,2]; axis=-2",
    "[5]; axis=0",
    "[2,1]; axis=1",
    "[0,4]; axis=1",
    "[2,3]:=1000,1001,999,-inf,0,-1000; axis=1",
)

softmax: Final = declare(
    name="softmax",
    summary="exp(x - max) / sum(exp(x - max)) along `axis`",
    operands=(operand("x", FLOATS),),
    attributes=(attr("axis", "int", -1),),
    infer=like_first_along_axis,
    evaluate=_softmax_oracle,
    body=_softmax_body,
    traits=_ROWS,
    layout=layouts.ALONG_AXIS,
    cases=_SOFTMAX_CASES,
    source="ONNX Softmax, opset 13",
)

log_softmax: Final = declare(
    name="log_softmax",
    summary="Logarithm of softmax along `axis`, without overflow",
    operands=(operand("x", FLOATS),),
    attributes=(attr("axis", "int", -1),),
    infer=like_first_along_axis,
    evaluate=_log_softmax_oracle,
    body=_log_softmax_body,
    traits=_ROWS,
    layout=layouts.ALONG_AXIS,
    cases=_SOFTMAX_CASES,
    source="ONNX LogSoftmax, opset 13",
)

# --- layer and rms norm ----------------------------------------------------------------------


def _norm_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    x = first(types)
    axis = normal_axis(cast("int", attributes["axis"]), x.rank)
    for extra in types[1:]:
        if extra is not None and broadcast_shapes(x.shape, extra.shape) != x.shape:
            raise ModelError(f"scale or bias {extra} does not broadcast to {x}")
    if axis == x.rank:
        raise ModelError("a normalisation needs at least one axis")
    return (x,)


def _norm_axes(axis: int, rank: int) -> tuple[int, ...]:
    return tuple(range(normal_axis(axis, rank), rank))


def _affine(
    b: KernelBuilder, value: Expression, operands: Operands, indices: Sequence[Dim]
) -> Expression:
    """`value * scale + bias`, with operands 1 and 2 broadcast, either absent."""
    scale, bias = maybe(operands, 1), maybe(operands, 2)
    for source, op in ((scale, "mul"), (bias, "add")):
        if source is not None:
            extra = b.read(source, broadcast_indices(source.shape, indices))
            value = b.binary(op, value, b.cast(extra, value.dtype))
    return value


def _variance_rows(
    b: KernelBuilder, x: Source, axes: Sequence[int], mean: Buffer, epsilon: float
) -> Buffer:
    """1 / sqrt(variance + epsilon) per row."""

    def square(indices: tuple[Dim, ...], outer: tuple[Dim, ...]) -> Expression:
        centred = b.sub(b.read(x, indices), b.load(mean, outer))
        return b.mul(centred, centred)

    total = reduce_rows(b, "add", x, axes, square)
    return _inverse_deviation(b, x, axes, total, epsilon)


def _inverse_deviation(
    b: KernelBuilder, x: Source, axes: Sequence[int], total: Buffer, epsilon: float
) -> Buffer:
    count: Dim = 1
    for axis in axes:
        count = count * x.shape[axis]
    scale = b.temporary(total.dtype, total.shape, "scale")
    with b.nest(total.shape) as outer:
        mean = b.div(b.load(total, outer), b.cast(b.index(count), total.dtype))
        root = b.sqrt(b.add(mean, epsilon))
        b.store(scale, outer, b.div(b.const(1, total.dtype), root))
    return scale


def _normalise(
    b: KernelBuilder, x: Source, axes: Sequence[int], epsilon: float
) -> tuple[Buffer, Buffer]:
    """The mean and the inverse deviation of every row."""
    total = reduce_rows(b, "add", x, axes, lambda indices, _: b.read(x, indices))
    mean = _row_mean(b, x, axes, total, "mean")
    return mean, _variance_rows(b, x, axes, mean, epsilon)


def _layer_norm_body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    x, (result,) = given(operands, 0), results
    axes = _norm_axes(cast("int", attributes["axis"]), len(x.shape))
    mean, scale = _normalise(b, x, axes, cast("float", attributes["epsilon"]))
    with b.nest(x.shape) as indices:
        outer = kept_indices(axes, indices)
        centred = b.sub(b.read(x, indices), b.load(mean, outer))
        value = b.mul(centred, b.load(scale, outer))
        b.write(result, indices, _affine(b, value, operands, indices))


def _mean(wide: np.ndarray, axes: Sequence[int]) -> np.ndarray:
    """The mean over `axes`, which stay; NaN, without numpy's warning, where there is nothing."""
    return wide.sum(tuple(axes), keepdims=True) / math.prod(wide.shape[a] for a in axes)


def _layer_norm_oracle(
    x: np.ndarray,
    scale: np.ndarray | None,
    bias: np.ndarray | None,
    *,
    axis: int,
    epsilon: float,
) -> np.ndarray:
    wide, axes = _widened(x), _norm_axes(axis, x.ndim)
    centred = wide - _mean(wide, axes)
    value = centred / np.sqrt(_mean(centred**2, axes) + epsilon)
    value = value if scale is None else value * _widened(scale)
    return _rounded(value if bias is None else value + _widened(bias), x)


layer_norm: Final = declare(
    name="layer_norm",
    summary="(x - mean) / sqrt(variance + epsilon) over the axes from `axis` on, scaled, shifted",
    operands=(operand("x", FLOATS), optional("scale", FLOATS), optional("bias", FLOATS)),
    attributes=(attr("axis", "int", -1), attr("epsilon", "float", 1e-5)),
    infer=_norm_infer,
    evaluate=_layer_norm_oracle,
    body=_layer_norm_body,
    traits=_ROWS,
    equal_sizes=broadcast_sizes,
    cases=(
        "[3,17] [17] [17]; axis=-1",
        "[2,3,5] [3,5] [3,5]; axis=1",
        "[3,17]; axis=1 epsilon=0.1",
        "[3,17] _ [17]",
        "[0,4] [4] [4]",
        "[2,3,4] [3,4]; axis=0 epsilon=1e-3",
    ),
    source="ONNX LayerNormalization, opset 17",
)


def _rms_norm_body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    x, (result,) = given(operands, 0), results
    axes = _norm_axes(cast("int", attributes["axis"]), len(x.shape))

    def square(indices: tuple[Dim, ...], _: tuple[Dim, ...]) -> Expression:
        value = b.read(x, indices)
        return b.mul(value, value)

    total = reduce_rows(b, "add", x, axes, square)
    scale = _inverse_deviation(b, x, axes, total, cast("float", attributes["epsilon"]))
    with b.nest(x.shape) as indices:
        value = b.mul(b.read(x, indices), b.load(scale, kept_indices(axes, indices)))
        b.write(result, indices, _affine(b, value, operands, indices))


def _rms_norm_oracle(
    x: np.ndarray, scale: np.ndarray | None, *, axis: int, epsilon: float
) -> np.ndarray:
    wide, axes = _widened(x), _norm_axes(axis, x.ndim)
    value = wide / np.sqrt(_mean(wide**2, axes) + epsilon)
    return _rounded(value if scale is None else value * _widened(scale), x)


rms_norm: Final = declare(
    name="rms_norm",
    summary="x / sqrt(mean(x^2) + epsilon) over the axes from `axis` on, scaled",
    operands=(operand("x", FLOATS), optional("scale", FLOATS)),
    attributes=(attr("axis", "int", -1), attr("epsilon", "float", 1e-5)),
    infer=_norm_infer,
    evaluate=_rms_norm_oracle,
    body=_rms_norm_body,
    traits=_ROWS,
    equal_sizes=broadcast_sizes,
    cases=("[3,17] [17]", "[2,3,5] [3,5]; axis=1", "[3,17]; epsilon=0.1", "[1,1] [1]"),
    source="ONNX RMSNormalization, opset 23",
)

# --- norms over the positions of a channel (or of a group of channels) -----------------------


def _channel_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    x = first(types)
    if x.rank < 2:
        raise ModelError(f"operand {x} has no batch and channel axis")
    channels = x.shape[channel_axis(x.rank, cast("str", attributes["layout"]))]
    for extra in types[1:]:
        if extra is not None:
            if extra.rank != 1:
                raise ModelError(f"scale or bias {extra} is not a vector")
            check_same("channels of scale or bias", channels, extra.shape[0])
    check_groups("channels", channels, cast("int", attributes.get("groups", 1)))
    return (x,)


def _per_channel(rank: int, channel: int, values: np.ndarray) -> np.ndarray:
    return _widened(values).reshape([-1 if i == channel else 1 for i in range(rank)])


def _group_norm_oracle(
    x: np.ndarray,
    scale: np.ndarray | None,
    bias: np.ndarray | None,
    *,
    groups: int,
    epsilon: float,
    layout: str,
) -> np.ndarray:
    channel = channel_axis(x.ndim, layout)
    moved = np.moveaxis(_widened(x), channel, 1)
    # Of no elements, numpy does not work out the size that is left.
    rows = moved.reshape(x.shape[0], groups, math.prod(moved.shape[1:]) // groups)
    centred = rows - _mean(rows, (-1,))
    rows = centred / np.sqrt(_mean(centred**2, (-1,)) + epsilon)
    value = np.moveaxis(rows.reshape(moved.shape), 1, channel)
    if scale is not None:
        value = value * _per_channel(x.ndim, channel, scale)
    if bias is not None:
        value = value + _per_channel(x.ndim, channel, bias)
    return _rounded(value, x)


def _group_norm_body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    x, (result,) = given(operands, 0), results
    rank, layout = len(x.shape), cast("str", attributes["layout"])
    channel, spatial = channel_axis(rank, layout), spatial_axes(rank, layout)
    groups = cast("int", attributes["groups"])
    size = x.shape[channel] // groups
    epsilon = cast("float", attributes["epsilon"])
    positions = [x.shape[a] for a in spatial]
    wide = compute_dtype(x.dtype)
    shape = (x.shape[0], groups)
    count: Dim = size
    for extent in positions:
        count = count * extent

    def total(name: str, mean: Buffer | None) -> Buffer:
        """The sum over a group, of squares around `mean` if there is one."""
        rows = b.temporary(wide, shape, name)
        with b.nest(shape) as (n, g):
            b.store(rows, (n, g), 0)
            with b.reduce((*positions, size)) as inner:
                at = g * size + inner[-1]
                value = b.read(
                    x, full_indices((channel, *spatial), (n,), _ordered(at, inner))
                )
                if mean is not None:
                    centred = b.sub(value, b.load(mean, (n, g)))
                    value = b.mul(centred, centred)
                b.accumulate("add", rows, (n, g), value)
        return rows

    def _ordered(at: Dim, inner: Sequence[Dim]) -> tuple[Dim, ...]:
        return (at, *inner[:-1]) if layout == "NCHW" else (*inner[:-1], at)

    sums = total("sums", None)
    mean, scale = b.temporary(wide, shape, "mean"), b.temporary(wide, shape, "scale")
    divisor = b.cast(b.index(count), wide)
    with b.nest(shape) as outer:
        b.store(mean, outer, b.div(b.load(sums, outer), divisor))
    squares = total("squares", mean)
    with b.nest(shape) as outer:
        root = b.sqrt(b.add(b.div(b.load(squares, outer), divisor), epsilon))
        b.store(scale, outer, b.div(b.const(1, wide), root))
    with b.nest(x.shape) as indices:
        row = (indices[0], indices[channel] // size)
        value = b.mul(b.sub(b.read(x, indices), b.load(mean, row)), b.load(scale, row))
        b.write(result, indices, _channel_affine(b, value, operands, indices[channel]))


def _channel_affine(
    b: KernelBuilder, value: Expression, operands: Operands, channel: Dim
) -> Expression:
    for position, op in ((1, "mul"), (2, "add")):
        source = maybe(operands, position)
        if source is not None:
            at = 0 if source.shape[0] == 1 else channel
            value = b.binary(op, value, b.cast(b.read(source, (at,)), value.dtype))
    return value


def _group_norm_with_channels(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    """Instance norm: every channel is a group."""
    x = given(operands, 0)
    rank, layout = len(x.shape), cast("str", attributes["layout"])
    axes = spatial_axes(rank, layout)
    mean, scale = _normalise(b, x, axes, cast("float", attributes["epsilon"]))
    channel = channel_axis(rank, layout)
    with b.nest(x.shape) as indices:
        outer = kept_indices(axes, indices)
        centred = b.sub(b.read(x, indices), b.load(mean, outer))
        value = b.mul(centred, b.load(scale, outer))
        b.write(results[0], indices, _channel_affine(b, value, operands, indices[channel]))


def _instance_norm_oracle(
    x: np.ndarray,
    scale: np.ndarray | None,
    bias: np.ndarray | None,
    *,
    epsilon: float,
    layout: str,
) -> np.ndarray:
    channels = x.shape[channel_axis(x.ndim, layout)]
    return _group_norm_oracle(
        x, scale, bias, groups=channels, epsilon=epsilon, layout=layout
    )


_CHANNEL_OPERANDS: Final = (
    operand("x", FLOATS), optional("scale", FLOATS), optional("bias", FLOATS),
)  # fmt: skip

group_norm: Final = declare(
    name="group_norm",
    summary="Normalisation over the positions of each group of channels, scaled per channel",
    operands=_CHANNEL_OPERANDS,
    attributes=(
        attr("groups", "int"), attr("epsilon", "float", 1e-5), attr("layout", "string", "NCHW"),
    ),
    infer=_channel_infer,
    evaluate=_group_norm_oracle,
    body=Body(
        _group_norm_body,
        lambda types, attributes: isinstance(
            first(types).shape[channel_axis(first(types).rank, str(attributes["layout"]))], int
        ),
    ),
    traits=_ROWS,
    cases=(
        "[2,6,3,5] [6] [6]; groups=3",
        "[2,3,5,6] [6] [6]; groups=2 layout=NHWC",
        "[1,4,3]; groups=4",
        "[1,4,3] [4] _; groups=1",
        "[0,4,3] [4] [4]; groups=2",
        "[2,4,0]; groups=2",
    ),
    source="ONNX GroupNormalization, opset 21",
)  # fmt: skip

instance_norm: Final = declare(
    name="instance_norm",
    summary="Normalisation over the positions of each channel, scaled per channel",
    operands=_CHANNEL_OPERANDS,
    attributes=(attr("epsilon", "float", 1e-5), attr("layout", "string", "NCHW")),
    infer=_channel_infer,
    evaluate=_instance_norm_oracle,
    body=_group_norm_with_channels,
    traits=_ROWS,
    cases=(
        "[2,3,5,7] [3] [3]",
        "[2,5,7,3] [3] [3]; layout=NHWC",
        "[1,2,9]; epsilon=0.1",
        "[1,1,3,3] [1] [1]",
        "[0,2,3,3] [2] [2]",
    ),
    source="ONNX InstanceNormalization, opset 22",
)

OPS: Final[tuple[OpDecl, ...]] = (
    softmax, log_softmax, layer_norm, rms_norm, group_norm, instance_norm,
)  # fmt: skip
