"""From a graph to a program without code generation: naive kernels, built and laid out."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.compiler import pipeline
from tilewright.compiler.graph.ir import Graph
from tilewright.compiler.kernel.ir import Kernel
from tilewright.compiler.lowering.promote_scratch import promote_scratch
from tilewright.compiler.program import memory
from tilewright.compiler.program.build import Lowered, build_program
from tilewright.compiler.program.ir import Program
from tilewright.compiler.program.work import arithmetic_work


def unplanned(graph: Graph) -> Program:
    """The program of a graph with one naive kernel per distinct node; no memory assigned."""
    groups = pipeline.find_kernels(graph)
    kernels: Sequence[Kernel] = [promote_scratch(group.naive) for group in groups]
    lowered = {
        node: Lowered(index, arithmetic_work(node))
        for index, group in enumerate(groups)
        for node in group.nodes
    }
    return build_program(graph, kernels, lowered)


def planned(graph: Graph) -> Program:
    """The same with memory assigned."""
    return memory.assign(unplanned(graph))
