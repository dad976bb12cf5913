"""The text of a file as modules: aliases, functions, their bodies.

A file may hold several modules, separated by lines `// -----`, as the tests of MLIR do; a text
without `module` is one.  Called by `source`.

Source: MLIR Language Reference, "High-Level Structure"; the func dialect.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, final

from tilewright.compiler.frontends.stablehlo.assembled import (
    NOTES,
    function_of,
    module_of,
)
from tilewright.compiler.frontends.stablehlo.cursor import Cursor
from tilewright.compiler.frontends.stablehlo.forms import FORMS, NAMES, POSITIONAL
from tilewright.compiler.frontends.stablehlo.operation_parser import OperationParser
from tilewright.compiler.frontends.stablehlo.resources import BEGIN
from tilewright.compiler.frontends.stablehlo.scope import Scope
from tilewright.compiler.frontends.stablehlo.tree import (
    Attribute,
    Attributes,
    Block,
    Function,
    FunctionType,
    Module,
    Type,
    Value,
)

_SECTION: Final = re.compile(r"^//[ \t]*-----[^\n]*$", re.MULTILINE)
_PRIVATE: Final = ("public", "private", "nested")
_GENERIC_MODULE: Final = '"builtin.module"'


def parse(text: str, file: str = "<text>") -> tuple[Module, ...]:
    """Every module of a text, in order; sections without a function are left out.

    Raises: ModelError naming file, line and column of what the grammar does not allow.
    """
    found: list[Module] = []
    start, line = 0, 1
    breaks = [*_SECTION.finditer(text), None]
    for end in breaks:
        stop = len(text) if end is None else end.start()
        found += _Parser(Cursor(text[start:stop], file, line)).modules()
        line += text.count("\n", start, stop)
        start = stop if end is None else end.end()
    return tuple(found)


@final
class _Parser:
    """Reads one section."""

    def __init__(self, cursor: Cursor) -> None:
        self.cursor: Cursor = cursor
        self.operations: OperationParser = OperationParser(cursor, FORMS, POSITIONAL, NAMES)

    def modules(self) -> list[Module]:
        """The modules of the section; functions outside of any are one without a name."""
        found: list[Module] = []
        place, loose = self.cursor.place, dict[str, Function]()
        while not self._at_end():
            if self._at_module():
                found.append(self._module())
            elif not self._alias():
                self._function(loose)
        if loose:
            found.append(Module("", loose, place=place))
        return found

    def _at_end(self) -> bool:
        """Whether only the metadata of the file is left, which is read for its errors."""
        cursor = self.cursor
        if cursor.at("{") and cursor.text.startswith(BEGIN, cursor.start):
            self.operations.attributes.resources()
            return True
        return cursor.kind == "end"

    def _alias(self) -> bool:
        """`#name = attribute` or `!name = type`."""
        cursor = self.cursor
        if cursor.kind != "alias":
            return False
        name = cursor.advance()
        cursor.expect("=")
        if name.startswith("!"):
            self.operations.types.aliases[name] = self.operations.types.type()
        else:
            self.operations.attributes.aliases[name] = (
                self.operations.attributes.attribute()
            )
        return True

    def _at_module(self) -> bool:
        return self.cursor.word in ("module", "builtin.module", _GENERIC_MODULE)

    def _module(self) -> Module:
        """`module @name attributes {…} {…}`, or its generic form."""
        cursor = self.cursor
        place = cursor.place
        if cursor.kind == "string":
            self.operations.scope = Scope()
            return module_of(self.operations.operation(), cursor.file)
        cursor.advance()
        name = ""
        if cursor.kind == "symbol":
            name = self.operations.attributes.symbol().name
        attributes: Attributes = {}
        if cursor.accept("attributes"):
            attributes = self.operations.attributes.dictionary()
        cursor.expect("{")
        functions: dict[str, Function] = {}
        while not cursor.accept("}"):
            if self._at_module():
                # Nothing outside of it calls what it holds, but by a path, which is refused.
                with cursor.nested():
                    self._module()
            elif not self._note():
                self._function(functions)
        self.operations.location()
        return Module(name, functions, attributes, place)

    def _note(self) -> bool:
        """Step over `sdy.mesh @name = <…> {…}`."""
        cursor = self.cursor
        if cursor.word not in NOTES:
            return False
        cursor.advance()
        self.operations.attributes.symbol()
        cursor.expect("=")
        cursor.skip_balanced()
        if cursor.at("{"):
            self.operations.attributes.dictionary()
        self.operations.location()
        return True

    def _function(self, functions: dict[str, Function]) -> None:
        """`func.func public @name(%a: type) -> type attributes {…} {…}`, or its generic form."""
        cursor = self.cursor
        place = cursor.place
        if cursor.kind == "string":
            self.operations.scope = Scope()
            operation = self.operations.operation()
            if operation.name not in NOTES:
                self._define(functions, function_of(operation, cursor.file))
            return
        if not (cursor.accept("func.func") or cursor.accept("func")):
            raise cursor.unexpected("'func.func'", ("func.func", "module"))
        if cursor.word in _PRIVATE:
            cursor.advance()
        name = self.operations.attributes.symbol().name
        self.operations.scope = Scope()
        values, types, argument_attributes = self._arguments()
        results, result_attributes = self._results() if cursor.accept("->") else ((), ())
        attributes: Attributes = {}
        if cursor.accept("attributes"):
            attributes = self.operations.attributes.dictionary()
        body: Block | None = None
        if cursor.at("{"):
            body = self._body(values)
        self.operations.location()
        found = Function(
            name,
            FunctionType(types, results),
            body,
            place,
            attributes,
            argument_attributes,
            result_attributes,
        )
        self._define(functions, found)

    def _define(self, functions: dict[str, Function], function: Function) -> None:
        if function.name in functions:
            text = f"function '@{function.name}' is defined twice"
            raise self.cursor.error(text, function.place)
        functions[function.name] = function

    def _body(self, values: Sequence[Value]) -> Block:
        place = self.cursor.place
        region = self.operations.region(values)
        if len(region.blocks) != 1:
            raise self.cursor.error("the body of a function has several blocks", place)
        return region.blocks[0]

    def _arguments(
        self,
    ) -> tuple[list[Value], tuple[Type, ...], tuple[Attributes, ...]]:
        """`(%a: type {…}, %b: type)`; declarations leave the names out."""
        cursor = self.cursor
        cursor.expect("(")
        values: list[Value] = []
        types: list[Type] = []
        attributes: list[Attributes] = []
        while not cursor.accept(")"):
            place, name = cursor.place, ""
            if cursor.kind == "value":
                name = cursor.advance()
                cursor.expect(":")
            types.append(self.operations.types.type())
            attributes.append(self._attributes())
            self.operations.location()
            if name:
                values.append(Value(name, types[-1]))
                self.operations.define(name, values[-1], place)
            if not cursor.at(")"):
                cursor.expect(",")
        return values, tuple(types), tuple(attributes)

    def _results(self) -> tuple[tuple[Type, ...], tuple[Attributes, ...]]:
        cursor = self.cursor
        if not cursor.accept("("):
            return (self.operations.types.type(),), ({},)
        types: list[Type] = []
        attributes: list[Attributes] = []
        while not cursor.accept(")"):
            types.append(self.operations.types.type())
            attributes.append(self._attributes())
            if not cursor.at(")"):
                cursor.expect(",")
        return tuple(types), tuple(attributes)

    def _attributes(self) -> Attributes:
        found: dict[str, Attribute] = {}
        if self.cursor.at("{"):
            found |= self.operations.attributes.dictionary()
        return found
