"""Portable artifacts: modules of VHLO as MLIR bytecode, as the tree that the text of a module gives.

Names and attributes become those of StableHLO: VHLO writes dimension numbers one by one, names of
functions as texts, and every default.  Called by `load`.

Source: MLIR Bytecode Format, "IR Section"; StableHLO, "Compatibility" and the legalization of VHLO.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, final

from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.stablehlo.assembled import module_of
from tilewright.compiler.frontends.stablehlo.bytecode_cursor import ByteCursor
from tilewright.compiler.frontends.stablehlo.bytecode_file import (
    MAGIC,
    WITH_ELISION,
    WITH_ISOLATION,
    WITH_PROPERTIES,
    WITH_USES,
    BytecodeFile,
    read_file,
)
from tilewright.compiler.frontends.stablehlo.cursor import MAX_DEPTH
from tilewright.compiler.frontends.stablehlo.operation_parser import MAX_OPERATIONS
from tilewright.compiler.frontends.stablehlo.tree import (
    Attributes,
    Block,
    Module,
    Operation,
    Place,
    Region,
    Value,
)
from tilewright.compiler.frontends.stablehlo.vhlo_attributes import Constants
from tilewright.compiler.frontends.stablehlo.vhlo_forms import stablehlo_attributes
from tilewright.compiler.frontends.stablehlo.vhlo_operations import (
    attribute_names,
    is_known,
)

_HAS_ATTRIBUTES, _HAS_RESULTS, _HAS_OPERANDS, _HAS_SUCCESSORS = 1, 2, 4, 8
_HAS_REGIONS, _HAS_USES, _HAS_PROPERTIES = 16, 32, 64
OLDEST: Final = "0.9"
NEWEST: Final = "1.20"
_VERSIONED: Final = re.compile(r"vhlo\.(\w+)_v\d+\Z")
_RENAMED: Final = {"vhlo.call": "func.call", "vhlo.func": "func.func"}


def is_artifact(data: bytes) -> bool:
    """Whether data begins as MLIR bytecode."""
    return data.startswith(MAGIC)


def read_artifact(data: bytes, file: str) -> tuple[Module, ...]:
    """The module of an artifact.  Raises: ModelError where it is damaged or of another dialect."""
    sections = read_file(data, file)
    reader = _Reader(sections, Constants(sections))
    operations = reader.top()
    found = [module_of(operation, file) for operation in operations]
    if not found:
        raise ModelError("holds no module", location=file)
    return tuple(found)


@final
@dataclass(slots=True)
class _Values:
    """Values by number within a region that sees nothing around it."""

    known: list[Value | None] = field(default_factory=list["Value | None"])


@final
@dataclass(slots=True)
class _Header:
    """An operation up to its regions."""

    name: str
    place: Place
    operands: tuple[Value, ...]
    results: tuple[Value, ...]
    attributes: Attributes


@final
class _Reader:
    """Reads the operations of a file."""

    def __init__(self, file: BytecodeFile, constants: Constants) -> None:
        self.file: BytecodeFile = file
        self.constants: Constants = constants
        self._count: int = 0
        self._depth: int = 0

    def top(self) -> list[Operation]:
        """The operations at the top, which are modules."""
        body = self.file.body
        assert body is not None, "a file without operations is refused"
        return self._block(body, _Values(), [0]).operations

    # --- blocks

    def _block(self, cursor: ByteCursor, values: _Values, free: list[int]) -> _Block:
        """A block: its arguments take the next numbers, then the results of its operations."""
        count, has_arguments = cursor.flagged()
        arguments: list[Value] = []
        if has_arguments:
            arguments = [
                self._define(cursor, self._argument_type(cursor), values, free)
                for _ in range(cursor.count())
            ]
            if self.file.version >= WITH_USES and cursor.byte():
                self._skip_uses(cursor, len(arguments))
        found = _Block(tuple(arguments))
        for _ in range(count):
            found.operations.append(self._operation(cursor, values, free))
        return found

    def _argument_type(self, cursor: ByteCursor) -> int:
        if self.file.version < WITH_ELISION:
            index = cursor.number()
            cursor.number()
            return index
        index, has_place = cursor.flagged()
        if has_place:
            cursor.number()
        return index

    def _define(
        self, cursor: ByteCursor, type_index: int, values: _Values, free: list[int]
    ) -> Value:
        number = free[0]
        value = Value(f"%{number}", self.constants.type_at(type_index, cursor))
        if number >= len(values.known):
            raise cursor.error("more values are defined than the region says")
        values.known[number] = value
        free[0] = number + 1
        return value

    # --- operations

    def _operation(self, cursor: ByteCursor, values: _Values, free: list[int]) -> Operation:
        self._count += 1
        if self._count > MAX_OPERATIONS:
            raise cursor.error(f"has more than {MAX_OPERATIONS} operations")
        name = self.file.operation(cursor)
        mask = cursor.byte()
        place = Place(self._count, 0, self.constants.place(cursor))
        attributes: Attributes = {}
        if mask & _HAS_ATTRIBUTES:
            attributes = self._dictionary(cursor)
        if mask & _HAS_PROPERTIES:
            attributes = {**attributes, **self._properties(cursor, name)}
        results = self._results(cursor, values, free) if mask & _HAS_RESULTS else ()
        operands = self._operands(cursor, values) if mask & _HAS_OPERANDS else ()
        if mask & _HAS_SUCCESSORS and cursor.number():
            raise cursor.error(f"'{name}' goes on in another block")
        if mask & _HAS_USES:
            self._skip_uses(cursor, len(results))
        regions: tuple[Region, ...] = ()
        if mask & _HAS_REGIONS:
            regions = self._regions(cursor, values)
        if not is_known(name.removeprefix("vhlo.")):
            raise _unknown(cursor, f"'{name}' is of a version that is not known")
        found = _VERSIONED.match(name)
        plain = f"vhlo.{found[1]}" if found else name
        renamed = _RENAMED.get(plain, plain.replace("vhlo.", "stablehlo."))
        return Operation(
            renamed,
            operands,
            results,
            stablehlo_attributes(renamed, attributes),
            regions,
            place,
        )

    def _dictionary(self, cursor: ByteCursor) -> Attributes:
        found = self.constants.attribute(cursor)
        if not isinstance(found, Mapping):
            raise cursor.error("the attributes of an operation are no dictionary")
        return found

    def _properties(self, cursor: ByteCursor, name: str) -> Attributes:
        """Attributes without their names.  Those of a module are each there or not."""
        if self.file.version < WITH_PROPERTIES:
            raise cursor.error("properties stand in a file that is too old for them")
        index = cursor.number()
        if index >= len(self.file.properties):
            raise cursor.error(f"properties {index} are asked for")
        part = self.file.properties[index]
        inner = ByteCursor(part.data, part.file, part.place, part.stop)
        if name == "builtin.module":
            return self._module_name(inner)
        names = attribute_names(name.removeprefix("vhlo."))
        found = {each: self.constants.attribute(inner) for each in names}
        if inner.left:
            raise _unknown(inner, f"'{name}' has properties that are not known")
        return found

    def _module_name(self, cursor: ByteCursor) -> Attributes:
        number, is_there = cursor.flagged()
        if not is_there:
            return {}
        named = self.constants.attribute_at(number, cursor)
        return {"sym_name": named} if isinstance(named, str) else {}

    def _results(
        self, cursor: ByteCursor, values: _Values, free: list[int]
    ) -> tuple[Value, ...]:
        return tuple(
            self._define(cursor, cursor.number(), values, free)
            for _ in range(cursor.count())
        )

    @staticmethod
    def _operands(cursor: ByteCursor, values: _Values) -> tuple[Value, ...]:
        found: list[Value] = []
        for _ in range(cursor.count()):
            number = cursor.number()
            value = values.known[number] if number < len(values.known) else None
            if value is None:
                raise cursor.error(f"value {number} is not defined before its use")
            found.append(value)
        return tuple(found)

    def _skip_uses(self, cursor: ByteCursor, values: int) -> None:
        """The order of the uses of values, which nothing here depends on."""
        for _ in range(cursor.count() if values != 1 else 1):
            if values != 1:
                cursor.number()
            count, _ = cursor.flagged()
            for _ in range(count):
                cursor.number()

    # --- regions

    def _regions(self, cursor: ByteCursor, values: _Values) -> tuple[Region, ...]:
        count, is_isolated = cursor.flagged()
        if count > cursor.left:
            raise cursor.error(f"{count} regions are said to follow")
        if self._depth >= MAX_DEPTH:
            raise cursor.error(f"nests deeper than {MAX_DEPTH} levels")
        self._depth += 1
        part = cursor
        if is_isolated and self.file.version >= WITH_ISOLATION:
            _, part = cursor.section()
        seen = _Values() if is_isolated else values
        found = [self._region(part, seen) for _ in range(count)]
        self._depth -= 1
        return tuple(found)

    def _region(self, cursor: ByteCursor, values: _Values) -> Region:
        """Its values take the numbers after those around it, and give them back at its end."""
        blocks = cursor.count()
        if not blocks:
            return Region(())
        start, count = len(values.known), cursor.count()
        values.known += [None] * count
        free = [start]
        found = [self._block(cursor, values, free).closed() for _ in range(blocks)]
        del values.known[start:]
        return Region(tuple(found))


@final
@dataclass(slots=True)
class _Block:
    """A block while it is read."""

    arguments: tuple[Value, ...]
    operations: list[Operation] = field(default_factory=list[Operation])

    def closed(self) -> Block:
        return Block(self.arguments, tuple(self.operations))


def _unknown(cursor: ByteCursor, message: str) -> ModelError:
    """What is newer than this reader, said at its place."""
    error = cursor.error(message)
    hint = f"artifacts of StableHLO {OLDEST} to {NEWEST} are read: write one for an older version"
    return ModelError(error.message, location=error.location, hint=hint)
