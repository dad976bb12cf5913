"""The first value of the model where two executors part, on the same inputs.

Both run node by node, so every tensor is compared where it was written: one pass is enough, however the
storages are shared, and it ends where they part.  Nodes of two levels or targets are others, of the same names or not:
what is matched are the values of the model that they write (`model_tensors`), in the model's order; what only one
side has is passed over.  Last come the outputs, of runs as a whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import final

from tilewright.base.diagnostics import warn
from tilewright.base.difference import Difference, measure
from tilewright.base.errors import InputError
from tilewright.base.options import wrong
from tilewright.base.record import record
from tilewright.runtime.debug_executor.debug_module import GraphModuleDebug
from tilewright.runtime.debug_executor.model_tensors import ModelTensor
from tilewright.runtime.plan_executor.tensors import Array

_Pair = tuple[ModelTensor, ModelTensor]
_ONLY_OUTPUTS = "the two executors have no value of the model in common but outputs"


@final
@record
class Divergence:
    """Where two executors part.

    Attributes:
        name: of the value in the model, with the place where it is computed in control flow; of graphs that were
            compiled elsewhere, of the node.
        output: which output of its node on the left, or of the model.
        nodes: the number of the node on each side; None for an output that only runs as a whole have in common.
        difference: of that value.
        agreed: how many tensors before it agree.
        shared: how many values both sides have, outputs of the model aside.
    """

    name: str
    output: int
    nodes: tuple[int, int] | None
    difference: Difference
    agreed: int
    shared: int

    def __str__(self) -> str:
        place = "output" if self.nodes is None else f"node {self.nodes[0]}"
        agreed = f"{self.agreed} tensors before it agree"
        return f"{place} {self.difference} ({agreed if self.shared else _ONLY_OUTPUTS})"


def first_divergence(
    left: GraphModuleDebug,
    right: GraphModuleDebug,
    *,
    tolerance: float | None = None,
    **inputs: object,
) -> Divergence | None:
    """Run both side by side up to the first value that differs; None where all agree.

    What is compared are the values of the model that both sides compute, in the model's order, then its outputs:
    optimization levels and targets may be different ones. A value that is fused into a kernel, or that a rewrite
    leaves out, is nobody's; where only outputs are left, a warning says so. Of graphs that other compilers made
    only names of nodes are known: those of the same name are compared.

    Args:
        left: one executor.
        right: another, of the same or of another graph.
        tolerance: the largest error that passes, relative to the largest magnitude; None: that of the type.
        inputs: set on both sides before.

    Raises: InputError if the two have neither a value nor an output in common.
    """
    for side, module in (("left", left), ("right", right)):
        if not isinstance(module, GraphModuleDebug):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise wrong(
                side, module, "a debug executor", "tilewright.debug_executor.create(...)"
            )
    for module in (left, right):  # which nodes there are may depend on the inputs
        module.prepare(**inputs)
    pairs = list(_pairs(left.model_tensors, right.model_tensors))
    outputs = _outputs_in_common(left, right)
    if not pairs and not outputs:
        raise InputError("the two executors have no node of the same name")
    if not pairs:
        warn(f"{_ONLY_OUTPUTS}: those alone are compared")
    ours = _Pass(left, [a.node for a, _ in pairs], inputs)
    theirs = _Pass(right, [b.node for _, b in pairs], inputs)
    for agreed, (a, b) in enumerate(pairs):
        found = _measure(a.name, ours.take(a), theirs.take(b), tolerance)
        if found.is_beyond:
            nodes = (a.node, b.node)
            return Divergence(a.name, a.output, nodes, found, agreed, len(pairs))
    if not outputs:
        return None
    mine, others = left.results(**inputs), right.results(**inputs)
    for place, (name, (i, j)) in enumerate(outputs.items()):
        found = _measure(name, mine[i], others[j], tolerance)
        if found.is_beyond:
            return Divergence(name, i, None, found, len(pairs) + place, len(pairs))
    return None


def _measure(name: str, a: Array, b: Array, tolerance: float | None) -> Difference:
    """Sides may have the elements under shapes of their own."""
    same = a.dtype == b.dtype and a.size == b.size
    return measure(name, a, b.reshape(a.shape) if same else b, tolerance)


@final
class _Pass:
    """One run over an executor's nodes, as far as somebody asked; keeps what is still to be taken.

    Sides whose values come in the same order keep one tensor at a time.
    """

    def __init__(
        self, module: GraphModuleDebug, nodes: Sequence[int], inputs: Mapping[str, object]
    ) -> None:
        self._outputs: Iterator[tuple[int, tuple[Array, ...]]] = module.outputs(**inputs)
        self._wanted: Counter[int] = Counter(nodes)  # how often each is still asked for
        self._kept: dict[int, tuple[Array, ...]] = {}

    def take(self, tensor: ModelTensor) -> Array:
        """A value that a node writes; each node is asked for as often as was said."""
        node = tensor.node
        while node not in self._kept:
            index, arrays = next(self._outputs)
            if self._wanted[index]:
                self._kept[index] = arrays
        self._wanted[node] -= 1
        row = self._kept[node] if self._wanted[node] else self._kept.pop(node)
        found = row[tensor.output]
        return found.transpose(tensor.axes) if tensor.axes else found


def _pairs(left: Sequence[ModelTensor], right: Sequence[ModelTensor]) -> Iterator[_Pair]:
    """The values that both have, in the order of the left; tensors that are several values count once."""
    theirs = {tensor.key: tensor for tensor in reversed(right)}
    seen: set[tuple[object, ...]] = set()
    for tensor in left:
        other = theirs.get(tensor.key)
        if other is None:
            continue
        place = (tensor.node, tensor.output, other.node, other.output)
        if place not in seen:
            seen.add(place)
            yield tensor, other


def _outputs_in_common(
    left: GraphModuleDebug, right: GraphModuleDebug
) -> dict[str, tuple[int, int]]:
    """Those of the same name; where there are none, and as many on both sides, each with the other at its place."""
    if not left.knows_model and not right.knows_model:  # they are nodes, which have names
        return {}
    names = [left.output_names, right.output_names]
    common = {n: (i, names[1].index(n)) for i, n in enumerate(names[0]) if n in names[1]}
    if common or len(names[0]) != len(names[1]):
        return common
    return {name: (i, i) for i, name in enumerate(names[0])}
