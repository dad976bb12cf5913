"""Attributes as MLIR and StableHLO write them: numbers, lists, `dense<…>`, `#stablehlo.gather<…>`.

Called by the parser of operations.

Source: MLIR Language Reference, "Attributes"; StableHLO specification, "Quantization" and the ops'
own attributes, as the files of the project print them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, final

from tilewright.compiler.frontends.stablehlo.cursor import MAX_DIGITS, Cursor, unescape
from tilewright.compiler.frontends.stablehlo.elements import SCALARS
from tilewright.compiler.frontends.stablehlo.literals import BODY, array_of, bytes_of
from tilewright.compiler.frontends.stablehlo.resources import (
    BEGIN,
    Resource,
    name_of,
    read_resources,
)
from tilewright.compiler.frontends.stablehlo.tree import (
    Attribute,
    Attributes,
    Dense,
    Fields,
    Keyword,
    Labels,
    Number,
    Span,
    Symbol,
    TensorType,
    Type,
    TypeAttribute,
    Unit,
)
from tilewright.compiler.frontends.stablehlo.type_parser import TypeParser

_SPAN: Final = re.compile(r"\s*(\d{1,18})\s*:\s*(\d{1,18})(?:\s*:\s*(\d{1,18}))?")
_LABEL_LIST: Final = re.compile(
    r"\[\s*((?:[a-z]|\d{1,3}|\?)(?:\s*,\s*(?:[a-z]|\d{1,3}|\?))*)\s*\]"
)
# What a dialect writes in its own words and nobody here asks for.
_OPAQUE: Final = ("affine_map", "affine_set", "loc", "sparse", "distinct")
# Of dialects that say how a program is spread over machines; some have a syntax of their own.
_READ: Final = frozenset({"stablehlo", "vhlo", "chlo", "mhlo"})
"""Dialects whose attributes say something to us; those of others are notes, whatever their form."""
_TYPED: Final = re.compile(r":\s*(\w+)")
_HEX: Final = re.compile(r"0x[0-9a-fA-F]*\Z")


@final
class AttributeParser:
    """Reads attributes from a cursor; `aliases` are those that the file names (`#map = …`)."""

    def __init__(self, cursor: Cursor, types: TypeParser) -> None:
        self.cursor: Cursor = cursor
        self.types: TypeParser = types
        self.aliases: dict[str, Attribute] = {}
        self._resources: Mapping[str, Resource] | None = None
        self._by_kind: dict[str, Callable[[], Attribute]] = {
            "string": lambda: unescape(cursor.advance()),
            "symbol": self.symbol,
            "alias": self._alias,
            "integer": self._number,
            "hex": self._number,
            "float": self._number,
            "word": self._word,
        }
        self._by_mark: dict[str, Callable[[], Attribute]] = {
            "[": self.list,
            "{": self.dictionary,
            "<": self._record,
            "-": self._number,
            "(": lambda: TypeAttribute(self.types.type()),
        }

    def attribute(self) -> Attribute:
        """One attribute.  Raises: ModelError where none begins."""
        cursor = self.cursor
        with cursor.nested():
            rule = self._by_kind.get(cursor.kind)
            if rule is None and cursor.kind == "mark":
                rule = self._by_mark.get(cursor.word)
            if rule is None:
                raise cursor.unexpected("an attribute")
            return rule()

    # --- lists and records

    def list(self) -> Attribute:
        """`[a, b]`; after it may stand `x [c]`, the partner of a pair, or the rest of dimension labels."""
        cursor = self.cursor
        labels = _LABEL_LIST.match(cursor.text, cursor.start)
        if labels is not None and cursor.text.startswith("x[", labels.end()):
            return self.labels()
        first = self._items("[", "]")
        if not cursor.accept("x"):
            return first
        return first, self._items("[", "]")

    def _items(self, opening: str, closing: str) -> tuple[Attribute, ...]:
        cursor = self.cursor
        cursor.expect(opening)
        if cursor.accept(closing):
            return ()
        found = [self.attribute()]
        while cursor.accept(","):
            found.append(self.attribute())
        cursor.expect(closing)
        return tuple(found)

    def labels(self) -> Labels:
        """`[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]`."""
        operand = self._label_list()
        self.cursor.expect("x")
        kernel = self._label_list()
        self.cursor.expect("->")
        return Labels(operand, kernel, self._label_list())

    def _label_list(self) -> tuple[str, ...]:
        found = self.cursor.match(_LABEL_LIST)
        if found is None:
            raise self.cursor.unexpected("dimension labels such as [b, 0, 1, f]")
        return tuple(word.strip() for word in found[1].split(","))

    def spans(self) -> tuple[Span, ...]:
        """`[0:2, 1:4:2]`."""
        cursor = self.cursor
        cursor.expect("[")
        found: list[Span] = []
        while not cursor.accept("]"):
            span = cursor.match(_SPAN)
            if span is None:
                raise cursor.unexpected("a range such as 0:4:2")
            found.append(Span(int(span[1]), int(span[2]), int(span[3] or 1)))
            if not cursor.at("]"):
                cursor.expect(",")
        return tuple(found)

    def dictionary(self) -> Attributes:
        """`{name = value, flag}`."""
        return self._named("{", "}")

    def _record(self) -> Fields:
        """`<a = 1, b>` without a name before it."""
        return Fields("", *self._contents("<", ">"))

    def _named(self, opening: str, closing: str) -> Attributes:
        place = self.cursor.place
        items, named = self._contents(opening, closing)
        if items:
            raise self.cursor.error("an attribute has no name", place)
        return named

    def _contents(
        self, opening: str, closing: str
    ) -> tuple[tuple[Attribute, ...], dict[str, Attribute]]:
        """What stands between two marks: attributes with names and, in records, without."""
        cursor = self.cursor
        cursor.expect(opening)
        items: list[Attribute] = []
        named: dict[str, Attribute] = {}
        while not cursor.accept(closing):
            self._entry(items, named, flags=opening == "{")
            if not cursor.at(closing):
                cursor.expect(",")
        return tuple(items), named

    def _entry(
        self, items: list[Attribute], named: dict[str, Attribute], *, flags: bool
    ) -> None:
        cursor = self.cursor
        if cursor.kind not in ("word", "string"):
            items.append(self.attribute())
            return
        start, place = cursor.start, cursor.place
        token = cursor.advance()
        name = unescape(token) if token.startswith('"') else token
        if cursor.accept("="):
            if name in named:
                raise cursor.error(f"attribute '{name}' is given twice", place)
            named[name] = self.attribute()
        elif flags:
            named[name] = Unit()
        else:
            cursor.seek(start)
            items.append(self.attribute())

    # --- by their first token

    def symbol(self) -> Symbol:
        """`@name`, or the path to one (`@a::@b`)."""
        cursor = self.cursor
        parts = [self._symbol_name()]
        while cursor.accept("::"):
            parts.append(self._symbol_name())
        return Symbol("::".join(parts))

    def _symbol_name(self) -> str:
        name = self.cursor.take("symbol", "a name such as @main")[1:]
        return unescape(name) if name.startswith('"') else name

    def _number(self) -> Number:
        cursor = self.cursor
        sign = -1 if cursor.accept("-") else 1
        if cursor.kind not in ("integer", "hex", "float") or len(cursor.word) > MAX_DIGITS:
            raise cursor.unexpected("a number")
        is_float = cursor.kind == "float"
        word = cursor.advance()
        value = sign * (float(word) if is_float else int(word, 16 if "x" in word else 10))
        return Number(value, self._scalar_type())

    def _scalar_type(self) -> Type | None:
        """`: i64` after a number; the type of an operation that ends with one is no scalar's."""
        found = _TYPED.match(self.cursor.text, self.cursor.start)
        if found is None or not SCALARS.match(found[1]):
            return None
        self.cursor.advance()
        return self.types.type()

    def _word(self) -> Attribute:
        cursor = self.cursor
        word = cursor.word
        if word == "dense":
            return self.dense()
        if word == "dense_resource":
            return self._resource()
        if word == "array":
            return self._array()
        if word in ("true", "false"):
            return cursor.advance() == "true"
        if word == "unit":
            cursor.advance()
            return Unit()
        if self.types.at_type():
            return TypeAttribute(self.types.type())
        return self._keyword()

    def _keyword(self) -> Attribute:
        cursor = self.cursor
        word = cursor.advance()
        while word in _OPAQUE and cursor.kind == "mark" and cursor.word in "<([":
            cursor.skip_balanced()
        if word == "sparse" and cursor.accept(":"):
            self.types.type()
        return Keyword(word)

    def _alias(self) -> Attribute:
        cursor = self.cursor
        if cursor.word.startswith("!"):
            return TypeAttribute(self.types.type())
        place, name = cursor.place, cursor.advance()
        if name in self.aliases:
            return self.aliases[name]
        if not cursor.at("<"):
            if "." in name:
                return Fields(name[1:])
            hint = f"it is written '{name} = …' before its first use"
            raise cursor.error(f"attribute '{name}' is not defined", place, hint)
        if name == "#stablehlo.conv":
            return self._dimension_numbers()
        if name[1:].split(".")[0] not in _READ:
            cursor.skip_balanced()
            return Keyword(name[1:])
        if "." not in name:
            return self._enumerated()
        return Fields(name[1:], *self._contents("<", ">"))

    def _enumerated(self) -> Keyword:
        """`#stablehlo<precision DEFAULT>`: a word of the list that the first one names."""
        cursor = self.cursor
        cursor.expect("<")
        cursor.take("word", "the name of a list of words")
        found = Keyword(cursor.take("word", "a word such as DEFAULT"))
        cursor.expect(">")
        return found

    def _dimension_numbers(self) -> Attribute:
        cursor = self.cursor
        cursor.expect("<")
        if cursor.at("raw"):
            cursor.advance()
            raise cursor.error("dimension numbers in raw form are not read")
        found = self.labels()
        cursor.expect(">")
        return found

    def dense(self) -> Dense:
        """`dense<[1, 2]> : tensor<2xi32>`."""
        cursor = self.cursor
        cursor.expect("dense")
        if not cursor.at("<"):
            raise cursor.unexpected("'<'")
        place = cursor.place_of(cursor.start)
        found = BODY.match(cursor.text, cursor.end)
        body = "" if found is None else found[0]
        cursor.seek(cursor.end + len(body))
        digits = unescape(cursor.advance()) if cursor.kind == "string" else None
        cursor.expect(">")
        cursor.expect(":")
        type_ = self.types.type()
        if not isinstance(type_, TensorType):
            raise cursor.error(f"a literal has type {type_}, expected a tensor", place)
        if digits is None:
            return Dense(type_, array_of(body, type_, cursor, place))
        if _HEX.match(digits) is None or body.strip():
            raise cursor.error("a text of elements is no hexadecimal number", place)
        return Dense(type_, bytes_of(digits, type_, cursor, place))

    def _resource(self) -> Dense:
        """`dense_resource<name> : tensor<2xi32>`, whose elements stand at the end of the text."""
        cursor = self.cursor
        cursor.expect("dense_resource")
        cursor.expect("<")
        place, name = cursor.place, name_of(cursor)
        cursor.expect(">")
        cursor.expect(":")
        type_ = self.types.type()
        if not isinstance(type_, TensorType):
            raise cursor.error(f"a literal has type {type_}, expected a tensor", place)
        found = self.resources().get(name)
        if found is None:
            hint = "print the module whole, without leaving large elements out"
            raise cursor.error(f"the text has no elements called '{name}'", place, hint)
        return Dense(type_, bytes_of(found.digits, type_, cursor, place))

    def resources(self) -> Mapping[str, Resource]:
        """The elements that stand at the end of the text, which are read once."""
        if self._resources is None:
            cursor = Cursor(self.cursor.text, self.cursor.file, self.cursor.first_line)
            begin = cursor.text.rfind(BEGIN)
            self._resources = {}
            if begin >= 0:
                cursor.seek(begin)
                self._resources = read_resources(cursor)
        return self._resources

    def _array(self) -> tuple[Attribute, ...]:
        """`array<i64: 1, 2>`."""
        cursor = self.cursor
        cursor.advance()
        cursor.expect("<")
        self.types.type()
        if cursor.accept(">"):
            return ()
        cursor.expect(":")
        found = [self.attribute()]
        while cursor.accept(","):
            found.append(self.attribute())
        cursor.expect(">")
        return tuple(found)
