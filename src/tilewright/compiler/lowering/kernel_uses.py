"""Which kernels a graph needs, each with the nodes that run it.

Nodes that differ in the values of their constants only share one.  Called by the pipeline.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, final

from tilewright.base.record import record
from tilewright.base.text import identifier, unique
from tilewright.compiler.graph.compare import node_fingerprint
from tilewright.compiler.graph.ir import Graph, Node
from tilewright.compiler.graph.schema import Trait
from tilewright.compiler.graph.text import ArrayHashes
from tilewright.compiler.kernel.ir import Kernel
from tilewright.compiler.kernel.text import kernel_text
from tilewright.compiler.lowering.build_kernel import build_kernel, can_build, symbols_of

# Kernels are compared by their text under this name, then get names of their own.
KEY_NAME: Final = "kernel"


@final
@record(eq=False)
class KernelUse:
    """Nodes that share one kernel: equal in everything but the values of their constants.

    `text` is the kernel's, as long as it was called `KEY_NAME`.
    """

    naive: Kernel
    text: str
    nodes: tuple[Node, ...]


def find_kernels(graph: Graph) -> tuple[KernelUse, ...]:
    """The distinct kernels of the graph; kernels that print alike are one.

    Most nodes are like one before them in all that a kernel is made of, so their kernel is built once.
    """
    texts: dict[str, str] = {}
    found: dict[str, tuple[Kernel, list[Node]]] = {}
    taken: set[str] = set()
    hashes = ArrayHashes()
    for node in filter(is_kernel, graph.walk()):
        structure = _structure(node, hashes)
        if structure not in texts:
            kernel = build_kernel(node, KEY_NAME)
            text = texts[structure] = kernel_text(kernel)
            if text not in found:
                label = str(node.attributes.get("name", node.title))
                name = unique(identifier(label), taken)
                taken.add(name)
                found[text] = (replace(kernel, name=name), [])
        found[texts[structure]][1].append(node)
    return tuple(
        KernelUse(kernel, text, tuple(nodes)) for text, (kernel, nodes) in found.items()
    )


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
