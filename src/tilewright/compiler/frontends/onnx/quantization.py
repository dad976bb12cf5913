"""Rows for quantization: to and from integers, and contractions of integers.

Integer contractions are computed exactly in i32: zero points are subtracted first, results are
scaled, rounded to even and saturated.

Source: ONNX operator reference (QuantizeLinear, DequantizeLinear, QLinear*, *Integer).
"""

from __future__ import annotations

from typing import Final

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.contraction import matmul
from tilewright.compiler.frontends.onnx.convolution import conv
from tilewright.compiler.frontends.onnx.elementwise import convert
from tilewright.compiler.frontends.onnx.reduction import extremes, reduce
from tilewright.compiler.frontends.onnx.row import MICROSOFT, Row, row
from tilewright.compiler.frontends.onnx.tensors import dtype_of
from tilewright.compiler.ops.shapes import normal_axis


def _axis(call: Call, rank: int) -> int:
    """The channel axis; one scale for the whole tensor has none, whatever number stands there."""
    axis = call.integer("axis", 1)
    scale = call.tensor(1)
    if scale.rank <= 1 and scale.type.element_count == 1:
        return 0
    return normal_axis(axis, rank)


def _scalar_like(e: NodeMaker, x: Tensor | None) -> Tensor | None:
    return None if x is None else scalar_like(e, x)


def scalar_like(e: NodeMaker, x: Tensor) -> Tensor:
    """One-element vectors count as scalars."""
    return e.reshape(x, ()) if x.shape == (1,) else x


_QUOTIENT_IS_ROUNDED: Final = 23
"""The opset from which QuantizeLinear divides in the type of its scale, or the one that `precision` names."""


def _quantize(call: Call) -> Tensor:
    e, x, scale, zero = call.maker, call.tensor(0), call.tensor(1), call.optional(2)
    code = call.integer("output_dtype", 0)
    saturate = call.flag("saturate", default=True)
    precision = call.integer("precision", 0)
    dtype = dtype_of(code) if code else dtypes.u8
    block = call.integer("block_size", 0)
    axis = _axis(call, x.rank)
    if x.rank != 1 or block == 0:
        scale, zero = _need(_scalar_like(e, scale)), _scalar_like(e, zero)
    target = dtype if zero is None else zero.dtype
    if target.is_float and block == 0:
        # 8-bit floats: no rounding to whole numbers, and a zero point of zero.
        if scale.rank:
            scale = e.reshape(scale, (*scale.shape, *([1] * (x.rank - 1 - axis))))
        quotient = e.op("div", x, e.cast(scale, x.dtype))
        return convert(e, quotient, target, saturate=saturate)
    exact = dtype_of(precision) if precision else scale.dtype
    if call.opset >= _QUOTIENT_IS_ROUNDED and exact.bits < 32 and block == 0:
        wide = scale
        if scale.rank:
            wide = e.reshape(scale, (*scale.shape, *([1] * (x.rank - 1 - axis))))
        x = e.op("div", e.cast(x, exact), e.cast(wide, exact))
        scale = e.full(1.0, exact, scale.shape)
    return e.op(
        "quantize_linear",
        x,
        scale,
        zero,
        axis=axis,
        block_size=block,
        dtype=target,
    )


def _dequantize(call: Call) -> Tensor:
    e, x, scale, zero = call.maker, call.tensor(0), call.tensor(1), call.optional(2)
    code = call.integer("output_dtype", 0)
    block = call.integer("block_size", 0)
    axis = _axis(call, x.rank)
    if x.rank != 1 or block == 0:
        scale, zero = _need(_scalar_like(e, scale)), _scalar_like(e, zero)
    return e.op(
        "dequantize_linear",
        x,
        scale,
        zero,
        axis=axis,
        block_size=block,
        dtype=dtype_of(code) if code else scale.dtype,
    )


def _need(x: Tensor | None) -> Tensor:
    assert x is not None
    return x


def centred(e: NodeMaker, x: Tensor, zero: Tensor | None, *, trailing: int) -> Tensor:
    """`x` minus its zero point, as i32; a vector of zero points gets `trailing` axes behind it."""
    wide = e.cast(x, dtypes.i32)
    if zero is None:
        return wide
    if zero.rank == 1 and zero.shape[0] != 1:
        zero = e.reshape(zero, (*zero.shape, *([1] * trailing)))
    elif zero.rank <= 1:
        zero = e.reshape(zero, ())
    return e.op("sub", wide, e.cast(zero, dtypes.i32))


def requantize(
    e: NodeMaker, total: Tensor, factor: Tensor, zero: Tensor | None, dtype: DType
) -> Tensor:
    """`round(total * factor) + zero`, saturated to `dtype`."""
    scaled = e.op("round", e.op("mul", e.cast(total, dtypes.f32), factor))
    if zero is not None:
        scaled = e.op("add", scaled, e.cast(_need(_scalar_like(e, zero)), dtypes.f32))
    low, high = (e.cast(t, dtypes.f32) for t in extremes(e, dtype))
    return e.cast(e.op("clip", scaled, low, high), dtype)


def _matmul_integer(call: Call) -> Tensor:
    e = call.maker
    left = centred(e, call.tensor(0), call.optional(2), trailing=1)
    right = centred(e, call.tensor(1), call.optional(3), trailing=0)
    return matmul(e, left, right)


def _matmul_integer_16(call: Call) -> Tensor:
    e = call.maker
    return matmul(e, *(e.cast(call.tensor(i), dtypes.i32) for i in (0, 1)))


def _conv_integer(call: Call) -> Tensor:
    e, x, w = call.maker, call.tensor(0), call.tensor(1)
    left = centred(e, x, call.optional(2), trailing=0)
    right = centred(e, w, call.optional(3), trailing=w.rank - 1)
    return conv(call, left, right, None)


def _factor(e: NodeMaker, scales: list[Tensor], trailing: int) -> Tensor:
    """`a * b / c` of the scales; a vector gets `trailing` axes behind it."""
    shaped: list[Tensor] = []
    for scale in scales:
        wide = e.cast(_need(_scalar_like(e, scale)), dtypes.f32)
        if wide.rank == 1:
            wide = e.reshape(wide, (*wide.shape, *([1] * trailing)))
        shaped.append(wide)
    return e.op("div", e.op("mul", shaped[0], shaped[1]), shaped[2])


def _qlinear_matmul(call: Call) -> Tensor:
    e, (a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero) = (
        call.maker,
        call.tensors(),
    )
    total = matmul(e, centred(e, a, a_zero, trailing=1), centred(e, b, b_zero, trailing=0))
    left, right, result = (_need(_scalar_like(e, s)) for s in (a_scale, b_scale, y_scale))
    if left.rank == 1:
        left = e.reshape(left, (*left.shape, 1))
    factor = _factor(e, [left, right, result], trailing=0)
    return requantize(e, total, factor, y_zero, y_zero.dtype)


def _qlinear_conv(call: Call) -> Tensor:
    return quantized_conv(call, call.tensor(0), call.tensor(3))


def quantized_conv(call: Call, x: Tensor, w: Tensor) -> Tensor:
    """The convolution of bytes `x` and `w`; scales and zero points are those of QLinearConv's operands."""
    e = call.maker
    x_scale, x_zero, w_scale, w_zero, y_scale, y_zero = (
        call.tensor(i) for i in (1, 2, 4, 5, 6, 7)
    )
    left = centred(e, x, x_zero, trailing=0)
    right = centred(e, w, w_zero, trailing=w.rank - 1)
    total = conv(call, left, right, call.optional(8))
    factor = _factor(e, [x_scale, w_scale, y_scale], trailing=x.rank - 2)
    return requantize(e, total, factor, y_zero, y_zero.dtype)


def _dynamic_quantize_matmul(call: Call) -> Tensor:
    """What DynamicQuantizeLinear and MatMulInteger compute, which it stands for."""
    e, a, b = call.maker, call.tensor(0), call.tensor(1)
    rows, row_scale, row_zero = _quantized_by_range(e, a)
    left = centred(e, rows, row_zero, trailing=0)
    right = centred(e, b, call.optional(3), trailing=0)
    factor = e.op("mul", row_scale, _need(_scalar_like(e, call.tensor(2))))
    result = e.op("mul", e.cast(matmul(e, left, right), a.dtype), factor)
    bias = call.optional(4)
    return result if bias is None else e.op("add", result, bias)


def _quantized_by_range(e: NodeMaker, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Bytes, scale and zero point of DynamicQuantizeLinear: 0 and all elements are in range."""
    axes = tuple(range(x.rank))
    nothing, largest = e.full(0.0, x.dtype, ()), e.full(255.0, x.dtype, ())
    low = e.op("min", reduce(e, "reduce_min", x, axes, keepdims=False), nothing)
    high = e.op("max", reduce(e, "reduce_max", x, axes, keepdims=False), nothing)
    scale = e.op("div", e.op("sub", high, low), largest)
    place = e.op("sub", nothing, e.op("div", low, scale))
    zero = e.cast(e.op("round", e.op("clip", place, nothing, largest)), dtypes.u8)
    whole = e.op("quantize_linear", x, scale, zero, axis=0, dtype=dtypes.u8)
    return whole, scale, zero


def _matmul_integer_to_float(call: Call) -> Tensor:
    e = call.maker
    left = centred(e, call.tensor(0), call.optional(4), trailing=1)
    right = centred(e, call.tensor(1), call.optional(5), trailing=0)
    scales = [_need(_scalar_like(e, call.tensor(i))) for i in (2, 3)]
    product = e.op("mul", e.cast(matmul(e, left, right), scales[0].dtype), scales[0])
    result = e.op("mul", product, scales[1])
    bias = call.optional(6)
    return result if bias is None else e.op("add", result, bias)


ROWS: Final[tuple[Row, ...]] = (
    row("ConvInteger", _conv_integer),
    row("DequantizeLinear", _dequantize),
    row("MatMulInteger", _matmul_integer),
    row("QLinearConv", _qlinear_conv),
    row("QLinearMatMul", _qlinear_matmul),
    row("QuantizeLinear", _quantize),
    row("DequantizeLinear", _dequantize, domain=MICROSOFT),
    row("DynamicQuantizeMatMul", _dynamic_quantize_matmul, domain=MICROSOFT),
    row("MatMulInteger16", _matmul_integer_16, domain=MICROSOFT),
    row("MatMulIntegerToFloat", _matmul_integer_to_float, domain=MICROSOFT),
    row("QuantizeLinear", _quantize, domain=MICROSOFT),
)
