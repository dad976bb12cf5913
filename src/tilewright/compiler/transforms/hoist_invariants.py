"""What every trip of a loop would make anew, though nothing in it changes, is made once before the loop.

    while: matmul(state, pack(weights))     ->     p = pack(weights); while: matmul(state, p)

Weights that are constants are packed at compile time (`fold_constants`, `fold_rows`); this is for those that a call
brings, or that are made of what it brings.  What fuses into its reader at no cost stays where it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import ClassVar, Final, final

from tilewright.base.record import record
from tilewright.compiler.graph.copy import copy_node
from tilewright.compiler.graph.editor import Editor, size_names
from tilewright.compiler.graph.ir import Graph, Node, Value
from tilewright.compiler.graph.schema import Role, Trait
from tilewright.compiler.ops import catalogue
from tilewright.compiler.passes import GraphPass, PassContext, PassResult

_WORTH: Final = (
    Role.PACKING, Role.CONTRACTION, Role.ATTENTION, Role.ROWS, Role.REDUCTION, Role.POOLING,
)  # fmt: skip


@final
@record(kw_only=True)
class HoistInvariants(GraphPass):
    """Move what is packed, multiplied or summed of nothing that a loop changes before the loop.

    Requires: folded, dead nodes gone.  Ensures: bodies of loops hold no such node at their top, but those that may fail
    (they check indices, or run on the host), which they do only where they run.  Inner loops first, so that it moves
    as far out as it can.
    """

    ensures: ClassVar[frozenset[str]] = frozenset({"invariants-hoisted"})
    level: ClassVar[int] = 1

    def run(self, graph: Graph, _: PassContext) -> PassResult:
        """One look at the body of each loop of the graph."""
        count = 0
        with Editor(graph) as edit:
            for node in edit.nodes():
                if node.has(Trait.LOOP):
                    moved = _invariants(node)
                    if moved:
                        _hoist(node, moved, edit)
                        count += len(moved)
            return PassResult(edit.modified, {"hoisted": count} if count else {})


def _invariants(loop: Node) -> list[Node]:
    """The nodes of a body that are worth moving, of which something else in the loop reads the result."""
    body = loop.regions[1]
    fixed = set(body.inputs[len(loop.results) :])
    bound = [*loop.trip_sizes, *(s for node in body.walk() for s in node.bound_sizes)]
    # What a trip compares is not so where no trip runs, so nothing that needs it runs there.
    inner = {symbol.name for symbol in bound}.union(
        *(size_names(node) for node in body.walk() if node.has(Trait.AGREES))
    )
    found: list[Node] = []
    for node in body:
        if not _may_move(node, fixed, inner):
            continue
        fixed.update(node.results)
        if node.schema.role in _WORTH:
            found.append(node)
    read = _read_by_others(body, found)
    return [node for node in found if not read.isdisjoint(node.results)]


def _may_move(node: Node, fixed: set[Value], inner: AbstractSet[str]) -> bool:
    is_plain = node.has(Trait.PURE) and not node.regions and not node.has(Trait.GUARD)
    if not is_plain or any(v not in fixed for v in node.present_operands):
        return False
    row = catalogue.find(node.op)
    may_fail = row is None or bool(row.on_host) or row.indices is not None
    return not may_fail and inner.isdisjoint(size_names(node))


def _read_by_others(body: Graph, moved: Sequence[Node]) -> set[Value]:
    """What is read by whoever stays, be it a node that could move but is not worth it."""
    leaving = set(moved)
    staying = (node for node in body if node not in leaving)
    return set(body.outputs).union(*(node.present_operands for node in staying))


def _hoist(loop: Node, moved: Sequence[Node], edit: Editor) -> None:
    """Write the nodes, and what they are made of, before the loop, which takes their results."""
    go_on, body = loop.regions
    outer: dict[Value, Value] = dict(zip(body.inputs, loop.present_operands, strict=True))
    operands = list(loop.operands)
    made_before = {
        value: _made_outside(value, loop, outer, edit)
        for node in moved
        for value in node.results
    }
    with Editor(body) as inside:
        for node in moved:
            for value in node.results:
                made = made_before[value]
                taken = Value(value.type, value.name)
                body.inputs.append(taken)
                go_on.inputs.append(Value(value.type, value.name))
                operands.append(made)
                inside.replace_uses(value, taken)
            inside.erase_dead(node)
    other = Node(
        loop.schema, operands, loop.attributes, [v.type for v in loop.results],
        regions=loop.regions, location=loop.location,
    )  # fmt: skip
    edit.insert_before(loop, other)
    edit.replace(loop, other.results)


def _made_outside(
    value: Value, loop: Node, outer: dict[Value, Value], edit: Editor
) -> Value:
    """The value before the loop; nodes are written once."""
    if value not in outer:
        node = value.node
        assert node is not None, "inputs of the body are known"
        for operand in node.present_operands:
            _made_outside(operand, loop, outer, edit)
        edit.insert_before(loop, copy_node(node, outer))
    return outer[value]
