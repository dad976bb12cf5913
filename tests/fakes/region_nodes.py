"""Nodes with regions, made by hand."""

from collections.abc import Mapping, Sequence

from tilewright.compiler.graph.ir import Graph, Node, Value
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.ops import catalogue


def make_region_node(
    name: str,
    operands: Sequence[Value | None],
    regions: Sequence[Graph],
    result_types: Sequence[TensorType],
    attributes: Mapping[str, object] | None = None,
) -> Node:
    """A node of an op with regions (`fused`, `if`, `loop`), whose types the caller states."""
    row = catalogue.lookup(name)
    assert len(regions) == row.schema.region_count
    full = row.complete(attributes or {})
    return Node(row.schema, operands, full, result_types, regions=regions)
