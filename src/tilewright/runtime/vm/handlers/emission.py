"""One function while its Python source is being written: lines, names, registers, jumps.

Templates and emitters of opcodes (`table`, `emitters`) write through it; the translator decides which
blocks stand where.  A word register is the local `w3`, a reference register `r3`.  Nothing here
knows an opcode.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, cast, final

from tilewright.formats.bytecode.encoding import Instruction, Moves, float_from_bits
from tilewright.formats.bytecode.forms import Field, FieldKind
from tilewright.formats.bytecode.isa import MOVE_BIT, REF_BIT, REF_MASK, WORD_MASK
from tilewright.runtime.vm.handlers.operands import CodeContext

INDENT: Final = "    "
_REGISTER: Final = (FieldKind.OPERAND, FieldKind.RESULT)
_REGISTERS: Final = (FieldKind.OPERANDS, FieldKind.RESULTS)

Jump = Callable[["Emission", int], None]
"""Writes the way to a block: the block itself, or a jump to it."""


def register_name(register: int) -> str:
    """The local variable of a register."""
    if register & REF_BIT:
        return f"r{register & REF_MASK}"
    return f"w{register & WORD_MASK}"


@final
class Emission:
    """Lines of Python with the pc that each belongs to.

    Args:
        context: the module around the function.
        jump: writes the way to a block.
        missing: imports that are not there.
        names: grows by what the source names.
    """

    def __init__(
        self,
        context: CodeContext,
        jump: Jump,
        missing: frozenset[int],
        names: dict[str, object],
    ) -> None:
        self.context: CodeContext = context
        self.missing: frozenset[int] = missing
        self.lines: list[str] = []
        self.pcs: list[int] = []
        self.depth: int = 0
        self.pc: int = 0
        self.names: dict[str, object] = names
        self._jump: Jump = jump
        self._known: dict[int, str] = {}

    # --- lines --------------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        """Add a line at the present depth, for the present instruction."""
        self.lines.append(INDENT * self.depth + text)
        self.pcs.append(self.pc)

    def name(self, value: object, hint: str = "k") -> str:
        """A name that means `value` in the source."""
        found = self._known.get(id(value))
        if found is None:
            found = self._known[id(value)] = f"{hint}{len(self.names)}"
            self.names[found] = value
        return found

    # --- registers and fields -----------------------------------------------------------------------

    def number(self, value: float) -> str:
        """A number as an expression that can stand anywhere."""
        if not math.isfinite(value):
            return self.name(value)
        text = repr(value)
        return f"({text})" if text.startswith("-") else text

    def field(self, field: Field, value: object) -> str:
        """What a field of an instruction is in the source."""
        if field.kind in _REGISTER:
            register = cast("int", value)
            return register_name(register | (REF_BIT if field.bank == "ref" else 0))
        if field.kind in _REGISTERS:
            names = [register_name(item) for item in cast("tuple[int, ...]", value)]
            return f"({', '.join(names)},)" if names else "()"
        if field.kind is FieldKind.IMMEDIATE and field.bank in ("f32", "f64"):
            return self.number(float_from_bits(cast("int", value), field.bank))
        if field.kind is FieldKind.TYPE:
            return self.name(self.context.types[cast("int", value)], "type")
        if field.kind is FieldKind.STRING:
            text = cast("bytes", value).decode("utf-8", errors="replace")
            return self.name(text, "text")
        return self.number(cast("int", value))

    def clear(self, registers: Sequence[int], results: Sequence[int] = ()) -> None:
        """Empty the references among `registers` that are handed over."""
        written = {register_name(item) for item in results}
        moved = [register_name(r) for r in registers if r & REF_BIT and r & MOVE_BIT]
        names = list(dict.fromkeys(name for name in moved if name not in written))
        if names:
            self.line(" = ".join([*names, "None"]))

    # --- templates ----------------------------------------------------------------------------------

    def template(self, text: str, instruction: Instruction) -> None:
        """Write a statement with `{field}` for each field of an instruction."""
        opcode = instruction.opcode
        values = {
            field.name: self.field(field, value)
            for field, value in zip(opcode.fields, instruction.values, strict=True)
        }
        self.line(text.format_map(values))
        if self.context.honours_moves:
            self.clear(tuple(_movable(instruction)), tuple(_results(instruction)))

    # --- control ------------------------------------------------------------------------------------

    def go(self, target: int, moves: Moves = ()) -> None:
        """Write register moves, which happen in order, and the way to the block at `target`."""
        done: list[str] = []
        for source, place in moves:
            origin, name = register_name(source), register_name(place)
            if origin != name:
                done.append(f"{name} = {origin}")
                if source & REF_BIT and source & MOVE_BIT:
                    done.append(f"{origin} = None")
        if done:
            self.line("; ".join(done))
        self._jump(self, self.context.block_index[target])


def _movable(instruction: Instruction) -> Iterator[int]:
    for field, value in zip(instruction.opcode.fields, instruction.values, strict=True):
        if field.movable and field.kind is FieldKind.OPERAND:
            yield cast("int", value)


def _results(instruction: Instruction) -> Iterator[int]:
    for field, value in zip(instruction.opcode.fields, instruction.values, strict=True):
        if field.kind is FieldKind.RESULT:
            register = cast("int", value)
            yield register | (REF_BIT if field.bank == "ref" else 0)


Emitter = Callable[[Instruction, Emission], Any]
"""Writes what a template cannot say."""
