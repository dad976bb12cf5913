"""Whether the iterations of a loop may run in any order, or all at once.

Conservative: True means that every iteration touches its own elements of every buffer the loop
writes.  Needs loop variables with bounds.  The evaluator asks it to run loops as array axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from tilewright.base import symbolic
from tilewright.base.symbolic import Dim
from tilewright.compiler.kernel.ir import Buffer, For, Space
from tilewright.compiler.kernel.rewrite import (
    buffers_written,
    loads,
    loops,
    split_terms,
    stores,
)


@final
@dataclass(frozen=True, slots=True)
class _Touched:
    """Elements of a buffer: where the first lane is, and how far along the last index the last one is from it."""

    indices: tuple[Dim, ...]
    to_last_lane: int


def is_independent(loop: For, *, private: Sequence[Space] = ()) -> bool:
    """Whether no two iterations of `loop` touch one element of a buffer it writes.

    Args:
        loop: the loop.
        private: spaces whose buffers every iteration has for itself.
    """
    inner = {inside.var.name for inside in loops(loop.body)}
    return all(
        _apart(_accesses(loop, buffer), loop.var.name, inner)
        for buffer in buffers_written(loop.body)
        if buffer.space not in private
    )


def _accesses(loop: For, buffer: Buffer) -> list[_Touched]:
    found = [(s, s.value.lanes) for s in stores(loop.body)]
    found += [(x, x.lanes) for x in loads(loop.body)]
    return [
        _Touched(access.indices, (lanes - 1) * access.stride)
        for access, lanes in found
        if access.buffer is buffer
    ]


def _apart(accesses: Sequence[_Touched], name: str, inner: set[str]) -> bool:
    """Whether some index position separates the iterations in every access."""
    ranks = {len(a.indices) for a in accesses}
    if len(ranks) != 1:
        return False
    rank = ranks.pop()
    for position in range(rank):
        last = position == rank - 1
        parts = [(a.indices[position], a.to_last_lane if last else 0) for a in accesses]
        if _separates(parts, name, inner):
            return True
    return False


def _separates(parts: Sequence[tuple[Dim, int]], name: str, inner: set[str]) -> bool:
    factors: set[Dim] = set()
    outers: set[Dim] = set()
    low, high = 0, 0
    for number, (index, to_last_lane) in enumerate(parts):
        if symbolic.opaques(index):
            return False
        split = symbolic.linear(index, name)
        if split is None:
            return False
        factors.add(split[0])
        outer, varying = split_terms(split[1], inner)
        constant = outer if isinstance(outer, int) else outer.constant
        outers.add(outer - constant)
        least, most = symbolic.bounds(varying + constant)
        if least is None or most is None:
            return False
        least, most = least + min(0, to_last_lane), most + max(0, to_last_lane)
        low = least if number == 0 else min(low, least)
        high = most if number == 0 else max(high, most)
    if len(factors) != 1 or len(outers) != 1:
        return False
    factor = factors.pop()
    return isinstance(factor, int) and factor != 0 and high - low < abs(factor)
