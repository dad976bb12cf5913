"""The relocations of linked images: all that a loader must know of an instruction set.

The rules of relocations in objects are the linker's (`compiler.linker.machines`).  Called by `image` and
by the linker.

Source: as in `compiler.linker.machines`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

from tilewright.base.errors import ArchiveError
from tilewright.base.record import record


@final
@record
class DynamicTypes:
    """The relocation types that a loader sees in a linked image of one instruction set.

    `number` is its `e_machine` value.  `relative` adds the load address to the addend; `symbol`
    (64-bit) and `slots` store symbol plus addend.
    """

    name: str
    number: int
    relative: int
    symbol: int
    slots: frozenset[int]


_ROWS: Final = (
    DynamicTypes("x86_64", 62, relative=8, symbol=1, slots=frozenset({6, 7})),
    DynamicTypes("aarch64", 183, relative=1027, symbol=257, slots=frozenset({1025, 1026})),
    DynamicTypes("riscv64", 243, relative=3, symbol=2, slots=frozenset({5})),
)
DYNAMIC: Final[Mapping[str, DynamicTypes]] = {row.name: row for row in _ROWS}


def dynamic_by_number(number: int, location: str) -> DynamicTypes:
    """The row with the given `e_machine` value.  Raises: ArchiveError if there is none."""
    for row in _ROWS:
        if row.number == number:
            return row
    known = ", ".join(f"{row.number} ({row.name})" for row in _ROWS)
    raise ArchiveError(
        f"ELF machine {number} is not supported, expected one of {known}", location=location
    )
