"""The sections of an MLIR bytecode file: texts, names of operations, where attributes and types lie.

Attributes and types are read when something asks for them, by what the caller says their dialect is.
Called by the reader of artifacts.

Source: MLIR Bytecode Format, "Format Encoding"; versions 0 to 6.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, final

from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.kit.beginnings import MLIR_BYTECODE
from tilewright.compiler.frontends.stablehlo.bytecode_cursor import ByteCursor

MAGIC: Final = MLIR_BYTECODE
NEWEST: Final = 6
# Versions from which on something is written: names of dialects with versions, lists of uses, places of
# arguments only where they are known, properties.
WITH_VERSIONS: Final = 1
WITH_ISOLATION: Final = 2
WITH_USES: Final = 3
WITH_ELISION: Final = 4
WITH_PROPERTIES: Final = 5

STRINGS, DIALECTS, ENTRIES, OFFSETS, OPERATIONS = 0, 1, 2, 3, 4
PROPERTIES: Final = 8


@final
@dataclass(frozen=True, slots=True)
class Entry:
    """Where an attribute or a type lies; `is_coded`: as its dialect encodes it, not as text."""

    dialect: str
    data: ByteCursor
    is_coded: bool

    def open(self) -> ByteCursor:
        """A cursor at its beginning."""
        return ByteCursor(self.data.data, self.data.file, self.data.place, self.data.stop)


@final
@dataclass(slots=True)
class BytecodeFile:
    """What the sections say.

    Attributes:
        version: of the format.
        producer: who wrote it: `StableHLO_v1.15.0`.
    """

    version: int
    producer: str
    strings: list[str] = field(default_factory=list[str])
    dialects: list[str] = field(default_factory=list[str])
    operations: list[str] = field(default_factory=list[str])
    attributes: list[Entry] = field(default_factory=list[Entry])
    types: list[Entry] = field(default_factory=list[Entry])
    properties: list[ByteCursor] = field(default_factory=list[ByteCursor])
    body: ByteCursor | None = None

    def string(self, cursor: ByteCursor) -> str:
        """The text whose number is next."""
        return _at(self.strings, cursor, "text")

    def operation(self, cursor: ByteCursor) -> str:
        """The name of the operation whose number is next."""
        return _at(self.operations, cursor, "operation")


def _at(table: list[str], cursor: ByteCursor, kind: str) -> str:
    index = cursor.number()
    if index >= len(table):
        raise cursor.error(f"{kind} {index} is asked for, there are {len(table)}")
    return table[index]


def read_file(data: bytes, file: str) -> BytecodeFile:
    """The sections of a file.  Raises: ModelError where they are damaged or of a version not known."""
    cursor = ByteCursor(data, file)
    if cursor.take(min(len(MAGIC), len(data))) != MAGIC:
        raise ModelError("is no MLIR bytecode", location=file)
    version = cursor.number()
    if version > NEWEST:
        raise ModelError(
            f"is MLIR bytecode of version {version}, versions up to {NEWEST} are read",
            location=file,
            hint="write a portable artifact for an older version of StableHLO",
        )
    found = BytecodeFile(version, cursor.text())
    sections: dict[int, ByteCursor] = {}
    while cursor.left:
        kind, part = cursor.section()
        if kind in sections:
            raise cursor.error(f"section {kind} is there twice")
        sections[kind] = part
    for kind in (STRINGS, DIALECTS, ENTRIES, OFFSETS, OPERATIONS):
        if kind not in sections:
            raise ModelError(f"section {kind} is missing: the file is cut", location=file)
    found.strings = _strings(sections[STRINGS])
    _dialects(found, sections[DIALECTS])
    _entries(found, sections[OFFSETS], sections[ENTRIES])
    if PROPERTIES in sections:
        part = sections[PROPERTIES]
        found.properties = [part.part(part.number()) for _ in range(part.count())]
    found.body = sections[OPERATIONS]
    return found


def _strings(part: ByteCursor) -> list[str]:
    """Lengths, the last text first, then the texts, each with a zero byte at its end."""
    lengths = part.numbers()[::-1]
    if sum(lengths) > part.left or any(n < 1 for n in lengths):
        raise part.error("the texts do not fit their section")
    return [part.take(n)[:-1].decode("utf-8", "replace") for n in lengths]


def _groups(part: ByteCursor, dialects: list[str]) -> Iterator[tuple[str, int]]:
    """Dialects, each with how many entries of it follow."""
    while part.left:
        yield _at(dialects, part, "dialect"), part.count()


def _dialects(found: BytecodeFile, part: ByteCursor) -> None:
    for _ in range(part.count()):
        if found.version < WITH_VERSIONS:
            found.dialects.append(found.string(part))
            continue
        index, has_version = part.flagged()
        if index >= len(found.strings):
            raise part.error(f"text {index} is asked for, there are {len(found.strings)}")
        found.dialects.append(found.strings[index])
        if has_version:
            part.section()
    if found.version >= WITH_ELISION:
        part.number()  # how many names follow
    for dialect, count in _groups(part, found.dialects):
        for _ in range(count):
            index = part.flagged()[0] if found.version >= WITH_PROPERTIES else part.number()
            if index >= len(found.strings):
                raise part.error(
                    f"text {index} is asked for, there are {len(found.strings)}"
                )
            found.operations.append(f"{dialect}.{found.strings[index]}")


def _entries(found: BytecodeFile, offsets: ByteCursor, data: ByteCursor) -> None:
    """Attributes, then types, one after the other in the section of their data."""
    wanted = [offsets.count(), offsets.count()]
    groups = _groups(offsets, found.dialects)
    for count, table in zip(wanted, (found.attributes, found.types), strict=True):
        while len(table) < count:
            group = next(groups, None)
            if group is None:
                raise offsets.error("the table of attributes and types is cut")
            for _ in range(group[1]):
                size, is_coded = offsets.flagged()
                table.append(Entry(group[0], data.part(size), is_coded))
