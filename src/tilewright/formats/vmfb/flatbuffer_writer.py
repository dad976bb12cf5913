"""Forward writing of FlatBuffers, as little of it as archives need.

A tree of nodes is laid out front to back in one pass (parents before children, each table right
behind its vtable), so the same tree always gives the same bytes.  Knows no schema (`writer` does);
apart from reading, because what runs only reads.

Source: FlatBuffers internals document (binary format); alignment counts from the size prefix,
as IREE's verifier looks at real addresses.
"""

from __future__ import annotations

import struct
from typing import Final, TypeAlias, final

from tilewright.base.record import record
from tilewright.formats.byte_view import Buffer, view_bytes
from tilewright.formats.vmfb.flatbuffer import PREFIX_BYTES

_U16: Final = struct.Struct("<H")
_U32: Final = struct.Struct("<I")
_I32: Final = struct.Struct("<i")


@final
@record
class Scalar:
    """A number in a table, by its `struct` code (`B`, `i`, `I`, `Q`)."""

    code: str
    value: int


@final
@record
class Inline:
    """A struct in a table: members of one size, by their `struct` code (`I`)."""

    code: str
    values: tuple[int, ...]


@final
@record
class Text:
    """A string."""

    value: str


@final
@record
class Elements:
    """A vector of scalars or structs, already packed.  Units: bytes."""

    data: Buffer
    element_bytes: int
    alignment: int


@final
@record
class Table:
    """A table: (slot, value) pairs; slots left out get their default when read."""

    fields: tuple[tuple[int, Node], ...]


@final
@record
class Tables:
    """A vector of tables; None is a null entry (only in unions)."""

    items: tuple[Table | None, ...]


Node: TypeAlias = "Scalar | Inline | Text | Elements | Table | Tables"


def write_flatbuffer(
    root: Table, identifier: bytes, *, has_size_prefix: bool = True
) -> bytes:
    """The bytes of a buffer.

    Args:
        root: the tree to write; equal strings and equal vtables are stored once.
        identifier: four bytes that name the format.
        has_size_prefix: begin with the size of the rest.
    """
    writer = _Writer()
    start = PREFIX_BYTES if has_size_prefix else 0
    writer.out += bytes(start + PREFIX_BYTES) + identifier
    position = writer.table(root)
    _U32.pack_into(writer.out, start, position - start)
    writer.texts()
    writer.align(8)
    if has_size_prefix:
        _U32.pack_into(writer.out, 0, len(writer.out) - PREFIX_BYTES)
    return bytes(writer.out)


@final
class _Writer:
    """Appends nodes; positions count from the size prefix, which is what gets aligned.

    Offsets only point forward, so strings, which are shared, wait for the end.
    """

    __slots__ = ("_texts", "_vtables", "out")

    def __init__(self) -> None:
        self.out = bytearray()
        self._texts: dict[str, list[int]] = {}
        self._vtables: dict[tuple[int, ...], int] = {}

    def align(self, alignment: int, ahead: int = 0) -> None:
        """Pad so that the byte `ahead` bytes further on is aligned."""
        self.out += bytes(-(len(self.out) + ahead) % alignment)

    def node(self, node: Elements | Table | Tables) -> int:
        """Write what an offset field refers to and return its position."""
        if isinstance(node, Table):
            return self.table(node)
        if isinstance(node, Tables):
            return self._tables(node)
        return self._elements(node)

    def table(self, node: Table) -> int:
        places, size, alignment = _table_shape(node)
        self.align(8 if alignment == 8 else 4)
        vtable = self._vtable(places, size, alignment)
        position = len(self.out)
        self.out += bytes(size)
        _I32.pack_into(self.out, position, position - vtable)
        for slot, value in node.fields:
            place = position + places[slot]
            if isinstance(value, Scalar):
                struct.pack_into(f"<{value.code}", self.out, place, value.value)
            elif isinstance(value, Inline):
                code = f"<{len(value.values)}{value.code}"
                struct.pack_into(code, self.out, place, *value.values)
            elif isinstance(value, Text):
                self._texts.setdefault(value.value, []).append(place)
            else:
                _U32.pack_into(self.out, place, self.node(value) - place)
        return position

    def _vtable(self, places: dict[int, int], size: int, alignment: int) -> int:
        """Write the vtable unless an equal one is there; leaves the end aligned for the table."""
        count = max(places, default=-1) + 1
        entries = (4 + 2 * count, size, *(places.get(slot, 0) for slot in range(count)))
        found = self._vtables.get(entries)
        if found is None:
            self.align(8 if alignment == 8 else 4, ahead=2 * len(entries))
            found = len(self.out)
            self._vtables[entries] = found
            for entry in entries:
                self.out += _U16.pack(entry)
        return found

    def texts(self) -> None:
        """Write every string once and point its users at it."""
        for value, places in self._texts.items():
            data = value.encode()
            self.align(4)
            position = len(self.out)
            self.out += _U32.pack(len(data)) + data + b"\0"
            for place in places:
                _U32.pack_into(self.out, place, position - place)

    def _elements(self, node: Elements) -> int:
        data = view_bytes(node.data)
        self.align(max(node.alignment, 4), ahead=4)
        position = len(self.out)
        self.out += _U32.pack(len(data) // node.element_bytes)
        self.out += data
        return position

    def _tables(self, node: Tables) -> int:
        self.align(4)
        position = len(self.out)
        self.out += _U32.pack(len(node.items)) + bytes(4 * len(node.items))
        for index, item in enumerate(node.items):
            place = position + 4 + 4 * index
            if item is not None:
                _U32.pack_into(self.out, place, self.table(item) - place)
        return position


def _table_shape(node: Table) -> tuple[dict[int, int], int, int]:
    """Where each slot lies in the table, the table's size and its alignment."""
    shapes = [(*_field_shape(value), slot) for slot, value in node.fields]
    alignment = max((alignment for alignment, _, _ in shapes), default=4)
    places: dict[int, int] = {}
    end = 8 if alignment == 8 else 4
    for _, width, slot in sorted(shapes, key=lambda entry: (-entry[0], entry[2])):
        places[slot] = end
        end += width
    return places, end, alignment


def _field_shape(value: Node) -> tuple[int, int]:
    """Alignment and width of what a table holds of a value."""
    if isinstance(value, Inline):
        size = struct.calcsize(value.code)
        return size, size * len(value.values)
    size = struct.calcsize(value.code) if isinstance(value, Scalar) else 4
    return size, size
