"""Handlers of opcodes that end blocks, and of those that talk to the developer."""

from __future__ import annotations

from typing import cast

from tilewright.base.status import StatusCode, failure
from tilewright.formats.bytecode.encoding import Instruction, Moves
from tilewright.formats.bytecode.isa import (
    MOVE_BIT,
    REF_BIT,
)
from tilewright.runtime.vm.frame import Leave, Refs, State, Step, Words
from tilewright.runtime.vm.handlers.operands import (
    CodeContext,
    block_behind,
    gather_registers,
    transfer_moves,
    word,
)


def block_of(instruction: Instruction, field: str, context: CodeContext) -> int:
    """The index of the block that a field names."""
    return context.block_index[cast("int", instruction.value(field))]


def branch(instruction: Instruction, context: CodeContext) -> Leave:
    """Go to a block."""
    target = block_of(instruction, "target", context)
    transfer = transfer_moves(cast("Moves", instruction.value("moves")))

    def leave(w: Words, r: Refs, s: State) -> int:
        del s
        if transfer is not None:
            transfer(w, r)
        return target

    return leave


def break_(instruction: Instruction, context: CodeContext) -> Leave:
    """Stop in a debugger if there is one (and the condition holds), then go on."""
    conditional = any(field.name == "condition" for field in instruction.opcode.fields)
    condition = word(instruction, "condition") if conditional else -1
    go = branch(instruction, context)

    def leave(w: Words, r: Refs, s: State) -> int | tuple[object, ...]:
        if s.debugger is not None and (condition < 0 or w[condition]):
            s.debugger()
        return go(w, r, s)

    return leave


def conditional_branch(instruction: Instruction, context: CodeContext) -> Leave:
    """Go to one of two blocks."""
    condition = word(instruction, "condition")
    yes, no = (
        block_of(instruction, "true", context),
        block_of(instruction, "false", context),
    )
    yes_transfer = transfer_moves(cast("Moves", instruction.value("true_moves")))
    no_transfer = transfer_moves(cast("Moves", instruction.value("false_moves")))

    def leave(w: Words, r: Refs, s: State) -> int:
        del s
        transfer, target = (yes_transfer, yes) if w[condition] else (no_transfer, no)
        if transfer is not None:
            transfer(w, r)
        return target

    return leave


def branch_table(instruction: Instruction, context: CodeContext) -> Leave:
    """Go to one of many blocks."""
    index = word(instruction, "index")
    cases = cast("tuple[tuple[int, Moves], ...]", instruction.value("cases"))
    rows = tuple((context.block_index[pc], transfer_moves(moves)) for pc, moves in cases)
    default = (
        block_of(instruction, "default", context),
        transfer_moves(cast("Moves", instruction.value("default_moves"))),
    )

    def leave(w: Words, r: Refs, s: State) -> int:
        del s
        choice = w[index]
        target, transfer = rows[choice] if 0 <= choice < len(rows) else default
        if transfer is not None:
            transfer(w, r)
        return target

    return leave


def return_(instruction: Instruction, context: CodeContext) -> Leave:
    """Leave the function with results."""
    del context
    gather = gather_registers(cast("tuple[int, ...]", instruction.value("operands")))

    def leave(w: Words, r: Refs, s: State) -> tuple[object, ...]:
        del s
        return tuple(gather(w, r))

    return leave


def failed(status: int, message: str) -> Exception:
    """The error that a module ends with."""
    return failure(
        status if status > 0 else StatusCode.UNKNOWN, message or "the module failed"
    )


def fail(instruction: Instruction, context: CodeContext) -> Leave:
    """A status of zero goes on with the block behind, as IREE's does.

    Behind the last block, where IREE's would leave the code, the function returns blank results.
    """
    behind = block_behind(instruction, context)
    status = word(instruction, "status")
    message = cast("bytes", instruction.value("message")).decode("utf-8", errors="replace")
    blanks = {"ref": None, "f32": 0.0, "f64": 0.0}
    results: tuple[object, ...] = tuple(blanks.get(bank, 0) for bank in context.results)

    def leave(w: Words, r: Refs, s: State) -> int | tuple[object, ...]:
        del r, s
        if w[status]:
            raise failed(w[status], message)
        return results if behind is None else behind

    return leave


def trace(instruction: Instruction, context: CodeContext) -> Step:
    """Report values to the tracer, if there is one."""
    event = cast("bytes", instruction.value("event")).decode("utf-8", errors="replace")
    registers = cast("tuple[int, ...]", instruction.value("operands"))
    del context
    gather = gather_registers(
        [reg & ~MOVE_BIT if reg & REF_BIT else reg for reg in registers]
    )

    def step(w: Words, r: Refs, s: State) -> None:
        if s.tracer is not None:
            s.tracer(event, gather(w, r))

    return step
