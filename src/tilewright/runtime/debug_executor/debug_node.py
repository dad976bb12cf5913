"""One node of a program that is debugged, and where a plan's inputs and constants lie.

Not here: the nodes of a program (`nodes`, `flow_nodes`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

from tilewright.base.record import field, record
from tilewright.formats.plan import Plan

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


def leaf_entries(plan: Plan) -> list[int]:
    """The entries of the graph's arguments, in their order: inputs, then the first of each constant."""
    found = [entry for _, entry in plan.inputs]
    seen: set[int] = set()
    for index, entry in enumerate(plan.entries):
        if plan.storages[entry.storage].kind == "constant" and entry.storage not in seen:
            seen.add(entry.storage)
            found.append(index)
    return found
