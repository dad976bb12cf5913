"""The first node where two executors part, on the same inputs.

Both run node by node, so every tensor is compared where it was written: one pass is enough, however the
storages are shared.  Nodes are matched by name, in their order; what only one side has is passed over.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import final

import numpy as np

from tilewright.base.difference import Difference, measure
from tilewright.base.errors import InputError
from tilewright.base.record import record
from tilewright.runtime.debug_executor.debug_module import GraphModuleDebug


@final
@record
class Divergence:
    """Where two executors part.

    Attributes:
        name: of the node, on both sides.
        output: which of its outputs.
        nodes: its number on each side.
        difference: of that output.
        agreed: how many tensors before it agree.
    """

    name: str
    output: int
    nodes: tuple[int, int]
    difference: Difference
    agreed: int

    def __str__(self) -> str:
        return f"node {self.nodes[0]} {self.difference} ({self.agreed} tensors before it agree)"


def first_divergence(
    left: GraphModuleDebug,
    right: GraphModuleDebug,
    *,
    tolerance: float | None = None,
    **inputs: object,
) -> Divergence | None:
    """Run both, and give the first tensor that differs; None where all agree.

    Args:
        left: one executor.
        right: another, of the same or of another graph.
        tolerance: the largest error that passes, relative to the largest magnitude; None: that of the type.
        inputs: set on both sides before.

    Raises: InputError if the two have no node in common.
    """
    ours, theirs = left.tensors(**inputs), right.tensors(**inputs)
    agreed = 0
    pairs = list(_pairs(left.node_names, right.node_names))
    if not pairs:
        raise InputError("the two executors have no node of the same name")
    for name, nodes in pairs:
        output = 0
        while (nodes[0], output) in ours and (nodes[1], output) in theirs:
            a, b = ours[nodes[0], output], theirs[nodes[1], output]
            found = measure(name, np.asarray(a), np.asarray(b), tolerance)
            if found.is_beyond:
                return Divergence(name, output, nodes, found, agreed)
            agreed += 1
            output += 1
    return None


def _pairs(
    left: tuple[str, ...], right: tuple[str, ...]
) -> Iterator[tuple[str, tuple[int, int]]]:
    """Nodes of one name, the first with the first, the second with the second."""
    places: defaultdict[str, list[int]] = defaultdict(list)
    for index, name in enumerate(right):
        places[name].append(index)
    for index, name in enumerate(left):
        if places[name]:
            yield name, (index, places[name].pop(0))
