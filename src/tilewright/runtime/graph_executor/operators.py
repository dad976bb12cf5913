"""The operators of a graph with what each calls, looked up once.

A function comes from the module that is given with the graph, or from one that it imports: a kernel to be
recorded if there is one of the name, else any packed function.  Operators that touch different storages
make a group, which runs at the same time.  Called by `graph_program`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, final

from tilewright.base.errors import ArchiveError
from tilewright.base.record import record
from tilewright.base.text import did_you_mean
from tilewright.formats.graph_json import COPY, NOTHING, Graph, Node
from tilewright.runtime.graph_executor.storage_pool import EntryType
from tilewright.runtime.packed.kernel_function import RecordableKernel
from tilewright.runtime.packed.module import Module

if TYPE_CHECKING:
    from tilewright.runtime.packed.functions import PackedFunction

_NAMES_SHOWN = 12


@final
@record
class Operator:
    """One node that does something; a copy has neither a kernel nor a function.

    `arguments` are entries, inputs before outputs; the first `input_count` are read.
    """

    node: int
    name: str
    arguments: tuple[int, ...]
    input_count: int
    flattens: bool
    kernel: RecordableKernel | None = None
    function: PackedFunction | None = None

    @property
    def results(self) -> tuple[int, ...]:
        """The entries that it writes."""
        return self.arguments[self.input_count :]


def find_operators(graph: Graph, module: Module, location: str) -> tuple[Operator, ...]:
    """All nodes but inputs and views, in order.

    Raises: ArchiveError for a function that no module has, naming the node and what there is.
    """
    return tuple(
        _operator(graph, index, node, module, location)
        for index, node in enumerate(graph.nodes)
        if not node.is_input and node.function != NOTHING
    )


def _operator(
    graph: Graph, index: int, node: Node, module: Module, location: str
) -> Operator:
    inputs = tuple(graph.entry_of(reference) for reference in node.inputs)
    outputs = tuple(graph.entry(index, k) for k in range(node.output_count))
    kernel: RecordableKernel | None = None
    function: PackedFunction | None = None
    if node.function != COPY:
        kernel = module.get_kernel(node.function)
        if kernel is None:
            function = module.get_function(node.function, query_imports=True)
        if kernel is None and function is None:
            raise _missing(node, index, module, location)
    return Operator(
        index, node.name, inputs + outputs, len(inputs), node.flattens, kernel, function
    )


def _missing(node: Node, index: int, module: Module, location: str) -> ArchiveError:
    names = sorted({name for one in module.walk() for name in one.function_names()})
    shown = ", ".join(names[:_NAMES_SHOWN])
    if len(names) > _NAMES_SHOWN:
        shown += f" and {len(names) - _NAMES_SHOWN} more"
    listing = f"the module has {shown}" if names else "the module lists no functions"
    close = did_you_mean(node.function, names)
    return ArchiveError(
        f"no function '{node.function:.80}' in a module of kind '{module.kind}'",
        location=f"{location}: node {index} '{node.name:.80}'",
        hint=f"{close}; {listing}" if close else listing,
    )


def group(operators: Sequence[Operator], types: Sequence[EntryType]) -> tuple[int, ...]:
    """The group of each operator: those of one group touch nothing that another of it writes.

    Groups run one after the other; the operators of one may run at the same time.
    """
    read: set[int] = set()
    written: set[int] = set()
    number, found = 0, []
    for operator in operators:
        reads = {types[e].storage for e in operator.arguments[: operator.input_count]}
        writes = {types[e].storage for e in operator.results}
        if (reads | writes) & written or writes & read:
            number += 1
            read, written = set(), set()
        read |= reads
        written |= writes
        found.append(number)
    return tuple(found)


def lifetimes(
    operators: Sequence[Operator], groups: Sequence[int], types: Sequence[EntryType]
) -> dict[int, tuple[int, int]]:
    """The first and the last group that touches each storage; those that none does are left out."""
    found: dict[int, tuple[int, int]] = {}
    for operator, number in zip(operators, groups, strict=True):
        for entry in operator.arguments:
            storage = types[entry].storage
            found[storage] = found.get(storage, (number, number))[0], number
    return found
