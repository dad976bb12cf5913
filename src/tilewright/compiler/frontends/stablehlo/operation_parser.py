"""Operations: their generic form, and the pretty one of each dialect.

`"dialect.name"(%a) <{properties}> ({regions}) {attributes} : (types) -> types` is the generic form of
all.  Pretty forms mostly list operands and `name = attribute` with commas between; `forms` has those
with a grammar of their own.  Called by the parser of modules.

Source: MLIR Language Reference, "Operations"; the assembly formats of StableHLO's operations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, final

from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.stablehlo.attribute_parser import AttributeParser
from tilewright.compiler.frontends.stablehlo.cursor import Cursor, unescape
from tilewright.compiler.frontends.stablehlo.scope import Scope
from tilewright.compiler.frontends.stablehlo.tree import (
    Attribute,
    Block,
    FunctionType,
    Operation,
    Place,
    Region,
    Type,
    Value,
)
from tilewright.compiler.frontends.stablehlo.type_parser import TypeParser

# A file with more is hostile, or not written for people.
MAX_OPERATIONS: Final = 2_000_000
MAX_RESULTS: Final = 1 << 16
_DIALECTS: Final = ("check", "chlo", "func", "interpreter", "sdy", "stablehlo")
"""Those whose short forms are read; of others only the generic form is."""
_LOCATION: Final = re.compile(r"loc\s*\(")


@final
@dataclass(slots=True)
class Parts:
    """What was read of one operation so far; `types` are those of the results, None: not said yet."""

    name: str
    place: Place
    operands: list[Value] = field(default_factory=list[Value])
    attributes: dict[str, Attribute] = field(default_factory=dict[str, Attribute])
    positional: list[Attribute] = field(default_factory=list[Attribute])
    regions: list[Region] = field(default_factory=list[Region])
    types: tuple[Type, ...] | None = None


Form = Callable[["OperationParser", Parts], None]


@final
class OperationParser:
    """Reads operations from a cursor, with the special forms of the dialects.

    Args:
        cursor: where to read.
        forms: what follows the name of an operation, by its name.
        positional: what attributes without a name are called, by the name of the operation.
        names: attributes that the pretty form of an operation calls otherwise than the specification.
    """

    def __init__(
        self,
        cursor: Cursor,
        forms: Mapping[str, Form],
        positional: Mapping[str, Sequence[str]],
        names: Mapping[str, Mapping[str, str]],
    ) -> None:
        self.cursor: Cursor = cursor
        self.types: TypeParser = TypeParser(cursor)
        self.attributes: AttributeParser = AttributeParser(cursor, self.types)
        self.scope: Scope = Scope()
        self._forms: Mapping[str, Form] = forms
        self._positional: Mapping[str, Sequence[str]] = positional
        self._names: Mapping[str, Mapping[str, str]] = names
        self._budget: int = MAX_OPERATIONS

    # --- blocks and regions

    def block(self, arguments: Sequence[Value] = ()) -> Block:
        """The operations up to `}` or the next block; `arguments` have their names already."""
        found: list[Operation] = []
        while not self.cursor.at("}") and self.cursor.kind != "block":
            found.append(self.operation())
        return Block(tuple(arguments), tuple(found))

    def region(self, arguments: Sequence[Value] = ()) -> Region:
        """`{ ^bb0(%a: type): … }`; inside, `arguments` are those of the first block.

        Raises: ModelError where a name is unknown or given twice.
        """
        cursor = self.cursor
        cursor.expect("{")
        outer, self.scope = self.scope, Scope(self.scope)
        for value in arguments:
            self.define(value.name, value)
        blocks: list[Block] = []
        with cursor.nested():
            if cursor.kind != "block":
                blocks.append(self.block(arguments))
            while cursor.kind == "block":
                cursor.advance()
                given = self.arguments() if cursor.at("(") else ()
                cursor.expect(":")
                blocks.append(self.block(given))
            cursor.expect("}")
        self.scope = outer
        return Region(tuple(blocks))

    def arguments(self) -> tuple[Value, ...]:
        """`(%a: type, %b: type)`, named from here on."""
        cursor = self.cursor
        cursor.expect("(")
        found: list[Value] = []
        while not cursor.accept(")"):
            place, name = cursor.place, cursor.take("value", "a name such as %arg0")
            cursor.expect(":")
            found.append(Value(name, self.types.type()))
            self.define(name, found[-1], place)
            self.location()
            if not cursor.at(")"):
                cursor.expect(",")
        return tuple(found)

    # --- values

    def define(self, name: str, value: Value, place: Place | None = None) -> None:
        """Bind a name here.  Raises: ModelError if it is taken."""
        if not self.scope.define(name, value):
            raise self.cursor.error(f"value '{name}' is defined twice", place)

    def value(self) -> Value:
        """The value whose name is next.  Raises: ModelError if there is none of that name."""
        cursor = self.cursor
        place = cursor.place
        name = cursor.take("value", "a value such as %0")
        found = self.scope.find(name)
        if found is None:
            raise cursor.error(f"value '{name}' is not defined before its use", place)
        return found

    def values(self) -> list[Value]:
        """`(%a, %b)`."""
        cursor = self.cursor
        cursor.expect("(")
        found: list[Value] = []
        while not cursor.accept(")"):
            found.append(self.value())
            if not cursor.at(")"):
                cursor.expect(",")
        return found

    # --- operations

    def operation(self) -> Operation:
        """One operation, its results named from here on."""
        cursor = self.cursor
        self._budget -= 1
        if self._budget < 0:
            raise cursor.error(f"the text has more than {MAX_OPERATIONS} operations")
        names = self._result_names()
        parts = Parts("", cursor.place)
        if cursor.kind == "string":
            self._generic(parts)
        else:
            self._pretty(parts)
        self.location()
        types = parts.types or ()
        spelled = self._spelled(names, len(types), parts)
        results = tuple(Value(n, t) for n, t in zip(spelled, types, strict=True))
        for value in results if names else ():
            self.define(value.name, value, parts.place)
        return Operation(
            parts.name,
            tuple(parts.operands),
            results,
            parts.attributes,
            tuple(parts.regions),
            parts.place,
        )

    def _result_names(self) -> list[tuple[str, int]]:
        """`%0, %1:2 =`, each name with the number of results that share it."""
        cursor = self.cursor
        found: list[tuple[str, int]] = []
        while cursor.kind == "value":
            name = cursor.advance()
            count = 1
            if cursor.accept(":"):
                count = cursor.integer()
            if not 0 < count <= MAX_RESULTS:
                raise cursor.error(f"got {count} results, expected 1 to {MAX_RESULTS}")
            found.append((name, count))
            if not cursor.accept(","):
                break
        if found:
            cursor.expect("=")
        return found

    def _spelled(
        self, names: Sequence[tuple[str, int]], count: int, parts: Parts
    ) -> list[str]:
        """One name per result."""
        if not names:
            return [""] * count
        found = [
            f"{name}#{index}" if several > 1 else name
            for name, several in names
            for index in range(several)
        ]
        if len(found) != count:
            text = f"'{parts.name}' gives {count} results, {len(found)} are named"
            raise self.cursor.error(text, parts.place)
        return found

    def _generic(self, parts: Parts) -> None:
        cursor = self.cursor
        parts.name = unescape(cursor.advance())
        parts.operands = self.values()
        if cursor.at("["):
            raise cursor.error("branches between blocks are not part of StableHLO")
        parts.attributes |= self.properties()
        if cursor.accept("("):
            parts.regions = [self.region()]
            while cursor.accept(","):
                parts.regions.append(self.region())
            cursor.expect(")")
        if cursor.at("{"):
            parts.attributes |= self.attributes.dictionary()
        cursor.expect(":")
        self._typed(parts, self.types.function())

    def properties(self) -> dict[str, Attribute]:
        """`<{…}>`, or none."""
        found: dict[str, Attribute] = {}
        if self.cursor.accept("<"):
            found |= self.attributes.dictionary()
            self.cursor.expect(">")
        return found

    def _typed(self, parts: Parts, type_: FunctionType) -> None:
        """Results by a full type; operands must be of the types that it says."""
        given = tuple(value.type for value in parts.operands)
        if given != type_.inputs:
            stated, held = (", ".join(map(str, each)) for each in (type_.inputs, given))
            text = f"'{parts.name}' has operands ({held}), its type says ({stated})"
            raise self.cursor.error(text, parts.place)
        parts.types = type_.results

    def _pretty(self, parts: Parts) -> None:
        cursor = self.cursor
        parts.name = cursor.take("word", "an operation such as stablehlo.add")
        names = self._positional.get(parts.name, ())
        try:
            self._forms.get(parts.name, plain)(self, parts)
            if len(parts.positional) > len(names):
                text = f"'{parts.name}' has attributes without a name"
                raise cursor.error(text, parts.place)
        except ModelError as error:
            raise (_of_dialect(parts, cursor.file) or error) from None
        renamed = self._names.get(parts.name, {})
        parts.attributes = {renamed.get(n, n): a for n, a in parts.attributes.items()}
        parts.attributes |= zip(names, parts.positional, strict=False)

    # --- what pretty forms are made of

    def items(self, parts: Parts) -> None:
        """Operands and attributes, with or without a name, and commas between."""
        cursor = self.cursor
        while _at_item(cursor):
            self._item(parts)
            if not cursor.accept(",") and not _begins_item(cursor):
                break
        if cursor.at("{"):
            parts.attributes |= self.attributes.dictionary()

    def _item(self, parts: Parts) -> None:
        cursor = self.cursor
        if cursor.kind == "value":
            parts.operands.append(self.value())
        elif cursor.accept("("):
            while not cursor.accept(")"):
                self._item(parts)
                if not cursor.at(")"):
                    cursor.expect(",")
        elif cursor.kind == "word":
            self._named_item(parts)
        else:
            parts.positional.append(self.attributes.attribute())

    def _named_item(self, parts: Parts) -> None:
        cursor = self.cursor
        start, place, word = cursor.start, cursor.place, cursor.advance()
        if cursor.accept("="):
            if word in parts.attributes:
                raise cursor.error(f"attribute '{word}' is given twice", place)
            parts.attributes[word] = self.attributes.attribute()
            return
        cursor.seek(start)
        parts.positional.append(self.attributes.attribute())

    def signature(self, parts: Parts) -> None:
        """`: type`, `: (types) -> types` or `: types`, of which the last one is the result's."""
        cursor = self.cursor
        cursor.expect(":")
        if cursor.at("("):
            self._typed(parts, self.types.function())
            return
        listed = self.types.several()
        if cursor.accept("->"):
            parts.types = self.types.results()
            return
        parts.types = listed[-1:]

    def location(self) -> None:
        """Step over `loc(…)`."""
        if self.cursor.accept("loc"):
            self.cursor.skip_balanced()


def _of_dialect(parts: Parts, file: str) -> ModelError | None:
    """What is wrong with an operation whose short form nobody here knows; None for one of a dialect that is read."""
    dialect, dot, _ = parts.name.partition(".")
    if not dot or dialect in _DIALECTS:
        return None
    text = f"operation '{parts.name}' is of dialect '{dialect}', which is not read"
    place, hint = f"{file}:{parts.place}", "lower the module to StableHLO first"
    return ModelError(text, location=place, hint=hint)


def _at_item(cursor: Cursor) -> bool:
    """Whether an operand or an attribute is next; `loc(…)` is neither."""
    if cursor.kind == "word":
        return _LOCATION.match(cursor.text, cursor.start) is None
    return cursor.kind in ("value", "symbol", "string") or cursor.word in ("[", "(")


def _begins_item(cursor: Cursor) -> bool:
    """Whether an item follows that has no comma before it: `@name(…)`, `%0[…]`."""
    return cursor.at("(") or cursor.at("[") or cursor.kind == "value"


def plain(parser: OperationParser, parts: Parts) -> None:
    """Operands, attributes, and the type of the result."""
    parser.items(parts)
    parser.signature(parts)
    if parser.cursor.at("{"):
        parts.attributes |= parser.attributes.dictionary()
