"""Whether work grows in proportion to its input, or as its square: told by the thread's processor time, where no step can be counted.

A time is compared with one of the same process only, without what its other threads do, and the two answers lie so far apart that a busy machine does
not take one for the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable

# Less processor time than this is mostly that of the clock, in seconds.
SHORTEST_S = 2e-5
LOOKS = 4


def grows_in_proportion(work: Callable[[int], object], few: int, many: int) -> bool:
    """Whether `many` take about `many / few` times as long as `few`, and not the square of that.

    The border is the geometric middle of both.  With `many` = 32 `few` it is at 181 times: neither a machine that is
    five times as slow in the short look nor one in the long look changes the answer.
    """
    if many < 32 * few:
        raise ValueError(f"{many} is too near to {few}")
    border = (many / few) ** 1.5
    return least_seconds(work, many) < border * max(least_seconds(work, few), SHORTEST_S)


def least_seconds(work: Callable[[int], object], size: int) -> float:
    """The least processor time of several runs: a garbage collection, or a neighbour, is in some of them only."""
    return min(_seconds(work, size) for _ in range(LOOKS))


def _seconds(work: Callable[[int], object], size: int) -> float:
    begin = time.thread_time()
    work(size)
    return time.thread_time() - begin
