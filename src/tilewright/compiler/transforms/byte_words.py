"""Operands of contractions as words of several elements, whose elements machines multiply and add in one step.

Called by `pack_matmul` and `legalize_convolution`; what the words mean stands at `as_words` and `WordProduct`.
"""

from __future__ import annotations

from tilewright.base import dtypes, symbolic
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.ops.contraction import (
    WORD_BITS,
    WORD_PRODUCTS,
    WordProduct,
    per_word,
)
from tilewright.compiler.ops.shapes import element_count
from tilewright.compiler.passes import Emitter
from tilewright.compiler.transforms.matching import maker

BYTES_PER_WORD = per_word(dtypes.u8)


def product_of_words(node: Node, products: frozenset[str]) -> str:
    """The row of `WORD_PRODUCTS` that a contraction is by its types, or "".

    Products of bytes that are left as such are always one: of long words where those are among the `products` of the
    machine and fill its tiles, else of 16-bit numbers where those are, else of bytes.  Other rows the machine must have.
    """
    types = (*(node.operand(i).type.dtype for i in (0, 1)), node.result.type.dtype)
    if types == (dtypes.u8, dtypes.i8, dtypes.i32):
        if "long_bytes" in products and _fills_tiles(node):
            return "long_bytes"
        return "extended" if "extended" in products else "bytes"
    if types == (dtypes.i16, dtypes.i16, dtypes.i32) and "shorts" in products:
        return "shorts"
    if types == (dtypes.bf16, dtypes.bf16, dtypes.f32) and "pairs" in products:
        return "pairs"
    return ""


def _fills_tiles(node: Node) -> bool:
    """Whether a product of bytes has rows for tiles, and whole words of eight bytes where it is a convolution."""
    if node.op == "matmul":
        return node.result.type.shape[-2] != 1
    depth, elements = node.operand(1).type.shape[1], WORD_PRODUCTS["long_bytes"].elements
    places = element_count(node.result.type.shape[:-1])
    return places != 1 and symbolic.mod(depth, elements) == 0


def left_elements(node: Node, row: WordProduct, emit: Emitter) -> Value:
    """The left operand with elements of the type that words on the left have: extended once, for all columns."""
    return emit.cast(node.operand(), row.left)


def are_whole(count: Dim, elements: int = BYTES_PER_WORD) -> bool:
    """Whether so many elements, `elements` to a word, are words, or can be filled up to be."""
    return isinstance(count, int) or symbolic.mod(count, elements) == 0


def whole(x: Value, axis: int, emit: Emitter, bits: int = WORD_BITS) -> Value:
    """`x` with so many zeros behind an axis that it is whole words of so many bits."""
    extent = x.type.shape[axis]
    count = per_word(x.type.dtype, bits)
    missing = -extent % count if isinstance(extent, int) else 0
    if not missing:
        return x
    rank = x.type.rank
    behind = tuple(missing if i == axis % rank else 0 for i in range(rank))
    return emit.op("pad", [x], {"pads": ((0,) * rank + behind)})


def words(x: Value, emit: Emitter, bits: int = WORD_BITS) -> Value:
    """The elements of the last axis as words of so many bits."""
    return emit.op("as_words", [whole(x, -1, emit, bits)], {"bits": bits})


def as_they_lie(value: Value) -> Value:
    """Bytes that were only made wider to be multiplied as floats: panels may hold them as they are."""
    node = maker(value, "cast")
    if node is None or value.type.dtype is not dtypes.f32:
        return value
    source = node.operand()
    return source if source.type.dtype in (dtypes.u8, dtypes.i8) else value


def summed_in_f32(node: Node, emit: Emitter, products: frozenset[str]) -> Value | None:
    """A contraction of bf16, where pairs are multiplied in one step, as one whose result is f32, rounded once."""
    types = {node.operand(i).type.dtype for i in (0, 1)} | {node.result.type.dtype}
    if types != {dtypes.bf16} or "pairs" not in products:
        return None
    wide = emit.op(node.op, node.operands, {**node.attributes, "dtype": dtypes.f32})
    return emit.cast(wide, dtypes.bf16)


def in_f32(x: Value, emit: Emitter) -> Value:
    """`x` as f32; if it was rounded to 16 bits for a contraction, what it was before.

    Rounding pays where pairs are multiplied or memory is what is waited for; elsewhere it takes time and digits.
    """
    rounding = maker(x, "cast")
    if rounding is not None and rounding.operand().type.dtype is dtypes.f32:
        return rounding.operand()
    return emit.cast(x, dtypes.f32)
