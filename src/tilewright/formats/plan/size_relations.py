"""What a pair of sizes that must agree says: that they are equal, or that one is within a bound or divides.

A pair is all that a plan keeps, for one comparison checks it: a size and the larger of it and 0 agree where the size is not
negative, the smaller of two sizes and one of them where that one is at most the other.  Here such pairs are written and read.

Called by front ends and `compiler.program`, which write pairs, and by whoever words the error of one that does not hold.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Final, NamedTuple, final

from tilewright.base.symbolic import (
    Dim,
    Expr,
    Operation,
    floordiv,
    maximum,
    minimum,
    only_atom,
)

Pair = tuple[Dim, Dim]


@final
class Relation(IntEnum):
    """MIRROR PROGRAM RELATIONS: `tw_relation_t`."""

    EQUAL = 0
    NOT_NEGATIVE = 1
    AT_MOST = 2
    AT_LEAST = 3
    MULTIPLE = 4


BOUND_WORDS: Final = {
    Relation.AT_MOST: "at most",
    Relation.AT_LEAST: "at least",
    Relation.MULTIPLE: "a multiple of",
}
"""How errors say what was expected of a size.  The words stand in `native/src/program/bound.c`, too."""

_ORDERS: Final = {"min": Relation.AT_MOST, "max": Relation.AT_LEAST}


@final
class SizeRelation(NamedTuple):
    """What must hold: `size` is in `relation` to `other`, which is 0 where there is no other."""

    relation: Relation
    size: Dim
    other: Dim

    @property
    def other_text(self) -> str:
        """What errors call the other size: nothing where it is a number, which says all."""
        return "" if isinstance(self.other, int) else str(self.other)

    @property
    def size_text(self) -> str:
        """What errors call the size: of what is unlike another the two of which the distance is asked."""
        sides = _sides_of_distance(self.size)
        if sides is None:
            return str(self.size)
        return f"the distance of {sides[0]} and {sides[1]}"

    def broken_text(self, number: Callable[[Dim], Dim]) -> str:
        """What an error says where it does not hold; `number` is what a size is."""
        is_, other = f"{self.size_text} is {number(self.size)}", number(self.other)
        if self.relation is Relation.NOT_NEGATIVE:
            return f"a size is below zero: {is_}"
        if self.relation is Relation.EQUAL:
            shown = f"{self.other} is {other}" if self.other_text else f"expected {other}"
            return f"sizes do not agree: {is_}, {shown}"
        shown = f"{other} ({self.other})" if self.other_text else str(other)
        return f"a size does not fit: {is_}, expected {BOUND_WORDS[self.relation]} {shown}"


def at_least(size: Dim, least: Dim) -> Pair:
    """The pair that agrees where `size` is at least `least`."""
    return size, maximum(size, least)


def at_most(size: Dim, most: Dim) -> Pair:
    """The pair that agrees where `size` is at most `most`."""
    return minimum(size, most), size


def unlike(left: Dim, right: Dim) -> Pair:
    """The pair that agrees where two sizes are not the same."""
    return at_least(maximum(left - right, right - left), 1)


def relation_of(pair: Pair) -> SizeRelation:
    """What a pair says, as directly as can be read off it."""
    for left, right in (pair, pair[::-1]):
        found = _one_sided(left, right) or _multiple(left, right)
        if found is not None:
            return found
    left, right = pair
    if left != right == maximum(left, 0):
        # It is never above 0.
        return SizeRelation(Relation.NOT_NEGATIVE, left, 0)
    return SizeRelation(Relation.EQUAL, *((right, left) if isinstance(left, int) else pair))


def _one_sided(left: Dim, right: Dim) -> SizeRelation | None:
    """What `left = right` says where the left is an extreme of the right and another, or a remainder."""
    operation = only_atom(left)
    if not isinstance(operation, Operation):
        return None
    parts = (operation.left, operation.right)
    if operation.op == "mod" and right == 0:
        return SizeRelation(Relation.MULTIPLE, *parts)
    relation = _ORDERS.get(operation.op)
    if relation is None or right not in parts:
        return None
    other = parts[1] if right == parts[0] else parts[0]
    if relation is Relation.AT_LEAST and other == 0:
        return SizeRelation(Relation.NOT_NEGATIVE, right, 0)
    if isinstance(right, int) and not isinstance(other, int):
        # A number is not what does not fit.
        return SizeRelation(_TURNED[relation], other, right)
    return SizeRelation(relation, right, other)


_TURNED: Final = {
    Relation.AT_MOST: Relation.AT_LEAST, Relation.AT_LEAST: Relation.AT_MOST,
}  # fmt: skip


def _multiple(left: Dim, right: Dim) -> SizeRelation | None:
    """What `left = right` says where the right has the whole parts of the left: `3 * n = 12 * (n // 4)`."""
    difference = left - right
    for atom in difference.atoms if isinstance(difference, Expr) else ():
        if isinstance(atom, Operation) and atom.op == "floordiv":
            size, divisor = atom.left, atom.right
            remainder = size - divisor * Expr.of_atom(atom)
            factor = floordiv(difference, remainder)
            is_number = isinstance(divisor, int) and isinstance(factor, int)
            if is_number and factor * remainder == difference:
                return SizeRelation(Relation.MULTIPLE, size, divisor)
    return None


def _sides_of_distance(size: Dim) -> tuple[Dim, Dim] | None:
    """The sizes of which one is the larger of the differences; None for what is no distance."""
    operation = only_atom(size)
    if not isinstance(operation, Operation) or operation.op != "max":
        return None
    gap = operation.left
    if not isinstance(gap, Expr) or operation.right != -gap:
        return None
    one = [(monomial, factor) for monomial, factor in gap.terms if factor > 0]
    positive = Expr(tuple(one), max(gap.constant, 0)) if one else max(gap.constant, 0)
    return positive, positive - gap
