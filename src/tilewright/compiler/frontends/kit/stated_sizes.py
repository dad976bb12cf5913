"""Sizes that stand in a graph as the elements of its vectors, before any call gives data.

Called by `control`, which reads those that do not, and by rows of front ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.graph.ir import Value
from tilewright.compiler.graph.schema import Array
from tilewright.compiler.ops.shapes import element_count


def joined_elements(values: Tensor) -> list[Dim | None] | None:
    """The elements of a vector that is joined of known and other pieces; None: it is no such vector."""
    node = None if values.value is None else values.value.node
    if node is None or node.op != "concat" or values.rank != 1:
        return None
    found: list[Dim | None] = []
    for piece in node.present_operands:
        elements = sizes_in(piece)
        if elements is None:
            return None
        found += elements
    return found


def sizes_in(value: Value) -> Sequence[Dim | None] | None:
    """The elements of a vector or a scalar as sizes that stand in the graph; None where nobody knows how many there are.

    A negative one is none, and is refused where it is read.
    """
    node, count = value.node, element_count(value.type.shape)
    if not isinstance(count, int):
        return None
    if node is not None and node.op == "constant":
        held = cast("Array", node.attributes["value"])
        if held.dtype.kind not in "iu":
            return [None] * count
        return [number if number >= 0 else None for number in held.reshape(-1).tolist()]
    if node is not None and node.op == "shape_tensor":
        return cast("tuple[Dim, ...]", node.attributes["values"])
    return [None] * count
