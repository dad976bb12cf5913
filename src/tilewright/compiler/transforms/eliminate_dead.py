"""Dead code elimination: what nobody uses and has no effect is dropped."""

from __future__ import annotations

from typing import ClassVar, final

from tilewright.base.record import record
from tilewright.compiler.graph.editor import Editor
from tilewright.compiler.graph.ir import Graph, Node
from tilewright.compiler.graph.schema import Trait
from tilewright.compiler.passes import GraphPass, PassContext, PassResult


@final
@record(kw_only=True)
class EliminateDead(GraphPass):
    """Erase nodes without effect whose results nobody uses.

    Requires: nothing.  Ensures: every pure node has a used result.  Control flow without effects
    in its regions counts as pure.
    """

    ensures: ClassVar[frozenset[str]] = frozenset({"live"})

    def run(self, graph: Graph, _: PassContext) -> PassResult:
        """One walk backwards, users before makers."""
        count = 0
        with Editor(graph) as edit:
            for node in edit.reversed_nodes():
                if any(edit.use_count(v) for v in node.results) or not is_pure(node):
                    continue
                edit.erase(node)
                count += 1
            return PassResult(edit.modified, {"erased": count} if count else {})


def is_pure(node: Node) -> bool:
    """Whether the node, with everything in its regions, has no effect besides its results."""
    if not node.regions:
        return node.has(Trait.PURE)
    return all(is_pure(inner) for region in node.regions for inner in region.nodes)
