"""TVM's graph JSON: nodes, where their tensors lie, and which of them go in and come out.

`Graph` and its parts are data; `read_graph` refuses whatever TVM's graph executor would refuse and
what it would stumble over; `write_graph` gives the same JSON back.  Not here: execution
(`runtime.graph_executor`), and the plan that our own files carry under `metadata` (`formats.plan`).
"""

from tilewright.formats.graph_json.graph import (
    COPY,
    NOTHING,
    UNKNOWN,
    EntryTable,
    Graph,
    Node,
    Reference,
    operator_attributes,
)
from tilewright.formats.graph_json.reader import read_graph, read_members
from tilewright.formats.graph_json.verifier import verify_graph
from tilewright.formats.graph_json.writer import write_graph

__all__ = [
    "COPY",
    "NOTHING",
    "UNKNOWN",
    "EntryTable",
    "Graph",
    "Node",
    "Reference",
    "operator_attributes",
    "read_graph",
    "read_members",
    "verify_graph",
    "write_graph",
]
