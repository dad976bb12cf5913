"""Rows for quantized programs (PT2E): real numbers to whole ones of a scale and a zero point, and back.

They are the conversions that quantized models of ONNX have, so contractions between them multiply bytes.  How scales
are chosen from data is taken apart in `decomposed_quantization`.

Source: `torch.ao.quantization.fx._decomposed`.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.torch.axes import axis_of
from tilewright.compiler.frontends.torch.call import Call
from tilewright.compiler.frontends.torch.elementwise import convert
from tilewright.compiler.frontends.torch.row import Row, row

_STORED: Final = (dtypes.i8, dtypes.u8, dtypes.i16, dtypes.u16)
"""What sums of f32 hold exactly."""


def _quantize_whole(call: Call) -> Tensor:
    return _quantized(call, 0, ("scale", "zero_point"))


def _quantize_channels(call: Call) -> Tensor:
    axis = axis_of(call, call.tensor("input").rank, "axis")
    return _quantized(call, axis, ("scales", "zero_points"))


def _quantized(call: Call, axis: int, names: tuple[str, str]) -> Tensor:
    e, dtype = call.maker, call.dtype()
    call.argument("dtype")
    x = e.cast(call.tensor("input"), dtypes.f32)
    scale, zero = (_single(e, call.operand(name, dtypes.f32)) for name in names)
    if call.is_number(names[0]):
        x, scale = _by_share(e, x, call.number(names[0]))
    if dtype not in _STORED or not _fits(zero, dtype):
        return _rounded(call, x, (scale, zero), axis)
    found = e.op(
        "quantize_linear", x, scale, e.cast(zero, dtype), axis=axis, dtype=dtype,
        reciprocal=True,
    )  # fmt: skip
    return _within(call, found)


def _by_share(e: NodeMaker, x: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """What is divided by a scale of Python's, which torch multiplies by the rounded `1 / scale`, and by what."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        share, near = np.float32(1 / scale), np.float32(scale)
        for number in (near, np.nextafter(near, np.float32(0)), near + np.spacing(near)):
            if np.float32(1) / number == share:
                return x, e.constant(np.asarray(number, np.float32))
    return e.op("mul", x, e.constant(np.asarray(share))), e.scalar(1, dtypes.f32)


def _single(e: NodeMaker, x: Tensor) -> Tensor:
    """One number is a scalar."""
    return e.reshape(x, ()) if x.type.element_count == 1 else x


def _within(call: Call, x: Tensor) -> Tensor:
    """What is outside of the given limits at the nearer one of them."""
    e, (least, most) = call.maker, _limits(x.dtype)
    low, high = call.operand("quant_min", dtypes.i64), call.operand("quant_max", dtypes.i64)
    if not _is_number(low, least):
        x = e.op("max", x, _stored(e, low, x.dtype))
    if not _is_number(high, most):
        x = e.op("min", x, _stored(e, high, x.dtype))
    return x


def _stored(e: NodeMaker, limit: Tensor, dtype: DType) -> Tensor:
    """A limit as a number of the type that it limits; one that the type does not have limits nothing."""
    bounds = [e.scalar(number, dtypes.i64) for number in _limits(dtype)]
    inside = e.op("min", e.op("max", limit, bounds[0]), bounds[1])
    return e.reshape(e.cast(inside, dtype), ())


def _is_number(x: Tensor, number: int) -> bool:
    return x.array is not None and x.array.size == 1 and x.array.item() == number


def _rounded(call: Call, x: Tensor, by: tuple[Tensor, Tensor], axis: int) -> Tensor:
    """In floats, step by step, what no type of bytes holds on the way."""
    e = call.maker
    scale, zero = (_beside(e, t, x, axis) for t in by)
    places = e.op("round", e.op("mul", x, e.op("div", e.scalar(1, dtypes.f32), scale)))
    return _limited(call, e.op("add", places, zero))


def _limited(call: Call, x: Tensor) -> Tensor:
    e = call.maker
    low, high = call.operand("quant_min", x.dtype), call.operand("quant_max", x.dtype)
    clipped = e.op("min", e.op("max", x, e.reshape(low, ())), e.reshape(high, ()))
    return convert(e, clipped, call.dtype())


def _beside(e: NodeMaker, values: Tensor, x: Tensor, axis: int) -> Tensor:
    """Numbers of one axis as those of all axes of `x`."""
    if values.rank != 1 or x.rank == 1:
        return values
    return e.reshape(values, [values.shape[0] if i == axis else 1 for i in range(x.rank)])


def _fits(zero: Tensor, dtype: DType) -> bool:
    """Whether zero points surely are whole numbers of a type; those that data decides are, as torch chooses them."""
    if zero.array is None:
        return True
    held, (least, most) = zero.array.astype(np.float64), _limits(dtype)
    return bool(((held == np.rint(held)) & (held >= least) & (held <= most)).all())


def _limits(dtype: DType) -> tuple[int, int]:
    """The least and the largest of whole numbers."""
    most = (1 << (dtype.bits - dtype.is_signed)) - 1
    return (-most - 1 if dtype.is_signed else 0), most


def _dequantize_whole(call: Call) -> Tensor:
    return _dequantized(call, 0, ("scale", "zero_point"))


def _dequantize_channels(call: Call) -> Tensor:
    axis = axis_of(call, call.tensor("input").rank, "axis")
    return _dequantized(call, axis, ("scales", "zero_points"))


def _dequantized(call: Call, axis: int, names: tuple[str, str]) -> Tensor:
    e, x = call.maker, call.tensor("input")
    for name in ("dtype", "out_dtype", "quant_min", "quant_max"):
        call.argument(name)
    scale = _single(e, call.operand(names[0], dtypes.f32))
    zero = _zero(call, names[1])
    if x.dtype not in _STORED or (zero is not None and not _is_zero_point(call, zero, x)):
        wide, factor = e.cast(x, dtypes.f32), _beside(e, scale, x, axis)
        if zero is not None:
            wide = e.op("sub", wide, _beside(e, zero, x, axis))
        return call.finish(e.op("mul", wide, factor))
    stored = None if zero is None else e.cast(zero, x.dtype)
    found = e.op("dequantize_linear", x, scale, stored, axis=axis, dtype=dtypes.f32)
    return call.finish(found)


def _zero(call: Call, name: str) -> Tensor | None:
    if not call.has(name):
        return None
    return _single(call.maker, call.operand(name, dtypes.f32))


def _dequantize_groups(call: Call) -> Tensor:
    """Each row of a matrix in groups of neighbours, with a scale for each group."""
    e, x, size = call.maker, call.tensor("input"), call.integer("group_size", 128)
    for name in ("dtype", "output_dtype", "quant_min", "quant_max"):
        call.argument(name)
    rows, width = x.shape
    if not isinstance(width, int) or x.dtype not in _STORED:
        raise UnsupportedError("groups of rows of this type or width are not supported")
    size = min(size, width)
    shape = (rows, width // size)
    scale = e.reshape(call.operand("scales", dtypes.f32), shape)
    zero = _zero(call, "zero_points")
    if zero is not None and not _is_zero_point(call, zero, x):
        raise UnsupportedError("zero points that are no elements are not supported here")
    stored = None if zero is None else e.cast(e.reshape(zero, shape), x.dtype)
    found = e.op(
        "dequantize_linear", x, scale, stored, axis=1, block_size=size, dtype=dtypes.f32
    )
    return call.finish(found)


def _is_zero_point(call: Call, zero: Tensor, x: Tensor) -> bool:
    """Whether zero points are whole numbers of the type of the elements: known ones, or those that torch chose as such."""
    name = "zero_point" if "zero_point" in call.operation.arguments else "zero_points"
    given = None if call.is_number(name) else call.optional(name)
    is_chosen = given is None or not given.dtype.is_float
    return _fits(zero, x.dtype) and (zero.array is not None or is_chosen)


# --- a scale for each row -----------------------------------------------------------------------


def _quantize_rows(call: Call) -> Tensor:
    """`round(x * (1 / scale) + zero)`; the sum is rounded, not the product."""
    e, x = call.maker, call.tensor("input")
    call.argument("dtype")
    scales, zeros = call.tensor("scales"), call.tensor("zero_points")
    wide = dtypes.f64 if dtypes.f64 in (x.dtype, scales.dtype) else dtypes.f32
    shares = e.op("div", e.scalar(1, wide), e.cast(scales, wide))
    moved = e.op("add", e.op("mul", e.cast(x, wide), shares), e.cast(zeros, wide))
    return _limited(call, e.op("round", moved))


def _dequantize_rows(call: Call) -> Tensor:
    """`(x - zero) * scale`."""
    e, x = call.maker, call.tensor("input")
    for name in ("dtype", "output_dtype", "quant_min", "quant_max"):
        call.argument(name)
    scales, zeros = call.tensor("scales"), call.tensor("zero_points")
    wide = dtypes.f64 if scales.dtype == dtypes.f64 else dtypes.f32
    if zeros.dtype.is_float and zeros.dtype.bits > wide.bits:
        raise UnsupportedError("zero points of more digits than their scales")
    gap = e.op("sub", e.cast(x, wide), e.cast(zeros, wide))
    return call.finish(e.op("mul", gap, e.cast(scales, wide)))


_LIBRARY: Final = "quantized_decomposed"


def _names(name: str, *overloads: str) -> str:
    return " ".join(
        f"{_LIBRARY}::{name}{overload and f'.{overload}'}" for overload in overloads
    )


_OF_DATA: Final = ("", "tensor", "tensor2")
ROWS: Final[tuple[Row, ...]] = (
    row(_names("quantize_per_tensor", *_OF_DATA), _quantize_whole),
    row(_names("dequantize_per_tensor", *_OF_DATA), _dequantize_whole),
    row(_names("quantize_per_channel", ""), _quantize_channels),
    row(_names("dequantize_per_channel", ""), _dequantize_channels),
    row(_names("dequantize_per_channel_group", ""), _dequantize_groups),
    row(_names("quantize_per_token", ""), _quantize_rows),
    row(_names("dequantize_per_token", ""), _dequantize_rows),
)
