"""Common subexpression elimination: equal computations are done once.

Compares op, attributes and operands, not meaning; commuted operands of commutative ops count as
equal.  Constants are merged by content.
"""

from __future__ import annotations

from typing import ClassVar, final

from tilewright.base.record import record
from tilewright.compiler.graph.compare import attribute_key
from tilewright.compiler.graph.editor import Editor
from tilewright.compiler.graph.ir import Graph, Node
from tilewright.compiler.graph.schema import Trait
from tilewright.compiler.graph.text import ArrayHashes
from tilewright.compiler.passes import GraphPass, PassContext, PassResult
from tilewright.compiler.transforms.matching import constant_of

Key = tuple[object, ...]


@final
@record(kw_only=True)
class EliminateCommon(GraphPass):
    """Replace a node by an earlier one that computes the same.

    Requires: nothing.  Ensures: no two pure nodes have the same op, attributes and operands;
    constants above `compare_bytes` are compared by identity only.
    """

    level: ClassVar[int] = 1
    compare_bytes: int = 1 << 16

    def run(self, graph: Graph, _: PassContext) -> PassResult:
        """One walk in order: equal operands have become identical before their users."""
        seen: dict[Key, Node] = {}
        hashes = ArrayHashes()
        count = 0
        with Editor(graph) as edit:
            for node in edit.nodes():
                if not node.has(Trait.PURE) or node.regions:
                    continue
                earlier = seen.setdefault(self._key(node, hashes), node)
                if earlier is not node:
                    edit.replace(node, earlier.results)
                    count += 1
            return PassResult(edit.modified, {"merged": count} if count else {})

    def _key(self, node: Node, hashes: ArrayHashes) -> Key:
        if node.has(Trait.CONSTANT):
            array = constant_of(node.result)
            assert array is not None, "a constant has a value"
            is_large = array.nbytes > self.compare_bytes
            content = id(array) if is_large else array.tobytes()
            return (node.op, node.result.type, content)
        operands = [0 if v is None else id(v) for v in node.operands]
        if node.has(Trait.COMMUTATIVE):
            operands[:2] = sorted(operands[:2])
        attributes = [
            (name, attribute_key(value, hashes))
            for name, value in sorted(node.attributes.items())
        ]
        types = tuple(v.type for v in node.results)
        return (node.op, tuple(operands), tuple(attributes), types)
