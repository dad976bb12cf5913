"""Handlers of opcodes about `!vm.list`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, cast

from tilewright.base.budget import OBJECT_BYTES
from tilewright.formats.bytecode.encoding import Instruction
from tilewright.runtime.vm import floats, integers
from tilewright.runtime.vm.frame import Refs, State, Step, Words
from tilewright.runtime.vm.handlers.operands import (
    CodeContext,
    Handler,
    as_list,
    moves_ref,
    ref,
    word,
)
from tilewright.runtime.vm.list import VmList

_ELEMENT_BYTES: Final = 8


def list_alloc(instruction: Instruction, context: CodeContext) -> Step:
    """A new list."""
    result = ref(instruction, "result")
    name = context.type_names[cast("int", instruction.value("type"))]
    element = (
        name.removeprefix("!vm.list<").removesuffix(">") if "vm.list" in name else name
    )

    def step(w: Words, r: Refs, s: State) -> None:
        del w
        made = r[result] = VmList(element)
        if s.budget is not None:
            s.budget.keep(made, OBJECT_BYTES)

    return step


def list_reserve(instruction: Instruction, context: CodeContext) -> Step:
    """Make room, which lists do by themselves."""
    del context
    operand = ref(instruction, "list")

    def step(w: Words, r: Refs, s: State) -> None:
        del w, s
        as_list(r[operand])  # room is made as it is needed

    return step


def list_size(instruction: Instruction, context: CodeContext) -> Step:
    """Number of elements."""
    del context
    operand, result = ref(instruction, "list"), word(instruction, "result")

    def step(w: Words, r: Refs, s: State) -> None:
        del s
        w[result] = len(as_list(r[operand]).items)

    return step


def list_resize(instruction: Instruction, context: CodeContext) -> Step:
    """Grow or shrink."""
    del context
    operand, size = ref(instruction, "list"), word(instruction, "size")

    def step(w: Words, r: Refs, s: State) -> None:
        found, length = as_list(r[operand]), w[size]
        s.charge(length * _ELEMENT_BYTES)
        grown = length - found.counted
        if s.budget is not None and grown > 0:
            s.budget.keep(found, grown * found.element_bytes())
            found.counted = length
        found.resize(length)

    return step


_FROM_LIST: Final[Mapping[str, Callable[[float], float]]] = {
    "i32": lambda v: integers.wrap_i32(int(v)),
    "i64": lambda v: integers.wrap_i64(int(v)),
    "f32": lambda v: floats.round_f32(float(v)),
    "f64": float,
}


def list_get(bank: str) -> Handler:
    """Read a number, converted to the bank."""
    convert = _FROM_LIST[bank]

    def handler(instruction: Instruction, context: CodeContext) -> Step:
        del context
        operand = ref(instruction, "list")
        index, result = word(instruction, "index"), word(instruction, "result")

        def step(w: Words, r: Refs, s: State) -> None:
            del s
            w[result] = convert(as_list(r[operand]).get_number(w[index]))

        return step

    return handler


def list_set(instruction: Instruction, context: CodeContext) -> Step:
    """Replace a number."""
    del context
    operand = ref(instruction, "list")
    index, value = word(instruction, "index"), word(instruction, "value")

    def step(w: Words, r: Refs, s: State) -> None:
        del s
        as_list(r[operand]).set(w[index], w[value])

    return step


def list_get_ref(instruction: Instruction, context: CodeContext) -> Step:
    """Read a reference."""
    operand, result = ref(instruction, "list"), ref(instruction, "result")
    index = word(instruction, "index")
    wanted = context.types[cast("int", instruction.value("type"))]

    def step(w: Words, r: Refs, s: State) -> None:
        del s
        value = as_list(r[operand]).get_ref(w[index])
        # An element of another type reads as null, so that code can ask what it is.
        r[result] = value if wanted is None or isinstance(value, wanted) else None

    return step


def list_set_ref(instruction: Instruction, context: CodeContext) -> Step:
    """Replace a reference."""
    operand, value = ref(instruction, "list"), ref(instruction, "value")
    index = word(instruction, "index")
    moves = moves_ref(instruction, "value", context)

    def step(w: Words, r: Refs, s: State) -> None:
        del s
        as_list(r[operand]).set(w[index], r[value])
        if moves:
            r[value] = None

    return step
