"""Where transients lie in the one buffer that they share.  Called by `main`."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.base.arena import ALIGNMENT_BYTES
from tilewright.base.symbolic import Dim, ceildiv
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
        size = ceildiv(storage.size_bytes, ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        free = (
            i for i, (s, end, _) in enumerate(slots) if s == size and end < storage.first
        )
        index = next(free, None)
        if index is None:
            slots.append((size, storage.last, total))
            offsets[storage] = total
            total = total + size
        else:
            offset = slots[index][2]
            slots[index] = (size, storage.last, offset)
            offsets[storage] = offset
    return offsets, total
