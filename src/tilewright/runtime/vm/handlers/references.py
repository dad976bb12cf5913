"""Handlers of opcodes about references: constants, moves, comparisons, choices."""

from __future__ import annotations

from typing import cast

from tilewright.base.status import StatusCode, failure
from tilewright.formats.bytecode.encoding import Instruction
from tilewright.formats.bytecode.isa import (
    REF_MASK,
)
from tilewright.runtime.vm.frame import Refs, State, Step, Words
from tilewright.runtime.vm.handlers.operands import (
    CodeContext,
    Handler,
    moves_ref,
    ref,
    word,
)


def null(instruction: Instruction, context: CodeContext) -> Step:
    """The null reference."""
    del context
    result = ref(instruction, "result")

    def step(w: Words, r: Refs, s: State) -> None:
        del w, s
        r[result] = None

    return step


def rodata(instruction: Instruction, context: CodeContext) -> Step:
    """A read-only data segment."""
    del context
    result = ref(instruction, "result")
    segment = cast("int", instruction.value("segment"))

    def step(w: Words, r: Refs, s: State) -> None:
        del w
        r[result] = s.rodata[segment]

    return step


def assign_ref(instruction: Instruction, context: CodeContext) -> Step:
    """Copy or hand over a reference."""
    source, result = ref(instruction, "operand"), ref(instruction, "result")
    moves = moves_ref(instruction, "operand", context)

    def step(w: Words, r: Refs, s: State) -> None:
        del w, s
        value = r[source]
        if moves:
            r[source] = None
        r[result] = value

    return step


def cast_ref(instruction: Instruction, context: CodeContext) -> Step:
    """The same, after checking its type."""
    assign = assign_ref(instruction, context)
    source = ref(instruction, "operand")
    index = cast("int", instruction.value("type"))
    wanted, name = context.types[index], context.type_names[index]

    def step(w: Words, r: Refs, s: State) -> None:
        value = r[source]
        if value is not None and wanted is not None and not isinstance(value, wanted):
            raise failure(
                StatusCode.INVALID_ARGUMENT,
                f"got {s.instance.name_of(value)}, expected {name}",
            )
        assign(w, r, s)

    return step


def discard(instruction: Instruction, context: CodeContext) -> Step:
    """Empty references."""
    del context
    refs = tuple(v & REF_MASK for v in cast("tuple[int, ...]", instruction.value("refs")))

    def step(w: Words, r: Refs, s: State) -> None:
        del w, s
        for index in refs:
            r[index] = None

    return step


def compare_refs(*, equal: bool) -> Handler:
    """Whether two references are to the same object."""

    def handler(instruction: Instruction, context: CodeContext) -> Step:
        del context
        left, right = ref(instruction, "left"), ref(instruction, "right")
        result = word(instruction, "result")

        def step(w: Words, r: Refs, s: State) -> None:
            del s
            w[result] = int((r[left] is r[right]) == equal)

        return step

    return handler


def is_ref(instruction: Instruction, context: CodeContext) -> Step:
    """Whether a reference is not null."""
    del context
    operand, result = ref(instruction, "operand"), word(instruction, "result")

    def step(w: Words, r: Refs, s: State) -> None:
        del s
        w[result] = int(r[operand] is not None)

    return step


def select_ref(instruction: Instruction, context: CodeContext) -> Step:
    """One of two references by condition."""
    del context
    condition = word(instruction, "condition")
    yes, no, result = (ref(instruction, f) for f in ("true", "false", "result"))

    def step(w: Words, r: Refs, s: State) -> None:
        del s
        r[result] = r[yes] if w[condition] else r[no]

    return step


def switch_ref(instruction: Instruction, context: CodeContext) -> Step:
    """One of many references by index."""
    del context
    index = word(instruction, "index")
    default, result = ref(instruction, "default"), ref(instruction, "result")
    values = tuple(
        v & REF_MASK for v in cast("tuple[int, ...]", instruction.value("values"))
    )

    def step(w: Words, r: Refs, s: State) -> None:
        del s
        choice = w[index]
        r[result] = r[values[choice] if 0 <= choice < len(values) else default]

    return step
