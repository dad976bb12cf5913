"""Rows for loops: Loop, Scan.

A loop of known length is written out where that is
worth it, or where what it carries changes its type from trip to trip; every other one becomes a loop of the
program (`kit.control`).  The rows that it stacks have as many places as there are trips; where nobody knows how
many there will be, the loop runs once to count them.

Source: ONNX operator reference (Loop, Scan).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, final

from onnx import GraphProto

import tilewright.compiler.frontends.onnx.stacked_sequences as lists
from tilewright.base import dtypes
from tilewright.base.errors import ModelError
from tilewright.base.record import field, record
from tilewright.base.symbolic import Dim, bounds
from tilewright.compiler.frontends.kit import control
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import SkipNodeError, UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.branches import truth
from tilewright.compiler.frontends.onnx.call import FIXED_SIZE, Call
from tilewright.compiler.frontends.onnx.forms import (
    Form,
    Stack,
    common_form,
    form_of,
    tensor_in,
)
from tilewright.compiler.frontends.onnx.row import Row, row
from tilewright.compiler.frontends.onnx.signature import described
from tilewright.compiler.frontends.onnx.values import (
    Held,
    StackedSequence,
    TensorSequence,
)
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.ops.shapes import normal_axis

MAX_TRIPS: Final = 4096
"""Loops that must be written out have no more."""
_MAX_STACK: Final = 1 << 12
"""A loop that may end early gets so many places for its rows at most; behind that it is counted first."""


@final
@record(frozen=False)
class _Loop:
    """A Loop node as its row reads it.

    Attributes:
        trips: how many at most, where that is known; None: as long as the condition holds.
        running: the condition before the first trip; None: true.
        forms: what the state passes from trip to trip as.
    """

    call: Call
    body: GraphProto
    trips: Dim | None
    limit: Tensor | None
    running: Tensor | None
    state: list[Held]
    rows: list[TensorType] = field(default_factory=list[TensorType])
    forms: list[Form] = field(default_factory=list[Form])
    always: bool = False  # the body says true, whatever happens

    def as_tensors(self, held: Sequence[Held]) -> list[Tensor]:
        """What is carried."""
        e = self.call.maker
        pairs = zip(self.forms, held, strict=True)
        return [t for form, value in pairs for t in form.apart(e, value)]

    def as_held(self, tensors: Sequence[Tensor]) -> list[Held]:
        """What the body sees of what is carried."""
        decides = tuple(t for t in (self.limit, self.running) if t is not None)
        rest, found = list(tensors), list[Held]()
        for form in self.forms:
            found.append(form.together(rest[: form.count], decides))
            del rest[: form.count]
        return found

    @property
    def columns(self) -> int:
        return len(self.body.output) - 1 - len(self.state)

    @property
    def is_counted(self) -> bool:
        """Whether it ends with the number of trips, and not earlier."""
        return self.begins and self.always and self._least_trips >= 0

    @property
    def is_certain(self) -> bool:
        """Whether there is a first trip."""
        return self.begins and (self.limit is None or self._least_trips >= 1)

    @property
    def begins(self) -> bool:
        """Whether the condition before the first trip is known to hold."""
        return self.running is None or truth(self.call.maker, self.running) is True

    @property
    def _least_trips(self) -> int:
        low = None if self.trips is None else bounds(self.trips)[0]
        return -1 if low is None else low

    def note_condition(self, again: Tensor, going: Tensor) -> None:
        """Look whether the condition behind a trip can be false where that before it is not."""
        is_same = again.value is not None and again.value is going.value
        self.always = is_same or truth(self.call.maker, again) is True


def _loop(call: Call) -> list[Held]:
    e = call.maker
    limit = None if call.is_nothing(0) else call.tensor(0)
    known = None if limit is None else e.contents(limit)
    trips: Dim | None = None
    if known is not None:
        (trips,) = call.dims(0, "the number of iterations")
        trips = max(trips, 0) if isinstance(trips, int) else trips
    running = None if call.is_nothing(1) else call.tensor(1)
    state = [_present(h) for h in call.inputs[2:]]
    it = _Loop(call, call.graph("body"), trips, limit, running, state)
    nodes = _node_count(it.body)
    is_hopeful = call.failed_bodies.is_worth_trying(it.body)
    if is_hopeful and isinstance(trips, int) and control.worth_unrolling(trips, nodes):
        undo = call.checkpoint()
        written = _written_out(it)
        if written is not None:
            return written
        undo()
    undo = call.checkpoint()
    try:
        return _as_loop(it)
    except (UnsupportedError, SkipNodeError):
        # Whoever compiles for the values of a call may know how many trips there are.
        for decides in (limit, running):
            if decides is not None:
                e.need(decides)
        if not isinstance(trips, int) or trips > MAX_TRIPS:
            raise
        if not call.failed_bodies.is_worth_trying(it.body):
            raise
        failed = call.checkpoint.problems()
        undo()
        try:
            written = _written_out(it)
        except (UnsupportedError, SkipNodeError):
            call.failed_bodies.note(it.body)
            raise
        if written is None:
            call.checkpoint.restore(failed)
            raise
        return written


def _node_count(graph: GraphProto) -> int:
    """The nodes of a body, those of bodies in it included."""
    return len(graph.node) + sum(
        _node_count(attribute.g)
        for node in graph.node
        for attribute in node.attribute
        if attribute.HasField("g")
    )


def _written_out(it: _Loop) -> list[Held] | None:
    """Trip after trip; None where data decides whether there is another."""
    e, call = it.call.maker, it.call
    state, running = it.state, it.running
    columns: list[list[Tensor]] = [[] for _ in range(it.columns)]
    assert isinstance(it.trips, int), "known"
    for step in range(it.trips):
        going = True if running is None else truth(e, running)
        if going is None:
            if step > 0:
                call.failed_bodies.note(it.body)
            return None
        if not going:
            break
        flag = e.scalar(True, dtypes.bool_) if running is None else running
        number = e.scalar(step, dtypes.i64)
        with call.draws.trip(number):
            again, *results = call.inline(it.body, [number, flag, *state])
        running = tensor_in(again)
        state = results[: len(state)]
        for column, result in zip(columns, results[len(state) :], strict=True):
            column.append(tensor_in(result))
    if columns and not columns[0]:
        return [*state, *_no_rows(it)]
    return [*state, *(_stacked(e, column, 0) for column in columns)]


def _no_rows(it: _Loop) -> list[Tensor]:
    """What a loop stacks that has no trips: of rows as the body declares them, or else would make them."""
    outputs = it.body.output[1 + len(it.state) :]
    declared = [described(output.type) for output in outputs]
    rows = [t for t in declared if t is not None and t.is_static]
    if len(rows) < len(outputs):
        _find_forms(it)
        _describe_rows(it, it.as_tensors(it.state))
        rows = it.rows
    return [it.call.maker.full(0, t.dtype, (0, *t.shape)) for t in rows]


def _as_loop(it: _Loop) -> list[Held]:
    """A loop of the program."""
    _find_forms(it)
    state = it.as_tensors(it.state)
    if not it.columns:
        _, _, *carried = _run(it, state, None)
        return it.as_held(carried)
    _describe_rows(it, state)
    places = it.trips
    exact = it.always and it.begins
    is_small = isinstance(places, int) and places <= _MAX_STACK
    if places is None or not (exact or is_small):
        if places is None and it.limit is not None and exact:
            places = _limit_size(it)
        else:
            counted, *_ = _run(it, state, None)
            (places,) = control.read_sizes(it.call.maker, e_vector(it, counted), "trips")
        exact = True
    return _with_rows(it, state, places, exact=exact)


def e_vector(it: _Loop, scalar: Tensor) -> Tensor:
    """A scalar as a vector of one."""
    return it.call.maker.reshape(scalar, (1,))


def _limit_size(it: _Loop) -> Dim:
    """The number of trips, which data decides."""
    e = it.call.maker
    assert it.limit is not None, "asked for"
    count = e.op("max", e_vector(it, it.limit), e.scalar(0, dtypes.i64))
    return control.read_sizes(e, count, "trips")[0]


def _with_rows(
    it: _Loop, state: Sequence[Tensor], places: Dim, *, exact: bool
) -> list[Held]:
    e = it.call.maker
    stacks = [e.full(0, t.dtype, (places, *t.shape)) for t in it.rows]
    done, _, *results = _run(it, [*state, *stacks], len(stacks))
    carried, filled = results[: len(state)], results[len(state) :]
    if not exact:
        high = places if isinstance(places, int) else None
        (count,) = control.read_sizes(e, e_vector(it, done), "trips", high)
        filled = [e.slice(t, 0, 0, count) for t in filled]
    return [*it.as_held(carried), *filled]


def _find_forms(it: _Loop) -> None:
    """How the state passes from trip to trip; what is no tensor a trip says, in a body that nobody keeps."""
    it.forms = [_first_form(held) for held in it.state]
    if all(isinstance(held, Tensor) for held in it.state):
        return
    undo = it.call.checkpoint()
    try:
        it.forms = _tried_forms(it)
    except (UnsupportedError, SkipNodeError, ModelError):
        # A body that takes items of what begins empty, for one: the types that are known may do.
        if any(isinstance(form, Stack) and form.item is None for form in it.forms):
            raise
    undo()


def _first_form(held: Held) -> Form:
    """The form of a sequence of any length that begins like this, and that of anything else."""
    if isinstance(held, TensorSequence | StackedSequence):
        return Stack(lists.item_type(held))
    return form_of(held)


def _tried_forms(it: _Loop) -> list[Form]:
    e = it.call.maker
    made: list[Held] = []

    def trip(values: list[Tensor]) -> list[Tensor]:
        step, going, *carried = values
        rest = list(carried)
        given = [rest.pop(0) if isinstance(h, Tensor) else h for h in it.state]
        again, *results = it.call.inline(it.body, [step, going, *given])
        made[:] = results[: len(it.state)]
        own = [m for h, m in zip(it.state, made, strict=True) if isinstance(h, Tensor)]
        pairs = zip(own, carried, strict=True)
        fresh = [m if isinstance(m, Tensor) else before for m, before in pairs]
        return [step, e.reshape(tensor_in(again), ()), *fresh]

    begin = [e.scalar(0, dtypes.i64), e.scalar(True, dtypes.bool_)]
    begin += [h for h in it.state if isinstance(h, Tensor)]
    tried = control.write_trip(e, begin, trip, it.call.checkpoint)
    inner = tried.inner_sizes
    return [common_form(h, m, inner) for h, m in zip(it.state, made, strict=True)]


def _describe_rows(it: _Loop, state: Sequence[Tensor]) -> None:
    """Find the types of the rows, and whether the condition ever becomes false, in a body that nobody keeps."""
    e = it.call.maker

    def trip(values: list[Tensor]) -> list[Tensor]:
        step, going, *carried = values
        again, *results = it.call.inline(it.body, [step, going, *it.as_held(carried)])
        flag = tensor_in(again)
        it.note_condition(flag, going)
        count = len(it.state)
        it.rows = [tensor_in(r).type for r in results[count:]]
        return [step, e.reshape(flag, ()), *it.as_tensors(results[:count])]

    begin = [e.scalar(0, dtypes.i64), e.scalar(True, dtypes.bool_), *state]
    tried = control.write_trip(e, begin, trip, it.call.checkpoint, is_certain=it.is_certain)
    control.refuse_inner_sizes(tried.inner_sizes, it.rows)
    tried.undo()


def _run(it: _Loop, state: Sequence[Tensor], stacks: int | None) -> list[Tensor]:
    """The number of trips done, the condition, then what is carried; the last `stacks` take rows."""
    e = it.call.maker
    running = it.running
    flag = e.scalar(True, dtypes.bool_) if running is None else e.reshape(running, ())
    limit = None if it.limit is None else e.reshape(it.limit, ())
    count = len(state) - (stacks or 0)

    def go_on(values: list[Tensor]) -> Tensor:
        step, going = values[:2]
        if limit is None:
            return going
        left = e.op("less", step, limit)
        return e.op("logical_and", left, going)

    def trip(values: list[Tensor]) -> list[Tensor]:
        step, going, *carried = values
        with it.call.draws.trip(step):
            given = it.as_held(carried[:count])
            again, *results = it.call.inline(it.body, [step, going, *given])
        it.note_condition(tensor_in(again), going)
        fresh = it.as_tensors(results[: len(it.state)])
        rows = [tensor_in(r) for r in results[len(it.state) :]]
        if stacks:
            pairs = zip(carried[count:], rows, strict=True)
            fresh += [control.with_row(e, s, step, r) for s, r in pairs]
        following = e.op("add", step, e.scalar(1, dtypes.i64))
        return [following, e.reshape(tensor_in(again), ()), *fresh]

    begin = [e.scalar(0, dtypes.i64), flag, *state]
    return control.loop(
        e,
        begin,
        go_on,
        trip,
        checkpoint=it.call.checkpoint,
        trips=lambda: it.trips if it.is_counted else None,
        is_certain=it.is_certain,
    )


def _present(held: Held | None) -> Held:
    if held is None:
        raise ModelError("a loop-carried operand is missing")
    return held


def _stacked(e: NodeMaker, items: Sequence[Tensor], axis: int) -> Tensor:
    """The items, of which there is one at least, along a new axis."""
    place = normal_axis(axis, items[0].rank + 1)
    return e.concat([e.unsqueeze(t, (place,)) for t in items], place)


def _scan(call: Call) -> list[Held]:
    count = call.integer("num_scan_inputs")
    if not 1 <= count <= len(call.inputs):
        raise ModelError(f"num_scan_inputs is {count}, of {len(call.inputs)} inputs")
    if call.opset < 9:
        return _batched_scan(call, count)
    given = [_present(h) for h in call.inputs]
    state, scanned = given[: len(given) - count], [tensor_in(h) for h in given[-count:]]
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
    length: Dim = scanned[0].shape[axes[0]] if scanned else 0
    if length == 0:
        rows = _scanned_rows(call, state, scanned, axes)
        places = [
            normal_axis(a, t.rank + 1) for a, t in zip(output_axes, rows, strict=True)
        ]
        shapes = [
            (*t.shape[:p], 0, *t.shape[p:]) for p, t in zip(places, rows, strict=True)
        ]
        pairs = zip(rows, shapes, strict=True)
        return [*state, *(e.full(0, t.dtype, shape) for t, shape in pairs)]
    if isinstance(length, int) and control.worth_unrolling(length, _node_count(body)):
        turns = [length if backwards else -1 for backwards in input_directions]
        columns: list[list[Tensor]] = [[] for _ in output_axes]
        for step in range(length):
            given: list[Held] = []
            for x, axis, turn in zip(scanned, axes, turns, strict=True):
                place = step if turn < 0 else turn - 1 - step
                given.append(e.squeeze(e.slice(x, axis, place, 1), (axis,)))
            with call.draws.trip(e.scalar(step, dtypes.i64)):
                results = call.inline(body, [*state, *given])
            for column, result in zip(columns, results[len(state) :], strict=True):
                column.append(tensor_in(result))
            state = results[: len(state)]
        scans: list[Held] = []
        for column, axis, backwards in zip(
            columns, output_axes, output_directions, strict=True
        ):
            ordered = column[::-1] if backwards else column
            scans.append(_stacked(e, ordered, axis))
        return [*state, *scans]

    def place_in(step: Tensor, backwards: int) -> Tensor:
        if not backwards:
            return step
        return e.op("sub", e.op("sub", e.dim(length), e.scalar(1, dtypes.i64)), step)

    def rows_at(step: Tensor) -> list[Held]:
        return [
            control.row_at(e, x, place_in(step, backwards), axis)
            for x, axis, backwards in zip(scanned, axes, input_directions, strict=True)
        ]

    carried = [tensor_in(h) for h in state]
    types = _scanned_rows(call, state, scanned, axes)
    return _scan_loop(
        call, carried, (length, types), rows_at, place_in, output_axes, output_directions
    )


def _scanned_rows(
    call: Call, state: Sequence[Held], scanned: Sequence[Tensor], axes: Sequence[int]
) -> list[TensorType]:
    """The types of the rows that a scan stacks, from a body that nobody keeps."""
    given = [
        TensorType(x.dtype, (*x.shape[:axis], *x.shape[axis + 1 :]))
        for x, axis in zip(scanned, axes, strict=True)
    ]
    undo = call.checkpoint()
    own = [tensor_in(h).type for h in state]
    with call.maker.region([*own, *given], is_certain=True) as probe:
        results = call.inline(call.graph("body"), list(probe.inputs))
        types = [tensor_in(r).type for r in results[len(state) :]]
        control.refuse_inner_sizes(probe.graph.bound_names(), types)
    undo()
    return types


def _scan_loop(
    call: Call,
    state: list[Tensor],
    stacked: tuple[Dim, Sequence[TensorType]],
    rows_at: Callable[[Tensor], list[Held]],
    place_in: Callable[[Tensor, int], Tensor],
    output_axes: Sequence[int],
    output_directions: Sequence[int],
) -> list[Held]:
    """A scan as a loop of the program; what it stacks is stacked along the first axis, and moved behind it.

    `stacked` says how many rows there are, and of which types.
    """
    e, body = call.maker, call.graph("body")
    length, types = stacked
    stacks = [e.full(0, t.dtype, (length, *t.shape)) for t in types]

    def trip(step: Tensor, carried: list[Tensor]) -> list[Tensor]:
        given = carried[: len(state)]
        with call.draws.trip(step):
            results = [tensor_in(r) for r in call.inline(body, [*given, *rows_at(step)])]
        filled = [
            control.with_row(e, stack, place_in(step, backwards), row)
            for stack, row, backwards in zip(
                carried[len(state) :], results[len(state) :], output_directions, strict=True
            )
        ]
        return [*results[: len(state)], *filled]

    is_certain = (bounds(length)[0] or 0) >= 1
    ended = control.counted(e, length, [*state, *stacks], trip, is_certain=is_certain)
    scans: list[Held] = []
    for stack, axis in zip(ended[len(state) :], output_axes, strict=True):
        order = list(range(1, stack.rank))
        order.insert(normal_axis(axis, stack.rank), 0)
        scans.append(e.transpose(stack, order))
    return [*ended[: len(state)], *scans]


def _batched_scan(call: Call, count: int) -> list[Held]:
    """Opset 8: a batch axis in front of everything, and a scan for every entry."""
    e = call.maker
    if not call.is_nothing(0):
        raise UnsupportedError("'sequence_lens' is not supported")
    given = [tensor_in(_present(h)) for h in call.inputs[1:]]
    batch = given[0].shape[0]
    directions = call.integers("directions", (0,) * count)
    if not isinstance(batch, int):
        raise UnsupportedError(
            "a scan with a dynamic batch is not supported", hint=FIXED_SIZE
        )
    states = len(given) - count
    outputs = len(call.graph("body").output) - states
    columns: list[list[Tensor]] = [[] for _ in range(states + outputs)]
    for entry in range(batch):
        rows = [e.squeeze(e.slice(t, 0, entry, 1), (0,)) for t in given]
        state: list[Held] = [*rows[:states]]
        with call.draws.trip(e.scalar(entry, dtypes.i64)):
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
            column.append(tensor_in(result))
    return [e.concat([e.unsqueeze(t, (0,)) for t in column], 0) for column in columns]


ROWS: Final[tuple[Row, ...]] = (
    row("Loop", _loop),
    row("Scan", _scan),
)
