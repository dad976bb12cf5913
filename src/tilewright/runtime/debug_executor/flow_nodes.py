"""The nodes of a plan with control flow: its steps as often as they run, by loop, trip and branch.

Which nodes there are depends on the inputs: a pass begins with a run that finds out.  Called by `nodes`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, final

from tilewright.base.errors import InputError, InternalError, UserError
from tilewright.formats.graph_json import Graph
from tilewright.formats.plan import Plan, results_of
from tilewright.formats.plan.json_form import graph_form
from tilewright.runtime.debug_executor.debug_node import DebugNode, Trace
from tilewright.runtime.debug_executor.model_tensors import (
    ModelTensor,
    RanStep,
    tensors_of_steps,
)
from tilewright.runtime.graph_executor import CallProgram
from tilewright.runtime.plan_executor import PlanExecutor
from tilewright.runtime.plan_executor.flow_stepper import FlowStepper
from tilewright.runtime.plan_executor.tensors import Array

STEP_LIMIT: Final = 100_000
"""So many steps of one call are looked at."""


@final
class FlowNodes:
    """The inputs, the constants, and the steps of one call of a plan with control flow.

    A step that is timed runs again and again; what it wrote is put right before the next one runs.
    """

    knows_model: bool = True

    def __init__(self, program: CallProgram, plan: Plan) -> None:
        self.graph: Graph = graph_form(plan)
        self._program: CallProgram = program
        self._plan: Plan = plan
        self._leaves: list[int] = Trace(plan, self.graph).leaves
        self._nodes: list[DebugNode] | None = None
        self._steps: list[int] = []
        self._ran: list[RanStep] = []
        self._stepper: FlowStepper | None = None
        self._at: int = -1  # the node that runs now
        self._runs: int = 0  # how often it ran
        self._before: list[Array] = []  # what it writes over

    @property
    def nodes(self) -> Sequence[DebugNode]:
        """Those of the last pass, or of one with the inputs as they are."""
        if self._nodes is None:
            self.prepare()
        assert self._nodes is not None, "a pass has found them"
        return self._nodes

    @property
    def model_tensors(self) -> Sequence[ModelTensor]:
        """What the plan says of the steps of the last pass."""
        assert self.nodes, "a pass has found what ran"
        return tensors_of_steps(self._plan, self._ran)

    def prepare(self) -> None:
        """Run once to see what runs, and begin again.

        Raises: UserError for a call of more than `STEP_LIMIT` steps.
        """
        self._nodes, self._steps = self._traced()
        self._stepper = self._begin()
        self._at, self._runs = len(self._leaves) - 1, 1

    def _begin(self) -> FlowStepper:
        callee = self._program.callee
        assert isinstance(callee, PlanExecutor), "made for such a program only"
        return callee.flow_stepper(self._program.arrays)

    def _traced(self) -> tuple[list[DebugNode], list[int]]:
        plan, stepper = self._plan, self._begin()
        trace = Trace(plan, self.graph)
        steps: list[int] = []
        self._ran = []
        while (index := stepper.advance()) is not None:
            if len(steps) == STEP_LIMIT:
                raise UserError(
                    f"a call with these inputs runs more than {STEP_LIMIT} steps",
                    location=plan.name,
                    hint="look at a call with fewer trips",
                )
            step = plan.steps[index]
            self._ran.append(RanStep(len(trace.nodes), index, stepper.path, stepper.trips))
            trace.add(step, f"{stepper.path}{step.name}")
            steps.append(index)
            stepper.run()
        return trace.nodes, steps

    def call(self, node: int) -> Callable[[], object] | None:
        """What runs a node, the one before having been run; inputs and constants do nothing."""
        if node < len(self._leaves):
            return None
        if node != self._at:
            self._go_on(node)
        return self._run

    def _go_on(self, node: int) -> None:
        if self._stepper is None or node != self._at + 1:
            raise InternalError(f"node {node} does not follow node {self._at}")
        if self._runs != 1:
            self._put_right()
        index = self._stepper.advance()
        if index is None or index != self._steps[node - len(self._leaves)]:
            raise UserError(
                "two calls with the same inputs took different ways",
                location=self._plan.name,
                hint="fix the seeds of random operators",
            )
        self._at, self._runs = node, 0
        results = results_of(self._plan.steps[index])
        self._before = [self._stepper.tensor(entry).copy() for entry in results]

    def _run(self) -> None:
        assert self._stepper is not None, "a pass has begun"
        self._runs += 1
        self._stepper.run()

    def _put_right(self) -> None:
        """A step may write over what it reads: as often as it ran, it counts once."""
        assert self._stepper is not None, "a pass has begun"
        step = self._plan.steps[self._steps[self._at - len(self._leaves)]]
        for entry, array in zip(results_of(step), self._before, strict=True):
            self._stepper.tensor(entry)[...] = array
        self._run()

    def tensor(self, node: int, output: int) -> Array:
        """The memory of an output of a node.  Raises: InputError where it is gone, handed on by another."""
        if self._stepper is None:
            self.prepare()
        assert self._stepper is not None, "a pass has begun"
        if node < len(self._leaves):
            return self._stepper.tensor(self._leaves[node])
        if node != self._at:
            raise InputError(
                f"node {node} is not the one that ran last",
                hint="execute_node(...) or debug_get_output(...) run up to a node",
            )
        step = self._plan.steps[self._steps[node - len(self._leaves)]]
        return self._stepper.tensor(results_of(step)[output])
