"""JSON schemas as grammars: every text of the grammar is JSON that the schema allows.

Not every text that a schema allows is one of the grammar: properties come in the schema's order, between what belongs together
stands at most a space or a line's end with what it is indented by, and numbers have at most 16 digits on each side of the point.  A
keyword that the grammar could not keep to is refused.  Called by `language_model`.

Source: RFC 8259; JSON Schema 2020-12, Core and Validation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, cast, final
from urllib.parse import unquote

from tilewright.api.language.exclusive_parts import properties_apart
from tilewright.api.language.grammars import (
    Beginnings,
    Grammar,
    Nonterminal,
    Symbol,
    Symbols,
    byte_set,
    drop_dead_ends,
    literal,
    one_of,
)
from tilewright.api.language.number_ranges import LIMIT, integers, number, numbers
from tilewright.api.language.schema_keywords import (
    TYPES,
    Schema,
    check_alone,
    check_kept,
    check_order,
    constraints_of,
    count_of,
    is_of,
    is_same,
    list_of,
    mapping,
    names_of,
    range_of,
    refusal,
    shown,
    text_of,
    types_of,
)
from tilewright.api.language.string_formats import FORMATS, HEX_DIGIT
from tilewright.base.errors import UserError

ANY_OBJECT: Final[Schema] = {"type": "object"}

_INDENT: Final = 20
"""Spaces or tabs behind a line's end: a model that has lost its way would write them for ever."""
_MOST_DEPTH: Final = 100
"""Of parts within parts."""
_EVERY: Final[frozenset[str]] = frozenset(TYPES)
_PLAIN: Final = byte_set((0x20, 0x21), (0x23, 0x5B), (0x5D, 0x7F))
_LATER: Final = byte_set((0x80, 0xFF))
_FOLLOWING: Final = byte_set((0x80, 0xBF))
_CHARACTERS: Final[tuple[Symbols, ...]] = (
    (_PLAIN,),
    (byte_set((0xC2, 0xDF)), _FOLLOWING),
    (byte_set((0xE0, 0xE0)), byte_set((0xA0, 0xBF)), _FOLLOWING),
    (byte_set((0xE1, 0xEC), (0xEE, 0xEF)), _FOLLOWING, _FOLLOWING),
    (byte_set((0xED, 0xED)), byte_set((0x80, 0x9F)), _FOLLOWING),
    (byte_set((0xF0, 0xF0)), byte_set((0x90, 0xBF)), _FOLLOWING, _FOLLOWING),
    (byte_set((0xF1, 0xF3)), _FOLLOWING, _FOLLOWING, _FOLLOWING),
    (byte_set((0xF4, 0xF4)), byte_set((0x80, 0x8F)), _FOLLOWING, _FOLLOWING),
)
"""Characters of strings by their bytes, but those that are written with a backslash."""


def grammar_of(schema: Schema) -> tuple[Grammar, Nonterminal]:
    """The texts that a schema allows, which may begin with white space.

    Raises: UserError naming the place and the keyword that is wrong or that the grammar could not keep to.
    """
    writer = _Writer(schema)
    try:
        value = writer.value(schema, "#")
    except RecursionError:
        raise _too_deep() from None
    g = writer.grammar
    root = g.rule((writer.space, value))
    writer.check_references()
    if not drop_dead_ends(g, root):
        raise refusal("the schema allows no text", "some part has to end")
    return g, root


def _name_of(own: Schema, place: str) -> str:
    """What a reference names."""
    name = own["$ref"]
    if not isinstance(name, str) or not (name == "#" or name.startswith("#/")):
        raise refusal(
            f"'$ref' at {place} is {shown(name)}, expected '#/...'",
            "parts of the same schema, as '#/$defs/name'",
        )
    return name


def _too_deep() -> UserError:
    return refusal(
        f"the schema is too deep, expected at most {_MOST_DEPTH} parts within each other",
        "a flatter schema",
    )


@final
@dataclass(slots=True, eq=False)
class _Writer:
    """Writes the grammar of one schema, whose parts may name each other."""

    whole: Schema
    grammar: Grammar = field(default_factory=Grammar)
    space: Nonterminal = field(init=False)
    _string: Nonterminal = field(init=False)
    _any: Nonterminal = field(init=False)
    _object: Nonterminal = field(init=False)
    _array: Nonterminal = field(init=False)
    _escape: Nonterminal = field(init=False)
    _named: dict[tuple[str, frozenset[str]], Nonterminal] = field(
        init=False, default_factory=dict[tuple[str, frozenset[str]], Nonterminal]
    )
    _depth: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        g = self.grammar
        indented = g.repeated(0, _INDENT, one_of(b" \t"))
        self.space = g.rule((), literal(b" "), (*literal(b"\n"), *indented))
        # Halves of pairs of code units are left out: no text has one alone.
        unit = g.rule(
            (HEX_DIGIT & ~one_of(b"dD"), HEX_DIGIT, HEX_DIGIT, HEX_DIGIT),
            (one_of(b"dD"), byte_set((0x30, 0x37)), HEX_DIGIT, HEX_DIGIT),
        )
        self._escape = g.rule(
            (*literal(b"\\"), one_of(b'"\\/bfnrt')), (*literal(b"\\u"), unit)
        )
        self._string = self._quoted(
            g.any_number(g.rule((_PLAIN | _LATER,), (self._escape,)))
        )
        self._any, self._object, self._array = (g.reserve() for _ in range(3))
        pair = (self._string, *literal(b":"), self.space, self._any)
        g.define(self._object, self._listed(b"{", b"}", pair))
        g.define(self._array, self._listed(b"[", b"]", (self._any,)))
        words = (literal(word) for word in (b"null", b"true", b"false"))
        g.define(
            self._any,
            *words, (number(g),), (self._string,), (self._object,), (self._array,),
        )  # fmt: skip

    # --- any value

    def value(
        self, schema: object, place: str, within: frozenset[str] = _EVERY
    ) -> Nonterminal:
        """What a part of the schema allows.

        Args:
            schema: the part.
            place: where it stands.
            within: the types of values that are wanted: what is around the part may rule others out.
        """
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise _too_deep()
        found = self._part_of(schema, place, within)
        self._depth -= 1
        return found

    def _part_of(self, schema: object, place: str, within: frozenset[str]) -> Nonterminal:
        if schema is False:
            return self.grammar.rule()
        own = {} if schema is True else mapping(schema, place)
        check_kept(own, place)
        for keyword, write in (
            ("$ref", self._reference), ("const", self._one_of_these), ("enum", self._one_of_these),
            ("allOf", self._all), ("anyOf", self._choice), ("oneOf", self._choice),
        ):  # fmt: skip
            if keyword in own:
                return write(own, keyword, place, frozenset(types_of(own, place, within)))
        return self._typed(own, place, within)

    def _reference(
        self, own: Schema, keyword: str, place: str, within: frozenset[str]
    ) -> Nonterminal:
        check_alone(own, keyword, place, "type")
        name = _name_of(own, place)
        known = self._named.get((name, within))
        if known is not None:
            return known
        rule = self._named[name, within] = self.grammar.reserve()
        part = self.value(self._part(name, place), name, within)
        self.grammar.define(rule, (part,))
        return rule

    def _part(self, name: str, place: str) -> object:
        found: object = self.whole
        for step in name.split("/")[1:]:
            key = unquote(step).replace("~1", "/").replace("~0", "~")
            inner: Mapping[str, object] = {}
            if isinstance(found, dict):
                inner = cast("Mapping[str, object]", found)
            elif isinstance(found, list):
                each = enumerate(cast("list[object]", found))
                inner = {str(at): part for at, part in each}
            if key not in inner:
                raise refusal(
                    f"'$ref' at {place} names '{name:.80}', which is not there",
                    "the names are those of '$defs'",
                )
            found = inner[key]
        return found

    def check_references(self) -> None:
        """Refuse parts that are nothing but themselves: no text would be one."""
        circular = set(Beginnings(self.grammar).circular)
        name = next((n for (n, _), rule in self._named.items() if rule in circular), None)
        if name is not None:
            raise refusal(
                f"'$ref' names '{name:.80}', which is itself",
                "a list or an object around what is like the whole",
            )

    def _one_of_these(
        self, own: Schema, keyword: str, place: str, within: frozenset[str]
    ) -> Nonterminal:
        check_alone(own, keyword, place, "type", "enum", "const")
        values = list_of(own, "enum", place) if "enum" in own else [own["const"]]
        if "const" in own:
            values = [v for v in values if is_same(v, own["const"])]
        types = types_of(own, place, _EVERY)
        fine = [value for value in values if any(is_of(value, kind) for kind in types)]
        if not fine:
            raise refusal(f"'{keyword}' at {place} allows nothing", "at least one value")
        wanted = [value for value in fine if any(is_of(value, kind) for kind in within)]
        return self.grammar.one_text(map(text_of, wanted))

    def _all(
        self, own: Schema, keyword: str, place: str, within: frozenset[str]
    ) -> Nonterminal:
        parts = list_of(own, keyword, place)
        if len(parts) != 1:
            raise refusal(
                f"'allOf' at {place} has {len(parts)} parts, expected one",
                "one part that says all of them",
            )
        check_alone(own, keyword, place, "type")
        return self.value(parts[0], f"{place}/allOf/0", within)

    def _choice(
        self, own: Schema, keyword: str, place: str, within: frozenset[str]
    ) -> Nonterminal:
        check_alone(own, keyword, place, "type")
        if not own[keyword]:
            raise refusal(f"'{keyword}' at {place} allows nothing", "at least one part")
        parts = list_of(own, keyword, place)
        if keyword == "oneOf":
            parts = self._exclusive(parts, place)
        found = [
            self.value(each, f"{place}/{keyword}/{at}", within)
            for at, each in enumerate(parts)
        ]
        return self.grammar.rule(*((each,) for each in found))

    def _exclusive(self, parts: list[object], place: str) -> list[object]:
        """Parts of `oneOf`, each with the properties that tell it from all others."""
        found = list(parts)
        for at, names in enumerate(properties_apart(parts, place, self._resolved)):
            if names:
                own = self._resolved(parts[at], place)
                wanted = [*names_of(own, "required", place), *sorted(names)]
                found[at] = {**own, "required": wanted}
        return found

    def _resolved(self, schema: object, place: str) -> Schema:
        """A part without references, of none but the types that stand beside them."""
        within = _EVERY
        for _ in range(_MOST_DEPTH):
            if schema is False:
                return {"enum": []}
            own = {} if schema is True else mapping(schema, place)
            types = types_of(own, place, within)
            if "$ref" in own:
                schema = self._part(_name_of(own, place), place)
            elif "allOf" in own and len(list_of(own, "allOf", place)) == 1:
                (schema,) = list_of(own, "allOf", place)
            elif within == _EVERY:
                return own
            else:
                return {**own, "type": types} if types else {"enum": []}
            within = frozenset(types)
        return {}

    def _typed(self, own: Schema, place: str, within: frozenset[str]) -> Nonterminal:
        writers: Mapping[str, Callable[[Schema, str], Nonterminal]] = {
            "object": self._object_of, "array": self._array_of, "string": self._string_of,
            "number": self._number_of, "integer": self._number_of,
        }  # fmt: skip
        found: list[Symbols] = []
        types = types_of(own, place, within)
        if len(types) == len(TYPES) and not constraints_of(own) - {"type"}:
            return self._any
        for kind in types:
            if kind == "null":
                found.append(literal(b"null"))
            elif kind == "boolean":
                found += [literal(b"true"), literal(b"false")]
            elif kind != "integer" or "number" not in types:
                found.append((writers[kind]({**own, "type": kind}, place),))
        return self.grammar.rule(*found)

    # --- strings and numbers

    def _quoted(self, *symbols: Symbol) -> Nonterminal:
        return self.grammar.rule((*literal(b'"'), *symbols, *literal(b'"')))

    def _string_of(self, own: Schema, place: str) -> Nonterminal:
        g = self.grammar
        name = own.get("format")
        if name is not None and not isinstance(name, str):
            raise refusal(
                f"'format' at {place} is {shown(name)}, expected a name", "a text"
            )
        form = None if name is None else FORMATS.get(name)
        least, most = (count_of(own, k, place) for k in ("minLength", "maxLength"))
        if form is not None:
            if least is not None or most is not None:
                raise refusal(
                    f"the schema has a format and a length at {place}",
                    "texts of a format have its length",
                )
            return self._quoted(form(g))
        if not least and most is None:
            return self._string
        check_order(least or 0, most, "minLength", place)
        character = g.rule(*_CHARACTERS, (self._escape,))
        return self._quoted(*g.repeated(least or 0, most, character))

    def _number_of(self, own: Schema, place: str) -> Nonterminal:
        g, is_whole = self.grammar, own["type"] == "integer"
        ends = range_of(own, place)
        if not is_whole and ends.least is None and ends.most is None:
            return number(g)
        least = -LIMIT if ends.least is None else max(ends.least, -LIMIT)
        most = LIMIT if ends.most is None else min(ends.most, LIMIT)
        above, below = ends.above and least == ends.least, ends.below and most == ends.most
        if least > LIMIT or most < -LIMIT:
            raise refusal(
                f"the schema wants numbers of more than 16 digits at {place}, which is not supported",
                "bounds of at most 16 digits",
            )
        if is_whole:
            least = math.floor(least) + 1 if above else math.ceil(least)
            most = math.ceil(most) - 1 if below else math.floor(most)
        if least > most or (not is_whole and least == most and (above or below)):
            raise refusal(
                f"the schema allows no number at {place}", "a smaller 'minimum' or none"
            )
        if is_whole:
            return integers(g, int(least), int(most))
        if least != math.floor(least) or most != math.floor(most):
            raise refusal(
                f"the schema has a bound with a fraction at {place}, which is not supported",
                "whole bounds",
            )
        return numbers(g, int(least), int(most), above=above, below=below)

    # --- lists of values

    def _listed(self, begin: bytes, end: bytes, item: Symbols) -> Symbols:
        """Any number of items, with commas between them."""
        g = self.grammar
        more = g.any_number(*literal(b","), self.space, *item)
        held = g.rule((self.space,), (self.space, *item, more, self.space))
        return (*literal(begin), held, *literal(end))

    def _array_of(self, own: Schema, place: str) -> Nonterminal:
        g = self.grammar
        first = list_of(own, "prefixItems", place) if "prefixItems" in own else []
        least, most = (
            count_of(own, "minItems", place) or 0,
            count_of(own, "maxItems", place),
        )
        check_order(least, most, "minItems", place)
        items = own.get("items", own.get("unevaluatedItems", not first))
        rest = None if items is False else self.value(items, f"{place}/items")
        if not first and not least and most is None and rest is not None:
            return g.rule(self._listed(b"[", b"]", (rest,)))
        fixed = [self.value(e, f"{place}/prefixItems/{i}") for i, e in enumerate(first)]
        if most is not None:
            fixed = fixed[:most]
        if rest is None and least > len(fixed):
            raise refusal(
                f"'minItems' at {place} is {least}, for {len(fixed)} items",
                "'items' says what the others are",
            )
        return g.rule(
            (*literal(b"["), self._counted(fixed, rest, least, most), *literal(b"]"))
        )

    def _counted(
        self,
        fixed: list[Nonterminal],
        rest: Nonterminal | None,
        least: int,
        most: int | None,
    ) -> Nonterminal:
        """Items of an array, at least and at most so many: first those of their own, then others."""
        g = self.grammar
        comma = (*literal(b","), self.space)
        tail: Nonterminal = g.rule(())
        if rest is not None:
            more = None if most is None else max(0, most - max(len(fixed), 1))
            fewest = max(0, least - max(len(fixed), 1))
            tail = g.rule(g.repeated(fewest, more, *comma, rest))
        # From here on `tail` is what stands behind the item before it.
        items = fixed or ([] if rest is None or most == 0 else [rest])
        for at in range(len(items) - 1, 0, -1):
            here = (*comma, items[at], tail)
            tail = g.rule(here) if at < least else g.rule((), here)
        if not items:
            return self.space
        filled = (self.space, items[0], tail, self.space)
        return g.rule(filled) if least else g.rule((self.space,), filled)

    def _object_of(self, own: Schema, place: str) -> Nonterminal:
        parts = mapping(own.get("properties", {}), f"{place}/properties")
        needed = dict.fromkeys(names_of(own, "required", place))
        rest = own.get("additionalProperties", own.get("unevaluatedProperties", not parts))
        if not parts and not needed and rest is True:
            return self._object
        missing = [name for name in needed if name not in parts]
        if missing and rest is False:
            raise refusal(
                f"'required' at {place} names '{missing[0]:.80}', which is no property",
                "a property of that name, or 'additionalProperties'",
            )
        names = [*parts, *missing]
        pairs = [
            (*literal(text_of(name)), *literal(b":"), self.space,
             self.value(parts.get(name, rest), f"{place}/properties/{name}"))
            for name in names
        ]  # fmt: skip
        more: Symbols | None = None
        if rest is not False:
            other = self.value(rest, f"{place}/additionalProperties")
            more = (self._other_name(names), *literal(b":"), self.space, other)
        wanted = [name in needed for name in names]
        return self._members(pairs, wanted, more)

    def _members(
        self, pairs: list[Symbols], wanted: list[bool], more: Symbols | None
    ) -> Nonterminal:
        """Pairs in their order, of which those that are not wanted may be left out, then any others."""
        g = self.grammar
        comma = (*literal(b","), self.space)
        # What may stand behind a pair, and what where none stood before; from the last pair to the first.
        behind = g.rule(()) if more is None else g.any_number(*comma, *more)
        first: list[Symbols] = [()] if more is None else [(), (*more, behind)]
        for pair, is_wanted in zip(reversed(pairs), reversed(wanted), strict=True):
            begun = (*pair, behind)
            first = [begun] if is_wanted else [begun, *first]
            here = (*comma, *pair, behind)
            behind = g.rule(here) if is_wanted else g.rule(here, (behind,))
        filled = [
            (self.space, *each, self.space) if each else (self.space,) for each in first
        ]
        return g.rule((*literal(b"{"), g.rule(*filled), *literal(b"}")))

    def _other_name(self, names: Iterable[str]) -> Nonterminal:
        """A string that is none of some; it has no backslashes, and so is none whose text has one either."""
        tree: dict[int, object] = {}
        for name in names:
            inner = tree
            text = text_of(name)
            if b"\\" in text:
                continue
            for byte in text[1:]:
                inner = cast("dict[int, object]", inner.setdefault(byte, {}))
        plain = self.grammar.any_number(_PLAIN | _LATER)
        return self.grammar.rule((*literal(b'"'), self._apart(tree, plain)))

    def _apart(self, tree: Mapping[int, object], plain: Symbol) -> Nonterminal:
        """The rest of a string that ends as none of a tree does."""
        taken = sum(1 << byte for byte in tree)
        quote = one_of(b'"')
        found: list[Symbols] = [((_PLAIN | _LATER) & ~taken, plain, quote)]
        if not taken & quote:
            found.append((quote,))
        for byte, inner in tree.items():
            if byte != 0x22:
                deeper = self._apart(cast("Mapping[int, object]", inner), plain)
                found.append((1 << byte, deeper))
        return self.grammar.rule(*found)
