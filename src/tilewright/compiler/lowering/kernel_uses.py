"""Which kernels a graph needs, each with the nodes that run it.

Nodes that differ in the values of their constants only share one.  Numbers that stand in the code count, too: where
kernels differ in them alone, there is one that reads them (`lift_numbers`).  Called by the pipeline.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, final

from tilewright.base.record import field, record
from tilewright.base.text import identifier, unique
from tilewright.compiler.graph.compare import node_fingerprint
from tilewright.compiler.graph.ir import Graph, Node
from tilewright.compiler.graph.schema import Array, Trait
from tilewright.compiler.graph.text import ArrayHashes
from tilewright.compiler.kernel.ir import Kernel
from tilewright.compiler.kernel.text import kernel_text
from tilewright.compiler.lowering.build_kernel import build_kernel, can_build, symbols_of
from tilewright.compiler.lowering.index_numbers import check_index_numbers
from tilewright.compiler.lowering.lift_numbers import (
    NO_CANDIDATES,
    Candidates,
    candidates,
    lift,
)

# Kernels are compared by their text under this name, then get names of their own.
KEY_NAME: Final = "kernel"


@final
@record(eq=False)
class KernelUse:
    """Nodes that share one kernel: equal in everything but the values of their constants.

    `text` is the kernel's, as long as it was called `KEY_NAME`; `numbers` is what a node brings for its bindings of
    access `FIXED`, which stand between operands and results.
    """

    naive: Kernel
    text: str
    nodes: tuple[Node, ...]
    numbers: Mapping[Node, tuple[Array, ...]] = field(
        default_factory=dict[Node, "tuple[Array, ...]"]
    )


def find_kernels(graph: Graph) -> tuple[KernelUse, ...]:
    """The distinct kernels of the graph; kernels that print alike, but for numbers that can be lifted, are one."""
    taken: set[str] = set()
    uses: list[KernelUse] = []
    for alike in _alike(_distinct(graph)):
        first = alike[0][0].nodes[0]
        label = str(first.attributes.get("name", first.title))
        name = unique(identifier(label), taken)
        taken.add(name)
        use = alike[0][0] if len(alike) == 1 else _joined(alike)
        uses.append(replace(use, naive=replace(use.naive, name=name)))
    return tuple(uses)


def _distinct(graph: Graph) -> list[KernelUse]:
    """Kernels that print alike are one.

    Most nodes are like one before them in all that a kernel is made of, so their kernel is built once.
    """
    texts: dict[str, str] = {}
    found: dict[str, tuple[Kernel, list[Node]]] = {}
    hashes = ArrayHashes()
    for node in filter(is_kernel, graph.walk()):
        structure = _structure(node, hashes)
        if structure not in texts:
            kernel = build_kernel(node, KEY_NAME)
            text = texts[structure] = kernel_text(kernel)
            check_index_numbers(kernel, text, node.location)
            found.setdefault(text, (kernel, []))
        found[texts[structure]][1].append(node)
    return [
        KernelUse(kernel, text, tuple(nodes)) for text, (kernel, nodes) in found.items()
    ]


def _alike(uses: Sequence[KernelUse]) -> list[list[tuple[KernelUse, Candidates]]]:
    """Kernels that differ in numbers that can be lifted, together.

    Only where others have the same parameters is there something to look for.
    """
    together: dict[str, list[tuple[KernelUse, Candidates]]] = {}
    signatures = Counter(_signature(use) for use in uses)
    for use in uses:
        bounds = [(symbol.name, *symbol.bounds()) for symbol in use.naive.dims]
        is_alone = signatures[_signature(use)] == 1
        found = NO_CANDIDATES if is_alone else candidates(use.naive)
        structure = found.structure or use.text
        together.setdefault(f"{structure} {bounds}", []).append((use, found))
    return list(together.values())


def _signature(use: KernelUse) -> str:
    """The parameters and sizes of a kernel, which are the first line of its text."""
    return use.text.partition("\n")[0]


def _joined(alike: Sequence[tuple[KernelUse, Candidates]]) -> KernelUse:
    """One kernel for several that are alike."""
    first = alike[0][0]
    operands = len(first.nodes[0].present_operands)
    kernel, arrays = lift(first.naive, operands, [found for _, found in alike])
    numbers = {
        node: given
        for (use, _), given in zip(alike, arrays, strict=True)
        for node in use.nodes
    }
    return KernelUse(kernel, kernel_text(kernel), tuple(numbers), numbers)


def _structure(node: Node, hashes: ArrayHashes) -> str:
    """All of a node that its kernel is made of."""
    bounds = [(symbol.name, *symbol.bounds()) for symbol in symbols_of(node)]
    return f"{node_fingerprint(node, hashes)} {bounds}"


def is_kernel(node: Node) -> bool:
    """Whether the node becomes machine code (not a constant, a view or a host call)."""
    return not is_data(node) and can_build(node)


def is_data(node: Node) -> bool:
    """Whether the node only says where elements are: a constant, a view, or a part of another."""
    return bool(node.schema.traits & (Trait.CONSTANT | Trait.VIEW | Trait.PART))


def is_flow(node: Node) -> bool:
    """Whether the node decides what runs, and how large it is: control flow, or sizes that are read or compared."""
    traits = node.schema.traits
    return bool(traits & (Trait.BINDS | Trait.AGREES)) or (
        bool(node.regions) and Trait.SEALED not in traits
    )
