"""Rows for weights that are stored as integers of 2, 4 or 8 bits with a scale per block.

What is stored becomes one integer per element and a `dequantize_linear`; that products read the integers as
they lie is for later passes to see.

Source: onnxruntime's contrib operators (MatMulNBits, MatMulBnb4, GatherBlockQuantized).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.dtypes import i8
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.packed_integers import unpacked
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.contraction import matmul
from tilewright.compiler.frontends.onnx.row import MICROSOFT, Row, row

_BITS: Final = (2, 4, 8)
_LEAST_BLOCK: Final = 16
_BYTES_WILL_DO: Final = 4
"""The `accuracy_level` of models whose rows may be rounded to 8 bits; others say that sums of f32 or 16 bits will do."""


def _bits_and_block(call: Call) -> tuple[int, int]:
    bits, block = call.integer("bits", 4), call.integer("block_size")
    if bits not in _BITS:
        raise UnsupportedError(f"weights of {bits} bits, expected 2, 4 or 8")
    if block < _LEAST_BLOCK or block & (block - 1):
        raise ModelError(f"blocks of {block}, expected a power of two from {_LEAST_BLOCK}")
    return bits, block


def _middle(e: NodeMaker, bits: int) -> Tensor:
    """What stands for zero where the model says nothing."""
    return e.scalar(1 << (bits - 1), dtypes.u8)


def _mat_mul_n_bits(call: Call) -> Tensor:
    e, a, stored = call.maker, call.tensor(0), call.tensor(1)
    bits, block = _bits_and_block(call)
    depth, columns = call.integer("K"), call.integer("N")
    level = call.integer("accuracy_level", 0)
    if call.integer("weight_prepacked", 0):
        raise UnsupportedError("weights packed for a GPU")
    blocks = -(-depth // block)
    size_bytes = blocks * (block * bits // 8)
    if stored.type.element_count != columns * size_bytes:
        raise ModelError(
            f"weights {stored.type} do not hold {columns} x {depth} in blocks of {block}"
        )
    values = unpacked(e, e.reshape(stored, (columns, size_bytes)), bits)
    values = e.slice(values, 1, 0, depth)
    weights = _real_weights(call, values, (columns, blocks), bits, block)
    weights = e.cast(e.transpose(weights, (1, 0)), a.dtype)
    result = matmul(e, a, weights, rounds_to=i8 if level == _BYTES_WILL_DO else None)
    bias = call.optional(5)
    return result if bias is None else e.op("add", result, bias)


def _real_weights(
    call: Call, values: Tensor, shape: tuple[int, int], bits: int, block: int
) -> Tensor:
    """The numbers that [N, K] integers stand for; `shape` is that of the scales."""
    e, scale = call.maker, _shaped(call, 2, shape)
    zero, group = call.optional(3), call.optional(4)
    if zero is not None and zero.dtype is dtypes.u8:
        zero = _whole_zero(e, zero, shape, bits)
    if group is None and (zero is None or zero.dtype is dtypes.u8):
        spread = e.broadcast_to(_middle(e, bits), shape) if zero is None else zero
        return e.op("dequantize_linear", values, scale, spread, axis=1, block_size=block)
    # Blocks out of order, or between integers: numbers of every element.
    zero = _middle(e, bits) if zero is None else zero
    wide = [e.cast(x, scale.dtype) for x in (values, zero)]
    if wide[1].rank:
        wide[1] = _of_every_element(e, e.reshape(wide[1], shape), values, block, group)
    shifted = e.op("sub", wide[0], wide[1])
    return e.op("mul", shifted, _of_every_element(e, scale, values, block, group))


# What four bits stand for, as shares of the largest magnitude of a block: floats of one exponent and mantissa bit
# more, and quantiles of a normal distribution (Dettmers et al., QLoRA, appendix E).
_FP4: Final = (0.0, 0.0625 / 12, 8 / 12, 1.0, 4 / 12, 0.5, 2 / 12, 0.25)
_NF4: Final = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0,
)  # fmt: skip


def _mat_mul_bnb4(call: Call) -> Tensor:
    e, a, stored, scale = call.maker, call.tensor(0), call.tensor(1), call.tensor(2)
    _, block = _bits_and_block(call)
    depth, columns, kind = call.integer("K"), call.integer("N"), call.integer("quant_type")
    call.integer("training_mode", 0)
    count = columns * depth
    blocks = -(-count // block)
    if kind not in (0, 1):
        raise ModelError(f"attribute 'quant_type' is {kind}, expected 0 or 1")
    if stored.shape != ((count + 1) // 2,) or scale.type.element_count != blocks:
        raise ModelError(
            f"weights {stored.type} and scales {scale.type} of {columns} x {depth}"
        )
    shares = _NF4 if kind else (*_FP4, *(-x for x in _FP4))
    table = e.constant(np.array(shares, np.float32))
    # The first of two elements stands in the higher bits.
    pairs = e.reshape(unpacked(e, stored, 4), ((count + 1) // 2, 2))
    codes = e.concat([e.slice(pairs, 1, 1, 1), e.slice(pairs, 1, 0, 1)], 1)
    codes = e.slice(e.reshape(codes, ((count + 1) // 2 * 2,)), 0, 0, count)
    values = e.op("gather", table, e.cast(codes, dtypes.i64), axis=0)
    # One row of blocks, which begin anywhere in the rows of the weights.
    values = e.reshape(values, (1, count))
    factors = e.reshape(e.cast(scale, dtypes.f32), (1, blocks))
    numbers = e.op("mul", values, _of_every_element(e, factors, values, block, None))
    weights = e.cast(e.reshape(numbers, (columns, depth)), a.dtype)
    if call.flag("transB", default=True):
        weights = e.transpose(weights, (1, 0))
    return matmul(e, a, weights)


def _shaped(call: Call, index: int, shape: tuple[int, int]) -> Tensor:
    """Operand `index` in a shape; some models have it flat.  Raises: ModelError if it is not as large."""
    found = call.tensor(index)
    if found.type.element_count != shape[0] * shape[1]:
        raise ModelError(f"operand {index + 1} is {found.type}, expected {list(shape)}")
    return call.maker.reshape(found, shape)


def _whole_zero(e: NodeMaker, zero: Tensor, shape: tuple[int, int], bits: int) -> Tensor:
    """One zero point per block out of rows of whole bytes."""
    columns, blocks = shape
    size_bytes = -(-blocks * bits // 8)
    if zero.type.element_count != columns * size_bytes:
        raise ModelError(
            f"zero points {zero.type}, expected {columns} x {size_bytes} bytes"
        )
    whole = unpacked(e, e.reshape(zero, (columns, size_bytes)), bits)
    return e.slice(whole, 1, 0, blocks)


def _of_every_element(
    e: NodeMaker, x: Tensor, values: Tensor, block: int, group: Tensor | None
) -> Tensor:
    """[N, blocks] as [N, K]: that of the block, or of the group that each of the depth belongs to."""
    columns, blocks = x.shape
    depth = values.shape[-1]
    if group is not None:
        return e.op("gather", x, e.slice(group, 0, 0, depth), axis=1)
    wide = e.broadcast_to(e.unsqueeze(x, (2,)), (columns, blocks, block))
    return e.slice(e.reshape(wide, (columns, blocks * block)), 1, 0, depth)


def _gather_block_quantized(call: Call) -> Tensor:
    """Rows are looked up as they are stored; only those that were asked for become numbers."""
    e, data, indices, scale = call.maker, call.tensor(0), call.tensor(1), call.tensor(2)
    bits, block = call.integer("bits", 4), call.integer("block_size", 128)
    axis = call.axis(data.rank, 0, "gather_axis")
    along = call.axis(data.rank, 1, "quantize_axis")
    if axis == along:
        raise ModelError("rows are looked up along the axis of their blocks")
    is_packed = data.dtype is dtypes.u8
    if is_packed and (bits not in _BITS or along != data.rank - 1):
        raise UnsupportedError(f"bytes of {bits} bits in blocks along axis {along}")
    parts = [data, scale, *([zero] if (zero := call.optional(3)) is not None else [])]
    rows = [e.op("gather", x, indices, axis=axis) for x in parts]
    values, factor, shift = rows[0], rows[1], rows[2] if len(rows) > 2 else None
    if is_packed:
        values = unpacked(e, values, bits)
        shift = _packed_zero(e, shift, factor.shape, bits)
    # The axis of blocks moves with the number of axes that indices have.
    moved = along + (indices.rank - 1 if along > axis else 0)
    return e.op("dequantize_linear", values, factor, shift, axis=moved, block_size=block)


def _packed_zero(
    e: NodeMaker, zero: Tensor | None, shape: tuple[Dim, ...], bits: int
) -> Tensor:
    if zero is None:
        return e.broadcast_to(_middle(e, bits), shape)
    whole = unpacked(e, zero, bits)
    return e.slice(whole, whole.rank - 1, 0, shape[-1])


ROWS: Final[tuple[Row, ...]] = (
    row("GatherBlockQuantized", _gather_block_quantized, domain=MICROSOFT),
    row("MatMulBnb4", _mat_mul_bnb4, domain=MICROSOFT),
    row("MatMulNBits", _mat_mul_n_bits, domain=MICROSOFT),
)
