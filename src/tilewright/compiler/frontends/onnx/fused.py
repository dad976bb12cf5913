"""Rows for what onnxruntime's optimizer makes one node of: biases, gates and activations around other operators.

Source: onnxruntime ContribOperators.md, per op in the row.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tilewright.base import dtypes, symbolic
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.random_numbers import dropout
from tilewright.compiler.frontends.onnx.row import MICROSOFT, Row, row
from tilewright.compiler.ops.shapes import channel_axis, element_count, normal_axis


def _bias_add(call: Call) -> Tensor:
    e = call.maker
    return e.op("add", e.op("add", call.tensor(0), call.tensor(1)), call.tensor(2))


def _bias_split_gelu(call: Call) -> Tensor:
    """The left half times the gelu of the right one."""
    e, x = call.maker, call.maker.op("add", call.tensor(0), call.tensor(1))
    half, last = symbolic.floordiv(x.shape[-1], 2), x.rank - 1
    left, right = (e.slice(x, last, start, half) for start in (0, half))
    return e.op("mul", left, e.op("gelu", right))


def _bias_softmax(call: Call) -> Tensor:
    """Over all axes from one on, as one; the bias lacks axes inside of it or in front."""
    e, x, bias = call.maker, call.tensor(0), call.tensor(1)
    axis = normal_axis(call.integer("axis", 1), x.rank)
    if call.flag("is_inner_broadcast", default=True) and bias.rank < x.rank:
        # Its axes are the first ones of the operand and those of the softmax.
        outer = bias.rank - (x.rank - axis)
        bias = e.unsqueeze(bias, range(outer, outer + x.rank - bias.rank))
    total = e.op("add", x, bias)
    if axis == x.rank - 1:
        return e.op("softmax", total, axis=axis)
    flat = e.reshape(total, (*total.shape[:axis], element_count(total.shape[axis:])))
    return e.reshape(e.op("softmax", flat, axis=axis), total.shape)


def _bias_dropout(call: Call) -> list[Tensor | None]:
    e, residual = call.maker, call.optional(2)
    x = e.op("add", call.tensor(0), call.tensor(1))
    plain = replace(call, inputs=[x, call.optional(3), call.optional(4)], opset=13)
    result, mask = dropout(plain)
    if result is not None and residual is not None:
        result = e.op("add", result, residual)
    return [result, mask]


def _gated_add(call: Call) -> Tensor:
    """The second operand times a gate of each row; a projection makes the gate where one is given."""
    e, gate, weight = call.maker, call.tensor(2), call.optional(3)
    if weight is not None:
        wide = [e.cast(x, dtypes.f32) for x in (gate, weight)]
        gate = e.cast(e.op("sigmoid", e.op("matmul", *wide)), gate.dtype)
    return e.op("add", call.tensor(0), e.op("mul", call.tensor(1), gate))


def _gated_rms_norm(call: Call) -> Tensor:
    """Groups of as many columns as there are scales, each normalized, times an activated gate."""
    e, x, scale = call.maker, call.tensor(0), call.tensor(1)
    kind = call.choice("activation", "silu", ("silu", "swish", "sigmoid"))
    each = scale.shape[0]
    groups = (*x.shape[:-1], symbolic.floordiv(x.shape[-1], each), each)
    wide = e.reshape(e.cast(x, dtypes.f32), groups)
    epsilon = call.float("epsilon", 1e-5)
    normal = e.op("rms_norm", wide, e.cast(scale, dtypes.f32), axis=-1, epsilon=epsilon)
    gate = e.cast(call.tensor(2), dtypes.f32)
    gate = e.op("sigmoid" if kind == "sigmoid" else "silu", gate)
    return e.cast(e.op("mul", e.reshape(normal, x.shape), gate), x.dtype)


def _branchwise_rms_norm(call: Call) -> Tensor:
    """Every branch normalized alone: the last axis, or as many parts of it as are said."""
    e, x, scale = call.maker, call.tensor(0), call.optional(1)
    count, epsilon = call.integer("num_branches", 0), call.float("epsilon", 1e-5)
    shape = x.shape
    if count:
        shape = (*x.shape[:-1], count, symbolic.floordiv(x.shape[-1], count))
    wide = e.reshape(e.cast(x, dtypes.f32), shape)
    normal = e.op("rms_norm", wide, None, axis=-1, epsilon=epsilon)
    if scale is not None:
        factor = e.cast(scale, dtypes.f32)
        if factor.rank == 1 and factor.shape[0] != shape[-1]:
            factor = e.reshape(factor, shape[-2:])
        normal = e.op("mul", normal, factor)
    return e.cast(e.reshape(normal, x.shape), x.dtype)


def _scaled_silu(call: Call) -> Tensor:
    """Rounded to the type of the operand at each step."""
    e, x, scale = call.maker, call.tensor(0), call.optional(1)
    alpha = call.float("alpha", 1.0)
    factor = e.scalar(alpha, x.dtype) if scale is None else e.reshape(scale, ())
    scaled = e.op("mul", x, e.cast(factor, x.dtype))
    return e.op("mul", scaled, e.op("sigmoid", scaled))


def _swiglu(call: Call) -> Tensor:
    """A limited gate, activated, times a limited other half."""
    e, x, up = call.maker, call.tensor(0), call.optional(1)
    alpha, beta = call.float("activation_alpha", 1.0), call.float("activation_beta", 0.0)
    limit, rounded = call.float("limit", 0.0), call.flag("round_activation")
    last = x.rank - 1
    if up is None:
        half = symbolic.floordiv(x.shape[last], 2)
        gate, up = (e.slice(x, last, start, half) for start in (0, half))
    else:
        gate = x
    wide = dtypes.f64 if x.dtype is dtypes.f64 else dtypes.f32
    gate, up = e.cast(gate, wide), e.cast(up, wide)
    if limit > 0:
        high = e.scalar(limit, wide)
        gate, up = e.op("min", gate, high), e.op("clip", up, e.scalar(-limit, wide), high)
    turned = e.op("sigmoid", e.op("mul", gate, e.scalar(alpha, wide)))
    value = e.op("mul", gate, turned)
    if rounded:
        value = e.cast(e.cast(value, x.dtype), wide)
    up = e.op("add", up, e.scalar(beta, wide)) if beta else up
    return e.cast(e.op("mul", value, up), x.dtype)


def _group_norm_of(call: Call, x: Tensor) -> Tensor:
    e = call.maker
    layout = "NHWC" if call.flag("channels_last", default=True) else "NCHW"
    normal = e.op(
        "group_norm", x, call.tensor(1), call.tensor(2), groups=call.integer("groups"),
        epsilon=call.float("epsilon", 1e-5), layout=layout,
    )  # fmt: skip
    kind = call.integer("activation")
    if kind not in (0, 1):
        raise ModelError(f"attribute 'activation' is {kind}, expected 0 or 1")
    return e.op("silu", normal) if kind else normal


def _group_norm(call: Call) -> Tensor:
    return _group_norm_of(call, call.tensor(0))


def _skip_group_norm(call: Call) -> list[Tensor]:
    """The sum with a skip, of every pixel or of every channel, and a bias of channels, normalized."""
    e, x, skip, bias = call.maker, call.tensor(0), call.tensor(3), call.optional(4)
    last = call.flag("channels_last", default=True)
    channels = channel_axis(x.rank, "NHWC" if last else "NCHW")
    if skip.rank == 2:
        shape: list[symbolic.Dim] = [1] * x.rank
        shape[0], shape[channels] = skip.shape
        skip = e.reshape(skip, shape)
    total = e.op("add", x, skip)
    if bias is not None:
        places = [i for i in range(x.rank) if i != channels]
        total = e.op("add", total, e.unsqueeze(bias, places))
    return [_group_norm_of(call, total), total]


def _is_all_finite(call: Call) -> Tensor:
    e = call.maker
    only_nan, only_inf = call.flag("isnan_only"), call.flag("isinf_only")
    if only_nan and only_inf:
        raise ModelError("attributes 'isnan_only' and 'isinf_only' are both 1")
    found = e.scalar(0, dtypes.i32)
    for x in call.tensors():
        kinds = [] if only_inf else [e.op("is_nan", x)]
        kinds += [] if only_nan else [e.op("is_inf", x)]
        for kind in kinds:
            most = e.op(
                "reduce_max", e.cast(kind, dtypes.i32), axes=tuple(range(x.rank)), keepdims=False
            )  # fmt: skip
            found = e.op("max", found, most)
    return e.op("equal", found, e.scalar(0, dtypes.i32))


def _torch_embedding(call: Call) -> Tensor:
    return call.maker.op("gather", call.tensor(0), call.tensor(1), axis=0)


ROWS: Final[tuple[Row, ...]] = (
    row("BiasAdd", _bias_add, domain=MICROSOFT),
    row("BiasDropout", _bias_dropout, domain=MICROSOFT),
    row("BiasSoftmax", _bias_softmax, domain=MICROSOFT),
    row("BiasSplitGelu", _bias_split_gelu, domain=MICROSOFT),
    row("BranchwiseRMSNorm", _branchwise_rms_norm, domain=MICROSOFT),
    row("GatedAdd", _gated_add, domain=MICROSOFT),
    row("GatedRMSNorm", _gated_rms_norm, domain=MICROSOFT),
    row("GroupNorm", _group_norm, domain=MICROSOFT),
    row("IsAllFinite", _is_all_finite, domain=MICROSOFT),
    row("ScaledSiLU", _scaled_silu, domain=MICROSOFT),
    row("SkipGroupNorm", _skip_group_norm, domain=MICROSOFT),
    row("SwiGLU", _swiglu, domain=MICROSOFT),
    row("TorchEmbedding", _torch_embedding, domain=MICROSOFT),
)
