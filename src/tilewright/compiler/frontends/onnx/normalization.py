"""Rows for normalization: batch, layer, RMS, group, instance, LRN, Lp, mean-variance.

Source: ONNX operator reference (Operators.md), per op in the row; onnxruntime ContribOperators.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.reduction import reduce
from tilewright.compiler.frontends.onnx.row import MICROSOFT, Row, row
from tilewright.compiler.frontends.onnx.tensors import DTYPES
from tilewright.compiler.ops.shapes import normal_axes


def _per_channel(e: NodeMaker, vector: Tensor, rank: int) -> Tensor:
    """A vector over channels, shaped to broadcast against `[N, C, ...]`."""
    return e.reshape(vector, (*vector.shape, *([1] * (rank - 2))))


def _batch_normalization(call: Call) -> list[Tensor | None]:
    x, scale, bias, mean, variance = (call.tensor(i) for i in range(5))
    epsilon = call.float("epsilon", 1e-5)
    if not call.flag("spatial", default=True):
        return [_feature_norm(call, epsilon)]
    if call.opset >= 14 and call.flag("training_mode"):
        return _batch_training(call, epsilon)
    if call.opset >= 14:
        call.float("momentum", 0.9)
    e = call.maker
    wide = variance.dtype if variance.dtype.bits >= 32 else dtypes.f32
    root = e.op("sqrt", e.op("add", e.cast(variance, wide), e.scalar(epsilon, wide)))
    factor = e.op("div", e.cast(scale, wide), root)
    offset = e.op("sub", e.cast(bias, wide), e.op("mul", e.cast(mean, wide), factor))
    scaled = e.op("mul", e.cast(x, wide), _per_channel(e, factor, x.rank))
    shifted = e.op("add", scaled, _per_channel(e, offset, x.rank))
    return [e.cast(shifted, x.dtype)]


def _feature_norm(call: Call, epsilon: float) -> Tensor:
    """Every place of a channel by statistics of its own, as up to opset 8."""
    e = call.maker
    x, scale, bias, mean, variance = (call.tensor(i) for i in range(5))
    root = e.op("sqrt", e.op("add", variance, e.scalar(epsilon, variance.dtype)))
    normal = e.op("div", e.op("sub", x, mean), root)
    return e.op("add", e.op("mul", normal, scale), bias)


def _batch_training(call: Call, epsilon: float) -> list[Tensor | None]:
    """Statistics of this batch, and running ones moved towards them."""
    x, scale, bias, mean, variance = (call.tensor(i) for i in range(5))
    momentum = call.float("momentum", 0.9)
    e = call.maker
    axes = tuple(i for i in range(x.rank) if i != 1)
    own_mean, own_variance = moments(e, x, axes)
    root = e.op("sqrt", e.op("add", own_variance, e.scalar(epsilon, x.dtype)))
    normal = e.op("div", e.op("sub", x, own_mean), root)
    scaled = e.op("mul", normal, _per_channel(e, scale, x.rank))
    result = e.op("add", scaled, _per_channel(e, bias, x.rank))
    running: list[Tensor | None] = []
    for old, new in ((mean, own_mean), (variance, own_variance)):
        flat = e.cast(e.reshape(new, old.shape), old.dtype)
        kept = e.op("mul", old, e.scalar(momentum, old.dtype))
        moved = e.op("mul", flat, e.scalar(1 - momentum, old.dtype))
        running.append(e.op("add", kept, moved))
    return [result, *running]


def moments(e: NodeMaker, x: Tensor, axes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Mean and variance over `axes`, which stay as axes of size 1."""
    mean = reduce(e, "reduce_mean", x, axes, keepdims=True)
    centred = e.op("sub", x, mean)
    square = e.op("mul", centred, centred)
    return mean, reduce(e, "reduce_mean", square, axes, keepdims=True)


def _stash(call: Call, x: Tensor) -> DType:
    """The type that normalization computes in."""
    code = call.integer("stash_type", 1)
    stash = DTYPES.get(code, dtypes.f32)
    return stash if stash.bits > x.dtype.bits else x.dtype


def _layer_norm(call: Call) -> list[Tensor | None]:
    x, scale, bias = call.tensor(0), call.optional(1), call.optional(2)
    axis, epsilon = call.axis(x.rank, -1), call.float("epsilon", 1e-5)
    wide = _stash(call, x)
    e = call.maker
    outputs: list[Tensor | None] = [_layer_norm_op(e, x, scale, bias, axis, epsilon)]
    if call.wants(1) or call.wants(2):
        outputs += _statistics(e, e.cast(x, wide), axis, epsilon)
    return outputs


def _statistics(e: NodeMaker, x: Tensor, axis: int, epsilon: float) -> list[Tensor]:
    """Mean and reciprocal standard deviation, as LayerNormalization returns them."""
    mean, variance = moments(e, x, range(axis, x.rank))
    return [mean, e.op("rsqrt", e.op("add", variance, e.scalar(epsilon, x.dtype)))]


def _layer_norm_op(
    e: NodeMaker,
    x: Tensor,
    scale: Tensor | None,
    bias: Tensor | None,
    axis: int,
    epsilon: float,
) -> Tensor:
    return e.op(
        "layer_norm", x, _row_shaped(e, x, scale, axis), _row_shaped(e, x, bias, axis),
        axis=axis, epsilon=epsilon,
    )  # fmt: skip


def _row_shaped(e: NodeMaker, x: Tensor, factor: Tensor | None, axis: int) -> Tensor | None:
    """A scale or bias in exactly the shape of the normalized axes and in the type of `x`."""
    if factor is None:
        return None
    rows = x.shape[axis:]
    if factor.rank > len(rows) and all(d == 1 for d in factor.shape[: -len(rows)]):
        factor = e.reshape(factor, factor.shape[-len(rows) :])
    if factor.rank > len(rows):
        raise ModelError(
            f"scale or bias {factor.type} does not fit {x.type} from axis {axis}"
        )
    return e.broadcast_to(e.cast(factor, x.dtype), rows)


def _rms_norm(call: Call) -> Tensor:
    x, scale = call.tensor(0), call.optional(1)
    axis, epsilon = call.axis(x.rank, -1), call.float("epsilon", 1e-5)
    call.integer("stash_type", 1)
    e = call.maker
    factor = _row_shaped(e, x, scale, axis)
    return e.op("rms_norm", x, factor, axis=axis, epsilon=epsilon)


def _instance_norm(call: Call) -> Tensor:
    return call.maker.op(
        "instance_norm", call.tensor(0), call.tensor(1), call.tensor(2),
        epsilon=call.float("epsilon", 1e-5),
    )  # fmt: skip


def _group_norm(call: Call) -> Tensor:
    """Opset 18 has a scale per group, opset 21 one per channel."""
    e, x, scale, bias = call.maker, call.tensor(0), call.tensor(1), call.tensor(2)
    groups = call.integer("num_groups")
    call.integer("stash_type", 1)
    channels = x.shape[1]
    if call.opset < 21 and scale.shape[0] == groups and channels != groups:
        scale, bias = (_repeated(e, t, groups, channels) for t in (scale, bias))
    return e.op(
        "group_norm", x, scale, bias, groups=groups, epsilon=call.float("epsilon", 1e-5)
    )


def _repeated(e: NodeMaker, vector: Tensor, groups: int, channels: Dim) -> Tensor:
    each = channels // groups
    return e.reshape(
        e.broadcast_to(e.reshape(vector, (groups, 1)), (groups, each)), (channels,)
    )


def _lrn(call: Call) -> Tensor:
    """Of an even size one neighbour more lies behind: ONNX defines it by rounding up there; onnxruntime refuses it."""
    return call.maker.op(
        "lrn",
        call.tensor(0),
        size=call.integer("size"),
        alpha=call.float("alpha", 1e-4),
        beta=call.float("beta", 0.75),
        bias=call.float("bias", 1.0),
    )


def _lp_normalization(call: Call) -> Tensor:
    e, x = call.maker, call.tensor(0)
    axis, p = call.axis(x.rank, -1), call.integer("p", 2)
    if p not in (1, 2):
        raise ModelError(f"attribute 'p' is {p}, expected 1 or 2")
    powers = e.op("abs", x) if p == 1 else e.op("mul", x, x)
    total = reduce(e, "reduce_sum", powers, (axis,), keepdims=True)
    norm = total if p == 1 else e.op("sqrt", total)
    zero = e.scalar(0, x.dtype)
    safe = e.op("where", e.op("equal", norm, zero), e.scalar(1, x.dtype), norm)
    return e.op("div", x, safe)


def _mean_variance(call: Call) -> Tensor:
    """Computed in f32 at least: the constant below is 0 in narrower types."""
    e, given = call.maker, call.tensor(0)
    x = e.cast(given, given.dtype if given.dtype.bits >= 32 else dtypes.f32)
    mean, variance = moments(e, x, _axes_of_moments(call, x.rank))
    centred = e.op("sub", x, mean)
    if call.opset < 9 and not call.flag("normalize_variance", default=True):
        return e.cast(centred, given.dtype)
    # The constant of ONNX's own definition, which keeps a constant operand finite.
    root = e.op("add", e.op("sqrt", variance), e.scalar(1e-9, x.dtype))
    return e.cast(e.op("div", centred, root), given.dtype)


def _axes_of_moments(call: Call, rank: int) -> Sequence[int]:
    """All axes but the channels' where nothing is said, of those that the operand has."""
    if call.opset < 9:  # an experimental operator there
        every = call.flag("across_channels")
        return [axis for axis in range(rank) if every or axis != 1]
    given = call.attributes.integers("axes")
    if given is None:
        return [axis for axis in (0, 2, 3) if axis < rank]
    return normal_axes(given, rank)


# --- com.microsoft


def _skip(call: Call, bias_index: int) -> tuple[Tensor, Tensor]:
    """The operand and the sum of operand, skip and bias."""
    e, x = call.maker, call.tensor(0)
    total = e.op("add", x, call.tensor(1))
    bias = call.optional(bias_index)
    return x, total if bias is None else e.op("add", total, bias)


def _skip_layer_norm(call: Call) -> list[Tensor | None]:
    x, total = _skip(call, 4)
    epsilon = call.float("epsilon", 1e-12)
    axis = x.rank - 1
    e = call.maker
    result = _layer_norm_op(e, total, call.tensor(2), call.optional(3), axis, epsilon)
    extra: list[Tensor | None] = [None, None]
    if call.wants(1) or call.wants(2):
        extra = [*_statistics(e, total, axis, epsilon)]
    return [result, *extra, total]


def _skip_rms_norm(call: Call) -> list[Tensor | None]:
    x, total = _skip(call, 3)
    e = call.maker
    factor = _row_shaped(e, total, call.tensor(2), x.rank - 1)
    result = e.op(
        "rms_norm", total, factor, axis=x.rank - 1, epsilon=call.float("epsilon", 1e-12)
    )
    return [result, None, None, total]


def _embed_layer_norm(call: Call) -> list[Tensor | None]:
    """Word, position and segment embeddings, added and normalized."""
    e, ids = call.maker, call.tensor(0)
    segments, word, position = call.optional(1), call.tensor(2), call.tensor(3)
    places = call.optional(8)
    if places is None:
        places = e.broadcast_to(e.iota((1, ids.shape[1]), 1), ids.shape)
    total = e.op(
        "add", e.op("gather", word, ids, axis=0), e.op("gather", position, places, axis=0)
    )
    if segments is not None and call.optional(4) is not None:
        total = e.op("add", total, e.op("gather", call.tensor(4), segments, axis=0))
    epsilon = call.float("epsilon", 1e-12)
    scale, bias = call.tensor(5), call.tensor(6)
    result = _layer_norm_op(e, total, scale, bias, total.rank - 1, epsilon)
    mask = None
    if call.wants(1):
        given = call.optional(7)
        mask = (
            e.full(0, dtypes.i32, (ids.shape[0],))
            if given is None
            else reduce(e, "reduce_sum", e.cast(given, dtypes.i32), (1,), keepdims=False)
        )
    return [result, mask, total]


ROWS: Final[tuple[Row, ...]] = (
    row("BatchNormalization", _batch_normalization,
        ignores=("is_test", "momentum", "consumed_inputs")),
    row("GroupNormalization", _group_norm),
    row("InstanceNormalization", _instance_norm, ignores=("consumed_inputs",)),
    row("LRN", _lrn),
    row("LayerNormalization", _layer_norm),
    row("LpNormalization", _lp_normalization),
    row("MeanVarianceNormalization", _mean_variance,
        takes="across_channels:int normalize_variance:int"),  # experimental, before opset 9
    row("RMSNormalization", _rms_norm),
    row("SimplifiedLayerNormalization", _rms_norm),
    # The type of the mask is said for whoever infers shapes.
    row("EmbedLayerNormalization", _embed_layer_norm, domain=MICROSOFT,
        ignores=("mask_index_type",)),
    row("LayerNormalization", _layer_norm, domain=MICROSOFT),
    row("SimplifiedLayerNormalization", _rms_norm, domain=MICROSOFT),
    row("SkipLayerNormalization", _skip_layer_norm, domain=MICROSOFT),
    row("SkipSimplifiedLayerNormalization", _skip_rms_norm, domain=MICROSOFT),
)  # fmt: skip
