"""The commands of a list as records say them, checked: what the fallback shares with nobody else.

Not here: running them (`fallback`).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from tilewright.runtime.native.records import (
    BINDING_WRITABLE,
    COMMAND_ON_FINDING,
    FINDING_BYTES,
    SLOT_ROW,
    Kind,
)

PLACE_BYTES: Final = 8
"""Of the i64 that says which row."""


def check(condition: bool, message: str) -> None:
    """Raise ValueError with `message` unless the condition holds."""
    if not condition:
        raise ValueError(message)


def unpack(record: Any, data: bytes, subject: str) -> list[tuple[int, ...]]:
    """The records in `data`.  Raises: ValueError for a part of one."""
    check(
        len(data) % record.size == 0,
        f"{subject}: {len(data)} bytes, expected whole records of {record.size}",
    )
    return list(record.iter_unpack(data))


class Layout(NamedTuple):
    """What the commands of a list may refer to."""

    slots: list[tuple[int, ...]]
    command_count: int
    constant_count: int
    host_call_count: int


class Command:
    """One unpacked command with its bindings."""

    def __init__(self, fields: tuple[int, ...], bindings: list[tuple[int, ...]]) -> None:
        (
            self.kind,
            self.flags,
            self.first,
            self.binding_count,
            self.constant_first,
            self.constant_count,
        ) = fields[:6]
        self.grid: tuple[int, ...] = fields[6:9]
        self.size: tuple[int, ...] = fields[9:12]
        self.local_memory_bytes: int = fields[12]
        self.function, self.environment = fields[14:]
        self.bindings: list[tuple[int, ...]] = bindings[
            self.first : self.first + self.binding_count
        ]

    def verify(self, at: str, layout: Layout) -> None:
        """Refuse what a run could not do safely."""
        check(
            len(self.bindings) == self.binding_count, f"{at}: bindings end after the table"
        )
        match self.kind:
            case Kind.DISPATCH:
                self._check_dispatch(at, layout.constant_count)
            case Kind.COPY:
                self._check_copy(at)
            case Kind.FILL:
                check(
                    self.constant_count in {1, 2, 4, 8},
                    f"{at}: a pattern has 1, 2, 4 or 8 bytes, got {self.constant_count}",
                )
                fits = self.binding_count == 1 and bool(
                    self.bindings[0][1] & BINDING_WRITABLE
                )
                fits = fits and self.bindings[0][3] % self.constant_count == 0
                check(fits, f"{at}: a fill needs one writable binding of whole patterns")
            case Kind.HOST_CALL:
                count = layout.host_call_count
                check(
                    self.function < count,
                    f"{at}: host call {self.function}, expected less than {count}",
                )
                if self.flags & COMMAND_ON_FINDING:
                    fits = self.binding_count == 1
                    fits = fits and self.bindings[0][3] % FINDING_BYTES == 0
                    check(fits, f"{at}: findings are one binding of whole records")
            case Kind.GOTO:
                self._check_goto(at, layout.command_count)
            case Kind.ROW:
                self._check_row(at, layout.slots)
            case _:
                raise ValueError(f"{at}: unknown kind {self.kind}")

    def _check_goto(self, at: str, command_count: int) -> None:
        check(
            self.function <= command_count,
            f"{at}: goes to command {self.function}, expected at most {command_count}",
        )
        fits = not self.bindings or (self.binding_count == 1 and self.bindings[0][3] != 0)
        check(fits, f"{at}: a goto has at most one binding, of a byte")

    def _check_row(self, at: str, slots: list[tuple[int, ...]]) -> None:
        fits = self.binding_count == 2 and self.bindings[0][3] == PLACE_BYTES
        check(fits, f"{at}: a row has two bindings: an int64, and a table")
        is_slot = self.function < len(slots) and bool(slots[self.function][1] & SLOT_ROW)
        check(is_slot, f"{at}: slot {self.function} is not for rows")
        (table, _, _, length), row = self.bindings[1], slots[self.function][0]
        check(
            length != 0 and length % row == 0 and not slots[table][1] & SLOT_ROW,
            f"{at}: expected a table of rows of {row} bytes in a slot of its own, got {length} bytes",
        )

    def _check_dispatch(self, at: str, constant_count: int) -> None:
        check(self.function != 0, f"{at}: the function address is 0")
        check(
            self.binding_count <= 0xFF and self.constant_count <= 0xFFFF,
            f"{at}: too many bindings or constants",
        )
        check(
            self.constant_first + self.constant_count <= constant_count,
            f"{at}: constants end after the table",
        )
        check(self.grid[2] <= 0xFFFF and self.size[2] <= 0xFFFF, f"{at}: z above 65535")

    def _check_copy(self, at: str) -> None:
        check(self.binding_count == 2, f"{at}: a copy has two bindings")
        (to, flags, start, length), (source, _, source_start, source_length) = self.bindings
        check(
            bool(flags & BINDING_WRITABLE) and length == source_length,
            f"{at}: a copy needs a writable target and equal lengths, "
            f"got {length} and {source_length} bytes",
        )
        overlaps = to == source and abs(start - source_start) < length
        check(not overlaps, f"{at}: the copied ranges overlap")
