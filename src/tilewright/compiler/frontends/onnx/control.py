"""Rows for control flow: If, Loop, Scan, as far as it can be decided while importing.

A branch whose condition is known is the only one imported; with an unknown condition both are
computed and one is selected (ops have no effects).  Loops of known length are unrolled; a loop
that may stop early keeps its last state by selection.  What is left needs control flow in the
compiled program and is reported.

Source: ONNX operator reference (If, Loop, Scan).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from onnx import GraphProto

from tilewright.base import dtypes
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.row import Row, row
from tilewright.compiler.frontends.onnx.signature import described
from tilewright.compiler.frontends.onnx.values import Held
from tilewright.compiler.ops.shapes import normal_axis

MAX_TRIPS: Final = 4096


def _truth(e: NodeMaker, condition: Tensor) -> bool | None:
    """The value of a condition when it is known."""
    found = e.contents(condition)
    if found is None or found.elements.size != 1:
        return None
    return bool(found.elements.reshape(-1)[0])


def _if(call: Call) -> list[Held]:
    condition = call.tensor(0)
    then, other = call.graph("then_branch"), call.graph("else_branch")
    truth = _truth(call.maker, condition)
    if truth is not None:
        return call.inline(then if truth else other, [])
    one, two = call.inline(then, []), call.inline(other, [])
    if len(one) != len(two):
        raise ModelError("the branches have different numbers of results")
    return [_select(call.maker, condition, a, b) for a, b in zip(one, two, strict=True)]


def _select(e: NodeMaker, condition: Tensor, a: Held, b: Held) -> Held:
    if a is b:
        return a
    if not isinstance(a, Tensor) or not isinstance(b, Tensor) or a.type != b.type:
        kinds = [str(t.type) if isinstance(t, Tensor) else "no tensor" for t in (a, b)]
        raise UnsupportedError(
            f"the result is {kinds[0]} or {kinds[1]}, depending on data; control flow is not "
            "compiled yet"
        )
    return e.op("where", e.reshape(condition, ()), a, b)


def _trip_count(call: Call) -> int:
    if call.is_nothing(0):
        return MAX_TRIPS
    known = call.maker.contents(call.tensor(0))
    if known is None or known.constant is None:
        raise UnsupportedError(
            "the number of iterations depends on data or a dynamic dimension; control flow is "
            "not compiled yet"
        )
    return call.number(0, "the number of iterations")


def _loop(call: Call) -> list[Held]:
    e, body = call.maker, call.graph("body")
    trips = _trip_count(call)
    running = None if call.is_nothing(1) else call.tensor(1)
    state = [_present(h) for h in call.inputs[2:]]
    columns: list[list[Tensor]] = [[] for _ in body.output[1 + len(state) :]]
    step = 0
    while step < trips and (running is None or _truth(e, running) is not False):
        if step >= MAX_TRIPS:
            raise UnsupportedError(f"more than {MAX_TRIPS} iterations are not unrolled")
        unsure = running is not None and _truth(e, running) is None
        if unsure and (columns or call.is_nothing(0)):
            raise UnsupportedError(
                "the loop stops depending on data; control flow is not compiled yet"
            )
        going = e.scalar(True, dtypes.bool_) if running is None else running
        again, *results = call.inline(body, [e.scalar(step, dtypes.i64), going, *state])
        if not isinstance(again, Tensor):
            raise ModelError("the condition of the body is not a tensor")
        fresh = results[: len(state)]
        if unsure:
            fresh = [_select(e, going, n, o) for n, o in zip(fresh, state, strict=True)]
            again = e.op("logical_and", e.reshape(again, ()), e.reshape(going, ()))
        state = fresh
        for column, result in zip(columns, results[len(state) :], strict=True):
            column.append(_tensor(result))
        running = again
        step += 1
    first = 1 + len(state)
    scans = [_stacked(e, c, body, first + i, 0) for i, c in enumerate(columns)]
    return [*state, *scans]


def _present(held: Held | None) -> Held:
    if held is None:
        raise ModelError("a loop-carried operand is missing")
    return held


def _tensor(held: Held) -> Tensor:
    if not isinstance(held, Tensor):
        raise UnsupportedError("scan outputs that are no tensors are not supported")
    return held


def _stacked(
    e: NodeMaker, items: Sequence[Tensor], body: GraphProto, output: int, axis: int
) -> Tensor:
    """The items along a new axis; for no items the body says which type they would have."""
    if items:
        place = normal_axis(axis, items[0].rank + 1)
        return e.concat([e.unsqueeze(t, (place,)) for t in items], place)
    type_ = described(body.output[output].type)
    if type_ is None or not type_.is_static:
        raise UnsupportedError("a loop of no iterations gives a tensor of unknown shape")
    shape = list(type_.shape)
    shape.insert(normal_axis(axis, len(shape) + 1), 0)
    return e.constant(np.zeros([int(str(d)) for d in shape], type_.dtype.numpy))


def _scan(call: Call) -> list[Held]:
    if call.opset < 9:
        return _batched_scan(call)
    count = call.integer("num_scan_inputs")
    given = [_present(h) for h in call.inputs]
    state, scanned = given[: len(given) - count], [_tensor(h) for h in given[-count:]]
    outputs = len(call.graph("body").output) - len(state)
    return _scan_rows(
        call,
        state,
        scanned,
        call.integers("scan_input_axes", (0,) * count),
        call.integers("scan_input_directions", (0,) * count),
        call.integers("scan_output_axes", (0,) * outputs),
        call.integers("scan_output_directions", (0,) * outputs),
    )


def _scan_rows(
    call: Call,
    state: list[Held],
    scanned: Sequence[Tensor],
    input_axes: Sequence[int],
    input_directions: Sequence[int],
    output_axes: Sequence[int],
    output_directions: Sequence[int],
) -> list[Held]:
    e, body = call.maker, call.graph("body")
    axes = [normal_axis(a, t.rank) for a, t in zip(input_axes, scanned, strict=True)]
    length = scanned[0].shape[axes[0]] if scanned else 0
    if not isinstance(length, int) or length > MAX_TRIPS:
        raise UnsupportedError(
            f"a scan over an axis of size '{length}' is not unrolled; control flow is not "
            "compiled yet"
        )
    columns: list[list[Tensor]] = [[] for _ in output_axes]
    for step in range(length):
        rows: list[Held] = []
        for x, axis, backwards in zip(scanned, axes, input_directions, strict=True):
            place = length - 1 - step if backwards else step
            rows.append(e.squeeze(e.slice(x, axis, place, 1), (axis,)))
        results = call.inline(body, [*state, *rows])
        for column, result in zip(columns, results[len(state) :], strict=True):
            column.append(_tensor(result))
        state = results[: len(state)]
    scans: list[Held] = []
    for index, (column, axis, backwards) in enumerate(
        zip(columns, output_axes, output_directions, strict=True)
    ):
        ordered = column[::-1] if backwards else column
        scans.append(_stacked(e, ordered, body, len(state) + index, axis))
    return [*state, *scans]


def _batched_scan(call: Call) -> list[Held]:
    """Opset 8: a batch axis in front of everything, and a scan for every entry."""
    e, count = call.maker, call.integer("num_scan_inputs")
    if not call.is_nothing(0):
        raise UnsupportedError("'sequence_lens' is not supported")
    given = [_tensor(_present(h)) for h in call.inputs[1:]]
    batch = given[0].shape[0]
    directions = call.integers("directions", (0,) * count)
    if not isinstance(batch, int):
        raise UnsupportedError("a scan with a dynamic batch is not supported")
    states = len(given) - count
    outputs = len(call.graph("body").output) - states
    columns: list[list[Tensor]] = [[] for _ in range(states + outputs)]
    for entry in range(batch):
        rows = [e.squeeze(e.slice(t, 0, entry, 1), (0,)) for t in given]
        state: list[Held] = [*rows[:states]]
        results = _scan_rows(
            call,
            state,
            rows[states:],
            (0,) * count,
            directions,
            (0,) * outputs,
            (0,) * outputs,
        )
        for column, result in zip(columns, results, strict=True):
            column.append(_tensor(result))
    return [e.concat([e.unsqueeze(t, (0,)) for t in column], 0) for column in columns]


ROWS: Final[tuple[Row, ...]] = (
    row("If", _if),
    row("Loop", _loop),
    row("Scan", _scan),
)
