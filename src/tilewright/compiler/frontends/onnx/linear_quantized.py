"""Rows for onnxruntime's operators on quantized tensors that are no contraction, and QGemm.

What onnxruntime's quantizer writes in the format `QOperator` (domain com.microsoft).  Each is the operator on the floats
that the bytes stand for, quantized again; passes find bytes where they gain.

Source: onnxruntime, docs/ContribOperators.md (QGemm, QEmbedLayerNormalization, QLinear*, MulInteger, ReduceSumInteger).
"""

from __future__ import annotations

import math
from typing import Final

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.contraction import matmul, swap_last
from tilewright.compiler.frontends.onnx.convolution import (
    average_pool,
    channels_first,
    channels_last,
)
from tilewright.compiler.frontends.onnx.quantization import (
    centred,
    quantized_conv,
    requantize,
    scalar_like,
)
from tilewright.compiler.frontends.onnx.reduction import reduce
from tilewright.compiler.frontends.onnx.row import MICROSOFT, Build, Row, row
from tilewright.compiler.ops.shapes import channel_axis, normal_axis, spatial_axes


def _floats(e: NodeMaker, x: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor:
    """What the bytes stand for; one scale for the tensor."""
    return e.op(
        "dequantize_linear",
        x,
        scalar_like(e, scale),
        _zero(e, zero),
        axis=0,
        dtype=dtypes.f32,
    )


def _zero(e: NodeMaker, zero: Tensor | None) -> Tensor | None:
    return None if zero is None else scalar_like(e, zero)


def _bytes(
    e: NodeMaker, x: Tensor, scale: Tensor, zero: Tensor | None, dtype: DType
) -> Tensor:
    """Floats as bytes again, of the type of the zero point, else of `dtype`."""
    target = dtype if zero is None else zero.dtype
    return e.op(
        "quantize_linear", x, scalar_like(e, scale), _zero(e, zero), axis=0, dtype=target
    )


def _operand(call: Call, first: int) -> Tensor:
    """The floats of operands `first` (bytes), and those behind it (scale, zero point)."""
    return _floats(
        call.maker, call.tensor(first), call.tensor(first + 1), call.optional(first + 2)
    )


def _result(call: Call, value: Tensor, first: int) -> Tensor:
    """`value` as bytes with the scale and zero point that begin at operand `first`."""
    scale, zero = call.tensor(first), call.optional(first + 1)
    return _bytes(call.maker, value, scale, zero, call.tensor(0).dtype)


def _binary(op: str) -> Build:
    def build(call: Call) -> Tensor:
        value = call.maker.op(op, _operand(call, 0), _operand(call, 3))
        return _result(call, value, 6)

    return build


def _sigmoid(call: Call) -> Tensor:
    return _result(call, call.maker.op("sigmoid", _operand(call, 0)), 3)


def _leaky_relu(call: Call) -> Tensor:
    e, x, alpha = call.maker, _operand(call, 0), call.float("alpha", 0.01)
    return _result(call, e.op("leaky_relu", x, alpha=alpha), 3)


def _softmax(call: Call) -> Tensor:
    """Over one axis; before opset 13 over all from there on, as one."""
    e, x = call.maker, _operand(call, 0)
    opset = call.integer("opset")
    axis = normal_axis(call.integer("axis", -1), x.rank)
    if opset >= 13:
        return _result(call, e.op("softmax", x, axis=axis), 3)
    if not all(isinstance(size, int) for size in x.shape):
        raise ModelError("softmax over several axes needs sizes that are known")
    sizes = [size for size in x.shape if isinstance(size, int)]
    flat = e.reshape(x, (math.prod(sizes[:axis]), math.prod(sizes[axis:])))
    return _result(call, e.reshape(e.op("softmax", flat, axis=1), x.shape), 3)


def _global_average_pool(call: Call) -> Tensor:
    e, x = call.maker, _operand(call, 0)
    layout = "NHWC" if call.flag("channels_last") else "NCHW"
    if channel_axis(x.rank, layout) >= x.rank or x.rank < 3:
        raise ModelError(f"operand has type {x.type}, expected images")
    axes = spatial_axes(x.rank, layout)
    return _result(call, e.op("reduce_mean", x, axes=axes, keepdims=True), 3)


def _average_pool(call: Call) -> Tensor:
    e, x, last = call.maker, _operand(call, 0), call.flag("channels_last")
    x = channels_first(e, x) if last else x
    pooled = average_pool(call, x)
    return _result(call, channels_last(e, pooled) if last else pooled, 3)


def _where(call: Call) -> Tensor:
    e, zero = call.maker, call.tensor(8)
    value = e.op("where", call.tensor(0), _operand(call, 1), _operand(call, 4))
    return _bytes(e, value, call.tensor(7), zero, zero.dtype)


def _reduce_mean(call: Call) -> Tensor:
    e, x = call.maker, _operand(call, 0)
    axes = [normal_axis(a, x.rank) for a in call.integers("axes", tuple(range(x.rank)))]
    value = reduce(e, "reduce_mean", x, axes, keepdims=call.flag("keepdims", default=True))
    return _result(call, value, 3)


def _conv(call: Call) -> Tensor:
    """As ONNX's, images perhaps with channels last; their filters are as ever."""
    e, x, w, last = call.maker, call.tensor(0), call.tensor(3), call.flag("channels_last")
    x = channels_first(e, x) if last else x
    total = quantized_conv(call, x, w)
    return channels_last(e, total) if last else total


def _mul_integer(call: Call) -> Tensor:
    """Products of 32 bits."""
    e = call.maker
    left = centred(e, call.tensor(0), call.optional(1), trailing=0)
    return e.op("mul", left, centred(e, call.tensor(2), call.optional(3), trailing=0))


def _reduce_sum_integer(call: Call) -> Tensor:
    """Sums of 32 bits, with the sign that the operand has."""
    e, x = call.maker, call.tensor(0)
    wide = e.cast(x, dtypes.i32 if x.dtype.is_signed else dtypes.u32)
    axes = [normal_axis(a, x.rank) for a in call.integers("axes", tuple(range(x.rank)))]
    return reduce(e, "reduce_sum", wide, axes, keepdims=call.flag("keepdims", default=True))


def _embed_layer_norm(call: Call) -> list[Tensor | None]:
    """The embeddings of BERT out of tables of bytes, added and normalized."""
    e, ids = call.maker, call.tensor(0)

    def floats(value: int, scale: int, zero: int) -> Tensor:
        return _floats(e, call.tensor(value), call.tensor(scale), call.optional(zero))

    total = e.op("gather", floats(2, 8, 13), ids, axis=0)
    places = e.broadcast_to(e.iota((1, ids.shape[1]), 1), ids.shape)
    total = e.op("add", total, e.op("gather", floats(3, 9, 14), places, axis=0))
    if call.optional(1) is not None:
        segments = e.op("gather", floats(4, 10, 15), call.tensor(1), axis=0)
        total = e.op("add", total, segments)
    gamma, beta = floats(5, 11, 16), floats(6, 12, 17)
    epsilon = call.float("epsilon", 1e-12)
    result = e.op("layer_norm", total, gamma, beta, axis=total.rank - 1, epsilon=epsilon)
    mask = call.optional(7)
    if mask is None:
        return [result, e.full(0, dtypes.i32, (ids.shape[0],))]
    wide = e.cast(mask, dtypes.i32)
    return [result, reduce(e, "reduce_sum", wide, (1,), keepdims=False)]


def _concat(call: Call) -> Tensor:
    """Scale and zero point of the result come first, then three operands for each part."""
    e, count = call.maker, len(call.tensors())
    if count < 5 or (count - 2) % 3:
        raise ModelError(f"has {count} operands, expected 2 and 3 for each part")
    parts = [_operand(call, first) for first in range(2, count, 3)]
    axis = normal_axis(call.integer("axis"), parts[0].rank)
    zero = call.tensor(1)
    return _bytes(e, e.op("concat", *parts, axis=axis), call.tensor(0), zero, zero.dtype)


def _gemm(call: Call) -> Tensor:
    """`alpha * a @ b + c`: sums of 32 bits, to which `c`, in their scale, is added; floats where no result scale is."""
    e = call.maker
    a, b = call.tensor(0), call.tensor(3)
    left = centred(e, a, call.optional(2), trailing=1)
    right = centred(
        e, swap_last(e, b) if call.flag("transB") else b, call.optional(5), trailing=0
    )
    total = matmul(e, swap_last(e, left) if call.flag("transA") else left, right)
    addend = call.optional(6)
    if addend is not None:
        total = e.op("add", total, addend)
    scales = (e.cast(scalar_like(e, call.tensor(i)), dtypes.f32) for i in (1, 4))
    factor = e.op("mul", *scales)
    alpha = call.float("alpha", 1.0)
    if alpha != 1.0:
        factor = e.op("mul", factor, e.scalar(alpha, dtypes.f32))
    scale, zero = call.optional(7), call.optional(8)
    if scale is None:
        return e.op("mul", e.cast(total, dtypes.f32), factor)
    factor = e.op("div", factor, scalar_like(e, scale))
    return requantize(e, total, factor, zero, a.dtype if zero is None else zero.dtype)


ROWS: Final[tuple[Row, ...]] = (
    row("MulInteger", _mul_integer, domain=MICROSOFT),
    row(
        "QEmbedLayerNormalization",
        _embed_layer_norm,
        domain=MICROSOFT,
        ignores=("mask_index_type",),
    ),
    row("QLinearAveragePool", _average_pool, domain=MICROSOFT),
    row("QLinearConv", _conv, domain=MICROSOFT),
    row("QLinearReduceMean", _reduce_mean, domain=MICROSOFT),
    row("QLinearWhere", _where, domain=MICROSOFT),
    row("ReduceSumInteger", _reduce_sum_integer, domain=MICROSOFT),
    row("QGemm", _gemm, domain=MICROSOFT),
    row("QLinearAdd", _binary("add"), domain=MICROSOFT),
    row("QLinearConcat", _concat, domain=MICROSOFT),
    row("QLinearGlobalAveragePool", _global_average_pool, domain=MICROSOFT),
    row("QLinearLeakyRelu", _leaky_relu, domain=MICROSOFT),
    row("QLinearMul", _binary("mul"), domain=MICROSOFT),
    row("QLinearSigmoid", _sigmoid, domain=MICROSOFT),
    row("QLinearSoftmax", _softmax, domain=MICROSOFT),
)
