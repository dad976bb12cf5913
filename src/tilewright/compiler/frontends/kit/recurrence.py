"""A recurrence over rows: written out where they are few and known, else a loop.

Called by the rows of front ends for recurrent layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.base import dtypes
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit import control
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.graph.schema import TensorType

_STEP_NODES = 12
"""What a step is made of, roughly: few steps are written out."""

Rows = list[Tensor]
Step = Callable[[Tensor, Rows, Rows], tuple[Rows, Rows]]
"""Of a place, the rows that are there and the state: the rows that are made, and the next state."""


def walked(
    e: NodeMaker,
    inputs: Sequence[Tensor],
    state: Sequence[Tensor],
    step: Step,
    made: Sequence[TensorType],
    *,
    backwards: bool = False,
    is_certain: bool = False,
) -> tuple[Rows, Rows]:
    """What all steps make, `[steps, ...]` each, in the order of the inputs, and the last state.

    Args:
        e: writes the nodes.
        inputs: `[steps, ...]`, one at least.
        state: before the first step.
        step: from one to the next.
        made: the types of the rows that a step makes.
        backwards: the last row comes first.
        is_certain: a loop has a first trip.
    """
    steps = inputs[0].shape[0]
    if isinstance(steps, int) and control.worth_unrolling(steps, _STEP_NODES):
        places = range(steps)[::-1] if backwards else range(steps)
        return _written_out(e, places, inputs, state, step, made)
    stacks = [e.full(0, t.dtype, (steps, *t.shape)) for t in made]

    def trip(done: Tensor, values: Rows) -> Rows:
        place = _from_behind(e, steps, done) if backwards else done
        rows = [control.row_at(e, x, place, 0) for x in inputs]
        fresh, later = step(place, rows, values[: len(state)])
        filled = zip(values[len(state) :], fresh, strict=True)
        return [*later, *(control.with_row(e, stack, place, row) for stack, row in filled)]

    ended = control.counted(e, steps, [*state, *stacks], trip, is_certain=is_certain)
    return ended[len(state) :], ended[: len(state)]


def _from_behind(e: NodeMaker, steps: Dim, done: Tensor) -> Tensor:
    last = e.op("sub", e.dim(steps), e.scalar(1, dtypes.i64))
    return e.op("sub", last, done)


def _written_out(
    e: NodeMaker,
    places: range,
    inputs: Sequence[Tensor],
    state: Sequence[Tensor],
    step: Step,
    made: Sequence[TensorType],
) -> tuple[Rows, Rows]:
    """Step after step, which share kernels with each other."""
    state, found = list(state), dict[int, Rows]()
    for place in places:
        rows = [e.squeeze(e.slice(x, 0, place, 1), (0,)) for x in inputs]
        fresh, state = step(e.scalar(place, dtypes.i64), rows, state)
        found[place] = [e.unsqueeze(row, (0,)) for row in fresh]
    if not found:
        return [e.full(0, t.dtype, (0, *t.shape)) for t in made], state
    columns = zip(*(found[place] for place in sorted(found)), strict=True)
    return [e.concat(column, 0) for column in columns], state
