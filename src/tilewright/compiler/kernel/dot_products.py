"""Sums of products of the elements of words, as op bodies write them, and what adds them to a total.

A body says what is multiplied; `lowering.fuse_multiply_add` joins that with the total it is added to, which makes it
the instruction that it is taken from.
"""

from __future__ import annotations

from typing import Final

from tilewright.compiler.kernel.expressions import const
from tilewright.compiler.kernel.instructions import INSTRUCTIONS, meaning
from tilewright.compiler.kernel.ir import Argument, Function, Instruction


def _without_total(name: str, row: Instruction) -> Function:
    """What an instruction adds to its first operand, as a function of the others."""
    words = row.operands[1:]
    arguments = [Argument(place, dtype) for place, dtype in enumerate(words)]
    return Function(name, words, row.dtype, meaning(row, [const(0, row.dtype), *arguments]))


_BYTES: Final = INSTRUCTIONS["vpdpbusd"]
_DOT: Final = _without_total("dot_u8i8", _BYTES)
_PAIRS: Final = INSTRUCTIONS["vdpbf16ps"]
_DOT_OF_PAIRS: Final = _without_total("dot_bf16", _PAIRS)
_EXTENDED: Final = INSTRUCTIONS["vpmaddwd_i8"]
_DOT_OF_EXTENDED: Final = _without_total("dot_i16i8", _EXTENDED)
ADDING: Final = {
    _DOT.name: _BYTES,
    _DOT_OF_PAIRS.name: _PAIRS,
    _DOT_OF_EXTENDED.name: _EXTENDED,
}
"""By the name of a sum of products, the instruction that adds it to a total."""


def dot_of_bytes() -> Function:
    """The sum of the products of four bytes: those of the first word unsigned, of the second signed."""
    return _DOT


def dot_of_pairs() -> Function:
    """The sum of the products of the two bf16 in each word, in f32; denormal numbers are zeros."""
    return _DOT_OF_PAIRS


def dot_of_extended_bytes() -> Function:
    """The sum of the products of the two 16-bit numbers of the first word and the two signed bytes of the second."""
    return _DOT_OF_EXTENDED
