"""Which kernels a graph needs, each with the nodes that run it.

Nodes that differ in the values of their constants only share one.  Called by the pipeline.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, final

from tilewright.base.text import identifier, unique
from tilewright.compiler.graph.ir import Graph, Node
from tilewright.compiler.graph.schema import Trait
from tilewright.compiler.kernel.ir import Kernel
from tilewright.compiler.kernel.text import kernel_text
from tilewright.compiler.lowering.build_kernel import build_kernel, can_build

# Kernels are compared by their text under this name, then get names of their own.
KEY_NAME: Final = "kernel"


@final
@dataclass(frozen=True, slots=True, eq=False)
class KernelUse:
    """Nodes that share one kernel: equal in everything but the values of their constants."""

    naive: Kernel
    nodes: tuple[Node, ...]


def find_kernels(graph: Graph) -> tuple[KernelUse, ...]:
    """The distinct kernels of the graph; kernels that print alike are one."""
    found: dict[str, tuple[Kernel, list[Node]]] = {}
    taken: set[str] = set()
    for node in graph.walk():
        if not is_kernel(node):
            continue
        kernel = build_kernel(node, KEY_NAME)
        key = kernel_text(kernel)
        if key not in found:
            name = unique(identifier(str(node.attributes.get("name", node.title))), taken)
            taken.add(name)
            found[key] = (replace(kernel, name=name), [])
        found[key][1].append(node)
    return tuple(KernelUse(kernel, tuple(nodes)) for kernel, nodes in found.values())


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
