"""Kernels that write only some elements of a result, over an operand: which operand and which result.

The program copies such an operand into the memory of the result and lets the kernel write there.  Where the
caller gives both the same memory, nothing is copied.  Called by `build`; `update_in_place` says which nodes do.
"""

from __future__ import annotations

from tilewright.compiler.graph.ir import Node
from tilewright.compiler.graph.schema import IN_PLACE, Trait


def updates_of(node: Node) -> tuple[tuple[int, int], ...]:
    """(operand, result) of the kernel `node`, for each op in it whose result holds its first operand already."""
    if Trait.KERNEL not in node.schema.traits:
        return ((0, 0),) if node.attributes.get(IN_PLACE) else ()
    region = node.regions[0]
    return tuple(
        (region.inputs.index(inner.present_operands[0]), region.outputs.index(inner.result))
        for inner in region.nodes
        if inner.attributes.get(IN_PLACE)
    )
