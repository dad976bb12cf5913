"""Sizes that no tensor of a program has, for a kernel makes and uses them up: they are checked like all others.

A kernel that joins `x` with `5 - n` zeros writes a tensor of 5 elements; where `n` is 7 it would write behind its end.
Called by `build`.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from tilewright.base.symbolic import Dim, bounds, names_in
from tilewright.compiler.graph.ir import Graph, Node, Value
from tilewright.compiler.graph.schema import Trait
from tilewright.formats.plan.size_relations import Pair, at_least


def known_names(graph: Graph) -> frozenset[str]:
    """The symbols that have a value in some place of a program: inputs or data decide them, or a loop changes them."""
    shapes = (value.type.shape for value in graph.values())
    return graph.bound_names() | names_in(dim for shape in shapes for dim in shape)


def hidden_sizes(graph: Graph, known: AbstractSet[str]) -> tuple[Pair, ...]:
    """Pairs that agree where no size inside of a kernel is negative; those of branches and loops have their own place."""
    return _not_negative(graph.nodes, graph.values(), known)


def sizes_inside(node: Node, known: AbstractSet[str]) -> tuple[Pair, ...]:
    """The same of one kernel, for the place where it runs: a branch, or a trip of a loop."""
    return _not_negative((node,), (*node.present_operands, *node.results), known)


def _not_negative(
    nodes: Iterable[Node], shown: Iterable[Value], known: AbstractSet[str]
) -> tuple[Pair, ...]:
    seen = {dim for value in shown for dim in value.type.shape}
    inside = (
        dim
        for node in nodes
        if Trait.KERNEL in node.schema.traits
        for region in node.regions
        for value in region.values()
        for dim in value.type.shape
    )
    return tuple(
        at_least(dim, 0)
        for dim in dict.fromkeys(inside)
        if dim not in seen and _may_be_negative(dim) and names_in((dim,)) <= known
    )


def _may_be_negative(dim: Dim) -> bool:
    low = bounds(dim)[0]
    return low is None or low < 0
