"""Sizes that no tensor of a program has, for a kernel makes and uses them up: they are checked like all others.

A kernel that joins `x` with `5 - n` zeros writes a tensor of 5 elements; where `n` is 7 it would write behind its end.
Called by `build`.
"""

from __future__ import annotations

from tilewright.base.symbolic import Dim, bounds, maximum, symbols
from tilewright.compiler.graph.ir import Graph
from tilewright.compiler.graph.schema import Trait


def hidden_sizes(graph: Graph) -> tuple[tuple[Dim, Dim], ...]:
    """Pairs that agree where a size inside of a kernel is not negative; kernels of branches and loops left out."""
    seen = {dim for value in graph.values() for dim in value.type.shape}
    inside = (
        dim
        for node in graph.nodes
        if Trait.KERNEL in node.schema.traits
        for region in node.regions
        for value in region.values()
        for dim in value.type.shape
    )
    known = {s.name for dim in seen for s in symbols(dim)}
    return tuple(
        (dim, maximum(dim, 0))
        for dim in dict.fromkeys(inside)
        if dim not in seen
        and _may_be_negative(dim)
        and {s.name for s in symbols(dim)} <= known
    )


def _may_be_negative(dim: Dim) -> bool:
    low = bounds(dim)[0]
    return low is None or low < 0
