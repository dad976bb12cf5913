"""The row for If, and what every row of control flow asks of values.

A branch whose condition is known is the only one imported.  What both give is flattened to
tensors (`forms`).

Source: ONNX operator reference (If).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from onnx import GraphProto

from tilewright.base import dtypes
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit import control
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import SkipNodeError, UnsupportedError
from tilewright.compiler.frontends.kit.stated_sizes import sizes_in
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.forms import Form, common_form, form_of
from tilewright.compiler.frontends.onnx.row import Row, row
from tilewright.compiler.frontends.onnx.values import (
    ChosenOptional,
    Held,
    JoinedSequence,
    StackedSequence,
)
from tilewright.compiler.graph.ir import Value

_EXACT: Final = frozenset((dtypes.i32, dtypes.i64, dtypes.bool_))
"""Types between which sizes and what is asked of them are cast."""


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
    """The results of one of two branches; values of different forms become of one."""
    held: list[list[Held]] = []
    inner: set[str] = set()
    common: dict[int, Form] = {}

    def branch(graph: GraphProto) -> list[Tensor]:
        e, results = call.maker, call.inline(graph, [])
        forms = _forms(results, common)
        made = [t for f, h in zip(forms, results, strict=True) for t in f.apart(e, h)]
        held.append(results)
        inner.update(e.graph.bound_names())
        return made

    def write() -> list[Tensor]:
        held.clear()
        return control.conditional(
            call.maker, condition, lambda: branch(then), lambda: branch(other)
        )

    undo = call.checkpoint()
    try:
        results = write()
    except UnsupportedError:
        sizes = _compared_sizes(condition)
        if sizes is not None and _are_squeezed(held, sizes):
            undo()
            call.maker.assume(*sizes)
            return call.inline(then, [])
        if len(held) < 2 or not _note_common(held, inner, common):
            raise
        undo()
        results = write()
    if _forms(held[0], common) != _forms(held[1], common):
        _note_common(held, inner, common)
        undo()
        results = write()
    return _restored(held, _forms(held[0], common), results, condition)


def _are_squeezed(held: Sequence[Sequence[Held]], sizes: tuple[Dim, Dim]) -> bool:
    """Whether the first branch lacks an axis of the second in some result, which has 1 element where `sizes` are equal."""
    if len(held) < 2 or 1 not in sizes:
        return False
    size = sizes[0] if sizes[1] == 1 else sizes[1]
    found = False
    for one, other in zip(*held[:2], strict=True):
        if not (isinstance(one, Tensor) and isinstance(other, Tensor)):
            return False
        if one.rank != other.rank:
            without = (
                (*other.shape[:a], *other.shape[a + 1 :]) for a in _places(size, other)
            )
            if one.shape not in without:
                return False
            found = True
    return found


def _places(size: Dim, x: Tensor) -> list[int]:
    """The axes that have a size."""
    return [axis for axis, own in enumerate(x.shape) if own == size]


def _compared_sizes(condition: Tensor) -> tuple[Dim, Dim] | None:
    """The two sizes that a condition asks to be equal; None where it asks for something else.

    Exporters write `squeeze(axis)` over an axis of open size as a branch of lower rank where that size is 1.  A graph has
    one rank, so the model is that in which they are equal, and a call in which they are not is refused.
    """
    node = None if condition.value is None else _behind_views(condition.value).node
    if node is None or node.op != "equal":
        return None
    left, right = (_size_in(value) for value in node.present_operands)
    return None if left is None or right is None else (left, right)


def _size_in(value: Value) -> Dim | None:
    """The one size that a value of the graph holds."""
    held = sizes_in(_behind_views(value)) or ()
    return held[0] if len(held) == 1 else None


def _behind_views(value: Value) -> Value:
    """What stands behind changes of shape, and of type where sizes stay what they are."""
    while value.node is not None and value.node.op in ("cast", "reshape"):
        (inner,) = value.node.present_operands
        types = {value.type.dtype, inner.type.dtype}
        if value.node.op == "cast" and not types <= _EXACT:
            break
        value = inner
    return value


def _forms(results: Sequence[Held], common: Mapping[int, Form]) -> list[Form]:
    """The forms of results, by themselves or those that both branches have."""
    return [common.get(place) or form_of(held) for place, held in enumerate(results)]


def _note_common(
    held: Sequence[Sequence[Held]], inner: Collection[str], common: dict[int, Form]
) -> bool:
    """Note, by place, a form for results of different ones; whether there is such a result."""
    for place, pair in enumerate(zip(*held[:2], strict=True)):
        if form_of(pair[0]) != form_of(pair[1]):
            common[place] = common_form(pair[0], pair[1], inner)
    return bool(common)


def _restored(
    held: Sequence[Sequence[Held]],
    forms: Sequence[Form],
    tensors: Sequence[Tensor],
    condition: Tensor,
) -> list[Held]:
    """Tensors as values of the forms."""
    rest = list(tensors)
    found: list[Held] = []
    for form, one, another in zip(forms, held[0], held[1], strict=True):
        decided_by = (*_deciders(one), *_deciders(another), condition)
        found.append(form.together(rest[: form.count], decided_by))
        del rest[: form.count]
    return found


def _deciders(held: Held) -> tuple[Tensor, ...]:
    """The tensors that decide how long or whether a value is."""
    is_decided = isinstance(held, StackedSequence | JoinedSequence | ChosenOptional)
    return held.decided_by if is_decided else ()


ROWS: Final[tuple[Row, ...]] = (row("If", _if),)
