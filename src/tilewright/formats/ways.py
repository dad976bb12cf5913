"""Whether a program can come to its end from wherever it may get to.

What it is: one walk over jumps, for readers of programs of strangers.  A loop may go on for as long as the data say, but one that no
branch leads out of is a call that never returns.  Called by the verifiers of plans and of Relax executables.
"""

from __future__ import annotations

from collections.abc import Sequence


def first_lost(ways: Sequence[Sequence[int]]) -> int | None:
    """The first place that a walk from 0 may come to, and from which no way leads to the end; None if there is none.

    Args:
        ways: where each place leads to; the end is `len(ways)`.
    """
    end = len(ways)
    back: list[list[int]] = [[] for _ in range(end + 1)]
    for place, following in enumerate(ways):
        for other in following:
            back[other].append(place)
    lost = _within_reach(0, [*ways, ()]) - _within_reach(end, back)
    return min(lost, default=None)


def _within_reach(start: int, ways: Sequence[Sequence[int]]) -> set[int]:
    found = {start}
    waiting = [start]
    while waiting:
        new = set(ways[waiting.pop()]) - found
        found |= new
        waiting += new
    return found
