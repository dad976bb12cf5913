"""Operands of contractions of bytes as words of four, which machines multiply in one step.

Called by `pack_matmul` and `legalize_convolution`; what the words mean stands at `as_words` and `product`.
"""

from __future__ import annotations

from typing import Final

from tilewright.base import dtypes, symbolic
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.ops.contraction import BYTES, BYTES_PER_WORD
from tilewright.compiler.passes import Emitter
from tilewright.compiler.transforms.matching import maker, operand

WORD_PRODUCT: Final = {"product": BYTES}


def multiplies_bytes(node: Node) -> bool:
    """Whether a contraction is one of unsigned by signed bytes."""
    types = [operand(node, i).type.dtype for i in (0, 1)]
    return node.result.type.dtype is dtypes.i32 and types == [dtypes.u8, dtypes.i8]


def are_whole(count: Dim) -> bool:
    """Whether so many bytes are words, or can be filled up to be."""
    return isinstance(count, int) or symbolic.mod(count, BYTES_PER_WORD) == 0


def whole(x: Value, axis: int, emit: Emitter) -> Value:
    """`x` with so many zeros behind an axis that it is whole words."""
    extent = x.type.shape[axis]
    missing = -extent % BYTES_PER_WORD if isinstance(extent, int) else 0
    if not missing:
        return x
    rank = x.type.rank
    behind = tuple(missing if i == axis % rank else 0 for i in range(rank))
    return emit.op("pad", [x], {"pads": ((0,) * rank + behind)})


def words(x: Value, emit: Emitter) -> Value:
    """The bytes of the last axis as words."""
    return emit.op("as_words", [whole(x, -1, emit)])


def as_they_lie(value: Value) -> Value:
    """Bytes that were only made wider to be multiplied as floats: panels may hold them as they are."""
    node = maker(value, "cast")
    if node is None or value.type.dtype is not dtypes.f32:
        return value
    source = operand(node)
    return source if source.type.dtype in (dtypes.u8, dtypes.i8) else value
