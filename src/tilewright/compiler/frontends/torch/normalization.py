"""Rows for normalizations and softmax.

Source: the operators of ATen by name, `torch.nn.functional` reference pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from tilewright.base import dtypes, symbolic
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.torch.axes import axis_of
from tilewright.compiler.frontends.torch.call import Call
from tilewright.compiler.frontends.torch.reduction import wide_type
from tilewright.compiler.frontends.torch.row import Build, Row, row


def _softmax(op: str) -> Build:
    def build(call: Call) -> Tensor:
        e, dtype = call.maker, call.dtype()
        call.element_type()
        call.argument("half_to_float")
        x = call.operand("self", wide_type(dtype))
        if not x.rank:
            call.argument("dim")
            x = e.op(op, e.reshape(x, (1,)), axis=0)
            return e.reshape(call.finish(x), ())
        axis = axis_of(call, x.rank)
        if any(size == 0 for size in x.shape):
            return call.finish(x)
        return call.finish(e.op(op, x, axis=axis))

    return build


def _safe_softmax(call: Call) -> Tensor:
    """Softmax whose rows without any score are zero."""
    e, dtype = call.maker, call.dtype()
    call.element_type()
    x = call.operand("self", wide_type(dtype))
    axis = axis_of(call, x.rank)
    most = e.op("reduce_max", x, axes=(axis,), keepdims=True)
    found = e.op("softmax", x, axis=axis)
    empty = e.op("equal", most, e.scalar(-np.inf, x.dtype))
    return call.finish(e.op("where", empty, e.scalar(0, x.dtype), found))


def _layer_norm(call: Call) -> Tensor:
    e, x = call.maker, call.tensor("input")
    axis = x.rank - len(call.sizes("normalized_shape"))
    scale, bias = call.optional("weight"), call.optional("bias")
    if any(size == 0 for size in x.shape):
        call.number("eps", 1e-5)
        return x
    return e.op(
        "layer_norm", x, scale, bias, axis=axis, epsilon=float(call.number("eps", 1e-5))
    )


def _native_layer_norm(call: Call) -> Sequence[Tensor]:
    x = call.tensor("input")
    first = x.rank - len(call.sizes("normalized_shape"))
    return _layer_norm(call), *_statistics(call, x, tuple(range(first, x.rank)))


def _statistics(call: Call, x: Tensor, axes: Sequence[int]) -> Sequence[Tensor]:
    """Mean and one over the deviation, which nobody computes who does not ask for them."""
    e, dtype = call.maker, wide_type(x.dtype)
    if any(size == 0 for size in x.shape):
        # Torch sums nothing, and divides by nothing.
        return tuple(e.full(n, call.dtype(1), call.shape(1)) for n in (0, np.nan))
    wide = e.cast(x, dtype)
    mean = e.op("reduce_mean", wide, axes=tuple(axes), keepdims=True)
    gap = e.op("sub", wide, mean)
    variance = e.op("reduce_mean", e.op("mul", gap, gap), axes=tuple(axes), keepdims=True)
    epsilon = e.scalar(call.number("eps", 1e-5), dtype)
    root = e.op("rsqrt", e.op("add", variance, epsilon))
    stated = call.dtype(1)
    return [e.cast(e.reshape(t, call.shape(1)), stated) for t in (mean, root)]


def _rms_norm(call: Call) -> Tensor:
    e, x = call.maker, call.tensor("input")
    axis = x.rank - len(call.sizes("normalized_shape"))
    # Without one it is the smallest step of what the arithmetic happens in.
    smallest = 2.0**-52 if x.dtype == dtypes.f64 else 2.0**-23
    epsilon = float(call.number("eps")) if call.has("eps") else smallest
    if any(size == 0 for size in x.shape):
        call.argument("weight")
        return x
    return e.op("rms_norm", x, call.optional("weight"), axis=axis, epsilon=epsilon)


def _group_norm(call: Call) -> Tensor:
    e, x = call.maker, call.tensor("input")
    name = "num_groups" if "num_groups" in call.operation.arguments else "group"
    groups = call.integer(name)
    for size in ("N", "C", "HxW"):
        call.argument(size)
    scale, bias = call.optional("weight"), call.optional("bias")
    epsilon = float(call.number("eps", 1e-5))
    if any(size == 0 for size in x.shape):
        return x
    wide = x if x.rank > 2 else e.unsqueeze(x, (2,))
    found = e.op("group_norm", wide, scale, bias, groups=groups, epsilon=epsilon)
    return e.reshape(found, x.shape)


def _native_group_norm(call: Call) -> Sequence[Tensor]:
    e, x = call.maker, call.tensor("input")
    groups = call.integer("group")
    split = (x.shape[0], groups, symbolic.floordiv(x.shape[1], groups), *x.shape[2:])
    rows = e.reshape(x, split)
    return _group_norm(call), *_statistics(call, rows, tuple(range(2, rows.rank)))


def _batch_norm(call: Call) -> Tensor:
    x = call.tensor("input")
    for name in ("momentum", "cudnn_enabled"):
        call.argument(name)
    mean, variance = call.optional("running_mean"), call.optional("running_var")
    if x.rank < 2:
        return _of_no_channels(call, x)
    if call.flag("training") or mean is None or variance is None:
        return _by_own_statistics(call, x)
    return _normalized(call, x, mean, variance)


def _of_no_channels(call: Call, x: Tensor) -> Tensor:
    """A vector has no channels; torch lets an empty one pass."""
    for name in ("training", "weight", "bias", "eps"):
        call.argument(name)
    if x.shape != (0,):
        raise UnsupportedError(f"{x.type} has no channels")
    return x


def _normalized(call: Call, x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """`(x - mean) / sqrt(variance + eps) * weight + bias`, per channel: the second axis."""
    e, dtype = call.maker, wide_type(x.dtype)
    shape = (1, x.shape[1], *[1] * (x.rank - 2))

    def along(tensor: Tensor) -> Tensor:
        return e.reshape(e.cast(tensor, dtype), shape)

    epsilon = e.scalar(call.number("eps", 1e-5), dtype)
    root = e.op("rsqrt", e.op("add", e.cast(variance, dtype), epsilon))
    weight, bias = call.optional("weight"), call.optional("bias")
    if weight is not None:
        root = e.op("mul", root, e.cast(weight, dtype))
    shift = e.op("neg", e.op("mul", e.cast(mean, dtype), root))
    if bias is not None:
        shift = e.op("add", shift, e.cast(bias, dtype))
    found = e.op("add", e.op("mul", e.cast(x, dtype), along(root)), along(shift))
    return e.cast(found, x.dtype)


def _by_own_statistics(call: Call, x: Tensor) -> Tensor:
    """With the mean and variance of the batch itself."""
    e, dtype = call.maker, wide_type(x.dtype)
    if any(size == 0 for size in x.shape):
        raise UnsupportedError("statistics of nothing are not supported")
    axes = (0, *range(2, x.rank))
    wide = e.cast(x, dtype)
    mean = e.op("reduce_mean", wide, axes=axes, keepdims=True)
    gap = e.op("sub", wide, mean)
    variance = e.op("reduce_mean", e.op("mul", gap, gap), axes=axes, keepdims=False)
    centred = e.op("reshape", mean, shape=(x.shape[1],))
    return _normalized(call, x, centred, variance)


def _batch_norm_without_training(call: Call) -> Sequence[Tensor]:
    """Beside the result stand statistics of the batch, which has none here: they are empty."""
    e, x = call.maker, call.tensor("input")
    call.argument("momentum")
    mean, variance = call.tensor("running_mean"), call.tensor("running_var")
    empty = [e.full(0, call.dtype(i), call.shape(i)) for i in (1, 2)]
    return _normalized(call, x, mean, variance), *empty


def _instance_norm(call: Call) -> Tensor:
    e, x = call.maker, call.tensor("input")
    for name in ("momentum", "cudnn_enabled"):
        call.argument(name)
    mean, variance = call.optional("running_mean"), call.optional("running_var")
    scale, bias = call.optional("weight"), call.optional("bias")
    epsilon = float(call.number("eps", 1e-5))
    if not call.flag("use_input_stats", default=True):
        if mean is None or variance is None:
            raise UnsupportedError("statistics are missing")
        return _normalized(call, x, mean, variance)
    if any(size == 0 for size in x.shape):
        return x
    return e.op("instance_norm", x, scale, bias, epsilon=epsilon)


ROWS: Final[tuple[Row, ...]] = (
    row("softmax.int _softmax special_softmax", _softmax("softmax")),
    row("log_softmax.int _log_softmax special_log_softmax", _softmax("log_softmax")),
    row("_safe_softmax", _safe_softmax),
    row("layer_norm", _layer_norm, ignores=("cudnn_enable",)),
    row("native_layer_norm", _native_layer_norm),
    row("rms_norm", _rms_norm),
    row("group_norm", _group_norm, ignores=("cudnn_enabled",)),
    row("native_group_norm", _native_group_norm),
    row("batch_norm", _batch_norm),
    row("_native_batch_norm_legit_no_training", _batch_norm_without_training),
    row("instance_norm", _instance_norm),
)
