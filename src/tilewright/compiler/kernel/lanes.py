"""Questions about vectors in machine kernels that every printer asks."""

from __future__ import annotations

from tilewright.base import dtypes, symbolic
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


def room_of_lanes(node: ir.Compare) -> tuple[Dim, int] | None:
    """How far the bound lies behind the index in `index + stride * lane < bound`, or another comparison, and the stride.

    None for what is no such comparison.
    """
    left = node.left
    if not isinstance(left, ir.Index) or left.dtype is not dtypes.i64:
        return None
    if left.lanes == 1 or left.stride == 0 or has_lanes(left.dim):
        return None
    limit = uniform_index(node.right)
    return None if limit is None else (limit - left.dim, left.stride)


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
