"""What a quantized tensor is in a graph: bytes, the zero point beside them and the scale in front.

Recognized are `dequantize_linear` of bytes and the integers of bytes around a zero point.  Bytes may change
their sign for an instruction that wants another one: a quantization upstream is asked for the other type,
constants are computed anew.  Questions and small rewrites only; called by `quantize_contractions`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.record import record
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.ops import catalogue
from tilewright.compiler.ops.shapes import normal_axis
from tilewright.compiler.passes import Emitter, need
from tilewright.compiler.transforms.matching import constant_of, made, maker, splat_of

BYTES: Final = (dtypes.u8, dtypes.i8)
MOVES: Final = ("transpose", "reshape", "slice", "gather", "broadcast_to")
"""What puts elements elsewhere and adds none."""
_HALF: Final = 128
_FARTHEST: Final = 255
"""From a byte to its zero point."""


@final
@record
class Quantized:
    """`(values - zero) * scale`: bytes, i32 and f32, f16 or bf16; no zero is 0, no scale is 1.

    Zero and scale have one element, or those of one axis of `values`, in as many axes as it has.
    """

    values: Value
    zero: Value | None
    scale: Value | None

    @property
    def has_zero(self) -> bool:
        """Whether something must be taken from the values."""
        return self.zero is not None and splat_of(self.zero) != 0

    @property
    def zero_array(self) -> np.ndarray | None:
        """The zero point as an array, if it is known."""
        return np.zeros((), np.int32) if self.zero is None else constant_of(self.zero)


def known(
    emit: Emitter,
    op: str,
    operands: Sequence[Value],
    attributes: Mapping[str, object] | None = None,
) -> Value:
    """A new node's result; a constant where all operands are constants."""
    arrays = [constant_of(v) for v in operands]
    if any(a is None for a in arrays):
        return emit.op(op, operands, attributes)
    (result,) = catalogue.schema(op).evaluate(arrays, attributes or {})
    return emit.constant(result)


def is_single(value: Value) -> bool:
    """Whether there is one element."""
    return value.type.element_count == 1


def as_scalar(value: Value, emit: Emitter) -> Value:
    """A single element without axes."""
    return known(emit, "reshape", [value], {"shape": ()}) if value.type.rank else value


def quantized(value: Value, emit: Emitter) -> Quantized:
    """`value` as bytes with a zero point, and a scale where it is a float.  Raises: NoMatchError where it is neither."""
    node = maker(value, "dequantize_linear")
    if node is not None:
        return _dequantized(node, emit)
    zero: Value | None = None
    outer = maker(value, "sub")
    if outer is not None and outer.operand(0).type == value.type:
        value, zero = outer.operand(0), outer.operand(1)
    source = made(value, "cast").operand()
    need(value.type.dtype is dtypes.i32 and source.type.dtype in BYTES)
    return Quantized(source, zero, None)


def _dequantized(node: Node, emit: Emitter) -> Quantized:
    scale, zero = node.operand(1), node.optional_operand(2)
    values = _in_bytes(node.operand(0), emit)
    need(node.result.type.dtype is scale.type.dtype and _stays_finite(scale))
    need(values.type.dtype in BYTES and not node.number("block_size"))
    if zero is not None:
        zero = known(emit, "cast", [zero], {"dtype": dtypes.i32})
        zero = along(zero, node, emit)
    return Quantized(values, zero, along(scale, node, emit))


def _stays_finite(scale: Value) -> bool:
    """Whether what bytes stand for is surely a number; of f32 that is taken for granted."""
    dtype, array = scale.type.dtype, constant_of(scale)
    if dtype not in dtypes.HALVES or array is None:
        return dtype is dtypes.f32
    with np.errstate(over="ignore"):
        farthest = (array.astype(np.float64) * _FARTHEST).astype(dtype.numpy)
    return bool(np.isfinite(farthest).all())


def _in_bytes(values: Value, emit: Emitter) -> Value:
    """Known integers of less than a byte, which no instruction multiplies, as bytes with a sign."""
    is_small = (
        values.type.dtype in dtypes.SMALL_INTEGERS and constant_of(values) is not None
    )
    return known(emit, "cast", [values], {"dtype": dtypes.i8}) if is_small else values


def along(value: Value, node: Node, emit: Emitter) -> Value:
    """A scale or zero point of `node` in as many axes as its data, or without any."""
    rank = node.operand().type.rank
    if is_single(value):
        return as_scalar(value, emit)
    if value.type.rank != 1:
        return value
    axis = normal_axis(node.number("axis"), rank)
    shape = tuple(value.type.shape[0] if i == axis else 1 for i in range(rank))
    return known(emit, "reshape", [value], {"shape": shape})


# --- signs -----------------------------------------------------------------------------------


def with_sign(x: Quantized, dtype: DType, emit: Emitter) -> Quantized:
    """The same numbers as bytes of `dtype`."""
    if x.values.type.dtype is dtype:
        return x
    shift = _HALF if dtype is dtypes.u8 else -_HALF
    zero = emit.constant(np.zeros((), np.int32)) if x.zero is None else x.zero
    moved = known(emit, "add", [zero, emit.scalar(shift, zero)])
    return replace(x, values=_shifted(x.values, dtype, shift, emit), zero=moved)


def comes_from_quantization(value: Value) -> bool:
    """Whether bytes are the result of a quantization, moved or held within fewer bits perhaps."""
    node = maker(value)
    while node is not None and node.op in (*MOVES, "clip"):
        node = maker(node.operand())
    return node is not None and node.op == "quantize_linear"


def _shifted(value: Value, dtype: DType, shift: int, emit: Emitter) -> Value:
    """Bytes with `shift` added, of the other type; made so where they are made."""
    array = constant_of(value)
    if array is not None:
        return emit.constant(np.asarray(array.astype(np.int32) + shift, dtype.numpy))
    node = maker(value, *MOVES, "clip", "quantize_linear")
    if node is None:
        wide = emit.cast(value, dtypes.i32)
        moved = emit.op("add", [wide, emit.scalar(shift, wide)])
        return emit.cast(moved, dtype)
    if node.op == "clip":
        moved = [
            None if v is None else _shifted(v, dtype, shift, emit) for v in node.operands
        ]
        return emit.op("clip", moved, node.attributes)
    if node.op in MOVES:
        source = _shifted(node.operand(), dtype, shift, emit)
        return emit.op(node.op, [source, *node.operands[1:]], node.attributes)
    zero = node.optional_operand(2)
    if zero is None:
        zero = emit.constant(np.zeros((), value.type.dtype.numpy))
    wide = known(emit, "cast", [zero], {"dtype": dtypes.i32})
    moved = known(emit, "add", [wide, emit.scalar(shift, wide)])
    zero = known(emit, "cast", [moved], {"dtype": dtype})
    attributes = {**node.attributes, "dtype": dtype}
    return emit.op("quantize_linear", [node.operand(), node.operand(1), zero], attributes)
