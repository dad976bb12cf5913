"""Where transients lie in the one buffer that they share.  Called by `main`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewright.base.arena import ALIGNMENT_BYTES, align
from tilewright.base.symbolic import Dim
from tilewright.compiler.program.ir import Program, Storage


def arrange_transients(
    program: Program, storages: Sequence[Storage]
) -> tuple[dict[Storage, Dim], Dim]:
    """Offsets in one buffer; the planned ones, or slots shared by equal symbolic sizes."""
    transients = [s for s in storages if s.kind == "transient"]
    if program.arena_bytes >= 0:
        return {s: s.offset_bytes for s in transients}, program.arena_bytes
    slots: list[tuple[Dim, int, Dim]] = []  # size, step it is free after, offset
    offsets: dict[Storage, Dim] = {}
    total: Dim = 0
    for storage in sorted(transients, key=lambda s: s.first):
        size = _round_up(storage.size_bytes)
        index = next(_free_slots(slots, size, storage.first), None)
        if index is None:
            slots.append((size, storage.last, total))
            offsets[storage] = total
            total = total + size
        else:
            offset = slots[index][2]
            slots[index] = (size, storage.last, offset)
            offsets[storage] = offset
    return offsets, total


def _free_slots(
    slots: Sequence[tuple[Dim, int, Dim]], size: Dim, step: int
) -> Iterator[int]:
    return (i for i, (s, last, _) in enumerate(slots) if s == size and last < step)


def _round_up(size: Dim) -> Dim:
    if isinstance(size, int):
        return align(size)
    return (size + (ALIGNMENT_BYTES - 1)) // ALIGNMENT_BYTES * ALIGNMENT_BYTES
