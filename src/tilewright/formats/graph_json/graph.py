"""What a graph of TVM's executor consists of: nodes, entries, the storages that entries share.

Frozen data.  An *entry* is one output of one node; entries are numbered through, and every list
of `EntryTable` has one item for each.

Source: TVM 0.19, `src/runtime/graph_executor/graph_executor.h`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

from tilewright.base.record import field, record

NOTHING: Final = "__nop"  # the function of a node that is another view of its input
COPY: Final = (
    "__copy"  # the function of a node that copies its input, maybe to another device
)
UNKNOWN: Final = -1  # a dimension that a call decides


@final
@record
class Reference:
    """Output `index` of node `node`.  TVM writes a version, always 0; old files leave it out."""

    node: int
    index: int
    version: int | None = 0


@final
@record
class Node:
    """An input (`op` is `null`) or a call of a function (`tvm_op`).

    `attributes` are the file's, all of them text: `func_name`, `num_inputs`, `num_outputs`,
    `flatten_data`, and whatever the compiler added.  They stand under `attributes_key`.
    """

    op: str
    name: str
    inputs: tuple[Reference, ...] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)
    control_dependencies: tuple[int, ...] | None = None
    attributes_key: str = "attrs"

    @property
    def is_input(self) -> bool:
        return self.op == "null"

    @property
    def function(self) -> str:
        """The name of what an operator calls."""
        return self.attributes["func_name"]

    @property
    def output_count(self) -> int:
        return 1 if self.is_input else int(self.attributes["num_outputs"])

    @property
    def flattens(self) -> bool:
        """Whether the function wants its tensors with one axis."""
        return not self.is_input and int(self.attributes["flatten_data"]) != 0


@final
@record
class EntryTable:
    """What the file says of every entry.

    Entries with one `storage_id` share a buffer, as large as the largest of them.  `others` are
    lists that no executor needs, `(type tag, value)`; `keys` is the order of all of them.
    """

    dtype: tuple[str, ...]
    shape: tuple[tuple[int, ...], ...]
    storage_id: tuple[int, ...]
    storage_scope: tuple[str, ...] | None = None
    device_index: tuple[int, ...] | None = None
    others: Mapping[str, tuple[str, object]] = field(default_factory=dict)
    keys: tuple[str, ...] = ("dltype", "shape", "storage_id")


@final
@record
class Graph:
    """A whole graph.  `arguments` are the nodes of inputs and parameters, `heads` what comes out.

    The entries of node `i` begin at `node_row_ptr[i]`; its last item is their number.  `metadata`
    is whatever stands under that key, None where it is not there: TVM reads no further.
    """

    nodes: tuple[Node, ...]
    arguments: tuple[int, ...]
    heads: tuple[Reference, ...]
    node_row_ptr: tuple[int, ...]
    entries: EntryTable
    metadata: object = None

    def entry(self, node: int, index: int = 0) -> int:
        """The number of an output of a node."""
        return self.node_row_ptr[node] + index

    def entry_of(self, reference: Reference) -> int:
        """The number of the entry that a reference means."""
        return self.entry(reference.node, reference.index)

    @property
    def entry_count(self) -> int:
        return self.node_row_ptr[-1]

    @property
    def input_names(self) -> tuple[str, ...]:
        """The names of inputs and parameters, in their order."""
        return tuple(self.nodes[node].name for node in self.arguments)


def operator_attributes(
    function: str, inputs: int, outputs: int, *, flattens: bool = False
) -> dict[str, str]:
    """The attributes that every operator has."""
    return {
        "func_name": function,
        "num_inputs": str(inputs),
        "num_outputs": str(outputs),
        "flatten_data": str(int(flattens)),
    }
