"""Writes a graph as JSON, in TVM's order of keys; what was read comes out with equal values.

Called by the plan's file form and by tests of round trips.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from tilewright.formats.graph_json.graph import EntryTable, Graph, Node, Reference


def write_graph(graph: Graph) -> bytes:
    """The file; the same graph gives the same bytes."""
    members: dict[str, object] = {
        "nodes": [_node(node) for node in graph.nodes],
        "arg_nodes": list(graph.arguments),
        "heads": [_reference(head) for head in graph.heads],
        "attrs": _entries(graph.entries),
        "node_row_ptr": list(graph.node_row_ptr),
    }
    if graph.metadata is not None:  # in last place: TVM stops reading there
        members["metadata"] = graph.metadata
    return json.dumps(members, separators=(",", ":"), allow_nan=False).encode()


def _node(node: Node) -> dict[str, object]:
    members: dict[str, object] = {"op": node.op, "name": node.name}
    if node.attributes:
        members[node.attributes_key] = dict(node.attributes)
    members["inputs"] = [_reference(reference) for reference in node.inputs]
    if node.control_dependencies is not None:
        members["control_deps"] = list(node.control_dependencies)
    return members


def _reference(reference: Reference) -> list[int]:
    place = [reference.node, reference.index]
    return place if reference.version is None else [*place, reference.version]


_TAGS: Final[Mapping[str, str]] = {
    "dltype": "list_str",
    "shape": "list_shape",
    "storage_id": "list_int",
    "storage_scope": "list_str",
    "device_index": "list_int",
}


def _entries(entries: EntryTable) -> dict[str, object]:
    columns: dict[str, object] = {
        "dltype": entries.dtype,
        "shape": entries.shape,
        "storage_id": entries.storage_id,
        "storage_scope": entries.storage_scope,
        "device_index": entries.device_index,
    }
    return {
        key: list(entries.others[key])
        if key in entries.others
        else [_TAGS[key], columns[key]]
        for key in entries.keys
    }
