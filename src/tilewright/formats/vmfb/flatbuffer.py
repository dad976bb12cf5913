"""Checked reading of FlatBuffers, as little of it as archives need.

`TableView` checks every offset against the buffer and spends from a budget, so that a small file
cannot unfold into endless work.  Knows no schema (`reader` does); writing is `flatbuffer_writer`'s.

Source: FlatBuffers internals document (binary format).
"""

from __future__ import annotations

import struct
from typing import Final, final

from tilewright.base.budget import CURRENT, Account
from tilewright.base.errors import ArchiveError
from tilewright.formats.byte_view import Buffer, ByteView, decode_text

PREFIX_BYTES: Final = 4
_TEXT_BYTES: Final = 16
_VECTOR_BYTES: Final = 8
"""How many bytes of a text or a vector cost as much as an entry of a table."""
_BYTES_PER_SPENT: Final = 2
"""Archives of compilers spend less than one per 7 bytes; what shares its tables spends more."""
_LEAST: Final = 1 << 16


@final
class _Budget:
    """How much a parse may still unfold; shared by all views of one buffer.

    Work stays in proportion to the size of the file; a call that has a budget is charged for it.
    """

    __slots__ = ("_account", "left")

    def __init__(self, left: int) -> None:
        self.left = left
        self._account: Account | None = CURRENT.account

    def spend(self, amount: int, location: str) -> None:
        self.left -= amount
        if self._account is not None:
            self._account.pace(amount)
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
        """The root table of a buffer that begins with the root offset; `identifier` is empty where it has none."""
        view = ByteView(buffer, location)
        found = bytes(view.sub(4, len(identifier), "file identifier"))
        if found != identifier:
            raise ArchiveError(
                f"file identifier is {found!r}, expected {identifier!r}", location=location
            )
        budget = _Budget(view.size // _BYTES_PER_SPENT + _LEAST)
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

    def text(self, slot: int, subject: str) -> str:
        """A string field, empty when absent."""
        place = self._place(slot, 4)
        if not place:
            return ""
        position = self._follow(place)
        length = self._view.u32(position, subject)
        self._budget.spend(1 + length // _TEXT_BYTES, self._view.location)
        data = self._view.sub(position + 4, length, subject)
        return decode_text(data, self._view.location, subject)

    def table(self, slot: int) -> TableView | None:
        """A table field."""
        place = self._place(slot, 4)
        return TableView(self._view, self._follow(place), self._budget) if place else None

    def vector(self, slot: int, element_bytes: int, subject: str) -> memoryview | None:
        """The bytes of a vector of scalars or structs, None when absent."""
        place = self._place(slot, 4)
        if not place:
            return None
        position = self._follow(place)
        length = self._view.u32(position, subject) * element_bytes
        data = self._view.sub(position + 4, length, subject)
        self._budget.spend(1 + length // _VECTOR_BYTES, self._view.location)
        return data

    def tables(self, slot: int, subject: str) -> list[TableView]:
        """A vector of tables, empty when absent."""
        found = self.optional_tables(slot, subject)
        if any(table is None for table in found):
            raise self._error(f"{subject} has an empty entry")
        return [table for table in found if table is not None]

    def optional_tables(self, slot: int, subject: str) -> list[TableView | None]:
        """A vector of tables of which some may be missing (a union of type NONE)."""
        place = self._place(slot, 4)
        if not place:
            return []
        position = self._follow(place)
        count = self._view.u32(position, subject)
        self._view.check(position + 4, 4 * count, subject)
        self._budget.spend(count, self._view.location)
        found: list[TableView | None] = []
        for entry in range(position + 4, position + 4 + 4 * count, 4):
            offset = self._view.u32(entry, subject)
            found.append(
                TableView(self._view, entry + offset, self._budget) if offset else None
            )
        return found
