"""What an instruction computes, as an expression of its operands: its loops, written out.

The evaluator runs it, machines without the instruction compute it, and a test holds it against the loops run
by the evaluator themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.base.dtypes import DType, u8, u16
from tilewright.base.errors import InternalError
from tilewright.compiler.kernel.expressions import binary as operation
from tilewright.compiler.kernel.expressions import bitcast, cast, const
from tilewright.compiler.kernel.fields import children, with_children
from tilewright.compiler.kernel.ir import (
    Body,
    Buffer,
    Const,
    Expression,
    For,
    Instruction,
    Load,
    Store,
)
from tilewright.compiler.kernel.rewrite import substitute

_UNSIGNED = {8: u8, 16: u16}


def meaning(instruction: Instruction, operands: Sequence[Expression]) -> Expression:
    """The result of an instruction, lane by lane."""
    holds = dict(zip(instruction.parameters, operands, strict=True))
    _run(instruction, instruction.body, holds)
    return holds[instruction.parameters[0]]


def _run(instruction: Instruction, body: Body, holds: dict[Buffer, Expression]) -> None:
    """What the parameters hold after the statements of a body."""
    for statement in body:
        match statement:
            case For(extent=int() as extent):
                for step in range(extent):
                    inside = substitute(statement.body, {statement.var.name: step})
                    _run(instruction, inside, holds)
            case Store():
                holds[statement.buffer] = _image(statement.value, holds)
            case _:
                raise InternalError(
                    f"instruction '{instruction.name}': a {type(statement).__name__} has no "
                    "meaning in lanes"
                )


def _image(value: Expression, holds: dict[Buffer, Expression]) -> Expression:
    """A value of one lane, in all of them."""
    lanes = next(iter(holds.values())).lanes
    if isinstance(value, Load):
        (*_, place) = value.indices or (None,)
        whole = holds[value.buffer]
        return whole if place is None else _element(whole, place, value.dtype)
    if isinstance(value, Const):
        return replace(value, lanes=lanes)
    parts = [_image(part, holds) for part in children(value)]
    return replace(with_children(value, parts), lanes=lanes)


def _element(word: Expression, place: object, dtype: DType) -> Expression:
    """One of the elements that lie side by side in a word."""
    assert isinstance(place, int), "loops are written out"
    if dtype is word.dtype:
        return word
    bits = const(place * dtype.bits, word.dtype, word.lanes)
    low = cast(operation("shr", word, bits), _UNSIGNED[dtype.bits])
    return bitcast(low, dtype)
