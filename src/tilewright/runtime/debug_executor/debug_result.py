"""What a debug run found: times and tensors of all nodes, as a table and in the files of TVM's debugger.

Source: TVM 0.19, `python/tvm/contrib/debugger/debug_result.py`.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Final, final

from tilewright.base.output_file import (
    make_output_folder,
    open_output,
    write_text_output,
)
from tilewright.base.record import record
from tilewright.formats.graph_json import Graph, write_graph
from tilewright.formats.parameters import write_tvm_params
from tilewright.runtime.debug_executor.nodes import DebugNode
from tilewright.runtime.plan_executor.tensors import Array

GRAPH_FILE: Final = "_tvmdbg_graph_dump.json"
TENSORS_FILE: Final = "output_tensors.params"
TRACE_FILE: Final = "_tvmdbg_execution_trace.json"
_COLUMNS: Final = (
    "Node Name", "Ops", "Time(us)", "Time(%)", "Shape", "Inputs", "Outputs", "Measurements(us)",
)  # fmt: skip


@final
@record
class DebugResult:
    """A debug run.

    Attributes:
        graph: in TVM's form.
        nodes: in the order in which they ran.
        times: seconds, for each node one per repeat; 0 for those that do nothing.
        tensors: copies of all outputs, per node.
    """

    graph: Graph
    nodes: tuple[DebugNode, ...]
    times: tuple[tuple[float, ...], ...]
    tensors: tuple[tuple[Array, ...], ...]

    @property
    def means(self) -> tuple[float, ...]:
        """Seconds of each node."""
        return tuple(statistics.fmean(times) for times in self.times)

    def table(self, sort_by_time: bool = True) -> str:
        """The nodes that do something with their times, longest first, and the whole time."""
        total = sum(self.means)
        rows = [
            row
            for index, node in enumerate(self.nodes)
            if not node.is_parameter
            for row in self._rows(index, node, total)
        ]
        if sort_by_time:
            rows.sort(key=lambda row: -float(row[2]))
        rows.append(["Total_time", "-", f"{total * 1e6:.3f}", *["-"] * 5])
        lines = ["-" * len(name) for name in _COLUMNS]
        return _aligned([list(_COLUMNS), lines, *rows])

    def _rows(self, index: int, node: DebugNode, total: float) -> list[list[str]]:
        """One row per output."""
        mean = self.means[index]
        share = 100 * mean / total if total else 0.0
        measured = [round(time * 1e6, 3) for time in self.times[index]]
        return [
            [
                node.name,
                node.function,
                f"{mean * 1e6:.3f}",
                f"{share:.3f}",
                str(tensor.shape),
                str(node.input_count),
                str(node.output_count),
                str(measured),
            ]
            for tensor in self.tensors[index]
        ]

    def output_tensors(self) -> Mapping[str, Array]:
        """All tensors under the names of TVM's dump; names of nodes need not be unique."""
        return {
            f"{node.name}____topo-index:{index}____output-num:{output}": tensor
            for index, node in enumerate(self.nodes)
            for output, tensor in enumerate(self.tensors[index])
        }

    def chrome_trace(self) -> dict[str, object]:
        """One node behind the other, for Perfetto and chrome://tracing."""
        starts = accumulate(self.means, initial=0.0)
        events: list[dict[str, object]] = []
        for node, start, mean in zip(self.nodes, starts, self.means, strict=False):
            common = {"pid": 1, "tid": 1, "name": node.name}
            detail = {"node": node.name, "op": node.function, "inputs": list(node.inputs)}
            events.append({"ph": "B", "ts": start * 1e6, **common, "args": detail})
            events.append({"ph": "E", "ts": (start + mean) * 1e6, **common, "args": detail})
        return {"displayTimeUnit": "ns", "traceEvents": events}

    def graph_dump(self) -> dict[str, object]:
        """The graph as TVM's debugger writes it: functions in the place of ops, inputs by name."""
        members = json.loads(write_graph(self.graph))
        members.pop("metadata", None)
        table = self.graph.entries
        for index, node in enumerate(members["nodes"]):
            entry = self.graph.entry(index)
            given = self.graph.nodes[index]
            attributes = node.pop("attr", None) or node.pop("attrs", {})
            node["op"] = "param" if given.is_input else given.function
            node["inputs"] = [self.graph.nodes[r.node].name for r in given.inputs]
            if given.output_count:
                attributes["T"] = f"type: {table.dtype[entry]}"
                node["shape"] = list(table.shape[entry])
            node["attrs"] = attributes
        return members

    def dump(self, folder: str | Path) -> Path:
        """Write the graph, the tensors and the trace.

        Args:
            folder: where to; made if it is not there.

        Raises: UserError for a folder that cannot be written.
        """
        place = Path(folder)
        make_output_folder(place)
        write_text_output(place / GRAPH_FILE, json.dumps(self.graph_dump(), indent=4))
        with open_output(place / TENSORS_FILE) as file:
            write_tvm_params(file, self.output_tensors())
        write_text_output(place / TRACE_FILE, json.dumps(self.chrome_trace()))
        return place

    def __str__(self) -> str:
        return self.table()


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(
            cell.ljust(width) for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in rows
    )
    return "\n".join(lines)
