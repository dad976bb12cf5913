"""How much of a product a workgroup takes, so that threads get shares alike.

A few workgroups of equal size leave a thread idle where threads do not divide them, or the last one is short: of three
workgroups one of two threads takes two.  Called by `tilings`; knows blocks of panels and of rows, and nothing of a kernel.
"""

from __future__ import annotations

import functools
import heapq
import math
from typing import Final

_MANY: Final = 8
"""Workgroups for each thread of which one more or less makes no difference."""
_STEPS: Final = 64
"""Parts of what would be taken, by which more or less of it is tried."""
_HALF_COSTS: Final = 1.03
"""Of the time of a workgroup's rows, where half as many share a panel."""
_WORTH: Final = 0.98
"""Of the longest share, below which another cut is worth it."""


@functools.lru_cache(maxsize=1024)
def even_shares(
    panels: int, rows: int, taken: tuple[int, int], threads: int, *, shared_panels: bool
) -> tuple[int, int]:
    """Panels and blocks of rows that a workgroup takes: near to those `taken`, and so that no thread gets much more than others.

    Args:
        panels: how many there are.
        rows: how many blocks of them.
        taken: how many of each a workgroup would take if it ran alone.
        threads: that share the workgroups.
        shared_panels: workgroups part the rows between them, each with so many panels; otherwise the panels, with all of
            `taken` rows, or half of them.
    """

    def count(option: tuple[int, int]) -> int:
        return math.ceil(panels / option[0]) * math.ceil(rows / option[1])

    now = count(taken)
    if threads == 1 or now == 1 or now > _MANY * threads:
        return taken
    if shared_panels:
        options = [taken, *((taken[0], n) for n in _near(taken[1], rows))]
    else:
        blocks = {taken[1], math.ceil(taken[1] / 2)}
        options = [
            taken,
            *((n, m) for n in _near(taken[0], panels) for m in sorted(blocks)),
        ]
    if now <= threads:  # no more of them would be worth their start
        options = [option for option in options if count(option) <= now]

    def cost(option: tuple[int, int]) -> float:
        halved = not shared_panels and option[1] < taken[1]
        longest = _longest_share(panels, rows, option, threads)
        return longest * (_HALF_COSTS if halved else 1)

    def distance(option: tuple[int, int]) -> int:
        return abs(option[0] - taken[0]) + abs(option[1] - taken[1])

    best = min(options, key=lambda option: (cost(option), distance(option)))
    return best if cost(best) < _WORTH * cost(taken) else taken


def _near(taken: int, most: int) -> range:
    """From half of what would be taken to half as much again, of `most` there are; some of them where they are many."""
    step = max(1, taken // _STEPS)
    return range(max(1, taken // 2), min(most, taken + taken // 2) + 1, step)


def _longest_share(panels: int, rows: int, taken: tuple[int, int], threads: int) -> int:
    """Panels times rows of the thread that gets most, where each takes the next workgroup as soon as it is free."""
    shares = [0] * threads
    for row in range(0, rows, taken[1]):
        for panel in range(0, panels, taken[0]):
            size = min(taken[0], panels - panel) * min(taken[1], rows - row)
            heapq.heapreplace(shares, shares[0] + size)
    return max(shares)
