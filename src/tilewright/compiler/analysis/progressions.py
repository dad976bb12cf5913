"""Sets of positions that nested loops walk through, counted without walking.

Pure arithmetic on integers; knows nothing of kernels.  Called by `footprints`.

>>> count(((1, 3), (2, 10)))  # a window of 3 at every second of 10 places
21
>>> count_lines(
...     ((1, 16), (100, 4)), item_bytes=4, line_bytes=64
... )  # 4 rows of 64 bytes, 400 bytes apart
8
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, final

from tilewright.base.record import record

_COUNTED_OUT: Final = 4096
"""Combinations up to which sums without a pattern are written out to be counted."""

Progression = tuple[int, int]
"""0, stride, 2 * stride ... as (stride, how many), both positive."""

Walk = tuple[Progression, ...]
"""All sums of one position of each progression, strides ascending."""


@final
@record
class Positions:
    """`start` plus the positions of a walk, at most `most` of them."""

    start: int
    walk: Walk
    most: int

    @property
    def end(self) -> int:
        """One beyond the last position."""
        return self.start + reach(self.walk) + 1


def walk_of(progressions: Sequence[Progression]) -> Walk:
    """Progressions in order, without those that stand still."""
    return tuple(sorted(p for p in progressions if p[1] > 1))


def reach(walk: Walk) -> int:
    """How far the last position of a walk lies from the first."""
    return sum(stride * (number - 1) for stride, number in walk)


def count(walk: Walk) -> int:
    """How many different positions there are; more if they overlap without a pattern and are many."""
    levels, is_regular = _apart(walk)
    return math.prod(n for _, n in levels) if is_regular else _count_irregular(walk)


def _apart(walk: Walk) -> tuple[list[Progression], bool]:
    """The same positions as progressions each of which steps over all below, if that can be said."""
    levels: list[Progression] = []
    span, is_regular = 0, True
    for stride, number in walk:
        if stride > span:
            levels.append((stride, number))
        elif stride % levels[-1][0] == 0:
            # Steps that overlap only lengthen the progression below them.
            below, length = levels[-1]
            levels[-1] = (below, length + stride // below * (number - 1))
        else:
            levels.append((stride, number))
            is_regular = False
        span += stride * (number - 1)
    return levels, is_regular


def _count_irregular(walk: Walk) -> int:
    combinations = math.prod(number for _, number in walk)
    if combinations > _COUNTED_OUT:
        unit = math.gcd(*(stride for stride, _ in walk))
        return min(combinations, reach(walk) // unit + 1)
    found = {0}
    for stride, number in walk:
        found = {place + stride * i for place in found for i in range(number)}
    return len(found)


def count_lines(walk: Walk, item_bytes: int, line_bytes: int) -> int:
    """Lines that items at the positions of a walk lie in, the first at the start of a line.

    Runs that begin anywhere within a line count by what they take on average.
    """
    run = item_bytes
    rows: list[Progression] = []
    for stride, number in ((s * item_bytes, n) for s, n in _apart(walk)[0]):
        if not rows and stride <= max(run, line_bytes):
            run += stride * (number - 1)
        else:
            rows.append((stride, number))
    unit = math.gcd(line_bytes, *(stride for stride, _ in rows))
    # A run that begins at a multiple of `unit` reaches into so many lines on average.
    bytes_of_lines = -(-run // unit) * unit + line_bytes - unit
    span = run
    for stride, number in rows:
        span += stride * (number - 1)
        bytes_of_lines = min(bytes_of_lines * number, span + line_bytes - unit)
    return -(-bytes_of_lines // line_bytes)


def union(sets: Sequence[Positions], measure: Callable[[Walk], int]) -> int:
    """The measure of all positions together; never less, more where sets overlap irregularly."""
    groups: dict[Walk, list[Positions]] = {}
    for positions in sets:
        groups.setdefault(positions.walk, []).append(positions)
    pieces = [piece for members in groups.values() for piece in _joined(members)]
    pieces = _without_covered(pieces)
    if not pieces:
        return 0
    hull = max(p.end for p in pieces) - min(p.start for p in pieces)
    total = sum(min(measure(p.walk), p.most) for p in pieces)
    return min(total, measure(walk_of([(1, hull)])))


def _joined(members: Sequence[Positions]) -> list[Positions]:
    """Equal walks from several starts, as one walk where the starts have a pattern."""
    walk, most = members[0].walk, sum(m.most for m in members)
    starts = sorted({m.start for m in members})
    more = _pattern(starts)
    if more is None:
        return [Positions(start, walk, most) for start in starts]
    return [Positions(starts[0], walk_of([*walk, *more]), most)]


def _pattern(places: Sequence[int]) -> list[Progression] | None:
    """Ascending places as sums of progressions, if they are that."""
    if len(places) == 1:
        return []
    stride, length = places[1] - places[0], 1
    while length < len(places) and places[length] - places[0] == stride * length:
        length += 1
    block = [place - places[0] for place in places[:length]]
    for first in range(0, len(places), length):
        if [place - places[first] for place in places[first : first + length]] != block:
            return None
    rest = _pattern(places[::length])
    return None if rest is None else [(stride, length), *rest]


def _without_covered(pieces: Sequence[Positions]) -> list[Positions]:
    """The pieces that do not lie within a gapless one."""
    kept: list[Positions] = []
    for piece in sorted(pieces, key=lambda p: p.start - p.end):
        if not any(
            k.start <= piece.start and piece.end <= k.end and _is_gapless(k) for k in kept
        ):
            kept.append(piece)
    return kept


def _is_gapless(positions: Positions) -> bool:
    """Whether every position from the first to the last is surely there."""
    return min(positions.most, count(positions.walk)) == positions.end - positions.start
