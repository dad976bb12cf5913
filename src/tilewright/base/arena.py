"""Packing of lifetimes into one arena: two blocks share bytes only if they never live together.

Greedy by size, best fit in the gaps, which is within a few percent of the lower bound on real
models (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020,
section 5).  Called by the compiler for static programs and by the runtime once the dynamic
dimensions of a call are known.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from typing import Final, final

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
    placed: list[tuple[int, int, Block]] = []  # (start, end, block), sorted by start
    for index in order:
        block = blocks[index]
        size = align(block.size_bytes)
        if size == 0:
            continue
        start = _best_gap(size, block, placed)
        offsets[index] = start
        bisect.insort(placed, (start, start + size, block), key=lambda row: row[0])
    return Packing(tuple(offsets), max((end for _, end, _ in placed), default=0))


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


def _best_gap(size: int, block: Block, placed: Sequence[tuple[int, int, Block]]) -> int:
    """Start of the tightest gap between the blocks that live together with `block`."""
    best: tuple[int, int] | None = None
    cursor = 0
    for start, end, other in placed:
        if other.last < block.first or block.last < other.first:
            continue
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
