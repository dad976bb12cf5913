"""Neighbours merged into longer symbols, the best pair first, as long as any pair is known.

What is best is the caller's: the rank of a merge, or the score of what it becomes.  The time is that of sorting,
however long a word is.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

Worth = Callable[[str, str], float | None]
"""How early a pair is merged, the smallest first; None: never."""


def merged(symbols: Sequence[str], worth: Worth) -> list[str]:
    """What is left of `symbols` when no pair of neighbours can be merged; of equals the leftmost goes first."""
    held: list[str | None] = list(symbols)
    following = list(range(1, len(held) + 1))
    preceding = list(range(-1, len(held) - 1))
    waiting: list[tuple[float, int, str, str]] = []

    def offer(at: int) -> None:
        after = following[at] if at >= 0 else len(held)
        if after >= len(held):
            return
        left, right = held[at], held[after]
        assert left is not None
        assert right is not None
        order = worth(left, right)
        if order is not None:
            heapq.heappush(waiting, (order, at, left, right))

    for at in range(len(held)):
        offer(at)
    while waiting:
        _, at, left, right = heapq.heappop(waiting)
        after = following[at]
        # Either may have become part of something else since this was offered.
        if held[at] != left or after >= len(held) or held[after] != right:
            continue
        held[at], held[after] = left + right, None
        following[at] = following[after]
        if following[at] < len(held):
            preceding[following[at]] = at
        offer(preceding[at])
        offer(at)
    return [symbol for symbol in held if symbol is not None]
