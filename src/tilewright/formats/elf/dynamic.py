"""The relocations of linked images: all that a loader must know of an instruction set.

The rules of relocations in objects are the linker's (`compiler.linker.machines`).  Called by `image` and
by the linker.

Source: as in `compiler.linker.machines`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

from tilewright.base.errors import ArchiveError
from tilewright.base.record import field, record


@final
@record
class WordType:
    """A relocation of 32 bits: S + A, less the place if `relative`, as a signed or unsigned number."""

    name: str
    relative: bool = False
    signed: bool = True

    @property
    def range(self) -> range:
        """The values that fit."""
        return range(-(1 << 31), 1 << 31) if self.signed else range(1 << 32)


@final
@record
class DynamicTypes:
    """The relocation types that a loader sees in a linked image of one instruction set.

    `number` is its `e_machine` value.  `relative` adds the load address to the addend; `symbol`
    (64-bit) and `slots` store symbol plus addend; `words` have 32 bits; of `refused` ones the text
    says why a kernel may not have them.
    """

    name: str
    number: int
    relative: int
    symbol: int
    slots: frozenset[int]
    words: Mapping[int, WordType] = field(default_factory=dict)
    refused: Mapping[int, str] = field(default_factory=dict)


_THREAD_LOCAL: Final = "thread-local data, which a kernel may not have"
_X86_WORDS: Final = {
    2: WordType("R_X86_64_PC32", relative=True),
    10: WordType("R_X86_64_32", signed=False),
    11: WordType("R_X86_64_32S"),
}
_X86_REFUSED: Final = {
    5: "R_X86_64_COPY takes data out of another library, which a kernel may not import",
    16: f"R_X86_64_DTPMOD64 is for {_THREAD_LOCAL}",
    17: f"R_X86_64_DTPOFF64 is for {_THREAD_LOCAL}",
    18: f"R_X86_64_TPOFF64 is for {_THREAD_LOCAL}",
    37: "R_X86_64_IRELATIVE would call code of the image while it is loaded",
}

_ROWS: Final = (
    DynamicTypes(
        "x86_64",
        62,
        relative=8,
        symbol=1,
        slots=frozenset({6, 7}),
        words=_X86_WORDS,
        refused=_X86_REFUSED,
    ),
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
