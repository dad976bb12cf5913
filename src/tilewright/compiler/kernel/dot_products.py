"""Sums of products of the elements of words, as op bodies write them, and what adds them to a total.

A body says what is multiplied; `lowering.fuse_multiply_add` joins that with the total it is added to, which makes it
the instruction that it is taken from.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Final

from tilewright.base.dtypes import DType, i64
from tilewright.compiler.kernel.expressions import binary, cast, const
from tilewright.compiler.kernel.instructions import INSTRUCTIONS, meaning
from tilewright.compiler.kernel.ir import Argument, Expression, Function, Instruction


@functools.cache
def _without_total(name: str, words: tuple[DType, ...] | None = None) -> Function:
    """What an instruction adds to its first operand, as a function of the others; of longer `words`, for each part."""
    row = ADDING[name]
    types = words or row.operands[1:]
    arguments = [Argument(place, dtype) for place, dtype in enumerate(types)]
    total: Expression = const(0, row.dtype)
    for operands in parts_of_words(row, arguments):
        total = meaning(row, [total, *operands])
    return Function(name, types, row.dtype, total)


def parts_of_words(
    row: Instruction, words: Sequence[Expression]
) -> Iterator[tuple[Expression, ...]]:
    """The operands of an instruction in words that may be as long as several of them, low bits first."""
    wanted = row.operands[1:]
    for part in range(words[0].dtype.bits // wanted[0].bits):
        yield tuple(_part(x, part, dtype) for x, dtype in zip(words, wanted, strict=True))


def _part(word: Expression, part: int, dtype: DType) -> Expression:
    if word.dtype is dtype:
        return word
    shift = const(part * dtype.bits, word.dtype, word.lanes)
    return cast(binary("shr", word, shift) if part else word, dtype)


_DOT: Final = "dot_u8i8"
_DOT_OF_LONG: Final = "dot_u8i8_long"
_DOT_OF_PAIRS: Final = "dot_bf16"
_DOT_OF_EXTENDED: Final = "dot_i16i8"
_DOT_OF_SMALL: Final = "dot_u7i8"
_DOT_OF_SHORTS: Final = "dot_i16"
ADDING: Final = {
    _DOT: INSTRUCTIONS["vpdpbusd"],
    _DOT_OF_LONG: INSTRUCTIONS["vpdpbusd"],
    _DOT_OF_PAIRS: INSTRUCTIONS["vdpbf16ps"],
    _DOT_OF_EXTENDED: INSTRUCTIONS["vpmaddwd_i8"],
    _DOT_OF_SHORTS: INSTRUCTIONS["vpmaddwd"],
    _DOT_OF_SMALL: INSTRUCTIONS["vpmaddubsw"],
}
"""By the name of a sum of products, the instruction that adds it to a total, word by word or part by part."""
TILES: Final = {_DOT_OF_LONG: INSTRUCTIONS["usmmla"]}
"""By the same name, the instruction that adds it to the totals of two rows and two columns at once."""


def tile_side(row: Instruction) -> int:
    """Rows, and columns, of the tile of totals that one of `TILES` adds to."""
    side, *_ = row.parameters[0].shape
    assert isinstance(side, int), "rows of instructions have no symbols"
    return side


def dot_of_bytes() -> Function:
    """The sum of the products of four bytes: those of the first word unsigned, of the second signed."""
    return _without_total(_DOT)


def dot_of_small_bytes() -> Function:
    """The same of unsigned bytes of 7 bits: a highest bit is no part of them."""
    return _without_total(_DOT_OF_SMALL)


def dot_of_long_words() -> Function:
    """The same of eight bytes in words of 64 bits."""
    return _without_total(_DOT_OF_LONG, (i64, i64))


def dot_of_pairs() -> Function:
    """The sum of the products of the two bf16 in each word, in f32; denormal numbers are zeros."""
    return _without_total(_DOT_OF_PAIRS)


def dot_of_extended_bytes() -> Function:
    """The sum of the products of the two 16-bit numbers of the first word and the two signed bytes of the second."""
    return _without_total(_DOT_OF_EXTENDED)


def dot_of_shorts() -> Function:
    """The sum of the products of the two 16-bit numbers in each word."""
    return _without_total(_DOT_OF_SHORTS)
