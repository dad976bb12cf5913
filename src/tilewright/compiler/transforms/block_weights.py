"""Weights that a model has as integers with a scale per block, as products read them: words, beside scales.

What is known is worked out here, once: where all zero points are the middle of the range, there are none.  Called by `pack_matmul`; what the words mean stands at `matmul_blocks`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Final, final

import numpy as np

from tilewright.base import dtypes, symbolic
from tilewright.base.record import record
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.graph.schema import Array
from tilewright.compiler.ops.block_products import MANTISSAS, NIBBLE, middle, words_together
from tilewright.compiler.ops.contraction import WORD_BITS
from tilewright.compiler.passes import Emitter, given, need
from tilewright.compiler.transforms.matching import constant_of, maker

_STEPS: Final = 127
_BYTE: Final = 8
_WORD_BYTES: Final = WORD_BITS // _BYTE
_REAL: Final = (dtypes.f32, dtypes.f16, dtypes.bf16)


@final
@record(eq=False)
class BlockWeights:
    """[K, N] integers of `bits`, or floats of 8 bits, with [blocks, N] scales and zero points.

    Attributes:
        values: u8; of floats, their bits.
        scale: f32.
        zero: u8, or None for the middle of the range.
        block: elements of K that share a scale.
        mantissa: bits of the mantissa where the numbers are floats of 8 bits; else 0.
    """

    values: Array
    scale: Array
    zero: Array | None
    bits: int
    block: int
    mantissa: int = 0

    @property
    def depth(self) -> int:
        """The depth of whole blocks, as the words have it."""
        return self.scale.shape[0] * self.block

    def words(self, places: Sequence[int]) -> Array:
        """[depth * bits / 32, N] words, in which numbers stand at these bits in turn."""
        rows, columns = self.values.shape
        missing = np.zeros((self.depth - rows, columns), np.uint8)
        numbers = np.concatenate([self.values, missing]) if missing.size else self.values
        parts = numbers.reshape(-1, len(places), columns)
        found = _empty_words(parts[:, 0])
        for byte in range(_WORD_BYTES):
            own = [at for at, place in enumerate(places) if place // _BYTE == byte]
            moved = [
                np.left_shift(parts[:, at], np.uint8(places[at] % _BYTE)) for at in own
            ]
            found[..., byte] = reduce(np.bitwise_or, moved)
        return found.view("<i4")[..., 0]


def _empty_words(numbers: Array) -> Array:
    """Room for the bytes of a word for each of some numbers, which lies in the order that they do."""
    rows, columns = numbers.shape
    if numbers.strides[0] < numbers.strides[1]:
        return np.empty((columns, rows, _WORD_BYTES), np.uint8).transpose(1, 0, 2)
    return np.empty((rows, columns, _WORD_BYTES), np.uint8)


def block_weights(value: Value) -> BlockWeights:
    """What a matrix [K, N] is made of.  Raises: NoMatchError if not of known integers in blocks of whole words along K."""
    found, turned = _dequantization(value)
    node = given(found)
    need(node.number("block_size"))
    values, scale = (given(constant_of(node.operand(i))) for i in (0, 1))
    zero_value = node.optional_operand(2)
    zero = None if zero_value is None else given(constant_of(zero_value))
    axis = node.number("axis") % values.ndim
    need(values.ndim == 2 and scale.ndim == 2 and (axis == 1) is turned)
    if turned:
        values, scale, zero = values.T, scale.T, None if zero is None else zero.T
    return _settled(values, scale, zero, node.number("block_size"))


def is_in_blocks(value: Value) -> bool:
    """Whether a matrix is made of integers with a scale per block, known ones or not."""
    node, _ = _dequantization(value)
    return node is not None and bool(node.number("block_size"))


def _dequantization(value: Value) -> tuple[Node | None, bool]:
    """The node that makes integers real, and whether its result is turned."""
    node = maker(value, "transpose", "cast", "dequantize_linear")
    turned = False
    while node is not None and node.op != "dequantize_linear":
        if node.op == "transpose":
            turned = turned is not (node.ints("perm") == (1, 0))
        elif node.operand().type.dtype not in _REAL:
            return None, turned
        node = maker(node.operand(), "transpose", "cast", "dequantize_linear")
    return node, turned


def _settled(values: Array, scale: Array, zero: Array | None, block: int) -> BlockWeights:
    need(values.size and values.dtype.itemsize <= 1)
    if dtypes.from_numpy(values.dtype).is_float:
        return _small_floats(values, scale, zero, block)
    values = _in_whole_bytes(values)
    shift = np.zeros(scale.shape, np.int32)
    if zero is not None:
        shift = np.broadcast_to(zero.astype(np.int32), scale.shape)
    low, high = int(values.min()), int(values.max())
    has_sign = low < 0 or int(shift.min()) < 0
    # Integers of a sign are those around the middle; so are unsigned ones whose zero is not there.
    lowest, highest = (
        (-middle(NIBBLE), middle(NIBBLE) - 1) if has_sign else (0, 2 * middle(NIBBLE) - 1)
    )
    bits = NIBBLE if lowest <= low and high <= highest else _BYTE
    block = _whole_words(block, scale, bits)
    need(not block % (WORD_BITS // bits) and -(-values.shape[0] // block) == scale.shape[0])
    base = middle(bits) if has_sign else 0
    zeros = shift + base
    need(zeros.min() >= 0 and zeros.max() <= 255)
    is_plain = bool((zeros == middle(bits)).all())
    kept = None if is_plain else zeros.astype(np.uint8)
    whole = values.view(np.uint8)
    whole = whole + np.uint8(base) if base else whole
    return BlockWeights(whole, scale.astype(np.float32), kept, bits, block)


def _in_whole_bytes(values: Array) -> Array:
    """Integers of 8 bits, in the order that they lie in; those of fewer fit bytes with a sign."""
    if dtypes.from_numpy(values.dtype) in (dtypes.i8, dtypes.u8):
        return values
    return values.astype(np.int8)


def _small_floats(
    values: Array, scale: Array, zero: Array | None, block: int
) -> BlockWeights:
    """Floats of 8 bits as their bits; those that are not finite have no place in words."""
    mantissa = given(MANTISSAS.get(dtypes.from_numpy(values.dtype)))
    need(np.isfinite(values.astype(np.float32)).all())
    need(zero is None or not zero.astype(np.float32).any())
    block = _whole_words(block, scale, _BYTE)
    need(not block % _WORD_BYTES and -(-values.shape[0] // block) == scale.shape[0])
    return BlockWeights(
        values.view(np.uint8), scale.astype(np.float32), None, _BYTE, block, mantissa
    )


def _whole_words(block: int, scale: Array, bits: int) -> int:
    """The size of blocks; a single one may go on to the end of its last word, in zeros."""
    each = WORD_BITS // bits
    return -(-block // each) * each if scale.shape[0] == 1 else block


def packed_operands(
    weights: BlockWeights, places: Sequence[int], panel: int, emit: Emitter
) -> tuple[Value, Value, Value | None]:
    """Words, with the numbers at these bits, scales and zero points, in panels."""
    parts = [weights.words(places), weights.scale, weights.zero]
    panels = [
        None
        if part is None
        else emit.op(
            "pack_panels", [emit.constant(np.ascontiguousarray(part))], {"panel": panel}
        )
        for part in parts
    ]
    assert panels[0] is not None, "there are words"
    assert panels[1] is not None, "there are scales"
    return panels[0], panels[1], panels[2]


@final
@record
class RoundedRows:
    """[M, K] rows as bytes with a sign, some at a time: [M, K / 4] words, and [M, steps] factors and sums of the bytes."""

    words: Value
    factor: Value
    sums: Value


def rounded_rows(left: Value, weights: BlockWeights, emit: Emitter) -> RoundedRows:
    """Rows of f32, each 32 numbers of them (fewer where blocks are shorter) rounded to 127 steps on either side of zero.

    A step is the largest magnitude of them over 127.  NaN and infinities make their factor what they are.
    """
    rows, depth = left.type.shape
    each = WORD_BITS // weights.bits
    together = each * words_together(weights.block // each, weights.bits)
    shape = (rows, symbolic.floordiv(depth, together), together)
    sizes = emit.op("abs", [emit.reshape(left, shape)])
    last: dict[str, object] = {"axes": (-1,), "keepdims": False}
    largest = emit.op("reduce_max", [sizes], last)
    one = emit.constant(np.array(1 / _STEPS, np.float32))
    factor = emit.op("mul", [largest, one])
    where = {"axis": 1, "block_size": together, "dtype": dtypes.i8}
    values = emit.op("quantize_linear", [left, factor], where)
    numbers = emit.cast(values, dtypes.i32)
    sums = emit.op("reduce_sum", [emit.reshape(numbers, shape)], last)
    return RoundedRows(emit.op("as_words", [values]), factor, sums)
