"""Which properties tell the parts of `oneOf` apart, of which a value has to be allowed by one alone.

A grammar cannot count the parts that allow a text, so each text of a part has to be one that no other part allows, by its
type, its values, its length, or its properties.  What cannot be told apart is refused.  Called by `json_schemas`.

Source: JSON Schema 2020-12, Core, 10.2.1.3 (oneOf).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, final

from tilewright.api.language.schema_keywords import (
    TYPES,
    Schema,
    count_of,
    is_of,
    is_same,
    list_of,
    mapping,
    names_of,
    range_of,
    refusal,
    types_of,
)
from tilewright.api.language.string_formats import FORMATS

_EVERY: Final = frozenset(TYPES)
_NUMBERS: Final = frozenset({"integer", "number"})
_STRING, _ARRAY, _OBJECT = (frozenset({name}) for name in ("string", "array", "object"))
_MOST_LOOKS: Final = 1 << 16
"""Comparisons of two parts, also of parts within parts."""
_MOST_DEPTH: Final = 8
_NONE: Final[frozenset[str]] = frozenset()


def properties_apart(
    parts: Sequence[object], place: str, resolved: Callable[[object, str], Schema]
) -> list[frozenset[str]]:
    """The properties that texts of each part need to have, so that no other part allows them.

    Args:
        parts: those of `oneOf` at `place`.
        place: where they stand.
        resolved: a part without its references.

    Raises: UserError naming two parts that may allow the same value.
    """
    looker = _Looker(resolved, place)
    needed = [_NONE] * len(parts)
    for i, j in itertools.permutations(range(len(parts)), 2):
        names = looker.apart(parts[i], parts[j], 0)
        if names is None:
            raise refusal(
                f"parts {min(i, j)} and {max(i, j)} of 'oneOf' at {place} may allow the same value",
                "'anyOf', or a 'type' or a property's 'const' in each that tells them apart",
            )
        needed[i] |= names
    return needed


@final
@dataclass(slots=True)
class _Looker:
    """Compares two parts at a time."""

    resolved: Callable[[object, str], Schema]
    place: str
    looks: int = 0

    def apart(self, one: object, other: object, depth: int) -> frozenset[str] | None:
        """The properties that texts of `one` need so that `other` allows none of them; None: who knows."""
        self.looks += 1
        if self.looks > _MOST_LOOKS:
            raise refusal(
                f"'oneOf' at {self.place} has too many parts to be told apart", "'anyOf'"
            )
        if one is False or other is False:
            return _NONE
        if depth > _MOST_DEPTH:
            return None
        left, right = self.resolved(one, self.place), self.resolved(other, self.place)
        for keyword in ("anyOf", "oneOf"):
            for ways, pairs in (
                (left, lambda way: (way, right)),
                (right, lambda way: (left, way)),
            ):
                if keyword in ways:
                    listed = list_of(ways, keyword, self.place)
                    found = (self.apart(*pairs(way), depth + 1) for way in listed)
                    return _NONE if all(names == _NONE for names in found) else None
        return self._typed(left, right, depth)

    def _typed(self, left: Schema, right: Schema, depth: int) -> frozenset[str] | None:
        ours, theirs = _values(left, self.place), _values(right, self.place)
        if ours is not None and theirs is not None:
            is_met = any(is_same(a, b) for a in ours for b in theirs)
            return None if is_met else _NONE
        allowed = self._types(right) if "type" in right else _EVERY
        for values, types in ((ours, allowed), (theirs, self._types(left))):
            if values is not None:
                is_met = any(is_of(value, kind) for value in values for kind in types)
                return None if is_met else _NONE
        shared = self._types(left) & allowed
        if not shared:
            return _NONE
        if shared == _OBJECT:
            return self._objects(left, right, depth)
        is_apart = (
            (shared <= _NUMBERS and self._ranges_apart(left, right))
            or (shared == _STRING and self._texts_apart(left, right))
            or (shared == _ARRAY and self._counts_apart(left, right, "Items"))
        )
        return _NONE if is_apart else None

    def _types(self, own: Schema) -> frozenset[str]:
        found = frozenset(types_of(own, self.place, _EVERY))
        return found | {"integer"} if "number" in found else found

    def _objects(self, left: Schema, right: Schema, depth: int) -> frozenset[str] | None:
        ours, theirs = (
            mapping(own.get("properties", {}), self.place) for own in (left, right)
        )
        has, wants = (set(names_of(own, "required", self.place)) for own in (left, right))
        # A grammar has others than those it names only where the schema says so.
        rest = left.get("additionalProperties", left.get("unevaluatedProperties", not ours))
        if rest is False and wants - ours.keys() - has:
            return _NONE
        is_closed = False in (
            right.get("additionalProperties"), right.get("unevaluatedProperties"),
        )  # fmt: skip
        if is_closed and has - theirs.keys():
            return _NONE
        differing = [
            name
            for name in ours
            if name in theirs and self.apart(ours[name], theirs[name], depth + 1) == _NONE
        ]
        if any(name in has or name in wants for name in differing):
            return _NONE
        return frozenset(differing[:1]) or None

    def _ranges_apart(self, left: Schema, right: Schema) -> bool:
        low, high = range_of(left, self.place), range_of(right, self.place)
        for a, b in ((low, high), (high, low)):
            if a.most is not None and b.least is not None:
                is_open = a.below or b.above
                if a.most < b.least or (a.most == b.least and is_open):
                    return True
        return False

    def _texts_apart(self, left: Schema, right: Schema) -> bool:
        names = [own.get("format") for own in (left, right)]
        if all(isinstance(n, str) and n in FORMATS for n in names) and names[0] != names[1]:
            return True
        return self._counts_apart(left, right, "Length")

    def _counts_apart(self, left: Schema, right: Schema, counted: str) -> bool:
        for a, b in ((left, right), (right, left)):
            most = count_of(a, f"max{counted}", self.place)
            least = count_of(b, f"min{counted}", self.place)
            if most is not None and least is not None and most < least:
                return True
        return False


def _values(own: Schema, place: str) -> list[object] | None:
    """The values that a part lists, if it does."""
    if "enum" in own:
        return list_of(own, "enum", place)
    return [own["const"]] if "const" in own else None
