"""Packing of lifetimes into one arena: two blocks share bytes only if they never live together.

Greedy by size, best fit in the gaps, which is within a few percent of the lower bound on real
models (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020,
section 5).  Called by the compiler for static programs and by the runtime once the dynamic
dimensions of a call are known.

With n blocks, of which k live together with one, a block takes log n + k log k steps, at most n.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, final

from tilewright.base.record import record

ALIGNMENT_BYTES: Final = 64


@final
@record
class Block:
    """`size_bytes` needed from step `first` through step `last`, both inclusive."""

    size_bytes: int
    first: int
    last: int


@final
@record
class Packing:
    """Byte offset per block, in the order given, and the bytes of the whole arena."""

    offsets: tuple[int, ...]
    size_bytes: int


def align(size_bytes: int, alignment_bytes: int = ALIGNMENT_BYTES) -> int:
    """`size_bytes` rounded up to a multiple of the alignment."""
    return -(-size_bytes // alignment_bytes) * alignment_bytes


def pack(blocks: Sequence[Block]) -> Packing:
    """Place every block at a 64-byte aligned offset; blocks of size 0 go to offset 0.

    Several orders are tried until one reaches the lower bound; the smallest arena wins.
    """
    bound = peak_bytes(blocks)
    best: Packing | None = None
    for order in _ORDERS:
        packing = _pack_in_order(blocks, sorted(range(len(blocks)), key=order(blocks)))
        if best is None or packing.size_bytes < best.size_bytes:
            best = packing
        if best.size_bytes == bound:
            break
    assert best is not None
    return best


def _pack_in_order(blocks: Sequence[Block], order: Sequence[int]) -> Packing:
    offsets = [0] * len(blocks)
    placed = _Placed(blocks)
    arena_bytes = 0
    for index in order:
        block = blocks[index]
        size = align(block.size_bytes)
        if size == 0:
            continue
        start = _best_gap(size, placed.together_with(block.first, block.last))
        offsets[index] = start
        placed.add(index, (start, start + size, block.first, block.last))
        arena_bytes = max(arena_bytes, start + size)
    return Packing(tuple(offsets), arena_bytes)


_Row: TypeAlias = tuple[int, int, int, int]
"""Where a block lies, and when it lives: begin and end in bytes, first and last step."""

_LOOKING_FOR_ONE: Final = 64
"""Finding one row in the tree takes about as long as looking at so many rows."""


@final
class _Placed:
    """The places of blocks, found again by when the blocks live.

    All in the order of their begin in memory; and a tree over the blocks in the order of their first
    steps, each node of which has the last step of the placed blocks below it, or -1.
    """

    def __init__(self, blocks: Sequence[Block]) -> None:
        by_first = sorted(range(len(blocks)), key=lambda i: blocks[i].first)
        self._leaf_count: int = 1 << max(len(blocks) - 1, 0).bit_length()
        self._leaf_of: dict[int, int] = {
            index: self._leaf_count + position for position, index in enumerate(by_first)
        }
        self._firsts: list[int] = [blocks[i].first for i in by_first]
        self._lasts: list[int] = sorted(block.last for block in blocks)
        self._last_below: list[int] = [-1] * (2 * self._leaf_count)
        self._rows: list[_Row] = [(0, 0, 0, 0)] * len(blocks)
        self._by_start: list[_Row] = []

    def add(self, index: int, row: _Row) -> None:
        """Block `index` has this place."""
        node, last = self._leaf_of[index], row[3]
        self._rows[node - self._leaf_count] = row
        bisect.insort(self._by_start, row)
        while node and self._last_below[node] < last:
            self._last_below[node] = last
            node >>= 1

    def together_with(self, first: int, last: int) -> list[_Row]:
        """The places of those that live in one of these steps, in the order of their begin."""
        begun = bisect.bisect_right(self._firsts, last)
        alive = begun - bisect.bisect_left(self._lasts, first)
        if alive * _LOOKING_FOR_ONE > len(self._by_start):
            return [row for row in self._by_start if row[2] <= last and first <= row[3]]
        return sorted(self._search(first, begun))

    def _search(self, first: int, begun: int) -> list[_Row]:
        """Those of the first `begun` blocks that live in step `first` or later."""
        found: list[_Row] = []
        waiting = [(1, 0, self._leaf_count)]
        while waiting:
            node, low, high = waiting.pop()
            if low >= begun or self._last_below[node] < first:
                continue
            if node >= self._leaf_count:
                found.append(self._rows[low])
                continue
            middle = (low + high) // 2
            waiting += ((2 * node, low, middle), (2 * node + 1, middle, high))
        return found


Order = Callable[[Sequence[Block]], Callable[[int], tuple[int, int]]]


def _by_size(blocks: Sequence[Block]) -> Callable[[int], tuple[int, int]]:
    return lambda i: (-blocks[i].size_bytes, blocks[i].first)


def _by_size_and_length(blocks: Sequence[Block]) -> Callable[[int], tuple[int, int]]:
    return lambda i: (-blocks[i].size_bytes, blocks[i].first - blocks[i].last)


def _by_area(blocks: Sequence[Block]) -> Callable[[int], tuple[int, int]]:
    def key(i: int) -> tuple[int, int]:
        block = blocks[i]
        return (-block.size_bytes * (block.last - block.first + 1), block.first)

    return key


def _by_length(blocks: Sequence[Block]) -> Callable[[int], tuple[int, int]]:
    return lambda i: (blocks[i].first - blocks[i].last, -blocks[i].size_bytes)


_ORDERS: Final[tuple[Order, ...]] = (_by_size, _by_size_and_length, _by_area, _by_length)


def _best_gap(size: int, rows: Sequence[_Row]) -> int:
    """Start of the tightest gap between places, which are in order."""
    best: tuple[int, int] | None = None
    cursor = 0
    for start, end, _, _ in rows:
        gap = start - cursor
        if gap >= size and (best is None or gap < best[0]):
            best = (gap, cursor)
        cursor = max(cursor, end)
    return cursor if best is None else best[1]


def peak_bytes(blocks: Sequence[Block]) -> int:
    """The lower bound of any packing: most bytes alive in one step."""
    change: dict[int, int] = {}
    for block in blocks:
        change[block.first] = change.get(block.first, 0) + align(block.size_bytes)
        change[block.last + 1] = change.get(block.last + 1, 0) - align(block.size_bytes)
    alive = best = 0
    for step in sorted(change):
        alive += change[step]
        best = max(best, alive)
    return best
