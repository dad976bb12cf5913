"""Runs the functions of a bytecode module, block by block.

Code is bound to steps when a function is first called; running is a loop over them.  Failures get
a line of trace per function.  Not here: what instructions do (`handlers`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

from tilewright.base.budget import CURRENT
from tilewright.base.status import StatusCode, failure
from tilewright.formats.bytecode.encoding import Instruction
from tilewright.formats.bytecode.isa import BLOCK
from tilewright.formats.vmfb import ModuleDef
from tilewright.runtime.vm.frame import Block, Function, Leave, Refs, State, Step, Words
from tilewright.runtime.vm.handlers.operands import CodeContext
from tilewright.runtime.vm.handlers.table import ROWS
from tilewright.runtime.vm.stack import DEPTH_LIMIT, traced


def bind_blocks(code: Sequence[Instruction], context: CodeContext) -> list[Block]:
    """Turn verified instructions into blocks of steps."""
    blocks: list[Block] = []
    steps: list[Step] = []
    kept: list[Instruction] = []
    pc = 0
    for instruction in code:
        if instruction.opcode is BLOCK:
            steps, kept, pc = [], [], instruction.pc
            continue
        bound = ROWS[instruction.opcode.name].handler(instruction, context)
        kept.append(instruction)
        if instruction.opcode.terminator:
            blocks.append(Block(steps, cast("Leave", bound), kept, pc))
        else:
            steps.append(cast("Step", bound))
    return blocks


def block_indices(code: Sequence[Instruction]) -> dict[int, int]:
    """Which block begins at which pc."""
    starts = (item.pc for item in code if item.opcode is BLOCK)
    return {pc: index for index, pc in enumerate(starts)}


def run(
    module: ModuleDef,
    function: Function,
    registers: tuple[Words, Refs],
    state: State,
    number: int = 0,
) -> tuple[object, ...]:
    """Run a function from a block on; the results in order.

    Raises: whatever a step raises, with a line of trace added.
    """
    w, r = registers
    block = function.blocks[number]
    stack = state.stack
    if stack.depth >= DEPTH_LIMIT:
        raise failure(
            StatusCode.RESOURCE_EXHAUSTED, f"calls are nested deeper than {DEPTH_LIMIT}"
        )
    stack.depth += 1
    steps = iter(block.steps)
    account = None if state.budget is None else CURRENT.account
    try:
        while True:
            if account is not None:
                account.spend(len(block.code))
            for step in steps:
                step(w, r, state)
            following = block.leave(w, r, state)
            if following.__class__ is not int:
                return cast("tuple[object, ...]", following)
            block = function.blocks[cast("int", following)]
            steps = iter(block.steps)
    except Exception as error:
        raise traced(error, module, function, _place(block, steps))  # noqa: B904 - often the same one
    finally:
        stack.depth -= 1


def _place(block: Block, steps: Iterator[Step]) -> int:
    """The pc of the step that an iterator gave last."""
    position = cast("tuple[Any, ...]", steps.__reduce__())
    # An exhausted iterator knows no index any more: then it was the end of the block that failed.
    return block.code[max(position[2] - 1, 0) if len(position) == 3 else -1].pc
