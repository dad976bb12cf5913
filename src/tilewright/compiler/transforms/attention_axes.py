"""Axes of scores as pieces that keep their names while exporters cut, join and move them.

    [2 * 3, 5, 7]  --reshape-->  [2, 3, 5, 7]  --transpose-->  [2, 5, 3, 7]
    (a b, c, d)                  (a, b, c, d)                  (a, c, b, d)

What it is: the pieces of a value's axes, followed back through moves, and values put where other pieces stand.  An axis
of one element has no piece, so what is broadcast along an axis lacks its pieces.  What it is not: a question about
attention.  Called by `attention_scores` and `recognize_attention`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import final

from tilewright.base import symbolic
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.ops.shapes import element_count
from tilewright.compiler.passes import Emitter
from tilewright.compiler.transforms.matching import dim_groups, inverse


@final
@record(eq=False, frozen=False)
class Piece:
    """A part of an axis; once a reshape cuts it, it is its parts, the outer first."""

    size: Dim
    parts: tuple[Piece, ...] = ()


Axes = tuple[tuple[Piece, ...], ...]


def fresh(shape: Sequence[Dim]) -> Axes:
    """One new piece for each axis of more, or fewer, elements than one."""
    return tuple(() if size == 1 else (Piece(size),) for size in shape)


def pieces(axis: Iterable[Piece]) -> tuple[Piece, ...]:
    """The pieces as they are cut by now."""
    found: list[Piece] = []
    for piece in axis:
        found += pieces(piece.parts) if piece.parts else (piece,)
    return tuple(found)


def all_pieces(axes: Axes) -> tuple[Piece, ...]:
    """Those of all axes, in order."""
    return pieces(piece for axis in axes for piece in axis)


def broadcast(shape: Sequence[Dim], axes: Axes) -> Axes | None:
    """The pieces of an operand of `shape` that is broadcast to `axes`; None where sizes do not tell."""
    if len(shape) > len(axes):
        return None
    own = axes[len(axes) - len(shape) :]
    for size, axis in zip(shape, own, strict=True):
        if size not in (1, _size(axis)):
            return None
    return tuple(() if size == 1 else axis for size, axis in zip(shape, own, strict=True))


def before(node: Node, axes: Axes) -> Axes | None:
    """The pieces of what a move reads, from those of its result; None for no move, or one that does not tell."""
    if node.op == "reshape":
        return _before_reshape(node, axes)
    if node.op == "transpose":
        return tuple(axes[place] for place in inverse(node.ints("perm")))
    return broadcast(node.operand().type.shape, axes) if node.op == "broadcast_to" else None


def _before_reshape(node: Node, axes: Axes) -> Axes | None:
    shape = node.operand().type.shape
    groups = dim_groups(shape, node.result.type.shape)
    found: list[tuple[Piece, ...]] = [()] * len(shape)
    for left, right in groups or ():
        pending = [*pieces(piece for axis in right for piece in axes[axis])]
        for axis in left:
            taken = _take(pending, shape[axis])
            if taken is None:
                return None
            found[axis] = taken
    return None if groups is None else tuple(found)


def _take(pending: list[Piece], size: Dim) -> tuple[Piece, ...] | None:
    """The first of `pending` that make `size` elements, the last of them cut where it has more."""
    taken: list[Piece] = []
    while size != 1:
        if not pending:
            return None
        piece = pending.pop(0)
        if piece.size != size and (rest := _quotient(piece.size, size)) is not None:
            piece.parts = (Piece(size), Piece(rest))
            pending.insert(0, piece.parts[1])
            piece = piece.parts[0]
        left = _quotient(size, piece.size)
        if left is None:
            return None
        taken.append(piece)
        size = left
    return tuple(taken)


def _quotient(whole: Dim, part: Dim) -> Dim | None:
    """How often `part` is in `whole`; None where it is not a whole number of times."""
    if whole == part:
        return 1
    if part == 0 or whole == 0:
        return None
    found = symbolic.floordiv(whole, part)
    return found if found * part == whole else None


def _size(axis: Iterable[Piece]) -> Dim:
    return element_count([piece.size for piece in axis])


# --- values in other places ------------------------------------------------------------------


def lies_as(axes: Axes, wanted: Axes) -> bool:
    """Whether pieces stand in the order that is wanted of them."""
    own = all_pieces(axes)
    return own == tuple(piece for piece in all_pieces(wanted) if piece in own)


def placed(value: Value, axes: Axes, wanted: Axes, emit: Emitter) -> Value:
    """`value` with the pieces of `wanted`, of which it has some.

    Where it has none of an axis, that has one element; where it has some, it is repeated along the others.
    """
    own = all_pieces(axes)
    targets = [pieces(axis) for axis in wanted]
    if not lies_as(axes, wanted):
        value, own = _moved(value, axes, targets, emit)
    missing = [
        {piece for piece in axis if piece not in own}
        if any(piece in own for piece in axis)
        else set[Piece]()
        for axis in targets
    ]
    if any(missing):
        spread = [(p, p in own, p in gone) for axis, gone in zip(targets, missing, strict=True) for p in axis]  # fmt: skip
        value = emit.reshape(value, tuple(p.size if has else 1 for p, has, _ in spread))
        shape = tuple(p.size if has or gone else 1 for p, has, gone in spread)
        value = emit.op("broadcast_to", [value], {"shape": shape})
    shape = [
        _size(p for p in axis if p in own or p in gone)
        for axis, gone in zip(targets, missing, strict=True)
    ]
    return emit.reshape(value, tuple(shape))


def _moved(
    value: Value, axes: Axes, targets: Sequence[tuple[Piece, ...]], emit: Emitter
) -> tuple[Value, tuple[Piece, ...]]:
    """`value` with its pieces in order; an axis is moved as a whole where that does."""
    whole = [pieces(axis) for axis in axes]
    kept = [tuple(p for p in axis if any(p in own for own in whole)) for axis in targets]
    if sorted(map(_names, filter(None, whole))) != sorted(map(_names, filter(None, kept))):
        kept = [pieces([p]) for axis in kept for p in axis]
        whole = [pieces([p]) for axis in whole for p in axis]
        value = emit.reshape(value, tuple(map(_size, whole)))
    ones = [i for i, axis in enumerate(whole) if not axis]
    perm: list[int] = []
    for axis in kept:
        if axis:
            perm.append(whole.index(axis))
        elif ones:
            perm.append(ones.pop(0))
    value = emit.op("transpose", [value], {"perm": (*perm, *ones)})
    return value, tuple(piece for axis in kept for piece in axis)


def _names(axis: Sequence[Piece]) -> tuple[int, ...]:
    return tuple(map(id, axis))
