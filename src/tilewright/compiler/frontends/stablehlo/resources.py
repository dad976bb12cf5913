"""Elements of large literals that stand at the end of a file: `{-# dialect_resources: {…} #-}`.

A literal `dense_resource<name>` names one.  Called by the parsers of attributes and modules.

Source: MLIR Language Reference, "File Metadata Dictionary", "Dense Resource Elements Attribute".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from tilewright.compiler.frontends.stablehlo.cursor import Cursor, unescape
from tilewright.compiler.frontends.stablehlo.tree import Place

BEGIN: Final = "{-#"
_BUILTIN: Final = "builtin"
# Digits of the alignment, a number of 32 bits, which stands before the elements.
_ALIGNMENT_DIGITS: Final = 8


@final
@dataclass(frozen=True, slots=True)
class Resource:
    """The hexadecimal digits of elements, and where they stand."""

    digits: str
    place: Place


def read_resources(cursor: Cursor) -> dict[str, Resource]:
    """The named elements of the metadata that begins here and ends the text.

    Raises: ModelError for what the grammar does not allow.
    """
    cursor.expect("{")
    cursor.expect("-#")
    found: dict[str, Resource] = {}
    while not cursor.accept("#-"):
        section = cursor.take("word", "a section such as dialect_resources")
        cursor.expect(":")
        if section == "dialect_resources":
            _section(cursor, found)
        else:
            cursor.skip_balanced()
        if not cursor.at("#-"):
            cursor.expect(",")
    cursor.expect("}")
    if cursor.kind != "end":
        raise cursor.unexpected("the end of the text")
    return found


def _section(cursor: Cursor, found: dict[str, Resource]) -> None:
    cursor.expect("{")
    while not cursor.accept("}"):
        dialect = cursor.take("word", "the name of a dialect")
        cursor.expect(":")
        if dialect == _BUILTIN:
            _entries(cursor, found)
        else:
            cursor.skip_balanced()
        if not cursor.at("}"):
            cursor.expect(",")


def _entries(cursor: Cursor, found: dict[str, Resource]) -> None:
    cursor.expect("{")
    while not cursor.accept("}"):
        name = name_of(cursor)
        cursor.expect(":")
        place = cursor.place
        digits = unescape(cursor.take("string", "a text of hexadecimal digits"))
        body = digits.removeprefix("0x")
        if len(body) < _ALIGNMENT_DIGITS or len(body) == len(digits):
            raise cursor.error(f"resource '{name}' is no hexadecimal number", place)
        found[name] = Resource(body[_ALIGNMENT_DIGITS:], place)
        if not cursor.at("}"):
            cursor.expect(",")


def name_of(cursor: Cursor) -> str:
    """The name of a resource, which is a word or a text."""
    if cursor.kind == "string":
        return unescape(cursor.advance())
    return cursor.take("word", "the name of a resource")
