"""Random numbers of a model: every element from a counter of its own, every draw from a stream of its own.

A draw with a seed is a function of that seed, whatever stands around it.  One without a seed gets a fresh one for
each import of the model and the number of the draw in it.  What the model computes is a function of its inputs:
another call of a compiled model draws the same numbers, another trip of a loop draws others.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Final, final

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.random_bits import (
    WORD,
    high_word,
    low_word,
    of_words,
    philox,
)
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.ops.shapes import element_count

_MASK: Final = (1 << WORD) - 1
_GOLDEN: Final = 0x9E3779B1
"""Multiples of it modulo 2**32 lie far apart: trips of loops in loops get numbers of their own."""
_F32_BITS: Final = 24
_F64_BITS: Final = 53


@final
@record
class Words:
    """Four random words, u32, for every element of a shape."""

    words: tuple[Tensor, Tensor, Tensor, Tensor]

    def unit(self, e: NodeMaker, dtype: DType, *, second: bool = False) -> Tensor:
        """Numbers in [0, 1), f32 (24 bits) or f64 (53 bits); with `second` others of the same elements."""
        first, other = self.words[2:] if second else self.words[:2]
        if dtype is dtypes.f64:
            rest = e.scalar(2 * WORD - _F64_BITS, dtypes.u64)
            whole = e.op("shift_right", of_words(e, first, other), rest)
            return e.op("mul", e.cast(whole, dtype), e.scalar(2.0**-_F64_BITS, dtype))
        whole = e.op("shift_right", first, e.scalar(WORD - _F32_BITS, dtypes.u32))
        scale = e.scalar(2.0**-_F32_BITS, dtypes.f32)
        return e.op("mul", e.cast(whole, dtypes.f32), scale)


@final
class Draws:
    """Hands out the streams of one model.

    Args:
        seed: of the draws that have none, 64 bits; None: a fresh one.
    """

    __slots__ = ("_count", "_seed", "_trips")

    def __init__(self, seed: int | None = None) -> None:
        self._seed: int = secrets.randbits(2 * WORD) if seed is None else seed
        self._count: int = 0
        self._trips: list[Tensor] = []

    @contextmanager
    def trip(self, number: Tensor) -> Generator[None]:
        """Draws in this context are those of a trip of a loop, i64."""
        self._trips.append(number)
        try:
            yield
        finally:
            self._trips.pop()

    def words(self, e: NodeMaker, shape: Sequence[Dim], seed: int | None = None) -> Words:
        """Random words for every element of `shape`.

        Args:
            e: writes the nodes.
            shape: how many.
            seed: 64 bits; the same seed gives the same words.
        """
        if seed is None:
            self._count += 1
        key, number = (self._seed, self._count) if seed is None else (seed, 0)
        count = element_count(shape)
        place = e.cast(e.iota((count,), 0), dtypes.u64)
        counter = [low_word(e, place), high_word(e, place), _word(e, number), self._trip(e)]
        made = philox(e, [_word(e, key), _word(e, key >> WORD)], counter)
        first, second, third, fourth = (e.reshape(word, shape) for word in made)
        return Words((first, second, third, fourth))

    def uniform(
        self, e: NodeMaker, shape: Sequence[Dim], dtype: DType, seed: int | None = None
    ) -> Tensor:
        """Numbers in [0, 1), f64 for f64 and else f32."""
        return self.words(e, shape, seed).unit(e, dtype)

    def normal(
        self, e: NodeMaker, shape: Sequence[Dim], dtype: DType, seed: int | None = None
    ) -> Tensor:
        """Numbers with mean 0 and variance 1, f64 for f64 and else f32.

        Source: Box and Muller, "A Note on the Generation of Random Normal Deviates", 1958.
        """
        words = self.words(e, shape, seed)
        drawn, turn = words.unit(e, dtype), words.unit(e, dtype, second=True)
        wide = drawn.dtype
        above_zero = e.op("sub", e.scalar(1, wide), drawn)
        square = e.op("mul", e.op("log", above_zero), e.scalar(-2, wide))
        angle = e.op("mul", turn, e.scalar(2 * math.pi, wide))
        return e.op("mul", e.op("sqrt", square), e.op("cos", angle))

    def _trip(self, e: NodeMaker) -> Tensor:
        """One word for the trips of all loops around."""
        word = _word(e, 0)
        for trip in self._trips:
            number = e.cast(e.reshape(trip, ()), dtypes.u32)
            word = e.op("add", e.op("mul", word, _word(e, _GOLDEN)), number)
        return word


def _word(e: NodeMaker, number: int) -> Tensor:
    return e.scalar(number & _MASK, dtypes.u32)
