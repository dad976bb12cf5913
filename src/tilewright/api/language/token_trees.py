"""The tokens of a vocabulary as a tree of bytes.  Called by `constraints`, `character_counts` and `form_store`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Final, final

import numpy as np
import numpy.typing as npt


@final
class TokenTree:
    """The bytes of all tokens as a tree; a branch is a range of tokens in the order of their bytes.

    Args:
        pieces: the bytes of each token; tokens without any are none of a text.
        ends: tokens that end a text.
    """

    def __init__(self, pieces: Iterable[bytes], ends: Iterable[int]) -> None:
        texts = list(pieces)
        order = sorted((t for t in range(len(texts)) if texts[t]), key=texts.__getitem__)
        self.count: Final[int] = len(texts)
        self.order: Final[npt.NDArray[np.int64]] = np.array(order, np.int64)
        self.ends: Final[list[int]] = sorted(ends)
        self.pieces: Final[list[bytes]] = texts
        # Of each branch: its first token and the one behind the last, those that end with it, the branches of
        # longer ones by their next byte, and the set of bytes in them.
        self.first: Final[list[int]] = []
        self.last: Final[list[int]] = []
        self.own: Final[list[int]] = []
        self.branches: Final[list[list[tuple[int, int]]]] = []
        self.below: Final[list[int]] = []
        self._grow([texts[token] for token in order])

    def _grow(self, texts: list[bytes]) -> None:
        path = [self._branch(0)]
        before = b""
        for place, text in enumerate(texts):
            pairs = zip(before, text, strict=False)
            same = sum(
                1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)
            )
            self._close(path, before, same, place)
            for byte in text[same:]:
                made = self._branch(place)
                self.branches[path[-1]].append((byte, made))
                path.append(made)
            self.own[path[-1]] = place + 1
            before = text
        self._close(path, before, -1, len(texts))

    def _branch(self, place: int) -> int:
        self.first.append(place)
        self.last.append(place)
        self.own.append(place)
        self.branches.append([])
        self.below.append(0)
        return len(self.first) - 1

    def _close(self, path: list[int], text: bytes, length: int, place: int) -> None:
        """End the branches of a text that are longer than `length`."""
        while len(path) - 1 > length:
            ended = path.pop()
            self.last[ended] = place
            if path:
                self.below[path[-1]] |= self.below[ended] | 1 << text[len(path) - 1]
