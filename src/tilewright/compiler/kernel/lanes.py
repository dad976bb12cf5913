"""Questions about vectors in machine kernels that every printer asks."""

from __future__ import annotations

from typing import Final

from tilewright.base import dtypes, symbolic
from tilewright.base.symbolic import Dim, Opaque
from tilewright.compiler.kernel import ir

_FARTHEST_LANE: Final = (1 << 31) - 2
"""Steps to the last lane that 32 bits hold, and one more on either side."""
_FARTHEST_BOUND: Final = 1 << 62
"""Distances that stay in 64 bits where sizes are added to them: those from the largest of all numbers do not."""


def has_lanes(dim: Dim) -> bool:
    """Whether an index differs per lane beyond its stride (a vector inside an opaque atom)."""
    return any(
        isinstance(atom, Opaque)
        and isinstance(atom.payload, ir.Expression)
        and atom.payload.lanes > 1
        for atom in symbolic.atoms(dim)
    )


def room_of_lanes(node: ir.Compare) -> tuple[Dim, int] | None:
    """How far the bound lies behind the index in `index + stride * lane < bound`, or another comparison, and the stride.

    None for what is no such comparison, and where a bound or a lane is too far away to count the distance.
    """
    left = node.left
    if not isinstance(left, ir.Index) or left.dtype is not dtypes.i64:
        return None
    if left.lanes == 1 or left.stride == 0 or has_lanes(left.dim):
        return None
    limit = uniform_index(node.right)
    if limit is None or abs(left.stride) * left.lanes > _FARTHEST_LANE:
        return None
    room = limit - left.dim
    known = room if isinstance(room, int) else room.constant
    return (room, left.stride) if abs(known) <= _FARTHEST_BOUND else None


def room_of_first_lanes(mask: ir.Expression) -> Dim | None:
    """How many lanes from the first on a mask has set, unbounded, which sets no others; None for any other mask."""
    if not isinstance(mask, ir.Compare) or mask.op != "lt":
        return None
    room, stride = room_of_lanes(mask) or (None, 0)
    return room if stride == 1 else None


def uniform_index(value: ir.Expression) -> Dim | None:
    """An integer that is the same in every lane, as an index."""
    if isinstance(value, ir.Splat):
        return uniform_index(value.operand)
    if isinstance(value, ir.Const):
        return int(value.value)
    if not isinstance(value, ir.Index) or has_lanes(value.dim):
        return None
    return value.dim if value.lanes == 1 or value.stride == 0 else None


def is_call(value: ir.Expression) -> bool:
    """Whether a call is all that `value` computes."""
    while isinstance(value, ir.Cast):
        value = value.operand
    return isinstance(value, ir.Call)
