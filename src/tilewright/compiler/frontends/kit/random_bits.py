"""Random words from a counter: Philox-4x32, as arithmetic of the graph.

A generator is a function of its key and its counter, so that the same state gives the same bits everywhere, in any
order.  Called by the front ends' rows for random numbers.

Source: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011, section 4.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.base import dtypes
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.tensor import Tensor

WORD: Final = 32
"""The bits of a word."""
_ROUNDS: Final = 10
_FACTORS: Final = (0xD2511F53, 0xCD9E8D57)
_STEPS: Final = (0x9E3779B9, 0xBB67AE85)


def low_word(e: NodeMaker, x: Tensor) -> Tensor:
    """The low word of u64, as u32."""
    mask = e.scalar((1 << WORD) - 1, dtypes.u64)
    return e.cast(e.op("bitwise_and", x, mask), dtypes.u32)


def high_word(e: NodeMaker, x: Tensor) -> Tensor:
    """The high word of u64, as u32."""
    return e.cast(e.op("shift_right", x, e.scalar(WORD, dtypes.u64)), dtypes.u32)


def of_words(e: NodeMaker, first: Tensor, second: Tensor) -> Tensor:
    """U64 of a low and a high word."""
    above = e.op("shift_left", e.cast(second, dtypes.u64), e.scalar(WORD, dtypes.u64))
    return e.op("bitwise_or", e.cast(first, dtypes.u64), above)


def rotated(e: NodeMaker, x: Tensor, distance: int) -> Tensor:
    """Words of u32 whose bits that leave on the left, up to 31, come back on the right."""
    left = e.op("shift_left", x, e.scalar(distance, dtypes.u32))
    right = e.op("shift_right", x, e.scalar(WORD - distance, dtypes.u32))
    return e.op("bitwise_or", left, right)


def philox(
    e: NodeMaker, key: Sequence[Tensor], counter: Sequence[Tensor]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Philox-4x32 with 10 rounds: four random words of four words of a counter and two of a key, all u32."""
    first, second = key
    a, b, c, d = counter
    for _ in range(_ROUNDS):
        products = [
            e.op("mul", e.cast(word, dtypes.u64), e.scalar(factor, dtypes.u64))
            for word, factor in zip((a, c), _FACTORS, strict=True)
        ]
        (low_a, high_a), (low_c, high_c) = (
            (low_word(e, p), high_word(e, p)) for p in products
        )
        a, b = e.op("bitwise_xor", e.op("bitwise_xor", high_c, b), first), low_c
        c, d = e.op("bitwise_xor", e.op("bitwise_xor", high_a, d), second), low_a
        first, second = (
            e.op("add", k, e.scalar(step, dtypes.u32))
            for k, step in zip((first, second), _STEPS, strict=True)
        )
    return a, b, c, d
