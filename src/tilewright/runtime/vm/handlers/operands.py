"""How handlers reach the registers and types that an instruction names.

Called by the handlers while they bind an instruction; what they return runs with every step.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from tilewright.base.status import StatusCode, failure
from tilewright.formats.bytecode.encoding import Instruction, Moves
from tilewright.formats.bytecode.isa import (
    MOVE_BIT,
    REF_BIT,
    REF_MASK,
    WORD_MASK,
)
from tilewright.formats.calling_convention import CallingConvention
from tilewright.runtime.vm.buffer import VmBuffer
from tilewright.runtime.vm.frame import Leave, Refs, Step, Words
from tilewright.runtime.vm.list import VmList


class CodeContext:
    """What handlers need to know of the module around an instruction.

    Args:
        types: class of each entry of the type table, None for those without.
        type_names: the entries' texts.
        imports: conventions of the imports.
        import_names: their full names.
        block_index: which block begins at a pc.
        results: banks of what the function returns.
        honours_moves: the move bit of plain operands means something (bytecode 16 on).
    """

    def __init__(
        self,
        types: Sequence[type | None],
        type_names: Sequence[str],
        imports: Sequence[CallingConvention],
        import_names: Sequence[str],
        block_index: Mapping[int, int],
        results: Sequence[str],
        *,
        honours_moves: bool,
    ) -> None:
        self.types: Sequence[type | None] = types
        self.type_names: Sequence[str] = type_names
        self.imports: Sequence[CallingConvention] = imports
        self.import_names: Sequence[str] = import_names
        self.block_index: Mapping[int, int] = block_index
        self.block_pcs: tuple[int, ...] = tuple(
            block_index
        )  # blocks are counted as they stand
        self.results: Sequence[str] = results
        self.honours_moves: bool = honours_moves


def block_behind(instruction: Instruction, context: CodeContext) -> int | None:
    """The block that stands behind a terminator; None behind the last one."""
    index = bisect.bisect_right(context.block_pcs, instruction.pc)
    return index if index < len(context.block_pcs) else None


Handler = Callable[[Instruction, CodeContext], "Step | Leave"]


def word(instruction: Instruction, field: str) -> int:
    """The word register of a field."""
    return cast("int", instruction.value(field)) & WORD_MASK


def ref(instruction: Instruction, field: str) -> int:
    """The reference register of a field."""
    return cast("int", instruction.value(field)) & REF_MASK


def moves_ref(instruction: Instruction, field: str, context: CodeContext) -> bool:
    """Whether a reference is handed over."""
    return context.honours_moves and bool(cast("int", instruction.value(field)) & MOVE_BIT)


def _typed(value: object, type_: type, subject: str) -> Any:
    if value.__class__ is not type_:
        got = "null" if value is None else type(value).__name__
        raise failure(
            StatusCode.INVALID_ARGUMENT, f"{subject} is {got}, expected {type_.__name__}"
        )
    return value


def as_buffer(value: object) -> VmBuffer:
    """The value, if it is a `!vm.buffer`."""
    return value if isinstance(value, VmBuffer) else _typed(value, VmBuffer, "operand")


def as_list(value: object) -> VmList:
    """The value, if it is a `!vm.list`."""
    return value if isinstance(value, VmList) else _typed(value, VmList, "operand")


def gather_registers(registers: Sequence[int]) -> Callable[[Words, Refs], list[Any]]:
    """Reads registers of both banks in order; moved references leave theirs empty."""
    plan = tuple(
        (1, reg & REF_MASK) if reg & REF_BIT else (0, reg & WORD_MASK) for reg in registers
    )
    moved = tuple(reg & REF_MASK for reg in registers if reg & REF_BIT and reg & MOVE_BIT)
    if not moved:
        return lambda w, r: [(r if bank else w)[index] for bank, index in plan]

    def gather(w: Words, r: Refs) -> list[Any]:
        values = [(r if bank else w)[index] for bank, index in plan]
        for index in moved:
            r[index] = None
        return values

    return gather


def scatter_registers(
    registers: Sequence[int],
) -> Callable[[Words, Refs, Sequence[Any]], None]:
    """Writes results into registers of both banks."""
    plan = tuple(
        (True, reg & REF_MASK) if reg & REF_BIT else (False, reg & WORD_MASK)
        for reg in registers
    )

    def scatter(w: Words, r: Refs, values: Sequence[Any]) -> None:
        for (is_ref, index), value in zip(plan, values, strict=True):
            if is_ref:
                r[index] = value
            else:
                w[index] = value

    return scatter


def transfer_moves(moves: Moves) -> Callable[[Words, Refs], object] | None:
    """The register moves on the way to a block, one after the other.

    Compilers break cycles with a scratch register, so a later move may read what an earlier wrote.
    """
    if not moves:
        return None
    plan = tuple(_move(source, target) for source, target in moves if source != target)

    def transfer(w: Words, r: Refs) -> None:
        for is_ref, source, target, is_moved in plan:
            if not is_ref:
                w[target] = w[source]
                continue
            r[target] = r[source]
            if is_moved:
                r[source] = None

    return transfer


def _move(source: int, target: int) -> tuple[bool, int, int, bool]:
    """Whether it is of references, from where, to where, whether the source is emptied."""
    if not source & REF_BIT:
        return False, source & WORD_MASK, target & WORD_MASK, False
    origin, place = source & REF_MASK, target & REF_MASK
    return True, origin, place, bool(source & MOVE_BIT) and origin != place
