"""Conversions between real numbers and scaled integers, and functions of bytes as tables.

One scale per tensor, per slice of `axis`, or per block of `block_size` elements along it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

import numpy as np

from tilewright.base import dtypes, symbolic
from tilewright.base.dtypes import (
    ANY,
    DType,
    bf16,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    u8,
    u16,
)
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.schema import Attributes, Layout, Role, TensorType, Trait
from tilewright.compiler.kernel import numerics
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.ir import Expression
from tilewright.compiler.ops import layouts
from tilewright.compiler.ops.bodies import Operands, Results, given, maybe
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
    check_same,
    check_same_shape,
    first,
    need,
    normal_axis,
)

_E: Final = Trait.PURE | Trait.ELEMENTWISE
_REAL: Final = (f32, f16, bf16, f64)
_STORED: Final = (i8, u8, i16, u16, i32, *(t for t in dtypes.ALL if t not in ANY))
_LARGEST: Final = float(np.finfo(np.float32).max)
_ATTRIBUTES: Final = (attr("axis", "int", 1), attr("block_size", "int", 0))


def widens_bytes(operands: Sequence[TensorType], results: Sequence[TensorType]) -> bool:
    """Whether a tensor of bytes (weights, not numbers beside them) becomes one of wider elements.

    Folding leaves it until contractions have had a look: they multiply bytes as they are.
    """
    if not operands or operands[0].rank < 2 or operands[0].dtype.itemsize > 1:
        return False
    return all(result.dtype.itemsize > 1 for result in results)


def _check_scale(x: TensorType, scale: TensorType, attributes: Attributes) -> None:
    if _is_single(scale.shape):
        return  # of which `axis` says nothing
    axis = normal_axis(cast("int", attributes["axis"]), x.rank)
    if scale.rank == 1 and not attributes["block_size"]:
        check_same(f"scale {scale} along axis {axis} of {x}", x.shape[axis], scale.shape[0])
    elif scale.rank != x.rank:
        raise ModelError(f"scale {scale} has neither one axis nor the rank of {x}")
    else:
        _check_blocks(x, scale, axis, cast("int", attributes["block_size"]))


def _check_zero(scale: TensorType, zero: TensorType | None) -> None:
    """Raises: ModelError when there are surely not as many zero points as scales."""
    if zero is not None and not _is_single(zero.shape):
        check_same_shape("zero point and scale", zero, scale)


def _check_blocks(x: TensorType, scale: TensorType, axis: int, block_size: int) -> None:
    """Raises: ModelError when scales of the rank of `x` surely do not line up with it."""
    for i, (size, count) in enumerate(zip(x.shape, scale.shape, strict=True)):
        expected = size
        if i == axis and block_size > 0:
            expected = symbolic.ceildiv(size, block_size)
        if count != 1 or (i == axis and block_size):
            check_same(f"scale {scale} along axis {i} of {x}", expected, count)


def _is_single(shape: tuple[Dim, ...]) -> bool:
    """Whether one scale stands for the whole tensor."""
    return shape in ((), (1,))


def _quantize_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    x = first(types)
    scale, zero = need(types, 1), types[2]
    _check_scale(x, scale, attributes)
    _check_zero(scale, zero)
    target = (
        zero.dtype if zero is not None else cast("DType | None", attributes["dtype"]) or u8
    )
    return (x.with_dtype(target),)


def _dequantize_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    x, scale = first(types), need(types, 1)
    _check_scale(x, scale, attributes)
    _check_zero(scale, types[2])
    return (x.with_dtype(cast("DType | None", attributes.get("dtype")) or scale.dtype),)


def _spread(values: np.ndarray, x: np.ndarray, axis: int, block_size: int) -> np.ndarray:
    """A scale or zero point lined up with x."""
    if values.ndim == 0 or values.size == 1:
        return values.reshape(())
    axis = normal_axis(axis, x.ndim)
    if values.ndim == 1 and not block_size:
        return values.reshape([-1 if i == axis else 1 for i in range(x.ndim)])
    if not block_size:
        return values  # has the rank of x, and one element along the other axes
    return np.take(np.repeat(values, block_size, axis), np.arange(x.shape[axis]), axis)


def _plain(x: np.ndarray) -> np.ndarray:
    """In f64, which holds every stored type exactly."""
    wide = x.astype(np.float32) if dtypes.from_numpy(x.dtype) not in ANY else x
    return wide.astype(np.float64)


def _quantize_oracle(
    x: np.ndarray,
    scale: np.ndarray,
    zero: np.ndarray | None,
    *,
    axis: int,
    block_size: int,
    dtype: DType | None,
    reciprocal: bool,
) -> np.ndarray:
    target = dtypes.from_numpy(zero.dtype) if zero is not None else dtype or u8
    factor = _spread(scale, x, axis, block_size).astype(np.float32)
    wide = x.astype(np.float32)
    ratio = wide * (np.float32(1) / factor) if reciprocal else wide / factor
    value = _plain(ratio) if target.is_float else _plain(np.rint(ratio))
    if zero is not None:
        value = value + _plain(_spread(zero, x, axis, block_size))
    if target.is_float:
        return np.clip(value, -_LARGEST, _LARGEST).astype(np.float32).astype(target.numpy)
    return numerics.cast(np.where(np.isnan(value), _least(target), value), target)


def _dequantize_oracle(
    x: np.ndarray,
    scale: np.ndarray,
    zero: np.ndarray | None,
    *,
    axis: int,
    block_size: int,
    dtype: DType | None,
) -> np.ndarray:
    value = _plain(x)
    if zero is not None:
        value = value - _plain(_spread(zero, x, axis, block_size))
    value = value * _spread(scale, x, axis, block_size).astype(np.float64)
    return numerics.cast(value, dtype or dtypes.from_numpy(scale.dtype))


def _place(
    shape: tuple[Dim, ...], indices: tuple[Dim, ...], axis: int, block_size: int
) -> tuple[Dim, ...]:
    """Where the scale of element `indices` stands."""
    if _is_single(shape):
        return (0,) * len(shape)
    axis = normal_axis(axis, len(indices))
    if len(shape) == 1 and not block_size:
        return (indices[axis],)
    place = list(indices)
    place[axis] = indices[axis] // block_size if block_size else indices[axis]
    return tuple(0 if d == 1 else i for d, i in zip(shape, place, strict=True))


def _least(dtype: DType) -> int:
    return -(1 << (dtype.bits - 1)) if dtype.is_signed else 0


def _whole(
    b: KernelBuilder, value: Expression, zero: Expression | None, dtype: DType
) -> Expression:
    """`value + zero` saturated to integers; NaN becomes the least.

    Signed ones are unsigned ones of as many bits, less half of their number: a cast of NaN to those gives 0, the least.
    """
    least, wide = _least(dtype), u8 if dtype.bits <= 8 else u16
    if not least:
        value = value if zero is None else b.add(value, b.cast(zero, f32))
        return b.cast(value, dtype)
    shift = b.const(-least, f32)
    if zero is not None:
        shift = b.cast(b.cast(b.sub(b.cast(zero, i32), least), wide), f32)
    value = b.add(value, shift)
    if dtype.bits < wide.bits:
        value = b.min(value, (1 << dtype.bits) - 1)
    found = b.cast(b.cast(value, wide), i8 if wide is u8 else i16)
    return b.cast(b.add(found, least), dtype)


def _stored(
    b: KernelBuilder, value: Expression, zero: Expression | None, dtype: DType
) -> Expression:
    """A quotient as an element of what is stored."""
    if not dtype.is_float:
        return _whole(b, b.round(value), zero, dtype)
    value = value if zero is None else b.add(value, b.cast(zero, f32))
    return b.cast(b.min(b.max(value, -_LARGEST), _LARGEST), dtype)


def _emit_quantize(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    x, scale, zero = given(operands, 0), given(operands, 1), maybe(operands, 2)
    (result,) = results
    where = (cast("int", attributes["axis"]), cast("int", attributes["block_size"]))
    with b.nest(result.shape) as indices:
        factor = b.cast(b.read(scale, _place(scale.shape, indices, *where)), f32)
        value = b.cast(b.read(x, indices), f32)
        if attributes["reciprocal"]:
            value = b.mul(value, b.div(b.const(1, f32), factor))
        else:
            value = b.div(value, factor)
        shift = zero and b.read(zero, _place(zero.shape, indices, *where))
        b.store(result, indices, _stored(b, value, shift, result.dtype))


def _emit_dequantize(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    x, scale, zero = given(operands, 0), given(operands, 1), maybe(operands, 2)
    (result,) = results
    where = (cast("int", attributes["axis"]), cast("int", attributes["block_size"]))
    wide = f64 if f64 in (scale.dtype, result.dtype) else f32
    with b.nest(result.shape) as indices:
        exact = wide if x.dtype.is_float else i32
        value = b.cast(b.read(x, indices), exact)
        if zero is not None:
            shift = b.read(zero, _place(zero.shape, indices, *where))
            value = b.sub(value, b.cast(shift, exact))
        factor = b.cast(b.read(scale, _place(scale.shape, indices, *where)), wide)
        b.write(result, indices, b.mul(b.cast(value, wide), factor))


def _quantize_native(types: Types, attributes: Attributes) -> bool:
    """32-bit results need more than the 24 bits of an f32 sum."""
    (result,) = _quantize_infer(types, attributes)
    return result.dtype.bits <= 16


quantize_linear: Final = declare(
    name="quantize_linear",
    summary="round(x / scale) + zero_point, half to even, saturated to the stored type, of integers the least for NaN; "
    "`reciprocal`: x * (1 / scale)",
    operands=(
        operand("x", (*_REAL, i32)), operand("scale", (*_REAL, i32)),
        optional("zero_point", _STORED),
    ),
    attributes=(
        *_ATTRIBUTES, attr("dtype", "dtype", None), attr("reciprocal", "bool", False),
    ),
    infer=_quantize_infer,
    evaluate=_quantize_oracle,
    body=Body(_emit_quantize, _quantize_native),
    traits=_E,
    layout=Layout(layouts.one_scale_or_axis),
    cases=(
        "f32[3,7] f32[]:=0.07 u8[]:=128",
        "f32[3,7] f32[]:=0.25",
        "f32[2,5,3] f32[5]:positive i8[5]:index(5); axis=1",
        "f32[3,8] f32[3,2]:positive i8[3,2]:index(5); axis=1 block_size=4",
        "f32[9] f32[]:=0.003 i16[]:=7; axis=0",
        "f32[9] f32[1]:=0.003 i16[1]:=7; axis=3",
        "f16[3,7] f16[]:=0.25 i8[]:=-3",
        "f32[3,7] f32[]:=0.25 u4[]:=5",
        "f32[3,8] f32[3,2]:positive i4[3,2]:index(5); axis=1 block_size=4",
        "f32[3,7] f32[]:=0.25 f8e4m3fn[]:=0",
        "f32[3,7] f32[3]:positive f8e5m2[3]:=0; axis=0",
        "f32[3,7] f32[]:=0.07 u8[]:=128; reciprocal=True",
        "f32[2,5,3] f32[5]:positive i8[5]:index(5); axis=1 reciprocal=True",
    ),
    source="ONNX QuantizeLinear, opset 25; reciprocal: torch.ao.quantization",
)  # fmt: skip

dequantize_linear: Final = declare(
    name="dequantize_linear",
    summary="(x - zero_point) * scale",
    operands=(
        operand("x", _STORED), operand("scale", _REAL), optional("zero_point", _STORED, like="x"),
    ),
    attributes=(*_ATTRIBUTES, attr("dtype", "dtype", None)),
    infer=_dequantize_infer,
    evaluate=_dequantize_oracle,
    body=Body(_emit_dequantize),
    traits=_E,
    layout=Layout(layouts.one_scale_or_axis),
    cases=(
        "u8[3,7]:count(255) f32[]:=0.07 u8[]:=128",
        "i8[3,7]:index(128) f32[]:=0.25",
        "i8[2,5,3]:index(128) f32[5]:positive i8[5]:index(5); axis=1",
        "u8[3,8]:count(255) f32[3,2]:positive u8[3,2]:count(5); axis=1 block_size=4",
        "i32[9]:index(1000) f32[]:=0.5; axis=0",
        "i32[9]:index(1000) f32[1]:=0.5; axis=3",
        "i8[3,7]:index(128) f16[]:=0.25 i8[]:=-3",
        "u4[3,8]:count(16) f32[3,2]:positive u4[3,2]:count(16); axis=1 block_size=4",
        "i4[3,7]:index(8) f32[]:=0.25",
        "f8e4m3fn[3,7] f32[]:=0.25",
        "f8e5m2[3,7] f16[3]:positive f8e5m2[3]:=0; axis=0",
    ),
    source="ONNX DequantizeLinear, opset 25",
)  # fmt: skip

# --- tables ----------------------------------------------------------------------------------

_PLACES_OF_A_BYTE: Final = 256


def _lookup_infer(types: Types, _: Attributes) -> tuple[TensorType, ...]:
    x, table = need(types, 0), need(types, 1)
    if table.rank != 1:
        raise ModelError(f"a table of {table} is not one line")
    check_same(f"table {table} of bytes", table.shape[0], _PLACES_OF_A_BYTE)
    return (x.with_dtype(table.dtype),)


def _lookup_body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    del attributes
    x, table, (result,) = given(operands, 0), given(operands, 1), results
    with b.nest(result.shape) as place:
        byte = b.cast(b.cast(b.load(x, place), u8), i64)
        b.store(result, place, b.load(table, (b.as_index(byte),)))


table_lookup: Final = declare(
    name="table_lookup",
    summary="The element of `table` at the bits of each byte of x",
    operands=(operand("x", (u8, i8)), operand("table", dtypes.ALL)),
    infer=_lookup_infer,
    evaluate=lambda x, table: table[x.view(np.uint8)],
    body=_lookup_body,
    traits=Trait.PURE | Trait.MOVEMENT,
    role=Role.MAP,
    layout=Layout(layouts.unchanged),
    cases=(
        "u8[3,7]:count(255) u8[256]:index(256)",
        "i8[3,77]:index(128) i16[256]",
        "i8[]:=-128 f32[256]",
        "u8[1,5,1]:=255 bool[256]",
        "u8[0,3] i8[256]",
    ),
    source="`y[i] = table[x[i]]`, as QLinearSigmoid of onnxruntime's domain has it",
)


OPS: Final[tuple[OpDecl, ...]] = (quantize_linear, dequantize_linear, table_lookup)
