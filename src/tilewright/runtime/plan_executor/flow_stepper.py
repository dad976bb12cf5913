"""A plan with control flow step by step: each step where it runs, in which trip and in which branch.

For looking at a program, not for running it.  The host takes every decision itself, and each step is a list of
commands of its own.  Made by `PlanExecutor.flow_stepper`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, final

import numpy as np

from tilewright.base.record import record
from tilewright.formats.plan import Plan, Step
from tilewright.formats.plan.flow_layout import Run
from tilewright.runtime.plan_executor.flow import FlowCall, FlowRunner
from tilewright.runtime.plan_executor.tensors import Array


@final
@record
class _Scope:
    """Steps `start .. stop - 1`: a loop, or a part of a branch."""

    start: int
    stop: int
    name: str
    is_loop: bool


@final
class FlowStepper:
    """The steps of one call, in the order in which they run.

    Args:
        runner: runs the plan, stepwise.
        dims: the sizes that the inputs decide.
        inputs: its inputs, dense and of the right types; not copied.

    Thread-safety: one thread at a time.
    """

    def __init__(
        self, runner: FlowRunner, dims: dict[str, int], inputs: Sequence[Array]
    ) -> None:
        self.plan: Plan = runner.plan
        self._runner: Final = runner
        self._call: FlowCall = self._runner.begin(
            dims, inputs, [None] * len(self.plan.outputs)
        )
        self._places: Iterator[int] = self._runner.walk(self._call)
        self._scopes: list[_Scope] = _scopes_of(self.plan)
        self._trips: dict[int, int] = {}  # by the first step of a loop
        self._last: int = -1
        self._run: Run | None = None

    def advance(self) -> int | None:
        """Go to the next step, and say which; None behind the last.  The one before must have run."""
        for place in self._places:
            self._enter(place)
            self._run = self._runner.layout.runs.get(place)
            if self._run is not None:
                return place
        self._run = None
        return None

    def calls(self) -> Iterator[tuple[int, Callable[[], object]]]:
        """The steps in the order in which they run, and what runs each, to be called before the next is asked for."""
        while (index := self.advance()) is not None:
            yield index, self.run

    @property
    def path(self) -> str:
        """Where the step stands: `loop[2]/branch.then/`, trips counted from 0."""
        words = (
            f"{s.name}[{self._trips.get(s.start, 0)}]" if s.is_loop else s.name
            for s in self._inside()
        )
        return "".join(f"{word}/" for word in words)

    @property
    def trips(self) -> tuple[int, ...]:
        """In which trip of each loop around it the step is, from 0, the outermost first."""
        return tuple(self._trips.get(s.start, 0) for s in self._inside() if s.is_loop)

    def _inside(self) -> list[_Scope]:
        return [s for s in self._scopes if s.start <= self._last < s.stop]

    def run(self) -> None:
        """Run the step."""
        if self._run is not None:
            self._runner.replay(self._call, self._run)

    def tensor(self, entry: int) -> Array:
        """The memory of an entry, as it is now."""
        found = self.plan.entries[entry]
        shape = tuple(self._runner.number(self._call, dim) for dim in found.shape)
        return np.ndarray(
            shape, found.dtype.numpy, self._runner.bytes_of(self._call, entry)
        )

    def _enter(self, place: int) -> None:
        """Count trips: the head of a loop is reached from before it, or from its end."""
        for scope in self._scopes:
            if scope.is_loop and scope.start == place:
                again = scope.start <= self._last < scope.stop
                self._trips[place] = self._trips.get(place, 0) + 1 if again else 0
        self._last = place


def _scopes_of(plan: Plan) -> list[_Scope]:
    """Loops, and the parts of branches, those around others first."""
    steps = plan.steps
    ends = {
        step.goto: i
        for i, step in enumerate(steps)
        if step.kind == "jump" and step.goto < i
    }
    found = [_Scope(head, end + 1, steps[head].name, True) for head, end in ends.items()]
    exits = {end + 1 for end in ends.values()}
    for index, step in enumerate(steps):
        if step.kind != "branch" or step.goto in exits:
            continue
        name = _word(steps[step.goto])
        found.append(_Scope(index + 1, step.goto, f"{name}.then", False))
        before = steps[step.goto - 1]
        if before.kind == "jump" and before.goto > step.goto:
            found.append(_Scope(step.goto, before.goto, f"{name}.else", False))
    return sorted(found, key=lambda scope: (scope.start, -scope.stop))


def _word(label: Step) -> str:
    """The name of a branch, of the label of its second part."""
    return label.name.removesuffix("_else")
