"""The row for If, and what every row of control flow asks of values.

A branch whose condition is known is the only one imported.  What both give is flattened to tensors: sequences of the
same length item by item, others as one tensor (`stacked_sequences`).

Source: ONNX operator reference (If).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from onnx import GraphProto

import tilewright.compiler.frontends.onnx.stacked_sequences as lists
from tilewright.compiler.frontends.kit import control
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import SkipNodeError, UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.row import Row, row
from tilewright.compiler.frontends.onnx.values import (
    Held,
    StackedSequence,
    TensorSequence,
)
from tilewright.compiler.graph.schema import TensorType


def truth(e: NodeMaker, condition: Tensor) -> bool | None:
    """The value of a condition when it is known."""
    found = e.contents(condition)
    if found is None or found.elements.size != 1:
        return None
    return bool(found.elements.reshape(-1)[0])


def _if(call: Call) -> list[Held]:
    condition = call.tensor(0)
    then, other = call.graph("then_branch"), call.graph("else_branch")
    known = truth(call.maker, condition)
    if known is not None:
        return call.inline(then if known else other, [])
    try:
        return _branches(call, condition, then, other)
    except (UnsupportedError, SkipNodeError):
        # Whoever compiles for the values of a call may know which branch it is.
        call.maker.need(condition)
        raise


def _branches(
    call: Call, condition: Tensor, then: GraphProto, other: GraphProto
) -> list[Held]:
    """The results of one of two branches; sequences of different lengths become stacks."""
    forms: list[list[Held]] = []
    stacks: dict[int, TensorType | None] = {}

    def branch(graph: GraphProto) -> list[Tensor]:
        held = call.inline(graph, [])
        for place, item in stacks.items():
            items = lists.stacked(call.maker, held[place], item)
            before = getattr(held[place], "decided_by", ())
            held[place] = StackedSequence(items, (*before, condition))
        forms.append(held)
        return _flattened(held)

    def write() -> list[Tensor]:
        forms.clear()
        return control.conditional(
            call.maker, condition, lambda: branch(then), lambda: branch(other)
        )

    undo = call.checkpoint()
    try:
        results = write()
    except UnsupportedError:
        if len(forms) < 2 or not _note_stacks(forms, stacks):
            raise
        undo()
        results = write()
    if [_form(h) for h in forms[0]] != [_form(h) for h in forms[1]]:
        if not _note_stacks(forms, stacks):
            raise UnsupportedError("a result is a tensor or a sequence, depending on data")
        undo()
        results = write()
    return _restored(forms[0], results)


def _note_stacks(
    forms: Sequence[Sequence[Held]], stacks: dict[int, TensorType | None]
) -> bool:
    """Note the sequences whose lengths differ, by place, with the type of their items; whether there is one."""
    for place, (one, another) in enumerate(zip(*forms[:2], strict=True)):
        if _form(one) != _form(another):
            items = [lists.item_type(h) for h in (one, another)]
            stacks[place] = next((t for t in items if t is not None), None)
    return bool(stacks)


def _form(held: Held) -> int:
    """How many tensors a value is made of; -1 for a tensor, -2 for a sequence of unknown length."""
    if isinstance(held, StackedSequence):
        return -2
    return len(held.items) if isinstance(held, TensorSequence) else -1


def _flattened(held: Sequence[Held]) -> list[Tensor]:
    found: list[Tensor] = []
    for value in held:
        if isinstance(value, TensorSequence):
            found += value.items
        elif isinstance(value, StackedSequence):
            found.append(value.items)
        else:
            found.append(tensor_in(value))
    return found


def _restored(forms: Sequence[Held], tensors: Sequence[Tensor]) -> list[Held]:
    """Tensors as values of the same forms."""
    rest = list(tensors)
    found: list[Held] = []
    for value in forms:
        if isinstance(value, TensorSequence):
            count = len(value.items)
            found.append(TensorSequence(tuple(rest[:count]), value.dtype))
            del rest[:count]
        elif isinstance(value, StackedSequence):
            found.append(StackedSequence(rest.pop(0), value.decided_by))
        else:
            found.append(rest.pop(0))
    return found


def tensor_in(held: Held) -> Tensor:
    """What control flow carries as a tensor.  Raises: UnsupportedError for anything else."""
    if not isinstance(held, Tensor):
        raise UnsupportedError(
            "values of control flow that are no tensors are not supported where data decides"
        )
    return held


ROWS: Final[tuple[Row, ...]] = (row("If", _if),)
