"""Contractions of quantized tensors become contractions of their bytes.

Models say in floats what they mean in bytes: dequantize, multiply, quantize.  What is multiplied are the
bytes; zero points leave the sum,

    sum (a - za)(b - zb)  =  sum ab  -  za (sum b - K zb)  -  zb sum a,

and all but the last term, which few models have, is one number per column that is known when compiling.
Scales are applied to the sum, as floats: rounding to bytes again is the model's own `quantize_linear`, in the
same kernel.  The same is done to integers around zero points (`MatMulInteger`, `QLinearConv`).  Padding stands
for zero, so it is the zero point here.

Dequantizations move behind what only moves elements, so that bytes are moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Final, final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.graph.schema import Array
from tilewright.compiler.ops.shapes import element_count
from tilewright.compiler.passes import Emitter, Rewrites, given, need
from tilewright.compiler.transforms.matching import constant_of, made, maker, splat_of
from tilewright.compiler.transforms.quantized_values import (
    MOVES,
    Quantized,
    along,
    as_scalar,
    comes_from_quantization,
    is_single,
    known,
    quantized,
    with_sign,
)
from tilewright.compiler.transforms.rewrite_pass import RewritePass
from tilewright.compiler.transforms.split_phases import split_quantized, split_requantized

_DEEPEST: Final = (1 << 31) // (255 * 255)
"""Products of bytes whose sum certainly fits 32 bits."""
_LARGEST_BIAS: Final = 1 << 30


@final
@record(kw_only=True)
class QuantizeContractions(RewritePass):
    """Multiply bytes where a model multiplies what they stand for.

    Requires: small constants folded, those of bytes not widened.  Ensures: a contraction of tensors
    quantized with one scale, or one per column on the right, is one of u8 by i8 with sums of i32.
    """

    requires: ClassVar[frozenset[str]] = frozenset({"folded"})

    def rewrites(self) -> Rewrites:
        """Scales aligned, dequantizations moved down, contractions."""
        moves = dict.fromkeys(MOVES, (dequantize_behind_move,))
        return {
            **moves,
            "max_pool": (dequantize_behind_move,),
            "pad": (dequantize_behind_pad,),
            "concat": (dequantize_behind_concat,),
            "quantize_linear": (same_bytes, aligned_scale, split_requantized),
            "dequantize_linear": (aligned_scale, unsigned_values),
            "matmul": (in_bytes,),
            "conv": (in_bytes,),
            "conv_transpose": (split_quantized,),
        }


# --- quantizations ---------------------------------------------------------------------------


def aligned_scale(node: Node, emit: Emitter) -> Value | None:
    """Scales along an axis stand in that axis, so that whoever moves axes moves them."""
    scale, zero = node.operand(1), node.optional_operand(2)
    need(scale.type.rank == 1 and node.operand().type.rank != 1)
    need(not node.number("block_size"))
    shaped = [None if v is None else along(v, node, emit) for v in (scale, zero)]
    return emit.op(node.op, [node.operand(), *shaped], {**node.attributes, "axis": 0})


def unsigned_values(node: Node, emit: Emitter) -> Value | None:
    """What is quantized to signed bytes and read as floats may as well be unsigned."""
    values = node.operand()
    need(values.type.dtype is dtypes.i8 and comes_from_quantization(values))
    found = quantized(node.result, emit)
    need(found.scale is not None)
    return _dequantize(with_sign(found, dtypes.u8, emit), node, emit)


def _dequantize(x: Quantized, node: Node, emit: Emitter) -> Value:
    """The floats that bytes stand for, as `node` has them."""
    zero = x.zero
    if zero is not None:
        zero = known(emit, "cast", [zero], {"dtype": x.values.type.dtype})
    attributes = {**node.attributes, "axis": 0}
    return emit.op("dequantize_linear", [x.values, x.scale, zero], attributes)


def same_bytes(node: Node, _: Emitter) -> Value | None:
    """Bytes that are read as floats and quantized by the same scale are what they were."""
    inner = made(node.operand(), "dequantize_linear")
    need(node.result.type == inner.operand().type)
    need(inner.operand().type.dtype in (dtypes.u8, dtypes.i8))
    need(_is_positive(constant_of(node.operand(1))))
    return inner.operand() if _same_scale(node, inner) else None


def _same_scale(a: Node, b: Node) -> bool:
    """Whether two conversions have equal scales, zero points and attributes but the axis."""
    if a.number("block_size") or b.number("block_size"):
        return False
    pairs = ((a.optional_operand(i), b.optional_operand(i)) for i in (1, 2))
    return all(x is y or _equal(constant_of(x), constant_of(y)) for x, y in pairs)


def _equal(a: Array | None, b: Array | None) -> bool:
    if a is None or b is None or a.dtype != b.dtype or a.size != 1 or b.size != 1:
        return False
    return bool(a.reshape(()) == b.reshape(()))


# --- moves -----------------------------------------------------------------------------------


def _source(value: Value) -> Node | None:
    """The dequantization of bytes, with one known scale, that makes `value`."""
    node = maker(value, "dequantize_linear")
    if node is None or node.operand().type.dtype not in (dtypes.u8, dtypes.i8):
        return None
    scale, zero = node.operand(1), node.optional_operand(2)
    if not is_single(scale) or not _is_positive(constant_of(scale)):
        return None
    return node if zero is None or is_single(zero) else None


def dequantize_behind_move(node: Node, emit: Emitter) -> Value | None:
    """A move of floats that stand for bytes is one of the bytes; so is the largest of some."""
    source = _source(node.operand())
    if source is None:
        return _scales_moved(node, emit)
    moved = emit.op(node.op, [source.operand(), *node.operands[1:]], node.attributes)
    return emit.op("dequantize_linear", [moved, *source.operands[1:]], source.attributes)


def _scales_moved(node: Node, emit: Emitter) -> Value | None:
    """A transpose moves the scales of an axis, too."""
    source = made(node.operand(), "dequantize_linear")
    need(node.op == "transpose" and not source.number("block_size"))
    need({v.type.rank for v in source.present_operands} <= {0, node.result.type.rank})
    moved = [
        v
        if v is None or not v.type.rank
        else known(emit, "transpose", [v], node.attributes)
        for v in source.operands
    ]
    return emit.op("dequantize_linear", moved, source.attributes)


def dequantize_behind_pad(node: Node, emit: Emitter) -> Value | None:
    """A border of zeros is one of zero points."""
    source = given(_source(node.operand()))
    fill = node.optional_operand(1)
    need(fill is None or splat_of(fill) == 0)
    values, zero = source.operand(), source.optional_operand(2)
    if zero is not None:
        zero = known(emit, "reshape", [zero], {"shape": ()})
    moved = emit.op("pad", [values, zero], node.attributes)
    return emit.op("dequantize_linear", [moved, *source.operands[1:]], source.attributes)


def dequantize_behind_concat(node: Node, emit: Emitter) -> Value | None:
    """Parts of one scale are joined as bytes."""
    sources = [_source(v) for v in node.present_operands]
    first = given(sources[0])
    need(all(s is not None and _same_scale(first, s) for s in sources))
    parts = [s.operand() for s in sources if s is not None]
    need(all(p.type.dtype is parts[0].type.dtype for p in parts))
    joined = emit.op("concat", parts, node.attributes)
    return emit.op("dequantize_linear", [joined, *first.operands[1:]], first.attributes)


# --- contractions ----------------------------------------------------------------------------


def in_bytes(node: Node, emit: Emitter) -> Value | None:
    """A contraction of quantized tensors multiplies their bytes."""
    need(node.attributes["dtype"] is None and _is_shallow(node))
    left, right = (quantized(node.operand(i), emit) for i in (0, 1))
    need(_fits(node, left, right))
    is_float = node.result.type.dtype.is_float
    need(is_float is not (left.scale is None) and is_float is not (right.scale is None))
    product = _Product.of(node, left, right, emit)
    bias = node.optional_operand(2)
    if not is_float:
        total = product.sum(emit)
        return (
            total if bias is None else emit.op("add", [total, product.channel(bias, emit)])
        )
    return product.scaled(bias, emit)


def _is_shallow(node: Node) -> bool:
    """Whether no sum leaves 32 bits; integers wrap there by definition."""
    depth = _depth(node)
    return node.result.type.dtype is dtypes.i32 or (
        isinstance(depth, int) and depth <= _DEEPEST
    )


def _depth(node: Node) -> Dim:
    """How many products make one element."""
    weights = node.operand(1).type.shape
    return weights[-2] if node.op == "matmul" else element_count(weights[1:])


def _fits(node: Node, left: Quantized, right: Quantized) -> bool:
    """Whether factors leave the sum: one on the left, one or one per column on the right."""
    rank = right.values.type.rank
    column = rank - 1 if node.op == "matmul" else 0
    for value in (left.zero, left.scale):
        if value is not None and not is_single(value):
            return False
    for value in (right.zero, right.scale):
        if value is None or is_single(value):
            continue
        shape = value.type.shape
        offset = rank - len(shape)
        if any(d != 1 and i + offset != column for i, d in enumerate(shape)):
            return False
    return True


@final
@record
class _Product:
    """A contraction on its way to bytes, u8 by i8 (or i16 where every channel has its own filter)."""

    node: Node
    left: Quantized
    right: Quantized

    @staticmethod
    def of(node: Node, left: Quantized, right: Quantized, emit: Emitter) -> _Product:
        """With the signs that instructions want.  Raises: NoMatchError where a zero point cannot leave the sum."""
        left = with_sign(left, dtypes.u8, emit)
        right = _centred(node, with_sign(right, dtypes.i8, emit), emit)
        need(not right.has_zero or node.op == "matmul" or node.number("groups") == 1)
        return _Product(node, left, right)

    @property
    def is_matmul(self) -> bool:
        """Whether the last two axes are multiplied."""
        return self.node.op == "matmul"

    def sum(self, emit: Emitter) -> Value:
        """The sum of products of what bytes are without their zero points, in i32."""
        total = self._bytes(self.right.values, emit)
        correction = self._left_zero(emit)
        if correction is not None:
            total = emit.op("sub", [total, correction])
        correction = self._right_zero(emit)
        return total if correction is None else emit.op("sub", [total, correction])

    def scaled(self, bias: Value | None, emit: Emitter) -> Value:
        """The sum as floats, with the bias inside of it where that is a whole number there; in f32 until it is whole."""
        scales = (self.left.scale, self.right.scale)
        left, right = (
            known(emit, "cast", [given(v)], {"dtype": dtypes.f32}) for v in scales
        )
        factor = known(emit, "mul", [as_scalar(left, emit), right])
        factor = self.channel(factor, emit)
        total = self.sum(emit)
        steps = None if bias is None else _in_steps(bias, factor)
        if steps is not None:
            total = _added(total, self.channel(emit.constant(steps), emit), emit)
            bias = None
        value = emit.cast(total, dtypes.f32)
        value = emit.op("mul", [value, factor])
        if bias is not None:
            bias = emit.cast(self.channel(bias, emit), dtypes.f32)
            value = emit.op("add", [value, bias])
        return emit.cast(value, self.node.result.type.dtype)

    def channel(self, value: Value, emit: Emitter) -> Value:
        """One number per column, or one for all, shaped to stand beside the result."""
        if is_single(value):
            return as_scalar(value, emit)
        if self.is_matmul:
            return value
        behind = 0 if self._is_channels_last else self.node.result.type.rank - 2
        shape = (value.type.element_count, *((1,) * behind))
        return known(emit, "reshape", [value], {"shape": shape})

    @property
    def _is_channels_last(self) -> bool:
        return self.node.word("layout") == "NHWC"

    def _bytes(self, weights: Value, emit: Emitter) -> Value:
        attributes = {**self.node.attributes, "dtype": dtypes.i32}
        x = self.left.values
        if not self.is_matmul:
            pads = self.node.ints("pads")
            if any(pads):
                x = self._padded(pads, emit)
            attributes["pads"] = ()
        return emit.op(self.node.op, [x, weights], attributes)

    def _padded(self, pads: Sequence[int], emit: Emitter) -> Value:
        rank = self.node.result.type.rank - 2
        fill = self.left.zero
        if fill is not None:
            fill = known(emit, "cast", [as_scalar(fill, emit)], {"dtype": dtypes.u8})
        if self._is_channels_last:
            amounts = (0, *pads[:rank], 0, 0, *pads[rank:], 0)
        else:
            amounts = (0, 0, *pads[:rank], 0, 0, *pads[rank:])
        return emit.op("pad", [self.left.values, fill], {"pads": amounts})

    def _left_zero(self, emit: Emitter) -> Value | None:
        """What the left zero point adds to every column: za (sum b - K zb)."""
        if not self.left.has_zero or self.left.zero is None:
            return None
        weights = self.right.values
        axes = (
            (weights.type.rank - 2,)
            if self.is_matmul
            else tuple(range(1, weights.type.rank))
        )
        array = constant_of(weights)
        keepdims = self.is_matmul and weights.type.rank > 2
        if array is not None:
            whole = array.sum(axes, dtype=np.int32, keepdims=keepdims)
            columns = emit.constant(whole)
        else:
            wide = emit.cast(weights, dtypes.i32)
            columns = emit.op("reduce_sum", [wide], {"axes": axes, "keepdims": keepdims})
        if self.right.has_zero and self.right.zero is not None:
            depth = emit.scalar(_number(_depth(self.node)), columns)
            zero = self._column_zero(emit)
            columns = known(emit, "sub", [columns, known(emit, "mul", [zero, depth])])
        correction = known(emit, "mul", [columns, as_scalar(self.left.zero, emit)])
        return self.channel(correction, emit)

    def _column_zero(self, emit: Emitter) -> Value:
        """The right zero point, as sums over columns are shaped."""
        zero = self.right.zero
        assert zero is not None
        if is_single(zero):
            return as_scalar(zero, emit)
        if self.is_matmul and self.right.values.type.rank > 2:
            return zero
        return known(emit, "reshape", [zero], {"shape": (zero.type.element_count,)})

    def _right_zero(self, emit: Emitter) -> Value | None:
        """What the right zero point adds to every row: zb (sum a)."""
        zero = self.right.zero
        if not self.right.has_zero or zero is None:
            return None
        if self.is_matmul:
            wide = emit.cast(self.left.values, dtypes.i32)
            rows = emit.op("reduce_sum", [wide], {"axes": (-1,), "keepdims": True})
        else:
            _, *taps = self.right.values.type.shape
            ones = np.ones((1, *map(_number, taps)), np.int8)
            rows = self._bytes(emit.constant(ones), emit)
        return emit.op("mul", [rows, self.channel(zero, emit)])


def _number(dim: Dim) -> int:
    assert isinstance(dim, int), "checked by _is_shallow"
    return dim


def _added(total: Value, constant: Value, emit: Emitter) -> Value:
    """`total + constant`, where a constant that is taken from `total` already takes part."""
    node = maker(total, "sub")
    if node is None or constant_of(node.operand(1)) is None:
        return emit.op("add", [total, constant])
    both = known(emit, "sub", [constant, node.operand(1)])
    return emit.op("add", [node.operand(0), both])


def _in_steps(bias: Value, factor: Value) -> Array | None:
    """A bias in multiples of `factor`, if it is made of those."""
    array, step = constant_of(bias), constant_of(factor)
    if array is None or step is None or not _is_positive(step):
        return None
    scale = (step.reshape(-1) if step.size > 1 else step.reshape(())).astype(np.float32)
    whole = np.rint(array.astype(np.float64) / scale)
    if not (np.abs(whole) < _LARGEST_BIAS).all():
        return None
    steps = whole.astype(np.int32)
    return steps if np.array_equal(steps.astype(np.float32) * scale, array) else None


def _is_positive(array: Array | None) -> bool:
    """Whether scales are known, finite and above zero."""
    if array is None:
        return False
    wide = array.astype(np.float64)
    return bool((np.isfinite(wide) & (wide > 0)).all())


def _centred(node: Node, right: Quantized, emit: Emitter) -> Quantized:
    """Known weights without their zero point, where that fits bytes; filters of one channel are wider."""
    zero, array = right.zero_array, constant_of(right.values)
    if not right.has_zero or zero is None or array is None:
        return replace(right, zero=None) if not right.has_zero else right
    plain = array.astype(np.int32) - zero
    if plain.min(initial=0) >= -128 and plain.max(initial=0) <= 127:
        return replace(right, values=emit.constant(plain.astype(np.int8)), zero=None)
    if node.op != "matmul" and right.values.type.shape[1] == 1 != node.number("groups"):
        return replace(right, values=emit.constant(plain.astype(np.int16)), zero=None)
    return right
