"""Handlers of opcodes that compute words from words, by the form of their rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from tilewright.formats.bytecode.encoding import Instruction, float_from_bits
from tilewright.formats.bytecode.isa import (
    WORD_MASK,
)
from tilewright.runtime.vm.frame import Refs, State, Step, Words
from tilewright.runtime.vm.handlers.operands import (
    CodeContext,
    Handler,
    word,
)


def unary(operation: Callable[..., Any]) -> Handler:
    """Result = operation(operand)."""

    def handler(instruction: Instruction, context: CodeContext) -> Step:
        del context
        a, result = (cast("int", v) & WORD_MASK for v in instruction.values)

        def step(w: Words, r: Refs, s: State) -> None:
            del r, s
            w[result] = operation(w[a])

        return step

    return handler


def binary(operation: Callable[..., Any]) -> Handler:
    """Result = operation(left, right)."""

    def handler(instruction: Instruction, context: CodeContext) -> Step:
        del context
        a, b, result = (cast("int", v) & WORD_MASK for v in instruction.values)

        def step(w: Words, r: Refs, s: State) -> None:
            del r, s
            w[result] = operation(w[a], w[b])

        return step

    return handler


def ternary(operation: Callable[..., Any]) -> Handler:
    """Result = operation(first, second, third)."""

    def handler(instruction: Instruction, context: CodeContext) -> Step:
        del context
        a, b, c, result = (cast("int", v) & WORD_MASK for v in instruction.values)

        def step(w: Words, r: Refs, s: State) -> None:
            del r, s
            w[result] = operation(w[a], w[b], w[c])

        return step

    return handler


def select(instruction: Instruction, context: CodeContext) -> Step:
    """One of two words by condition."""
    del context
    condition, yes, no, result = (cast("int", v) & WORD_MASK for v in instruction.values)

    def step(w: Words, r: Refs, s: State) -> None:
        del r, s
        w[result] = w[yes] if w[condition] else w[no]

    return step


def pick(index: int, values: Sequence[Any], default: Any) -> Any:
    """One of many values by index."""
    return values[index] if 0 <= index < len(values) else default


def switch(instruction: Instruction, context: CodeContext) -> Step:
    """One of many words by index."""
    del context
    index, default, result = (word(instruction, f) for f in ("index", "default", "result"))
    values = tuple(
        v & WORD_MASK for v in cast("tuple[int, ...]", instruction.value("values"))
    )

    def step(w: Words, r: Refs, s: State) -> None:
        del r, s
        choice = w[index]
        w[result] = w[values[choice] if 0 <= choice < len(values) else default]

    return step


def zero(instruction: Instruction, context: CodeContext) -> Step:
    """Zero."""
    del context
    result = word(instruction, "result")
    blank = 0.0 if ".f" in instruction.opcode.name else 0

    def step(w: Words, r: Refs, s: State) -> None:
        del r, s
        w[result] = blank

    return step


def constant(instruction: Instruction, context: CodeContext) -> Step:
    """A number from the instruction."""
    del context
    result = word(instruction, "result")
    bank = instruction.opcode.fields[0].bank
    value = cast("float", instruction.value("value"))
    if bank in ("f32", "f64"):
        value = float_from_bits(cast("int", value), bank)

    def step(w: Words, r: Refs, s: State) -> None:
        del r, s
        w[result] = value

    return step
