"""Updates of an input that become an output are written over it: the append to a cache of keys and values.

    present = scatter(past, places, new)     ->     the same {in_place = true}, which writes `new` alone

What a kernel does not write stands in the result because the program copies `past` there first; a caller who
gives the output the memory of the input is not even charged for that.
"""

from __future__ import annotations

from typing import ClassVar, final

from tilewright.base.record import record
from tilewright.compiler.graph.ir import Graph, Node
from tilewright.compiler.graph.schema import IN_PLACE, Trait
from tilewright.compiler.passes import GraphPass, PassContext, PassResult
from tilewright.compiler.transforms.fuse_kernels import FuseKernels


@final
@record(kw_only=True)
class UpdateInPlace(GraphPass):
    """Mark ops that change some elements of an input of the model, where the result is an output.

    Requires: fused.  Ensures: kernels of marked ops read no element of the input, and it is one operand.
    """

    requires: ClassVar[frozenset[str]] = FuseKernels.ensures
    level: ClassVar[int] = 2

    def run(self, graph: Graph, _: PassContext) -> PassResult:
        """One look at each kernel."""
        found = [inner for node in graph.nodes for inner in _updates(graph, node)]
        for inner in found:
            inner.attributes[IN_PLACE] = True
        return PassResult(bool(found), {"updates": len(found)} if found else {})


def _updates(graph: Graph, node: Node) -> list[Node]:
    """The ops of a kernel that update an input of `graph`, which nothing else in the kernel reads."""
    outputs = {value.origin for value in graph.outputs}
    if not node.has(Trait.KERNEL):
        ok = _may_update(node) and len(node.results) == 1
        rows = [(node, node.present_operands[0], node.result)] if ok else []
    else:
        region = node.regions[0]
        outer = dict(zip(region.inputs, node.present_operands, strict=True))
        results = dict(zip(region.outputs, node.results, strict=True))
        rows = [
            (inner, outer[inner.present_operands[0]], results[inner.result])
            for inner in region.nodes
            if _may_update(inner)
            and inner.present_operands[0] in outer
            and inner.result in results
            and sum(n.operands.count(inner.operands[0]) for n in region.nodes) == 1
        ]
    return [
        inner
        for inner, source, result in rows
        if source.origin in graph.inputs
        and result in outputs
        and node.present_operands.count(source) == 1
    ]


def _may_update(node: Node) -> bool:
    """Whether an op knows how to, and every element that it writes is an update as it stands."""
    known = any(spec.name == IN_PLACE for spec in node.schema.attributes)
    return known and node.attributes.get("reduction", "none") == "none"
