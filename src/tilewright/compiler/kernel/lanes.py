"""Questions about vectors in machine kernels that every printer asks."""

from __future__ import annotations

from tilewright.base import symbolic
from tilewright.base.symbolic import Dim, Opaque
from tilewright.compiler.kernel import ir


def has_lanes(dim: Dim) -> bool:
    """Whether an index differs per lane beyond its stride (a vector inside an opaque atom)."""
    return any(
        isinstance(atom, Opaque)
        and isinstance(atom.payload, ir.Expression)
        and atom.payload.lanes > 1
        for atom in symbolic.atoms(dim)
    )


def room_of_first_lanes(node: ir.Compare) -> Dim | None:
    """Of `index + lane < bound`, how many lanes from the first on hold, unbounded; None for what is no such."""
    left = node.left
    ascending = isinstance(left, ir.Index) and left.lanes > 1 and left.stride == 1
    if node.op != "lt" or not ascending or not isinstance(left, ir.Index):
        return None
    limit = uniform_index(node.right)
    return None if limit is None or has_lanes(left.dim) else limit - left.dim


def known_first_lanes(mask: ir.Expression) -> int | None:
    """How many lanes from the first on a mask has set, which sets no others; None where that is not known."""
    room = room_of_first_lanes(mask) if isinstance(mask, ir.Compare) else None
    return min(max(room, 0), mask.lanes) if isinstance(room, int) else None


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
