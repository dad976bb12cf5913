"""What must hold of a graph before anybody runs it: every index, count, list and storage.

TVM checks a part of this, and crashes on some of the rest.  Called by `read_graph`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from tilewright.base.errors import ArchiveError
from tilewright.formats.graph_json.graph import (
    COPY,
    NOTHING,
    UNKNOWN,
    Graph,
    Node,
    Reference,
)

_RANK_LIMIT: Final = 64
_SIZE_LIMIT: Final = 1 << 62  # elements of a tensor
_OPS: Final = ("null", "tvm_op")


def verify_graph(graph: Graph, location: str = "graph") -> None:
    """Refuse an inconsistent graph.

    Raises: ArchiveError naming the node and the key.
    """
    for check in _CHECKS:
        check(graph, location)


def _refuse(problem: str, location: str) -> ArchiveError:
    return ArchiveError(problem, location=location)


def _name(node: Node, index: int, location: str) -> str:
    return f"{location}: node {index} '{node.name:.80}'"


def _check_kinds(graph: Graph, location: str) -> None:
    for index, node in enumerate(graph.nodes):
        where = _name(node, index, location)
        if node.op not in _OPS:
            raise _refuse(f"'op' is {node.op!r:.80}, expected 'null' or 'tvm_op'", where)
        if node.is_input and node.inputs:
            raise _refuse("an input ('null') has inputs", where)
        if not node.is_input and not node.attributes:
            raise _refuse("'attrs' is missing", where)


def _check_rows(graph: Graph, location: str) -> None:
    """Each node has as many entries as outputs."""
    rows, where = graph.node_row_ptr, f"{location}: 'node_row_ptr'"
    if len(rows) != len(graph.nodes) + 1:
        raise _refuse(
            f"{len(rows)} numbers for {len(graph.nodes)} nodes, expected one more than nodes",
            where,
        )
    if rows[0] != 0:
        raise _refuse(f"begins with {rows[0]}, expected 0", where)
    for index, node in enumerate(graph.nodes):
        given = rows[index + 1] - rows[index]
        if given != node.output_count:
            raise _refuse(
                f"'node_row_ptr' gives it {given} entries, expected {node.output_count}",
                _name(node, index, location),
            )


def _check_operators(graph: Graph, location: str) -> None:
    for index, node in enumerate(graph.nodes):
        if not node.is_input:
            _check_operator(graph, node, index, _name(node, index, location))


def _check_operator(graph: Graph, node: Node, index: int, where: str) -> None:
    if int(node.attributes["num_inputs"]) != len(node.inputs):
        raise _refuse(
            f"'num_inputs' is '{node.attributes['num_inputs']}', "
            f"but there are {len(node.inputs)} inputs",
            where,
        )
    if not node.function:
        raise _refuse("'func_name' is empty", where)
    if node.function == COPY and (len(node.inputs), node.output_count) != (1, 1):
        raise _refuse(f"'{COPY}' has one input and one output", where)
    _check_references(graph, node.inputs, index, f"{where}: 'inputs'")
    for dependency in node.control_dependencies or ():
        if dependency >= index:
            raise _refuse(f"waits for node {dependency}, expected one before it", where)


def _check_references(
    graph: Graph, references: Iterable[Reference], end: int, where: str
) -> None:
    for place, reference in enumerate(references):
        at = f"{where}[{place}]"
        if reference.node >= end:
            raise _refuse(f"node {reference.node}, expected one before {end}", at)
        source = graph.nodes[reference.node]
        if reference.index >= source.output_count:
            raise _refuse(
                f"output {reference.index} of node {reference.node} '{source.name:.80}', "
                f"which has {source.output_count}",
                at,
            )


def _check_border(graph: Graph, location: str) -> None:
    """The arguments are the inputs, each once, with names of their own; heads are entries."""
    arguments, where = graph.arguments, f"{location}: 'arg_nodes'"
    inputs = {index for index, node in enumerate(graph.nodes) if node.is_input}
    if len(set(arguments)) != len(arguments):
        raise _refuse("lists a node twice", where)
    if set(arguments) != inputs:
        wrong = min(set(arguments) ^ inputs)
        problem = "is no input ('null')" if wrong in arguments else "is missing"
        raise _refuse(f"node {wrong} {problem}", where)
    seen: dict[str, int] = {}
    for node in arguments:
        first = seen.setdefault(graph.nodes[node].name, node)
        if first != node:
            raise _refuse(
                f"nodes {first} and {node} are both called '{graph.nodes[node].name:.80}'",
                where,
            )
    _check_references(graph, graph.heads, len(graph.nodes), f"{location}: 'heads'")


def _check_entries(graph: Graph, location: str) -> None:
    """Every list has an item per entry; sizes are sizes."""
    entries, where = graph.entries, f"{location}: 'attrs'"
    columns: dict[str, Sequence[object] | None] = {
        "dltype": entries.dtype,
        "shape": entries.shape,
        "storage_id": entries.storage_id,
        "storage_scope": entries.storage_scope,
        "device_index": entries.device_index,
    }
    for key, column in columns.items():
        if column is not None and len(column) != graph.entry_count:
            raise _refuse(
                f"{len(column)} items, expected {graph.entry_count}, one per entry",
                f"{where}: '{key}'",
            )
    for index, shape in enumerate(entries.shape):
        _check_shape(shape, f"{where}: 'shape'[{index}]")
    for index, storage in enumerate(entries.storage_id):
        if storage < 0:
            raise ArchiveError(
                f"{storage}, expected a number from 0 on",
                location=f"{where}: 'storage_id'[{index}]",
                hint="a tensor without storage has a shape that only the run tells: "
                "compile for the Relay VM, or give the model fixed shapes",
            )


def _check_views(graph: Graph, location: str) -> None:
    """A view lies where what it views does."""
    storage = graph.entries.storage_id
    for index, node in enumerate(graph.nodes):
        if node.is_input or node.function != NOTHING or not node.inputs:
            continue
        sources = {storage[graph.entry_of(reference)] for reference in node.inputs}
        for output in range(node.output_count):
            if storage[graph.entry(index, output)] not in sources:
                raise _refuse(
                    f"'{NOTHING}' leads from storage {min(sources)} to storage "
                    f"{storage[graph.entry(index, output)]}",
                    _name(node, index, location),
                )


def _check_shape(shape: tuple[int, ...], where: str) -> None:
    if len(shape) > _RANK_LIMIT:
        raise _refuse(f"{len(shape)} axes, expected at most {_RANK_LIMIT}", where)
    count = 1
    for size in shape:
        if size < UNKNOWN:
            raise _refuse(f"a dimension of {size}", where)
        count *= max(size, 1)
        if count >= _SIZE_LIMIT:
            raise _refuse(f"{list(shape)!r:.80} is too large", where)


def _check_devices(graph: Graph, location: str) -> None:
    """One buffer is on one device."""
    devices = graph.entries.device_index
    if devices is None:
        return
    owner: dict[int, int] = {}
    for index, storage in enumerate(graph.entries.storage_id):
        if owner.setdefault(storage, devices[index]) != devices[index]:
            raise _refuse(
                f"storage {storage} is on devices {owner[storage]} and {devices[index]}",
                f"{location}: 'attrs': 'device_index'[{index}]",
            )


_CHECKS: Final[tuple[Callable[[Graph, str], None], ...]] = (
    _check_kinds,
    _check_rows,
    _check_operators,
    _check_border,
    _check_entries,
    _check_devices,
    _check_views,
)
