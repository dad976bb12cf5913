"""Which tensors of an executor's nodes are values of the model, by keys that other executors of it have, too.

A plan says so for its steps (`Plan.values`); in other graphs a node's name is all there is.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import final

from tilewright.base.record import record
from tilewright.formats.graph_json import NOTHING, Graph
from tilewright.formats.graph_json import Node as GraphNode
from tilewright.formats.plan import FLOW_KINDS, ModelValue, Plan

Key = tuple[str, tuple[int, ...]]
"""The name of a value, and in which trips of the loops around it."""


@final
@record
class ModelTensor:
    """Output `output` of node `node` is this value of the model; with `axes`, once its axes are in this order.

    Attributes:
        name: of the value; in control flow with the place of the step, as the names of nodes have it.
        key: the same for the same value on every side.
    """

    name: str
    key: Key
    node: int
    output: int
    axes: tuple[int, ...] = ()


@final
@record
class RanStep:
    """A step of a plan that ran as node `node`, at `path`, in these trips of the loops around it."""

    node: int
    step: int
    path: str = ""
    trips: tuple[int, ...] = ()


def tensors_of_steps(plan: Plan, ran: Iterable[RanStep]) -> tuple[ModelTensor, ...]:
    """What steps write, in the order of the model; trips and branches one after the other, as they ran."""
    values: defaultdict[int, list[tuple[int, ModelValue]]] = defaultdict(list)
    for place, value in enumerate(plan.values):
        values[value.step].append((place, value))
    found: list[ModelTensor] = []
    for path, steps in groupby(ran, key=lambda each: each.path):
        here = [(*row, each) for each in steps for row in values.get(each.step, ())]
        found += [
            ModelTensor(
                f"{path}{v.name}", (v.name, each.trips), each.node, v.result, v.axes
            )
            for _, v, each in sorted(here, key=lambda row: row[0])
        ]
    return tuple(found)


def tensors_of_plan_nodes(plan: Plan, graph: Graph) -> tuple[ModelTensor, ...]:
    """What the nodes of a graph write that was made of a plan and runs as a graph."""
    steps = [
        index
        for index, step in enumerate(plan.steps)
        if step.kind not in (*FLOW_KINDS, "row", "expect")
    ]
    nodes = [
        index
        for index, node in enumerate(graph.nodes)
        if not node.is_input and node.function != NOTHING
    ]
    if len(steps) != len(nodes):  # the graph is another one
        return tensors_of_names(graph.nodes)
    return tensors_of_steps(plan, map(RanStep, nodes, steps))


def tensors_of_names(nodes: Sequence[GraphNode]) -> tuple[ModelTensor, ...]:
    """What nodes write that have nothing but their names: those of one name are told apart by their order."""
    seen: Counter[str] = Counter()
    found: list[ModelTensor] = []
    for index, node in enumerate(nodes):
        for output in range(node.output_count):
            place = (seen[node.name], output)
            key = (node.name, place if any(place) else ())
            found.append(ModelTensor(node.name, key, index, output))
        seen[node.name] += 1
    return tuple(found)
