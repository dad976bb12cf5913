"""Rows for sequences and optionals, which exist while a model is imported and not in the graph.

The items of a sequence of known length are ordinary tensors; where a call decides the length, they are one or two
(`stacked_sequences`, `joined_sequences`).

Source: ONNX operator reference (Sequence*, SplitToSequence, ConcatFromSequence, Optional*).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from onnx import GraphProto

import tilewright.compiler.frontends.onnx.joined_sequences as joints
import tilewright.compiler.frontends.onnx.stacked_sequences as lists
from tilewright.base import dtypes
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit import computed, control
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.mapped_sequences import by_loop
from tilewright.compiler.frontends.onnx.movement import split
from tilewright.compiler.frontends.onnx.row import Row, row
from tilewright.compiler.frontends.onnx.values import (
    ChosenOptional,
    Held,
    JoinedSequence,
    Nothing,
    StackedSequence,
    TensorSequence,
)
from tilewright.compiler.ops.shapes import normal_axis

_MOST_ITEMS: Final = 64


def _construct(call: Call) -> TensorSequence:
    items = tuple(call.tensors())
    return TensorSequence(items, items[0].dtype)


def _empty(call: Call) -> TensorSequence:
    call.integer("dtype", 1)
    return TensorSequence(())


def _item(call: Call, index: int, count: int) -> int | Tensor:
    """The position of one of `count` items."""
    if count == 0:
        raise ModelError("the sequence is empty: no position is one of an item")
    return _position(call, index, count, count - 1)


def _position(call: Call, index: int, count: int, last: int) -> int | Tensor:
    """A position up to `last`, counted from the front of `count` items: a number, or data, which is checked in the call."""
    if call.is_known(index):
        place = call.number(index, "the position in the sequence")
        if not -count <= place <= last:
            raise ModelError(f"position {place} is out of range for {count} items")
        return place + count if place < 0 else place
    e = call.maker
    place = computed.counted(e, e.reshape(call.tensor(index), ()), count)
    low, high = (e.scalar(number, dtypes.i64) for number in (0, last))
    inside = e.op(
        "logical_and", e.op("less_equal", low, place), e.op("less_equal", place, high)
    )
    control.expect(e, inside, "the position is one of the sequence")
    return place


def _chosen(call: Call, place: Tensor, first: int, items: Sequence[Tensor]) -> Tensor:
    """The item that a position says, the first of them for `first` or less, the last for what is beyond."""
    e = call.maker
    if len(items) == 1:
        return items[0]
    if any(t.type != items[0].type for t in items):
        behind = e.op("sub", place, e.scalar(first, dtypes.i64))
        code = control.inside(e, behind, len(items))
        (found,) = control.switch(e, code, range(len(items)), lambda i: [items[i]])
        return found
    at_front = e.op("less_equal", place, e.scalar(first, dtypes.i64))
    (found,) = control.conditional(
        e,
        at_front,
        lambda: [items[0]],
        lambda: [_chosen(call, place, first + 1, items[1:])],
    )
    return found


def _insert(call: Call) -> Held:
    held = call.held(0)
    if isinstance(held, StackedSequence | JoinedSequence):
        place = None if call.is_nothing(2) else call.tensor(2)
        given = call.tensor(1), place
        if isinstance(held, JoinedSequence):
            return joints.insert(call.maker, held, *given)
        return lists.insert(call.maker, held, *given)
    items, x = list(call.sequence(0).items), call.tensor(1)
    count = len(items)
    # Behind the last item is a place, too.
    place = count if call.is_nothing(2) else _position(call, 2, count, count)
    if isinstance(place, int):
        items.insert(place, x)
    else:
        items = _inserted(call, items, x, place)
    return TensorSequence(tuple(items), x.dtype)


def _inserted(call: Call, items: list[Tensor], x: Tensor, chosen: Tensor) -> list[Tensor]:
    """The items with one more, at a place that data decides."""
    made: list[Tensor] = []
    for place in range(len(items) + 1):
        # A place in front of it: the items moved on by one; it; a place behind it: the item that was here.
        choices = [*items[max(place - 1, 0) : place], x, *items[place : place + 1]]
        first = place - 1 if place else 0
        made.append(_chosen(call, chosen, first, choices))
    return made


def _erase(call: Call) -> Held:
    held = call.held(0)
    if isinstance(held, StackedSequence | JoinedSequence):
        place = None if call.is_nothing(1) else call.tensor(1)
        if isinstance(held, JoinedSequence):
            return joints.erase(call.maker, held, place)
        return lists.erase(call.maker, held, place)
    items = list(call.sequence(0).items)
    if not items:
        raise ModelError("the sequence is empty: there is no item to erase")
    place = len(items) - 1 if call.is_nothing(1) else _item(call, 1, len(items))
    if isinstance(place, int):
        del items[place]
    else:
        pairs = enumerate(zip(items[1:], items[:-1], strict=True))
        items = [_chosen(call, place, index, pair) for index, pair in pairs]
    return TensorSequence(tuple(items), call.sequence(0).dtype)


def _at(call: Call) -> Tensor:
    held = call.held(0)
    if isinstance(held, StackedSequence):
        return lists.at(call.maker, held, call.tensor(1))
    if isinstance(held, JoinedSequence):
        return joints.at(call.maker, held, call.tensor(1))
    items = call.sequence(0).items
    place = _item(call, 1, len(items))
    if isinstance(place, int):
        return items[place]
    e = call.maker
    if all(t.type == items[0].type for t in items):
        return e.op(
            "gather", e.concat([e.unsqueeze(t, (0,)) for t in items], 0), place, axis=0
        )
    if len(items) > _MOST_ITEMS:
        raise UnsupportedError(f"one of {len(items)} items of several types, by data")
    (found,) = control.switch(e, place, range(len(items)), lambda i: [items[i]])
    return found


def _length(call: Call) -> Tensor:
    held = call.held(0)
    if isinstance(held, StackedSequence):
        return lists.length(call.maker, held)
    if isinstance(held, JoinedSequence):
        return joints.length(call.maker, held)
    return call.maker.scalar(len(call.sequence(0).items), dtypes.i64)


def _concat(call: Call) -> Tensor:
    held = call.held(0)
    if isinstance(held, StackedSequence):
        axis, new_axis = call.integer("axis"), call.flag("new_axis")
        return lists.concat(call.maker, held, axis, new_axis=new_axis)
    if isinstance(held, JoinedSequence):
        return joints.concat(held, call.integer("axis"), new_axis=call.flag("new_axis"))
    e, items = call.maker, list(call.sequence(0).items)
    if not items:
        raise UnsupportedError("an empty sequence is not supported here")
    axis = call.integer("axis")
    if call.flag("new_axis"):
        items = [e.unsqueeze(t, (axis,)) for t in items]
    return e.concat(items, normal_axis(axis, items[0].rank))


def _split_sizes(call: Call, dim: Dim) -> Sequence[Dim]:
    if call.is_nothing(1):
        part = 1
    elif call.tensor(1).rank == 1:
        return call.sized(1, "the sizes")
    else:
        part = call.number(1, "the size")
    assert isinstance(dim, int), "the others are joined"
    if part < 1:
        raise ModelError(f"size of the pieces is {part}")
    return [min(part, dim - start) for start in range(0, dim, part)]


def _is_by_one(call: Call) -> bool:
    """Whether every piece has one element along the axis."""
    if call.is_nothing(1):
        return True
    is_one = call.tensor(1).rank == 0 and call.is_known(1)
    return is_one and call.number(1, "the size") == 1


def _decides_count(call: Call, dim: Dim, sizes: Tensor) -> bool:
    """Whether only a call knows how many pieces there are."""
    if sizes.rank:
        return not isinstance(sizes.shape[0], int)
    return not isinstance(dim, int) or not call.is_known(1)


def _split_to_sequence(call: Call) -> Held:
    e, x = call.maker, call.tensor(0)
    axis = call.axis(x.rank, 0)
    keepdims = call.flag("keepdims", default=True)
    if not isinstance(x.shape[axis], int) and _is_by_one(call):
        keeps = keepdims or not call.is_nothing(1)
        return lists.split(e, x, axis, keepdims=keeps)
    sizes = None if call.is_nothing(1) else call.tensor(1)
    if sizes is not None and _decides_count(call, x.shape[axis], sizes):
        make = joints.pieces if sizes.rank else joints.even_pieces
        return make(e, x, axis, sizes)
    pieces = split(e, x, axis, _split_sizes(call, x.shape[axis]))
    if call.is_nothing(1) and not keepdims:
        pieces = [e.squeeze(p, (axis,)) for p in pieces]
    return TensorSequence(tuple(pieces), x.dtype)


def _map(call: Call) -> list[Held | None]:
    """The body once per item; sequences advance together, tensors stay."""
    given: list[Held] = []
    for held in call.inputs:
        if held is None:
            raise ModelError("an operand is missing")
        given.append(held)
    sequences = TensorSequence | StackedSequence | JoinedSequence
    if not given or not isinstance(given[0], sequences):
        raise ModelError("operand 1 is not a sequence")
    body = call.graph("body")
    if len(body.input) != len(given):
        raise ModelError(f"the body has {len(body.input)} inputs, expected {len(given)}")
    if any(isinstance(held, StackedSequence | JoinedSequence) for held in given):
        return [*by_loop(call, body, given)]
    return [*_mapped(call, body, given)]


def _mapped(call: Call, body: GraphProto, operands: Sequence[Held]) -> list[TensorSequence]:
    """Over a sequence of known length: the body as often as there are items."""
    first, *others = operands
    assert isinstance(first, TensorSequence), "looked at"
    columns: list[list[Tensor]] = [[] for _ in body.output]
    for index, item in enumerate(first.items):
        given: list[Held] = [item]
        for other in others:
            if isinstance(other, TensorSequence) and index >= len(other.items):
                raise ModelError("sequences have different lengths")
            given.append(other.items[index] if isinstance(other, TensorSequence) else other)
        with call.draws.trip(call.maker.scalar(index, dtypes.i64)):
            results = call.inline(body, given)
        for column, result in zip(columns, results, strict=True):
            if not isinstance(result, Tensor):
                raise UnsupportedError("sequences of sequences are not supported")
            column.append(result)
    return [TensorSequence(tuple(c), c[0].dtype if c else None) for c in columns]


def _optional(call: Call) -> Held:
    held = call.held(0)
    call.attributes.has("type")
    return Nothing() if held is None else held


def _has_element(call: Call) -> Tensor:
    held = call.held(0)
    if isinstance(held, ChosenOptional):
        return held.is_there
    return call.maker.constant(np.array(not call.is_nothing(0)))


def _get_element(call: Call) -> Held:
    held = call.held(0)
    if held is None or isinstance(held, Nothing):
        raise ModelError("the optional is empty")
    if isinstance(held, ChosenOptional):
        control.expect(call.maker, held.is_there, "the optional is not empty")
        return held.value
    return held


ROWS: Final[tuple[Row, ...]] = (
    row("ConcatFromSequence", _concat),
    row("Optional", _optional),
    row("OptionalGetElement", _get_element),
    row("OptionalHasElement", _has_element),
    row("SequenceAt", _at),
    row("SequenceConstruct", _construct),
    row("SequenceEmpty", _empty),
    row("SequenceErase", _erase),
    row("SequenceInsert", _insert),
    row("SequenceLength", _length),
    row("SequenceMap", _map),
    row("SplitToSequence", _split_to_sequence),
)
