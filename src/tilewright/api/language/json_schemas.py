"""JSON schemas as grammars: every text of the grammar is JSON that the schema allows.

Not every text that a schema allows is one of the grammar: properties come in the schema's order, between what belongs together
stands at most a space or a line's end with what it is indented by, and numbers have at most 16 digits on each side of the point.  A
keyword that the grammar could not keep to is refused.  Called by `language_model`.

Source: RFC 8259; JSON Schema 2020-12, Core and Validation; RFC 3339, section 5.6 and RFC 9562, section 4 (formats).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, cast, final

from tilewright.api.language.grammars import (
    Grammar,
    Rule,
    Sequence,
    byte_set,
    literal,
    one_of,
)
from tilewright.api.language.number_ranges import DIGIT, LIMIT, integers, number, numbers
from tilewright.base.errors import UserError

Schema = Mapping[str, object]

ANY_OBJECT: Final[Schema] = {"type": "object"}

_INDENT: Final = 20
"""Spaces or tabs behind a line's end: a model that has lost its way would write them for ever."""
_MOST_COUNT: Final = 4096
"""Of characters or elements that are counted."""
_MOST_RULES: Final = 1 << 17
_TYPES: Final = ("null", "boolean", "integer", "number", "string", "array", "object")
_UNKEPT: Final = (
    "pattern", "multipleOf", "uniqueItems", "contains", "minContains", "maxContains", "patternProperties",
    "propertyNames", "minProperties", "maxProperties", "dependentRequired", "dependentSchemas", "dependencies",
    "unevaluatedItems", "not", "if", "then", "else", "$dynamicRef", "$recursiveRef",
)  # fmt: skip
"""Keywords that a grammar of ours cannot keep to."""
_TOLD: Final = frozenset((
    "title", "description", "default", "examples", "$schema", "$id", "$comment", "$defs", "definitions", "$anchor",
    "deprecated", "readOnly", "writeOnly",
))  # fmt: skip
"""Keywords that say nothing of what is allowed."""
_HEX: Final = byte_set((0x30, 0x39), (0x41, 0x46), (0x61, 0x66))
_PLAIN: Final = byte_set((0x20, 0x21), (0x23, 0x5B), (0x5D, 0x7F))
_LATER: Final = byte_set((0x80, 0xFF))
_FOLLOWING: Final = byte_set((0x80, 0xBF))
_CHARACTERS: Final[tuple[Sequence, ...]] = (
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


def grammar_of(schema: Schema) -> tuple[Grammar, Rule]:
    """The texts that a schema allows, which may begin with white space.

    Raises: UserError naming the place and the keyword that is wrong or that the grammar could not keep to.
    """
    writer = _Writer(schema)
    try:
        value = writer.value(schema, "#")
    except RecursionError:
        raise UserError("the schema is too deep") from None
    return writer.grammar, writer.grammar.rule((writer.space, value))


@final
@dataclass(slots=True, eq=False)
class _Writer:
    """Writes the grammar of one schema, whose parts may name each other."""

    whole: Schema
    grammar: Grammar = field(default_factory=Grammar)
    space: Rule = field(init=False)
    _string: Rule = field(init=False)
    _any: Rule = field(init=False)
    _object: Rule = field(init=False)
    _array: Rule = field(init=False)
    _escape: Rule = field(init=False)
    _named: dict[str, Rule] = field(init=False, default_factory=dict[str, Rule])

    def __post_init__(self) -> None:
        g = self.grammar
        indented = g.repeated(0, _INDENT, one_of(b" \t"))
        self.space = g.rule((), literal(b" "), (*literal(b"\n"), *indented))
        # Halves of pairs of code units are left out: no text has one alone.
        unit = g.rule(
            (_HEX & ~one_of(b"dD"), _HEX, _HEX, _HEX),
            (one_of(b"dD"), byte_set((0x30, 0x37)), _HEX, _HEX),
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

    def value(self, schema: object, place: str) -> Rule:
        """What a part of the schema allows."""
        if self.grammar.size > _MOST_RULES:
            raise UserError("the schema is too large")
        if schema is True:
            return self._any
        own = _mapping(schema, place)
        unkept = next((k for k in _UNKEPT if own.get(k) not in (None, False)), None)
        if unkept is not None:
            raise UserError(f"the schema has '{unkept}' at {place}, which is not supported")
        for keyword, write in (
            ("$ref", self._reference), ("const", self._const), ("enum", self._enum),
            ("allOf", self._all), ("anyOf", self._choice), ("oneOf", self._choice),
        ):  # fmt: skip
            if keyword in own:
                return write(own, keyword, place)
        return self._typed(own, place)

    def _reference(self, own: Schema, keyword: str, place: str) -> Rule:
        _check_alone(own, keyword, place)
        name = own[keyword]
        if not isinstance(name, str) or not (name == "#" or name.startswith("#/")):
            raise UserError(f"'$ref' at {place} is {name!r:.80}, expected '#/...'")
        if name not in self._named:
            rule = self._named[name] = self.grammar.reserve()
            self.grammar.define(rule, (self.value(self._part(name, place), name),))
            _check_begins(self.grammar, rule, name)
        return self._named[name]

    def _part(self, name: str, place: str) -> object:
        found: object = self.whole
        for step in name.split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            inner = cast("Mapping[str, object]", found) if isinstance(found, dict) else {}
            if key not in inner:
                raise UserError(f"'$ref' at {place} names '{name}', which is not there")
            found = inner[key]
        return found

    def _const(self, own: Schema, keyword: str, place: str) -> Rule:
        return self._one_of_these([own[keyword]], own, keyword, place)

    def _enum(self, own: Schema, keyword: str, place: str) -> Rule:
        return self._one_of_these(_list(own, keyword, place), own, keyword, place)

    def _one_of_these(
        self, values: list[object], own: Schema, keyword: str, place: str
    ) -> Rule:
        _check_alone(own, keyword, place, "type")
        types = _types(own, place)
        fine = [value for value in values if any(_is_of(value, kind) for kind in types)]
        if not fine:
            raise UserError(f"'{keyword}' at {place} allows nothing")
        return self.grammar.rule(*(literal(_text(value)) for value in fine))

    def _all(self, own: Schema, keyword: str, place: str) -> Rule:
        parts = _list(own, keyword, place)
        if len(parts) != 1:
            raise UserError(f"'allOf' at {place} has {len(parts)} parts, expected one")
        _check_alone(own, keyword, place)
        return self.value(parts[0], f"{place}/allOf/0")

    def _choice(self, own: Schema, keyword: str, place: str) -> Rule:
        _check_alone(own, keyword, place, "type")
        if not own[keyword]:
            raise UserError(f"'{keyword}' at {place} allows nothing")
        parts = enumerate(_list(own, keyword, place))
        found = [self.value(each, f"{place}/{keyword}/{at}") for at, each in parts]
        return self.grammar.rule(*((each,) for each in found))

    def _typed(self, own: Schema, place: str) -> Rule:
        writers: Mapping[str, Callable[[Schema, str], Rule]] = {
            "object": self._object_of, "array": self._array_of, "string": self._string_of,
            "number": self._number_of, "integer": self._number_of,
        }  # fmt: skip
        found: list[Sequence] = []
        types = _types(own, place)
        if set(types) == set(_TYPES) and not set(own) - _TOLD - {"type"}:
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

    def _quoted(self, *symbols: Rule | int) -> Rule:
        return self.grammar.rule((*literal(b'"'), *symbols, *literal(b'"')))

    def _string_of(self, own: Schema, place: str) -> Rule:
        g = self.grammar
        form = _FORMATS.get(cast("str", own.get("format")))
        least, most = (_count(own, k, place) for k in ("minLength", "maxLength"))
        if form is not None:
            if least is not None or most is not None:
                raise UserError(f"the schema has a format and a length at {place}")
            return self._quoted(form(g))
        if not least and most is None:
            return self._string
        _check_order(least or 0, most, "minLength", place)
        character = g.rule(*_CHARACTERS, (self._escape,))
        return self._quoted(*g.repeated(least or 0, most, character))

    def _number_of(self, own: Schema, place: str) -> Rule:
        g, is_whole = self.grammar, own["type"] == "integer"
        low, above = _bound(own, "minimum", "exclusiveMinimum", place, max)
        high, below = _bound(own, "maximum", "exclusiveMaximum", place, min)
        if is_whole:
            least = math.floor(low) + 1 if above else math.ceil(low)
            most = math.ceil(high) - 1 if below else math.floor(high)
            if least > most:
                raise UserError(f"the schema allows no number at {place}")
            return integers(g, least, most)
        if (low, high) == (-LIMIT, LIMIT):
            return number(g)
        if low != math.floor(low) or high != math.floor(high):
            raise UserError(
                f"the schema has a bound with a fraction at {place}, which is not supported"
            )
        if low > high or (low == high and (above or below)):
            raise UserError(f"the schema allows no number at {place}")
        return numbers(g, int(low), int(high), above=above, below=below)

    # --- lists of values

    def _listed(self, begin: bytes, end: bytes, item: Sequence) -> Sequence:
        """Any number of items, with commas between them."""
        g = self.grammar
        more = g.any_number(*literal(b","), self.space, *item)
        held = g.rule((self.space,), (self.space, *item, more, self.space))
        return (*literal(begin), held, *literal(end))

    def _array_of(self, own: Schema, place: str) -> Rule:
        g = self.grammar
        first = _list(own, "prefixItems", place) if "prefixItems" in own else []
        least, most = (_count(own, k, place) for k in ("minItems", "maxItems"))
        _check_order(least or 0, most, "minItems", place)
        items = own.get("items", not first)
        rest = None if items is False else self.value(items, f"{place}/items")
        if not first and not least and most is None and rest is not None:
            return g.rule(self._listed(b"[", b"]", (rest,)))
        fixed = [self.value(e, f"{place}/prefixItems/{i}") for i, e in enumerate(first)]
        if most is not None:
            fixed = fixed[:most]
        wanted = max(least or 0, 0)
        if rest is None and wanted > len(fixed):
            raise UserError(f"'minItems' at {place} is {wanted}, for {len(fixed)} items")
        return g.rule(
            (*literal(b"["), self._counted(fixed, rest, wanted, most), *literal(b"]"))
        )

    def _counted(
        self, fixed: list[Rule], rest: Rule | None, least: int, most: int | None
    ) -> Rule:
        """Items of an array, at least and at most so many: first those of their own, then others."""
        g = self.grammar
        comma = (*literal(b","), self.space)
        tail: Rule = g.rule(())
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

    def _object_of(self, own: Schema, place: str) -> Rule:
        parts = _mapping(own.get("properties", {}), f"{place}/properties")
        needed = (
            [n for n in _list(own, "required", place) if isinstance(n, str)]
            if "required" in own
            else []
        )
        rest = own.get("additionalProperties", not parts)
        if (
            own.get("unevaluatedProperties", True) is not True
            and "additionalProperties" not in own
        ):
            rest = own["unevaluatedProperties"]
        if not parts and not needed and rest is True:
            return self._object
        missing = list(dict.fromkeys(name for name in needed if name not in parts))
        if missing and rest is False:
            raise UserError(
                f"'required' at {place} names '{missing[0]:.80}', which is no property"
            )
        names = [*parts, *missing]
        pairs = [
            (*literal(_text(name)), *literal(b":"), self.space,
             self.value(parts.get(name, rest), f"{place}/properties/{name}"))
            for name in names
        ]  # fmt: skip
        more: Sequence | None = None
        if rest is not False:
            other = self.value(rest, f"{place}/additionalProperties")
            more = (self._other_name(names), *literal(b":"), self.space, other)
        wanted = [name in needed for name in names]
        return self._members(pairs, wanted, more)

    def _members(
        self, pairs: list[Sequence], wanted: list[bool], more: Sequence | None
    ) -> Rule:
        """Pairs in their order, of which those that are not wanted may be left out, then any others."""
        g = self.grammar
        comma = (*literal(b","), self.space)
        # What may stand behind a pair, and what where none stood before; from the last pair to the first.
        behind = g.rule(()) if more is None else g.any_number(*comma, *more)
        first: list[Sequence] = [()] if more is None else [(), (*more, behind)]
        for pair, is_wanted in zip(reversed(pairs), reversed(wanted), strict=True):
            begun = (*pair, behind)
            first = [begun] if is_wanted else [begun, *first]
            here = (*comma, *pair, behind)
            behind = g.rule(here) if is_wanted else g.rule(here, (behind,))
        filled = [
            (self.space, *each, self.space) if each else (self.space,) for each in first
        ]
        return g.rule((*literal(b"{"), g.rule(*filled), *literal(b"}")))

    def _other_name(self, names: Iterable[str]) -> Rule:
        """A string that is none of some, without backslashes, by which one of them could be written otherwise."""
        tree: dict[int, object] = {}
        for name in names:
            inner = tree
            for byte in _text(name)[1:]:
                inner = cast("dict[int, object]", inner.setdefault(byte, {}))
        plain = self.grammar.any_number(_PLAIN | _LATER)
        return self.grammar.rule((*literal(b'"'), self._apart(tree, plain)))

    def _apart(self, tree: Mapping[int, object], plain: Rule) -> Rule:
        """The rest of a string that ends as none of a tree does."""
        taken = sum(1 << byte for byte in tree)
        quote = one_of(b'"')
        found: list[Sequence] = [((_PLAIN | _LATER) & ~taken, plain, quote)]
        if not taken & quote:
            found.append((quote,))
        for byte, inner in tree.items():
            if byte != 0x22:
                deeper = self._apart(cast("Mapping[int, object]", inner), plain)
                found.append((1 << byte, deeper))
        return self.grammar.rule(*found)


# --- formats of strings


def _date(g: Grammar) -> Rule:
    """Days that every month has, and those that some have only where they do, but for leap years: 29 of February is left out."""
    days = g.rule(
        (*literal(b"0"), byte_set((0x31, 0x39))), (one_of(b"1"), DIGIT), (one_of(b"2"), byte_set((0x30, 0x38)))
    )  # fmt: skip
    month = g.rule(
        (*literal(b"0"), byte_set((0x31, 0x39))), (*literal(b"1"), one_of(b"012"))
    )
    not_february = g.rule(
        (*literal(b"0"), one_of(b"13456789")), (*literal(b"1"), one_of(b"012"))
    )
    long_month = g.rule((*literal(b"0"), one_of(b"13578")), (*literal(b"1"), one_of(b"02")))
    dash, thirty = literal(b"-"), g.rule(literal(b"29"), literal(b"30"))
    day = g.rule(
        (month, *dash, days), (not_february, *dash, thirty), (long_month, *literal(b"-31"))
    )
    return g.rule(((DIGIT), DIGIT, DIGIT, DIGIT, *dash, day))


def _time(g: Grammar) -> Rule:
    hour = g.rule((one_of(b"01"), DIGIT), (*literal(b"2"), one_of(b"0123")))
    sixty = (byte_set((0x30, 0x35)), DIGIT)
    parts = g.optional(*literal(b"."), *g.repeated(1, 9, DIGIT))
    away = g.rule(literal(b"Z"), (one_of(b"+-"), hour, *literal(b":"), *sixty))
    colon = literal(b":")
    return g.rule((hour, *colon, *sixty, *colon, *sixty, parts, away))


def _date_time(g: Grammar) -> Rule:
    return g.rule((_date(g), *literal(b"T"), _time(g)))


def _uuid(g: Grammar) -> Rule:
    groups = [(_HEX,) * count for count in (8, 4, 4, 4, 12)]
    dash = literal(b"-")
    return g.rule(sum(((*dash, *each) for each in groups[1:]), groups[0]))


_FORMATS: Final[Mapping[str, Callable[[Grammar], Rule]]] = {
    "date": _date, "time": _time, "date-time": _date_time, "uuid": _uuid,
}  # fmt: skip
"""Other formats say nothing that is kept to, as the standard has it."""


# --- what keywords say


def _mapping(value: object, place: str) -> Schema:
    if not isinstance(value, dict):
        raise UserError(f"the schema is {value!r:.80} at {place}, expected an object")
    return cast("Schema", value)


def _list(own: Schema, keyword: str, place: str) -> list[object]:
    value = own[keyword]
    if not isinstance(value, list):
        raise UserError(f"'{keyword}' at {place} is no list")
    return cast("list[object]", value)


def _types(own: Schema, place: str) -> list[str]:
    """The types that a schema names, or that what it says is about; else all."""
    value = own.get("type")
    if value is None:
        about = [kind for kind, words in _ABOUT.items() if any(w in own for w in words)]
        return about if len(about) == 1 else list(_TYPES)
    found = cast("list[object]", value) if isinstance(value, list) else [value]
    wrong = next((each for each in found if each not in _TYPES), None)
    if wrong is not None or not found:
        raise UserError(f"'type' at {place} is {value!r:.80}, expected {' '.join(_TYPES)}")
    return cast("list[str]", found)


_ABOUT: Final = {
    "object": ("properties", "required", "additionalProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems"),
    "string": ("minLength", "maxLength", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
}


def _is_of(value: object, kind: str) -> bool:
    """Whether a value is of a type of JSON."""
    if isinstance(value, bool):
        return kind == "boolean"
    if isinstance(value, int):
        return kind in ("integer", "number")
    if isinstance(value, float):
        return kind == "number" or (kind == "integer" and value.is_integer())
    held = {"null": type(None), "string": str, "array": list, "object": dict}
    return kind in held and isinstance(value, held[kind])


def _text(value: object) -> bytes:
    """A value as JSON."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        raise UserError(f"the schema has {value!r:.80}, which is no JSON") from error
    return text.encode("utf-8", "replace")


def _count(own: Schema, keyword: str, place: str) -> int | None:
    value = own.get(keyword)
    if value is None:
        return None
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or value != int(value)
        or value < 0
    ):
        raise UserError(
            f"'{keyword}' at {place} is {value!r:.80}, expected a number of them"
        )
    if value > _MOST_COUNT:
        raise UserError(
            f"'{keyword}' at {place} is {value}, expected at most {_MOST_COUNT}"
        )
    return int(value)


def _check_order(least: int, most: int | None, keyword: str, place: str) -> None:
    if most is not None and least > most:
        raise UserError(f"'{keyword}' at {place} is {least}, for at most {most}")


def _bound(
    own: Schema,
    keyword: str,
    without: str,
    place: str,
    stricter: Callable[[float, float], float],
) -> tuple[float, bool]:
    """An end of numbers, and whether it is none of them itself."""
    end = -LIMIT if stricter is max else LIMIT
    values: list[float] = []
    for name in (keyword, without):
        value = own.get(name)
        if value is None:
            values.append(end)
        elif (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
        ):
            raise UserError(f"'{name}' at {place} is {value!r:.80}, expected a number")
        else:
            values.append(stricter(value, end))
    found = stricter(*values)
    return found, own.get(without) is not None and values[1] == found


def _check_alone(own: Schema, keyword: str, place: str, *fine: str) -> None:
    """Refuse what else a schema says beside a keyword that says all."""
    left = set(own) - _TOLD - {keyword, *fine}
    if left:
        raise UserError(
            f"the schema has '{min(left)}' beside '{keyword}' at {place}, which is not supported"
        )


def _check_begins(grammar: Grammar, rule: Rule, name: str) -> None:
    """Refuse a part that is nothing but itself: no text would be one."""
    seen: set[Rule] = set()
    waiting = [rule]
    while waiting:
        for each in grammar.alternatives(waiting.pop()):
            head = each[0] if each else 0
            if head == rule:
                raise UserError(f"'$ref' names '{name}', which is itself")
            if isinstance(head, Rule) and head not in seen:
                seen.add(head)
                waiting.append(head)
