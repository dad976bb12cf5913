"""The first node where two executors part, on the same inputs.

Both run node by node, so every tensor is compared where it was written: one pass is enough, however the
storages are shared, and it ends where they part.  Nodes are matched by name, in their order; what only one side has is passed over.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator, Mapping
from typing import final

from tilewright.base.difference import Difference, measure
from tilewright.base.errors import InputError
from tilewright.base.options import wrong
from tilewright.base.record import record
from tilewright.runtime.debug_executor.debug_module import GraphModuleDebug
from tilewright.runtime.plan_executor.tensors import Array


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
    """Run both side by side up to the first tensor that differs; None where all agree.

    Nodes are matched by name. Other levels of optimization and targets have other nodes, whose names may be the same:
    `tilewright.compare` knows which belong together.

    Args:
        left: one executor.
        right: another, of the same or of another graph.
        tolerance: the largest error that passes, relative to the largest magnitude; None: that of the type.
        inputs: set on both sides before.

    Raises: InputError if the two have no node in common.
    """
    for side, module in (("left", left), ("right", right)):
        if not isinstance(module, GraphModuleDebug):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise wrong(
                side, module, "a debug executor", "tilewright.debug_executor.create(...)"
            )
    for module in (left, right):  # which nodes there are may depend on the inputs
        module.prepare(**inputs)
    pairs = list(_pairs(left.node_names, right.node_names))
    if not pairs:
        raise InputError("the two executors have no node of the same name")
    ours = _Pass(left, {nodes[0] for _, nodes in pairs}, inputs)
    theirs = _Pass(right, {nodes[1] for _, nodes in pairs}, inputs)
    agreed = 0
    for name, nodes in pairs:
        rows = zip(ours.take(nodes[0]), theirs.take(nodes[1]), strict=False)
        for output, (a, b) in enumerate(rows):
            found = measure(name, a, b, tolerance)
            if found.is_beyond:
                return Divergence(name, output, nodes, found, agreed)
            agreed += 1
    return None


@final
class _Pass:
    """One run over an executor's nodes, as far as somebody asked; keeps what is still to be taken.

    Sides whose nodes come in the same order keep one tensor at a time.
    """

    def __init__(
        self, module: GraphModuleDebug, wanted: Container[int], inputs: Mapping[str, object]
    ) -> None:
        self._outputs: Iterator[tuple[int, tuple[Array, ...]]] = module.outputs(**inputs)
        self._wanted: Container[int] = wanted
        self._kept: dict[int, tuple[Array, ...]] = {}

    def take(self, node: int) -> tuple[Array, ...]:
        """The outputs of a node, which is asked for once."""
        while node not in self._kept:
            index, arrays = next(self._outputs)
            if index in self._wanted:
                self._kept[index] = arrays
        return self._kept.pop(node)


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
