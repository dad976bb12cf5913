"""From a graph to a program without code generation: naive kernels, built and laid out."""

from __future__ import annotations

from tilewright.compiler import pipeline
from tilewright.compiler.graph.ir import Graph
from tilewright.compiler.kernel.ir import Kernel
from tilewright.compiler.lowering.promote_scratch import promote_scratch
from tilewright.compiler.program import memory
from tilewright.compiler.program.build import Lowered, build_program
from tilewright.compiler.program.ir import Program
from tilewright.compiler.program.signature import signature_of
from tilewright.compiler.program.work import arithmetic_work


def naive_kernels(graph: Graph) -> list[Kernel]:
    """The kernels of the programs below, in order."""
    return [promote_scratch(group.naive) for group in pipeline.find_kernels(graph)]


def unplanned(graph: Graph) -> Program:
    """The program of a graph with one naive kernel per distinct node; no memory assigned."""
    signatures = [signature_of(kernel) for kernel in naive_kernels(graph)]
    lowered = {
        node: Lowered(index, arithmetic_work(node))
        for index, group in enumerate(pipeline.find_kernels(graph))
        for node in group.nodes
    }
    return build_program(graph, signatures, lowered)


def planned(graph: Graph) -> Program:
    """The same with memory assigned."""
    return memory.assign(unplanned(graph))
