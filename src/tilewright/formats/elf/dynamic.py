"""The relocations of linked images: all that a loader must know of an instruction set.

The rules of relocations in objects are the linker's (`compiler.linker.architectures`).  Called by `image` and
by the linker.

Source: as in `compiler.linker.architectures`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

from tilewright.base.errors import ArchiveError
from tilewright.base.record import field, record

_LEAST_SIGNED: Final = -(1 << 31)
_NONE: Final = frozenset(
    {0}
)  # R_…_NONE: linkers leave them where they turned out to need none


@final
@record
class WordType:
    """A relocation of 32 bits: S + A, less the place if `relative`, from `least` up to below `end`."""

    name: str
    relative: bool = False
    least: int = _LEAST_SIGNED
    end: int = 1 << 31

    @property
    def range(self) -> range:
        """The values that fit."""
        return range(self.least, self.end)


@final
@record
class DynamicTypes:
    """The relocation types that a loader sees in a linked image of one instruction set.

    `number` is its `e_machine` value.  `relative` adds the load address to the addend; `symbol`
    (64-bit) and `slots` store symbol plus addend; `words` have 32 bits; `ignored` ones ask for nothing;
    of `refused` ones the text says why a kernel may not have them.
    """

    name: str
    number: int
    relative: int
    symbol: int
    slots: frozenset[int]
    words: Mapping[int, WordType] = field(default_factory=dict)
    refused: Mapping[int, str] = field(default_factory=dict)
    ignored: frozenset[int] = _NONE


_COPY: Final = "takes data out of another library, which a kernel may not import"
_THREAD_LOCAL: Final = "is for thread-local data, which a kernel may not have"
_RESOLVER: Final = "would call code of the image while it is loaded"
_X86_WORDS: Final = {
    2: WordType("R_X86_64_PC32", relative=True),
    10: WordType("R_X86_64_32", least=0, end=1 << 32),
    11: WordType("R_X86_64_32S"),
}
_X86_REFUSED: Final = {
    5: f"R_X86_64_COPY {_COPY}",
    16: f"R_X86_64_DTPMOD64 {_THREAD_LOCAL}",
    17: f"R_X86_64_DTPOFF64 {_THREAD_LOCAL}",
    18: f"R_X86_64_TPOFF64 {_THREAD_LOCAL}",
    36: f"R_X86_64_TLSDESC {_THREAD_LOCAL}",
    37: f"R_X86_64_IRELATIVE {_RESOLVER}",
}
# Words of either sign: what they are used as, the manuals leave open.
_AARCH64_WORDS: Final = {
    258: WordType("R_AARCH64_ABS32", end=1 << 32),
    261: WordType("R_AARCH64_PREL32", relative=True, end=1 << 32),
}
_AARCH64_REFUSED: Final = {
    1024: f"R_AARCH64_COPY {_COPY}",
    1028: f"R_AARCH64_TLS_DTPMOD {_THREAD_LOCAL}",
    1029: f"R_AARCH64_TLS_DTPREL {_THREAD_LOCAL}",
    1030: f"R_AARCH64_TLS_TPREL {_THREAD_LOCAL}",
    1031: f"R_AARCH64_TLSDESC {_THREAD_LOCAL}",
    1032: f"R_AARCH64_IRELATIVE {_RESOLVER}",
}
_RISCV64_WORDS: Final = {
    1: WordType("R_RISCV_32", end=1 << 32),
    57: WordType("R_RISCV_32_PCREL", relative=True),
}
_RISCV64_REFUSED: Final = {
    4: f"R_RISCV_COPY {_COPY}",
    7: f"R_RISCV_TLS_DTPMOD64 {_THREAD_LOCAL}",
    9: f"R_RISCV_TLS_DTPREL64 {_THREAD_LOCAL}",
    11: f"R_RISCV_TLS_TPREL64 {_THREAD_LOCAL}",
    12: f"R_RISCV_TLSDESC {_THREAD_LOCAL}",
    58: f"R_RISCV_IRELATIVE {_RESOLVER}",
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
    DynamicTypes(
        "aarch64",
        183,
        relative=1027,
        symbol=257,
        slots=frozenset({1025, 1026}),
        words=_AARCH64_WORDS,
        refused=_AARCH64_REFUSED,
        ignored=_NONE | {256},
    ),
    DynamicTypes(
        "riscv64",
        243,
        relative=3,
        symbol=2,
        slots=frozenset({5}),
        words=_RISCV64_WORDS,
        refused=_RISCV64_REFUSED,
    ),
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
