"""Handlers of opcodes that call functions of this module and of others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from tilewright.base.status import StatusCode, failure
from tilewright.formats.bytecode.encoding import Instruction
from tilewright.formats.bytecode.isa import (
    IMPORT_BIT,
    PLAIN_ARGUMENT,
    REF_BIT,
    REF_MASK,
    WORD_MASK,
)
from tilewright.formats.calling_convention import CallingConvention
from tilewright.runtime.vm.frame import Leave, Refs, State, Step, Words
from tilewright.runtime.vm.handlers.control import block_of
from tilewright.runtime.vm.handlers.operands import (
    CodeContext,
    Handler,
    gather_registers,
    scatter_registers,
    word,
)

ABSENT_HINT: Final = (
    "register the module that has it before this one; "
    "modules that are not trusted get no functions of the host"
)


def import_resolved(instruction: Instruction, context: CodeContext) -> Step:
    """1 if an optional import is there."""
    del context
    index = cast("int", instruction.value("callee")) & ~IMPORT_BIT
    result = word(instruction, "result")

    def step(w: Words, r: Refs, s: State) -> None:
        del r
        w[result] = int(s.imports[index] is not None)

    return step


def call(instruction: Instruction, context: CodeContext) -> Step:
    """Call a function of this module, or an import without lists."""
    callee = cast("int", instruction.value("callee"))
    gather = gather_registers(cast("tuple[int, ...]", instruction.value("operands")))
    results = cast("tuple[int, ...]", instruction.value("results"))
    if callee & IMPORT_BIT:
        index = callee & ~IMPORT_BIT
        return _import_call(index, context.import_names[index], gather, results)
    del context
    scatter = scatter_registers(results)

    def step(w: Words, r: Refs, s: State) -> None:
        scatter(w, r, s.call(callee, gather(w, r)))

    return step


def call_variadic(instruction: Instruction, context: CodeContext) -> Step:
    """Call an import with lists."""
    callee = cast("int", instruction.value("callee"))
    gather = gather_registers(cast("tuple[int, ...]", instruction.value("operands")))
    results = cast("tuple[int, ...]", instruction.value("results"))
    segments = cast("tuple[int, ...]", instruction.value("segments"))
    index = callee & ~IMPORT_BIT
    fold = _fold(context.imports[index], segments)
    name = context.import_names[index]
    return _import_call(index, name, lambda w, r: fold(gather(w, r)), results)


def variadic_arguments(
    instruction: Instruction, context: CodeContext, values: list[Any]
) -> list[Any]:
    """The arguments of a call of an import, from the values of its operands."""
    if all(field.name != "segments" for field in instruction.opcode.fields):
        return values
    index = cast("int", instruction.value("callee")) & ~IMPORT_BIT
    segments = cast("tuple[int, ...]", instruction.value("segments"))
    return _fold(context.imports[index], segments)(values)


def _fold(
    convention: CallingConvention, segments: Sequence[int]
) -> Callable[[list[Any]], list[Any]]:
    """Flat operands to arguments, with the entries of lists put together."""
    plan: list[tuple[int, int, int]] = []  # begin, end, width; width 0 for a plain argument
    position = 0
    for argument, segment in zip(convention.arguments, segments, strict=True):
        if segment == PLAIN_ARGUMENT or isinstance(argument, str):
            plan.append((position, position + 1, 0))
            position += 1
        else:
            end = position + segment * len(argument)
            plan.append((position, end, len(argument)))
            position = end

    def fold(values: list[Any]) -> list[Any]:
        arguments: list[Any] = []
        for begin, end, width in plan:
            if width == 0:
                arguments.append(values[begin])
            elif width == 1:
                arguments.append(values[begin:end])
            else:
                arguments.append(
                    [tuple(values[i : i + width]) for i in range(begin, end, width)]
                )
        return arguments

    return fold


def _import_call(
    index: int,
    name: str,
    gather: Callable[[Words, Refs], list[Any]],
    results: Sequence[int],
) -> Step:
    def callee(s: State) -> Callable[..., Any]:
        found = s.imports[index]
        if found is None:
            raise failure(
                StatusCode.NOT_FOUND,
                f"optional import '{name}' is not there",
                hint=ABSENT_HINT,
            )
        return found

    if not results:

        def call_none(w: Words, r: Refs, s: State) -> None:
            callee(s)(*gather(w, r))

        return call_none
    if len(results) == 1:
        register = results[0]
        is_ref = bool(register & REF_BIT)
        place = register & (REF_MASK if is_ref else WORD_MASK)

        def call_one(w: Words, r: Refs, s: State) -> None:
            value = callee(s)(*gather(w, r))
            (r if is_ref else w)[place] = value

        return call_one
    scatter = scatter_registers(results)

    def call_many(w: Words, r: Refs, s: State) -> None:
        scatter(w, r, callee(s)(*gather(w, r)))

    return call_many


def then_branch(call: Handler) -> Handler:
    """A call that may suspend: this interpreter blocks instead, then goes to the block."""

    def handler(instruction: Instruction, context: CodeContext) -> Leave:
        step = cast("Step", call(instruction, context))
        target = block_of(instruction, "target", context)

        def leave(w: Words, r: Refs, s: State) -> int:
            step(w, r, s)
            return target

        return leave

    return handler


def block(instruction: Instruction, context: CodeContext) -> Step:
    """Block markers are consumed when a function is bound."""
    del instruction, context
    raise failure(StatusCode.FAILED_PRECONDITION, "a block marker is no step")
