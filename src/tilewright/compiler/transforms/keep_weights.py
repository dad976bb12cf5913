"""Weights that a model stores in 8 bits or fewer, with one scale or one per column, stay so until products read them.

One scale per column is one block as long as the column, so from here there is a single form of weights with
scales: `dequantize_linear` in blocks, which no folding widens and `pack_matmul` reads as words.  Recognized are
dequantizations of integers and of 8-bit floats, and conversions of such floats, with a factor or without.  After
`quantize_contractions`, which takes what is multiplied by bytes.
"""

from __future__ import annotations

from typing import Final, final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.dtypes import HALVES, f32
from tilewright.base.record import record
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.graph.schema import Array
from tilewright.compiler.passes import Emitter, NoMatchError, Rewrites, given, need
from tilewright.compiler.transforms.matching import constant_of, made, maker
from tilewright.compiler.transforms.rewrite_pass import RewritePass

_SMALL_FLOATS: Final = (dtypes.f8e4m3fn, dtypes.f8e5m2)
_STORED: Final = (*dtypes.SMALL_INTEGERS, dtypes.i8, dtypes.u8, *_SMALL_FLOATS)


@final
@record(kw_only=True)
class KeepWeights(RewritePass):
    """Write weights of 8 bits at most, with a scale per column at most, as one block per column.

    Requires: weights of bytes not widened, contractions of bytes recognized.  Ensures: same values; the right
    matrix of a product that is made of known numbers of 8 bits at most is a `dequantize_linear` in blocks.
    """

    def rewrites(self) -> Rewrites:
        """One rewrite."""
        return {"matmul": (weights_in_one_block,)}


def weights_in_one_block(node: Node, emit: Emitter) -> Value | None:
    """`a @ (q * scale)` is `a` times `q` in blocks as long as its columns."""
    a, b = node.operand(0), node.operand(1)
    need(b.type.rank == 2 and a.type.dtype in (*HALVES, f32))
    values, scale, zero = _stored(b)
    depth, columns = values.shape
    is_per_column = scale.size == 1 or scale.shape in ((columns,), (1, columns))
    need(depth and columns >= 2 and is_per_column and _is_finite(values))
    operands = [
        emit.constant(np.ascontiguousarray(values)),
        emit.constant(_per_column(scale, columns)),
        None,
    ]
    if zero is not None:
        operands[2] = emit.constant(_per_column(zero, columns))
    attributes = {"axis": 0, "block_size": depth, "dtype": b.type.dtype}
    weights = emit.op("dequantize_linear", operands, attributes)
    return emit.op(node.op, [a, weights], node.attributes)


def _stored(value: Value) -> tuple[Array, Array, Array | None]:
    """[K, N] numbers of 8 bits at most, and what is added and multiplied: one number, or one per column."""
    node = made(value, "dequantize_linear", "cast", "mul", "transpose")
    need(value.type.rank == 2)
    if node.op == "transpose":
        return _turned(node)
    if node.op == "mul":
        return _with_factor(node)
    values = given(_known(node.operand()))
    if node.op == "cast":
        need(node.operand().type.dtype in _SMALL_FLOATS)
        return values, np.ones((), value.type.dtype.numpy), None
    scale, zero_value = given(constant_of(node.operand(1))), node.optional_operand(2)
    zero = constant_of(zero_value)
    need(node.operand().type.dtype in _STORED and not node.number("block_size"))
    need((zero is None) is (zero_value is None))
    along = scale
    if scale.ndim == 1:
        along = np.expand_dims(scale, 1 - node.number("axis") % 2)
    need(_fits(along, values))
    return values, along, zero


def _with_factor(node: Node) -> tuple[Array, Array, Array | None]:
    """Converted floats of 8 bits, times one factor or one per column."""
    for index in (0, 1):
        inner = maker(node.operand(index), "cast")
        scale = constant_of(node.operand(1 - index))
        if (
            inner is None
            or scale is None
            or inner.operand().type.dtype not in _SMALL_FLOATS
        ):
            continue
        values = _known(inner.operand())
        if values is not None and _fits(scale, values):
            return values, scale, None
    raise NoMatchError


def _turned(node: Node) -> tuple[Array, Array, Array | None]:
    """Weights that lie as columns, with one scale or one per row, which then is one per column."""
    need(node.ints("perm") == (1, 0))
    values, scale, zero = _stored(node.operand())
    return values.T, np.atleast_2d(scale).T, zero


def _known(values: Value) -> Array | None:
    """The numbers, turned if they are still to be turned."""
    node = maker(values, "transpose")
    if node is None or node.ints("perm") != (1, 0):
        return constant_of(values)
    found = constant_of(node.operand())
    return None if found is None else found.T


def _fits(scale: Array, values: Array) -> bool:
    """Whether a scale is one number, or one to each element of one axis."""
    rows, columns = values.shape
    return scale.size == 1 or scale.shape in ((columns,), (1, columns), (rows, 1))


def _per_column(numbers: Array, columns: int) -> Array:
    return np.ascontiguousarray(np.broadcast_to(numbers.reshape(1, -1), (1, columns)))


def _is_finite(values: Array) -> bool:
    if not dtypes.from_numpy(values.dtype).is_float:
        return True
    return bool(np.isfinite(values.astype(np.float32)).all())
