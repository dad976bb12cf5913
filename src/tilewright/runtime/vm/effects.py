"""What a function of bytecode may do, found without running it: its opcodes and imports.

Called by whoever wants to know whether calls repeat themselves (`runtime.bytecode_machine`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast, final

from tilewright.formats.bytecode.encoding import Instruction
from tilewright.formats.bytecode.forms import FieldKind
from tilewright.formats.bytecode.isa import IMPORT_BIT
from tilewright.formats.vmfb import ModuleDef


@final
@dataclass(frozen=True, slots=True)
class Effects:
    """Names of opcodes and of imports (`module.function`) that a call can reach."""

    opcodes: frozenset[str]
    imports: frozenset[str]


def effects_of(
    module: ModuleDef, code: Sequence[Sequence[Instruction]], function: int
) -> Effects:
    """The effects of a function and of all that it calls in its module."""
    opcodes: set[str] = set()
    imports: set[str] = set()
    seen: set[int] = set()
    waiting = [function]
    while waiting:
        ordinal = waiting.pop()
        if ordinal in seen:
            continue
        seen.add(ordinal)
        for instruction in code[ordinal]:
            opcodes.add(instruction.opcode.name)
            for callee in _callees(instruction):
                if callee & IMPORT_BIT:
                    imports.add(module.imports[callee & ~IMPORT_BIT].name)
                else:
                    waiting.append(callee)
    return Effects(frozenset(opcodes), frozenset(imports))


def _callees(instruction: Instruction) -> list[int]:
    return [
        cast("int", value)
        for field, value in zip(instruction.opcode.fields, instruction.values, strict=True)
        if field.kind is FieldKind.FUNCTION
    ]
