"""The little of FlatBuffers that archives need: checked reading and forward writing.

Reading goes through `TableView`, which checks every offset against the buffer and spends from a
budget, so that a small file cannot unfold into endless work.  Writing lays a tree of nodes out
front to back in one pass (parents before children, each table right behind its vtable), so the
same tree always gives the same bytes.  Knows no schema (`reader` and `writer` do).

Source: FlatBuffers internals document (binary format); alignment counts from the size prefix,
as IREE's verifier looks at real addresses.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, TypeAlias, final

from tilewright.base.errors import ArchiveError
from tilewright.formats.byte_view import Buffer, ByteView, decode_text, view_bytes

PREFIX_BYTES: Final = 4
_U16: Final = struct.Struct("<H")
_U32: Final = struct.Struct("<I")
_I32: Final = struct.Struct("<i")

# --- reading -----------------------------------------------------------------------------------


@final
class _Budget:
    """How much a parse may still unfold; shared by all views of one buffer."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left

    def spend(self, amount: int, location: str) -> None:
        self.left -= amount
        if self.left < 0:
            raise ArchiveError(
                "tables refer to the same data over and over", location=location
            )


@final
class TableView:
    """One table; fields are read by slot number and default when absent."""

    __slots__ = ("_budget", "_position", "_slots", "_table_bytes", "_view", "_vtable")

    def __init__(self, view: ByteView, position: int, budget: _Budget) -> None:
        self._view = view
        self._position = position
        self._budget = budget
        self._vtable = position - view.i32(position, "table")
        size = view.u16(self._vtable, "vtable")
        self._table_bytes = view.u16(self._vtable + 2, "table size")
        if size < 4 or size % 2:
            raise self._error(f"vtable of {size} bytes")
        view.check(self._vtable, size, "vtable")
        view.check(position, self._table_bytes, "table")
        self._slots = (size - 4) // 2
        budget.spend(1, view.location)

    @classmethod
    def root(cls, buffer: Buffer, identifier: bytes, location: str) -> TableView:
        """The root table of a buffer that begins with the root offset."""
        view = ByteView(buffer, location)
        found = bytes(view.sub(4, 4, "file identifier"))
        if found != identifier:
            raise ArchiveError(
                f"file identifier is {found!r}, expected {identifier!r}", location=location
            )
        budget = _Budget(16 * view.size + (1 << 16))
        return cls(view, view.u32(0, "root offset"), budget)

    def _error(self, message: str) -> ArchiveError:
        return ArchiveError(
            f"{message} at byte {self._position}", location=self._view.location
        )

    def _place(self, slot: int, size: int) -> int:
        """Where a field's value lies, 0 when it is absent."""
        if slot >= self._slots:
            return 0
        offset = self._view.u16(self._vtable + 4 + 2 * slot, "vtable entry")
        if offset == 0:
            return 0
        if offset < 4 or offset + size > self._table_bytes:
            raise self._error(f"field {slot} lies outside its table")
        return self._position + offset

    def has(self, slot: int) -> bool:
        """The field is there."""
        return self._place(slot, 1) != 0

    def u8(self, slot: int, default: int = 0) -> int:
        """An unsigned 8-bit field."""
        place = self._place(slot, 1)
        return self._view.u8(place, "field") if place else default

    def u32(self, slot: int, default: int = 0) -> int:
        """An unsigned 32-bit field."""
        place = self._place(slot, 4)
        return self._view.u32(place, "field") if place else default

    def i32(self, slot: int, default: int = 0) -> int:
        """A signed 32-bit field."""
        place = self._place(slot, 4)
        return self._view.i32(place, "field") if place else default

    def u64(self, slot: int, default: int = 0) -> int:
        """An unsigned 64-bit field."""
        place = self._place(slot, 8)
        return self._view.u64(place, "field") if place else default

    def struct(self, slot: int, layout: struct.Struct) -> tuple[int, ...] | None:
        """The members of a struct field, None when absent."""
        place = self._place(slot, layout.size)
        return self._view.unpack(layout, place, "field") if place else None

    def _follow(self, place: int) -> int:
        return place + self._view.u32(place, "offset")

    def text(self, slot: int, what: str) -> str:
        """A string field, empty when absent."""
        place = self._place(slot, 4)
        if not place:
            return ""
        position = self._follow(place)
        length = self._view.u32(position, what)
        self._budget.spend(1 + length // 16, self._view.location)
        data = self._view.sub(position + 4, length, what)
        return decode_text(data, self._view.location, what)

    def table(self, slot: int) -> TableView | None:
        """A table field."""
        place = self._place(slot, 4)
        return TableView(self._view, self._follow(place), self._budget) if place else None

    def vector(self, slot: int, element_bytes: int, what: str) -> memoryview | None:
        """The bytes of a vector of scalars or structs, None when absent."""
        place = self._place(slot, 4)
        if not place:
            return None
        position = self._follow(place)
        count = self._view.u32(position, what)
        return self._view.sub(position + 4, count * element_bytes, what)

    def tables(self, slot: int, what: str) -> list[TableView]:
        """A vector of tables, empty when absent."""
        found = self.optional_tables(slot, what)
        if any(table is None for table in found):
            raise self._error(f"{what} has an empty entry")
        return [table for table in found if table is not None]

    def optional_tables(self, slot: int, what: str) -> list[TableView | None]:
        """A vector of tables of which some may be missing (a union of type NONE)."""
        place = self._place(slot, 4)
        if not place:
            return []
        position = self._follow(place)
        count = self._view.u32(position, what)
        self._view.check(position + 4, 4 * count, what)
        self._budget.spend(count, self._view.location)
        found: list[TableView | None] = []
        for entry in range(position + 4, position + 4 + 4 * count, 4):
            offset = self._view.u32(entry, what)
            found.append(
                TableView(self._view, entry + offset, self._budget) if offset else None
            )
        return found


# --- writing -----------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class Scalar:
    """A number in a table, by its `struct` code (`B`, `i`, `I`, `Q`)."""

    code: str
    value: int


@final
@dataclass(frozen=True, slots=True)
class Inline:
    """A struct in a table: members of one size, by their `struct` code (`I`)."""

    code: str
    values: tuple[int, ...]


@final
@dataclass(frozen=True, slots=True)
class Text:
    """A string."""

    value: str


@final
@dataclass(frozen=True, slots=True)
class Elements:
    """A vector of scalars or structs, already packed.  Units: bytes."""

    data: Buffer
    element_bytes: int
    alignment: int


@final
@dataclass(frozen=True, slots=True)
class Table:
    """A table: (slot, value) pairs; slots left out get their default when read."""

    fields: tuple[tuple[int, Node], ...]


@final
@dataclass(frozen=True, slots=True)
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
