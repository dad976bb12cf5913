"""Functions while they are being built: instructions on virtual registers.

The data that `assembler` fills and `allocation` turns into instructions on real registers, and
the questions both ask of it (what does an instruction read, write, go to).  Nothing here is
encoded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias, cast, final

from tilewright.base.record import field, record
from tilewright.formats.bytecode.forms import Field, FieldKind
from tilewright.formats.bytecode.isa import Opcode


@final
@record
class Register:
    """A virtual register: unlimited in number, of one bank, assignable any number of times."""

    number: int
    bank: str

    @property
    def is_ref(self) -> bool:
        return self.bank == "ref"

    def __repr__(self) -> str:
        return f"%{self.bank}_{self.number}"


@final
@record(eq=False, frozen=False)
class Block:
    """A basic block: parameters that every branch to it fills, then instructions."""

    parameters: tuple[Register, ...] = ()
    drafts: list[Draft] = field(default_factory=list)
    placed: bool = False


@final
@record
class Edge:
    """A way to a block, with the values for its parameters."""

    block: Block
    arguments: tuple[Register, ...] = ()

    def moves(self) -> tuple[tuple[Register, Register], ...]:
        """(source, target) pairs, all at once."""
        return tuple(zip(self.arguments, self.block.parameters, strict=True))


DraftValue: TypeAlias = "Register | tuple[Register, ...] | tuple[int, ...] | Edge | tuple[Edge, ...] | int | bytes | None"
"""A register, a list, a way to a block (its moves field holds None), a number or a string."""


@final
@record(eq=False, frozen=False)
class Draft:
    """One instruction on virtual registers; `values` run along the opcode's fields."""

    opcode: Opcode
    values: tuple[DraftValue, ...]

    def items(self) -> Iterator[tuple[Field, DraftValue]]:
        """Fields with their values."""
        return zip(self.opcode.fields, self.values, strict=True)

    def operands(self) -> Iterator[tuple[Register, bool]]:
        """Registers read by the instruction itself, and whether they may be handed over."""
        for item, value in self.items():
            if item.kind is FieldKind.OPERAND:
                yield cast("Register", value), item.movable
            elif item.kind is FieldKind.OPERANDS:
                for register in cast("tuple[Register, ...]", value):
                    yield register, item.movable

    def results(self) -> Iterator[Register]:
        """Registers written by the instruction itself."""
        for item, value in self.items():
            if item.kind is FieldKind.RESULT:
                yield cast("Register", value)
            elif item.kind is FieldKind.RESULTS:
                yield from cast("tuple[Register, ...]", value)

    def edges(self) -> Iterator[Edge]:
        """Where control may go."""
        for item, value in self.items():
            if item.kind is FieldKind.TARGET:
                yield cast("Edge", value)
            elif item.kind is FieldKind.CASES:
                yield from cast("tuple[Edge, ...]", value)
