"""What a comparator orders entries by, where that can be read off its region.

Most comparators compare one number of each entry, or several one after the other; a sort by such keys needs no
comparison of pairs.  Called by the rows of sorts.

Source: StableHLO specification, "sort", "compare".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from tilewright.compiler.frontends.stablehlo.tree import (
    Attribute,
    Block,
    Dense,
    Keyword,
    Operation,
    Region,
    Value,
)

_COMPARE: Final = "stablehlo.compare"
_BEFORE: Final = {"LT": False, "GT": True}


@final
@dataclass(frozen=True, slots=True)
class Key:
    """A number that entries are ordered by.

    Attributes:
        region: gives it, from the arguments of the comparator.
        largest: whether the largest entry comes first.
        is_total: whether floats are in their total order, -0 before 0.
    """

    region: Region
    largest: bool
    is_total: bool


def keys(region: Region) -> list[Key] | None:
    """The keys of a comparator, the first of them first; None: it is none of these."""
    (block, *others) = region.blocks
    if others or not block.operations or len(block.operations[-1].operands) != 1:
        return None
    found = _Reader(block).keys(block.operations[-1].operands[0])
    return found or None


@final
class _Reader:
    """Reads one comparator: who makes which value, and which entry it depends on."""

    def __init__(self, block: Block) -> None:
        self.block: Block = block
        self.makers: dict[Value, Operation] = {
            value: operation
            for operation in block.operations
            for value in operation.results
        }
        self.places: dict[Value, int] = {v: i for i, v in enumerate(block.arguments)}
        self.alike: dict[tuple[Value, Value], bool] = {}

    def keys(self, value: Value) -> list[Key]:
        """What `value`, whether one entry comes before another, compares; empty: not known."""
        maker = self.makers.get(value)
        if maker is None or len(maker.operands) != 2:
            return []
        if maker.name == _COMPARE:
            return self._compared(maker)
        if maker.name != "stablehlo.or":
            return []
        first, second = maker.operands
        return self._in_turn(first, second) or self._in_turn(second, first)

    def _in_turn(self, first: Value, rest: Value) -> list[Key]:
        """`a < b or (a == b and …)`."""
        before, both = self.makers.get(first), self.makers.get(rest)
        if before is None or both is None or both.name != "stablehlo.and":
            return []
        found = self._compared(before)
        for equal, more in (both.operands, both.operands[::-1]):
            tie = self.makers.get(equal)
            if found and tie is not None and self._is_tie(tie, before):
                further = self.keys(more)
                return [*found, *further] if further else []
        return []

    def _is_tie(self, tie: Operation, before: Operation) -> bool:
        is_equality = tie.name == _COMPARE and _word(tie, "comparison_direction") == "EQ"
        pairs = (before.operands, before.operands[::-1])
        same_order = _word(tie, "compare_type") == _word(before, "compare_type")
        return is_equality and same_order and tie.operands in pairs

    def _compared(self, operation: Operation) -> list[Key]:
        largest = _BEFORE.get(_word(operation, "comparison_direction"))
        if operation.name != _COMPARE or largest is None:
            return []
        left, right = operation.operands
        side = self._side(left)
        if side is None or not self._mirrored(left, right):
            return []
        # What is computed of the second entry on the left is compared the other way round.
        value = right if side else left
        leave = Operation("stablehlo.return", (value,), (), {}, (), operation.place)
        steps = (*self.block.operations[:-1], leave)
        region = Region((Block(self.block.arguments, steps),))
        is_total = _word(operation, "compare_type") == "TOTALORDER"
        return [Key(region, largest != bool(side), is_total)]

    def _side(self, value: Value) -> int | None:
        """0 for what depends on the first entry alone, 1 for the second; None for both, or neither."""
        sides: set[int] = set()
        pending, seen = [value], set[Value]()
        while pending:
            current = pending.pop()
            if current in seen:
                continue
            seen.add(current)
            if current in self.places:
                sides.add(self.places[current] % 2)
            elif current in self.makers:
                pending += self.makers[current].operands
        return sides.pop() if len(sides) == 1 else None

    def _mirrored(self, left: Value, right: Value) -> bool:
        """Whether `right` is of one entry what `left` is of the other; each pair is looked at once."""
        pair = (left, right)
        if pair not in self.alike:
            self.alike[pair] = self._is_mirrored(left, right)
        return self.alike[pair]

    def _is_mirrored(self, left: Value, right: Value) -> bool:
        if left in self.places:
            return self.places.get(right) == self.places[left] ^ 1
        one, other = self.makers.get(left), self.makers.get(right)
        if one is None or other is None:
            return left is right
        alike = (
            one.name == other.name
            and not one.regions
            and not other.regions
            and len(one.operands) == len(other.operands)
            and one.results.index(left) == other.results.index(right)
            and _same(one.attributes, other.attributes)
        )
        pairs = zip(one.operands, other.operands, strict=False)
        return alike and all(self._mirrored(x, y) for x, y in pairs)


def _word(operation: Operation, name: str) -> str:
    found = operation.attributes.get(name)
    return found.word if isinstance(found, Keyword) else ""


def _same(left: Mapping[str, Attribute], right: Mapping[str, Attribute]) -> bool:
    return left.keys() == right.keys() and all(
        _same_attribute(value, right[name]) for name, value in left.items()
    )


def _same_attribute(left: Attribute, right: Attribute) -> bool:
    if isinstance(left, Dense) and isinstance(right, Dense):
        return left.type == right.type and np.array_equal(
            np.asarray(left.array), np.asarray(right.array)
        )
    return type(left) is type(right) and left == right
