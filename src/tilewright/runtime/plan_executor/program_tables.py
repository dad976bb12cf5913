"""A plan as numbers for the C core, which walks it without Python: its tables, its texts, its arithmetic on sizes.

MIRROR PROGRAM TABLES: `native/src/program/tables.h`.  Called by `native_flow`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, final

from tilewright.base.errors import InternalError
from tilewright.base.record import record
from tilewright.base.symbolic import Atom, Dim, Expr, Operation, Symbol
from tilewright.formats.executable import FLAG_KEEPS_DENORMALS
from tilewright.formats.plan.flow_layout import FlowLayout
from tilewright.formats.plan.program_rows import Item, ProgramRows
from tilewright.runtime.native.library import Export
from tilewright.runtime.native.records import COMMAND_FLUSH_DENORMALS

_FIRST_SIZE: Final = -(1 << 63)
_FIRST_SYMBOL: Final = _FIRST_SIZE + (1 << 24)
_NUMBER_LIMIT: Final = 1 << 62
_OPERATIONS: Final = ("add", "mul", "floordiv", "mod", "min", "max")


@final
@record
class ProgramTables:
    """What the core reads.

    Attributes:
        tables: the rows of each, of 64 bits a number.
        texts: all of them, each with a 0 behind it.
    """

    tables: tuple[bytes, ...]
    texts: bytes


def program_tables(
    layout: FlowLayout, exports: Mapping[str, Export], environment: int
) -> ProgramTables:
    """The tables of a plan without steps on the host.

    Args:
        layout: of the plan, which is verified.
        exports: the kernels, among them all that the plan dispatches.
        environment: the address of what kernels are given.

    Raises: OverflowError for numbers beyond 62 bits.
    """
    plan, rows = layout.plan, ProgramRows(layout.plan, layout)
    names = [dim.name for dim in plan.dims]
    packer = _Packer((*names, *rows.late_names))
    signatures = [
        (name, packer.shape(plan.entries[entry].shape))
        for name, entry in (*plan.inputs, *plan.outputs)
    ]
    kernels = [_kernel(name, exports[name], environment) for name in rows.kernels]
    tables = [
        packer.pack((name, "", *places) for name, places in signatures),
        packer.pack(rows.dimensions()),
        packer.pack(rows.equalities()),
        packer.pack(rows.expectations()),
        packer.pack(rows.guards()),
        packer.pack(rows.checks()),
        packer.pack(rows.storages()),
        packer.pack(rows.entries()),
        packer.pack([rows.arguments()]),
        packer.pack([rows.constants()]),
        packer.pack(rows.steps()),
        packer.pack(kernels),
        packer.pack([rows.late_names]),
        packer.pack(rows.late_sizes()),
        packer.pack(rows.stretches),
        packer.pack(rows.group_rows),
        packer.pack([rows.lists]),
    ]
    numbers = packer.pack([packer.extents])
    totals = packer.pack([(len(plan.inputs), max(plan.check_storage, 0))])
    return ProgramTables((numbers, *tables, packer.formulas(), totals), packer.texts())


def _kernel(name: str, export: Export, environment: int) -> Sequence[Item]:
    keeps_denormals = bool(export.flags & FLAG_KEEPS_DENORMALS)
    flags = 0 if keeps_denormals else COMMAND_FLUSH_DENORMALS
    sizes = (extent or 1 for extent in export.workgroup_size)
    return (name, export.function, environment, flags, export.local_memory_bytes, *sizes)


@final
class _Packer:
    """Rows as bytes; texts and sizes get their places when they are first met."""

    def __init__(self, names: Sequence[str]) -> None:
        self.extents: list[Dim] = []
        self._symbols: Mapping[str, int] = {name: place for place, name in enumerate(names)}
        self._texts: dict[str, int] = {}
        self._text_bytes: int = 0
        self._formulas: dict[tuple[int, int, int], int] = {}
        self._sizes: dict[Expr, int] = {}

    def shape(self, extents: Sequence[Dim]) -> tuple[int, int]:
        """Where the extents are: the first, and how many."""
        first = len(self.extents)
        self.extents += extents
        return first, len(extents)

    def pack(self, rows: Iterable[Sequence[Item]]) -> bytes:
        """The bytes of rows."""
        numbers: list[int] = []
        for row in rows:
            for item in row:
                parts = item if isinstance(item, tuple) else (item,)
                numbers += map(self._number, parts)
        return struct.pack(f"={len(numbers)}q", *numbers)

    def formulas(self) -> bytes:
        """The arithmetic that all sizes take, in order."""
        return struct.pack(
            f"={3 * len(self._formulas)}q",
            *(number for formula in self._formulas for number in formula),
        )

    def texts(self) -> bytes:
        """All texts."""
        return b"".join(map(_encoded, self._texts))

    def _number(self, item: Item) -> int:
        if isinstance(item, str):
            return self._text(item)
        if isinstance(item, tuple):
            raise InternalError("a row of a row")
        return self._literal(item) if isinstance(item, int) else self._size(item)

    def _text(self, text: str) -> int:
        place = self._texts.setdefault(text, self._text_bytes)
        if place == self._text_bytes:
            self._text_bytes += len(_encoded(text))
        return place

    @staticmethod
    def _literal(number: int) -> int:
        if abs(number) >= _NUMBER_LIMIT:
            raise OverflowError(number)
        return int(number)

    # --- sizes

    def _size(self, size: Expr) -> int:
        """What rows have for an expression: a size by its place."""
        found = self._sizes.get(size)
        if found is None:
            found = self._polynomial(size)
            if found >= _FIRST_SYMBOL:  # a symbol alone
                found = self._formula("add", found, 0)
            self._sizes[size] = found
        return found

    def _polynomial(self, size: Dim) -> int:
        if isinstance(size, int):
            return self._literal(size)
        terms = [self._term(monomial, factor) for monomial, factor in size.terms]
        if size.constant:
            terms.append(self._literal(size.constant))
        return self._fold("add", terms)

    def _term(self, monomial: Sequence[Atom], factor: int) -> int:
        factors = [self._atom(atom) for atom in monomial]
        if factor != 1:
            factors.append(self._literal(factor))
        return self._fold("mul", factors)

    def _atom(self, atom: Atom) -> int:
        match atom:
            case Symbol():
                return _FIRST_SYMBOL + self._symbols[atom.name]
            case Operation():
                left, right = self._polynomial(atom.left), self._polynomial(atom.right)
                return self._formula(atom.op, left, right)
            case _:
                raise InternalError(f"size '{atom}' is no number of a call")

    def _fold(self, operation: str, operands: Sequence[int]) -> int:
        value = operands[0]
        for operand in operands[1:]:
            value = self._formula(operation, value, operand)
        return value

    def _formula(self, operation: str, left: int, right: int) -> int:
        key = (_OPERATIONS.index(operation), left, right)
        return _FIRST_SIZE + self._formulas.setdefault(key, len(self._formulas))


def _encoded(text: str) -> bytes:
    """As C has texts, which end at a 0."""
    return text.replace("\0", "").encode(errors="replace") + b"\0"
