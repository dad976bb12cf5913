"""Steps with bodies: If, Loop, Scan; one in another up to `MOST_DEPTH`.

A body reads what is around it.  What leaves it must be made in it, so an `Identity` stands before each result.
What a loop carries is brought back into its bounds at the end of each trip.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import helper

from fuzz.flow.maker import ANY, ROUGH, WHOLE, Frame, Maker, Size, Value
from fuzz.flow.sizes import replaced

MOST_DEPTH = 3
MOST_TRIPS = 5
Steps = Sequence[Callable[[Maker], None]]


@dataclass(frozen=True)
class Regions:
    """The steps that make bodies; `inner` are those that fill them."""

    inner: Steps

    def steps(self) -> Steps:
        return (self.step_if, self.step_loop, self.step_scan)

    # --- bodies -----------------------------------------------------------------------------

    def fill(self, m: Maker, most: int) -> None:
        """Some steps in the frame that is open; sometimes there is a body among them."""
        for _ in range(m.number(1, most)):
            if m.budget <= 0:
                return
            m.budget -= 1
            deeper = m.frame.depth < MOST_DEPTH and m.chance(0.15)
            m.one(self.steps() if deeper else self.inner)(m)

    # --- If ---------------------------------------------------------------------------------

    def step_if(self, m: Maker) -> None:
        condition = m.condition()
        then, other = Frame(m.frame), Frame(m.frame)
        outer = m.frame
        m.frame = then
        self.fill(m, 4)
        results = [v for _ in range(m.number(1, 2)) if (v := m.pick())]
        m.frame = other
        self.fill(m, 4)
        pairs = [(v, self._same_type(m, v, alike=m.chance(0.6))) for v in results]
        m.frame = outer
        names = m.node(
            "If",
            [condition],
            len(pairs),
            then_branch=body(m, then, [], [v for v, _ in pairs]),
            else_branch=body(m, other, [], [w for _, w in pairs]),
        )
        for name, (left, right) in zip(names, pairs, strict=True):
            m.keep(replace(either(m, left, right), name=name))

    def _same_type(self, m: Maker, v: Value, *, alike: bool) -> Value:
        """Something of the type and rank of `v` that the open frame knows; `alike`: of its shape, too."""

        def fits(w: Value) -> bool:
            return w.dtype == v.dtype and w.rank == v.rank

        found = m.pick(lambda w: fits(w) and w.shape == v.shape) if alike else None
        found = found or m.pick(fits)
        if found is not None:
            return found
        shape = [s if isinstance(s, int) else m.one((0, 1, 2, 3)) for s in v.shape]
        return m.weights(shape, v.dtype)

    # --- Loop -------------------------------------------------------------------------------

    def step_loop(self, m: Maker) -> None:
        kind = m.one(("for", "for", "while", "both"))
        at_least_one = m.chance(0.5)
        trips, condition = self._limits(m, kind, at_least_one)
        states = [v for _ in range(m.number(1, 3)) if (v := m.pick())]
        frame, outer = Frame(m.frame), m.frame
        m.frame = frame
        index = m.keep(Value(m.name("i"), "int64", (), WHOLE, float(MOST_TRIPS)))
        going = m.keep(Value(m.name("go"), "bool", (), WHOLE, 1.0))
        carried = [self._carried(m, v) for v in states]
        for value in carried:
            m.keep(value)
        self.fill(m, 5)
        ends = [self._next(m, value) for value in carried]
        columns = [v for _ in range(m.number(0, 2)) if (v := self._column(m))]
        again = going if kind == "for" else self._goes_on(m, index)
        m.frame = outer
        inputs = [index, going, *carried]
        # Of rows that are never made onnxruntime knows only what is declared.
        shown = bool(columns) or m.chance(0.7)
        graph = body(m, frame, inputs, [again, *ends, *columns], shown=shown)
        names = m.node(
            "Loop", [trips, condition, *states], len(states) + len(columns), body=graph
        )
        for name, state, end in zip(names, carried, ends, strict=False):
            first = states[carried.index(state)]
            m.keep(replace(either(m, first, end), name=name, kind=state.kind, bound=state.bound,
                           finite=state.finite))  # fmt: skip
        self._stack(m, names[len(states) :], columns, positive=at_least_one, axis=0)

    def _limits(
        self, m: Maker, kind: str, at_least_one: bool
    ) -> tuple[Value | str, Value | str]:
        """The number of trips and the first condition."""
        least = int(at_least_one)
        if kind == "while":
            trips: Value | str = ""
        elif m.chance(0.3):
            trips = m.scalar(m.number(least, MOST_TRIPS), "int64")
        else:
            trips = m.count_of(least, MOST_TRIPS)
        if at_least_one:
            return trips, m.scalar(True, "bool") if kind != "for" or m.chance(0.5) else ""
        return trips, "" if m.chance(0.3) and kind != "while" else m.condition()

    def _carried(self, m: Maker, v: Value) -> Value:
        """The value of the trip for what begins as `v`: its sizes may differ from trip to trip."""
        grows = v.rank > 0 and m.chance(0.15)
        shape = tuple(m.new_size() for _ in v.shape) if grows else v.shape
        bound = max(8.0, v.bound) if v.is_float else ANY
        kind = v.kind
        if v.is_float and m.chance(0.4):
            kind = ROUGH
        return Value(m.name("s"), v.dtype, shape, kind, bound, v.finite)

    def _next(self, m: Maker, state: Value) -> Value:
        """What the next trip begins with: of the same type, within the same bounds."""
        varies = any(not m.frame.knows(s) for s in state.shape)

        def fits(w: Value) -> bool:
            return (
                w.dtype == state.dtype
                and (w.rank == state.rank if varies else w.shape == state.shape)
                and w.kind <= state.kind
                and (w.finite or not state.finite)
                and w not in m.frame.outer_values
            )

        found = m.pick(fits) or state
        if found.bound > state.bound:
            found = m.tame(found, state.bound)
        if varies and found is not state:
            # It may grow with every trip, but not without end.
            for axis in range(found.rank):
                found = m.add("Slice", [found, m.ints(0), m.ints(9), m.ints(axis)], found,
                              shape=replaced(found.shape, axis, m.new_size()))  # fmt: skip
        return found

    def _column(self, m: Maker) -> Value | None:
        """What every trip gives a row of: its sizes are those of the other trips."""
        return m.pick(
            lambda v: (
                v.rank < 4 and all(m.frame.knows(s) for s in v.shape)
                and v not in m.frame.outer_values
            )
        )  # fmt: skip

    def _goes_on(self, m: Maker, index: Value) -> Value:
        """A condition that is false after some trips at the latest."""
        limit = m.scalar(m.number(0, MOST_TRIPS - 1), "int64")
        last = m.add("Less", [index, limit], index, dtype="bool", bound=1.0)
        if m.chance(0.4):
            return last
        return m.add("And", [last, m.condition()], last)

    def _stack(
        self,
        m: Maker,
        names: Sequence[str],
        rows: Sequence[Value],
        *,
        positive: bool,
        axis: int,
    ) -> None:
        """The stacked rows of a loop; onnxruntime forgets unknown sizes of a row where there is none."""
        if not names:
            return
        trips = m.new_size(positive=positive)
        for name, row in zip(names, rows, strict=True):
            made = replace(
                row, name=name, shape=(*row.shape[:axis], trips, *row.shape[axis:])
            )
            if positive or all(isinstance(s, int) for s in row.shape):
                m.keep(made)
            elif m.frame.outer is None:
                m.kept.append(made)

    # --- Scan -------------------------------------------------------------------------------

    def step_scan(self, m: Maker) -> None:
        first = m.pick(lambda v: any(m.is_positive(s) for s in v.shape))
        if first is None:
            return
        size = m.one([s for s in first.shape if m.is_positive(s)])
        others = [v for v in m.frame.visible() if size in v.shape and v is not first]
        scanned = [first, *m.choose.sample(others, min(len(others), m.number(0, 2)))]
        axes = [m.one([i for i, s in enumerate(v.shape) if s == size]) for v in scanned]
        states = [v for _ in range(m.number(0, 2)) if (v := m.pick())]
        frame, outer = Frame(m.frame), m.frame
        m.frame = frame
        carried = [
            Value(m.name("s"), v.dtype, v.shape, v.kind, max(8.0, v.bound) if v.is_float else ANY,
                  v.finite)
            for v in states
        ]  # fmt: skip
        rows = [
            replace(v, name=m.name("r"), shape=(*v.shape[:a], *v.shape[a + 1 :]))
            for v, a in zip(scanned, axes, strict=True)
        ]
        for value in (*carried, *rows):
            m.keep(value)
        self.fill(m, 5)
        ends = [self._next(m, value) for value in carried]
        columns = [v for _ in range(m.number(1, 2)) if (v := self._column(m))]
        m.frame = outer
        if not ends and not columns:
            return
        self._emit_scan(
            m, frame, (states, carried, ends), (scanned, axes, rows), columns, size
        )

    def _emit_scan(
        self,
        m: Maker,
        frame: Frame,
        state: tuple[list[Value], list[Value], list[Value]],
        scan: tuple[list[Value], list[int], list[Value]],
        columns: list[Value],
        size: Size,
    ) -> None:
        (states, carried, ends), (scanned, axes, rows) = state, scan
        places = [m.number(0, v.rank) for v in columns]
        attributes: dict[str, object] = {"num_scan_inputs": len(scanned)}
        signed = [
            a - v.rank if m.chance(0.3) else a for a, v in zip(axes, scanned, strict=True)
        ]
        if any(axes) or m.chance(0.2):
            attributes["scan_input_axes"] = signed
        if m.chance(0.4):
            attributes["scan_input_directions"] = [m.number(0, 1) for _ in scanned]
        if columns and (any(places) or m.chance(0.2)):
            attributes["scan_output_axes"] = places
        if columns and m.chance(0.4):
            attributes["scan_output_directions"] = [m.number(0, 1) for _ in columns]
        graph = body(m, frame, [*carried, *rows], [*ends, *columns])
        count = len(ends) + len(columns)
        names = m.node("Scan", [*states, *scanned], count, body=graph, **attributes)
        for name, value in zip(names, carried, strict=False):
            m.keep(replace(value, name=name))
        for name, row, axis in zip(names[len(ends) :], columns, places, strict=True):
            shape = (*row.shape[:axis], size, *row.shape[axis:])
            m.keep(replace(row, name=name, shape=shape))


def either(m: Maker, left: Value, right: Value) -> Value:
    """What is known of a value that is one of two."""
    shape: list[Size] = []
    for a, b in zip(left.shape, right.shape, strict=True):
        if a == b and m.frame.knows_now(a):
            shape.append(a)
        else:
            shape.append(m.new_size(positive=m.is_positive(a) and m.is_positive(b)))
    return Value(
        "", left.dtype, tuple(shape), max(left.kind, right.kind), max(left.bound, right.bound),
        left.finite and right.finite,
    )  # fmt: skip


def body(
    m: Maker,
    frame: Frame,
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    *,
    shown: bool = True,
) -> onnx.GraphProto:
    """A frame as a graph; each output is a value of its own that is made in it."""
    made = []
    outer, m.frame = m.frame, frame
    for value in outputs:
        (name,) = m.node("Identity", [value])
        made.append(replace(value, name=name))
    m.frame = outer
    return helper.make_graph(
        frame.nodes,
        m.name("body"),
        [declared(v, shown=shown or not v.shape) for v in inputs],
        [declared(v, shown=shown or not v.shape, free=m.chance(0.5)) for v in made],
        frame.initializers,
    )


def declared(v: Value, *, shown: bool = True, free: bool = False) -> onnx.ValueInfoProto:
    """The type of a value; `free`: sizes that nobody knows have no name."""
    element = helper.np_dtype_to_tensor_dtype(np.dtype(v.dtype))
    shape: list[Size | None] | None = None
    if shown:
        shape = [None if free and isinstance(s, str) else s for s in v.shape]
    return helper.make_tensor_value_info(v.name, element, shape)
