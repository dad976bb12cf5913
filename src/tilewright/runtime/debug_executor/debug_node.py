"""One node of a program that is debugged, and those that a plan's steps are, one after the other.

Not here: which steps run (`nodes`, `flow_nodes`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

from tilewright.base.record import field, record
from tilewright.formats.graph_json import Graph
from tilewright.formats.plan import Plan, Step, operands_of, results_of

PARAMETER: Final = "param"  # what TVM's debugger calls inputs and parameters


@final
@record
class DebugNode:
    """One node.

    Attributes:
        name: in the graph's terms; not always unique.
        function: what it calls; `param` for inputs and parameters.
        inputs: names of the nodes that it reads.
        input_count: how many tensors it reads.
        output_count: how many it writes.
        attributes: of the graph, as texts.
    """

    name: str
    function: str
    inputs: tuple[str, ...] = ()
    input_count: int = 0
    output_count: int = 1
    attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_parameter(self) -> bool:
        return self.function == PARAMETER


@final
class Trace:
    """Nodes of a plan: its inputs and constants, then its steps in the order in which they are added.

    Attributes:
        nodes: all so far.
        leaves: the entries of the inputs and constants.
    """

    def __init__(self, plan: Plan, graph: Graph) -> None:
        self._plan: Plan = plan
        self.leaves: list[int] = _leaf_entries(plan)
        names = [graph.nodes[node].name for node in graph.arguments]
        self.nodes: list[DebugNode] = [DebugNode(name, PARAMETER) for name in names]
        self._owner: dict[int, str] = {  # of a storage, the node that wrote it last
            plan.entries[entry].storage: name
            for entry, name in zip(self.leaves, names, strict=True)
        }

    def add(self, step: Step, name: str) -> None:
        """The node of a step that runs next."""
        storage = {entry: self._plan.entries[entry].storage for entry in step.arguments}
        operands, owner = operands_of(step), self._owner
        self.nodes.append(
            DebugNode(
                name,
                step.target or "__copy",
                tuple(owner[storage[e]] for e in operands if storage[e] in owner),
                len(operands),
                step.result_count,
                {"nodes": ", ".join(step.nodes)} if step.nodes else {},
            )
        )
        owner.update((storage[entry], name) for entry in results_of(step))


def _leaf_entries(plan: Plan) -> list[int]:
    """The entries of the graph's arguments, in their order: inputs, then the first of each constant."""
    found = [entry for _, entry in plan.inputs]
    seen: set[int] = set()
    for index, entry in enumerate(plan.entries):
        if plan.storages[entry.storage].kind == "constant" and entry.storage not in seen:
            seen.add(entry.storage)
            found.append(index)
    return found
