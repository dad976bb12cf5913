"""The nodes of an executor's program, run one by one: of a graph its operators, of a plan its steps.

Storages are shared: a tensor is what its node wrote only until a later node uses the bytes again, so
it is read right after its node ran.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, final

from tilewright.base.errors import UserError
from tilewright.formats.graph_json import Graph
from tilewright.formats.plan import Plan, from_graph, results_of
from tilewright.formats.plan.json_form import graph_form
from tilewright.runtime.debug_executor.debug_node import PARAMETER, DebugNode, Trace
from tilewright.runtime.debug_executor.flow_nodes import FlowNodes
from tilewright.runtime.debug_executor.model_tensors import (
    ModelTensor,
    RanStep,
    tensors_of_names,
    tensors_of_plan_nodes,
    tensors_of_steps,
)
from tilewright.runtime.graph_executor import CallProgram, GraphExecutor, GraphProgram
from tilewright.runtime.graph_executor.plan_program import is_plan
from tilewright.runtime.plan_executor import PlanExecutor
from tilewright.runtime.plan_executor.stepper import PlanStepper
from tilewright.runtime.plan_executor.tensors import Array


class Nodes(Protocol):
    """Nodes in the order in which they run, and the tensors behind them."""

    @property
    def nodes(self) -> Sequence[DebugNode]: ...

    @property
    def graph(self) -> Graph:
        """All of it in TVM's form."""
        ...

    @property
    def model_tensors(self) -> Sequence[ModelTensor]:
        """What nodes write that other executors may have, too."""
        ...

    @property
    def knows_model(self) -> bool:
        """Whether those are values of the model; names of nodes otherwise."""
        ...

    def prepare(self) -> None:
        """Take note of the inputs and buffers as they are now; before the first node of a pass."""
        ...

    def call(self, node: int) -> Callable[[], object] | None:
        """What runs a node, those before having run; None where there is nothing to do."""
        ...

    def tensor(self, node: int, output: int) -> Array:
        """The memory of an output of a node."""
        ...


@final
class GraphNodes:
    """The nodes of a graph of TVM's form."""

    def __init__(self, program: GraphProgram) -> None:
        self.graph: Graph = program.graph
        self._program: GraphProgram = program
        self._operators = {operator.node: operator for operator in program.operators}
        self._calls: dict[int, Callable[[], object]] = {}
        self.nodes: tuple[DebugNode, ...] = tuple(
            DebugNode(
                node.name,
                PARAMETER if node.is_input else node.function,
                tuple(self.graph.nodes[reference.node].name for reference in node.inputs),
                len(node.inputs),
                node.output_count,
                node.attributes,
            )
            for node in self.graph.nodes
        )
        self.knows_model: bool = is_plan(self.graph)

    @property
    def model_tensors(self) -> Sequence[ModelTensor]:
        """Of a graph that was made of a plan, what the plan says."""
        if not self.knows_model:
            return tensors_of_names(self.graph.nodes)
        return tensors_of_plan_nodes(from_graph(self.graph), self.graph)

    def prepare(self) -> None:
        """Buffers may have been exchanged since the last pass."""
        self._calls.clear()

    def call(self, node: int) -> Callable[[], object] | None:
        """Views and inputs do nothing."""
        operator = self._operators.get(node)
        if operator is None:
            return None
        if node not in self._calls:
            self._calls[node] = self._program.call_of([operator])
        return self._calls[node]

    def tensor(self, node: int, output: int) -> Array:
        """The memory of an output of a node."""
        return self._program.storages.view(self.graph.entry(node, output))


@final
class PlanNodes:
    """The inputs, the constants and the steps of a plan."""

    knows_model: bool = True

    def __init__(self, program: CallProgram, plan: Plan) -> None:
        self.graph: Graph = graph_form(plan)
        self._program: CallProgram = program
        self._plan: Plan = plan
        self._stepper: PlanStepper | None = None
        trace = Trace(plan, self.graph)
        for step in plan.steps:
            trace.add(step, step.name)
        self._leaves: list[int] = trace.leaves
        self.nodes: tuple[DebugNode, ...] = tuple(trace.nodes)

    @property
    def model_tensors(self) -> Sequence[ModelTensor]:
        """What the plan says."""
        first = len(self._leaves)
        steps = (RanStep(first + step, step) for step in range(len(self._plan.steps)))
        return tensors_of_steps(self._plan, steps)

    def prepare(self) -> None:
        """The inputs decide the sizes."""
        callee = self._program.callee
        assert isinstance(callee, PlanExecutor), "made for such a program only"
        self._stepper = callee.stepper(self._program.arrays)

    @property
    def stepper(self) -> PlanStepper:
        if self._stepper is None:
            self.prepare()
        assert self._stepper is not None
        return self._stepper

    def call(self, node: int) -> Callable[[], object] | None:
        """Inputs and constants do nothing."""
        step = node - len(self._leaves)
        return None if step < 0 else self.stepper.call(step)

    def tensor(self, node: int, output: int) -> Array:
        """The memory of an output of a node."""
        step = node - len(self._leaves)
        if step < 0:
            return self.stepper.tensor(self._leaves[node])
        return self.stepper.tensor(results_of(self._plan.steps[step])[output])


def nodes_of(executor: GraphExecutor) -> Nodes:
    """The nodes of an executor.

    Raises: UserError for a program that cannot be looked into.
    """
    program = executor.program
    if isinstance(program, GraphProgram):
        return GraphNodes(program)
    if isinstance(program, CallProgram) and isinstance(program.callee, PlanExecutor):
        plan = program.callee.plan
        return FlowNodes(program, plan) if plan.has_flow else PlanNodes(program, plan)
    raise UserError(
        "the program runs as a whole and has no nodes to look at",
        hint="debug the model's factory or its graph instead of an exported library",
    )
