"""The only writer of a graph after construction.

An editor computes the uses of every value once and keeps them right while it inserts, replaces
and erases; it keeps the nodes in topological order.  Open one per pass, finish it before anyone
else looks at `graph.nodes`:

    with Editor(graph) as edit:
        for node in edit.nodes():
            ...

Not a pattern matcher (`passes/rewriting.py`).  Ownership: while an editor is open, the graph
belongs to it.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import cast, final

from tilewright.base.errors import InternalError, ModelError
from tilewright.base.symbolic import Expr, names_in
from tilewright.compiler.graph.ir import UNKNOWN_LOCATION, Graph, Location, Node, Value
from tilewright.compiler.graph.schema import OpSchema, Trait


@final
class Editor:
    """Edits one graph; `modified` tells whether anything changed."""

    __slots__ = ("_inside", "_next", "_previous", "_uses", "graph", "modified")

    def __init__(self, graph: Graph) -> None:
        self.graph: Graph = graph
        self.modified: bool = False
        nodes = graph.nodes
        self._inside: set[Node] = set(nodes)
        if len(self._inside) != len(nodes):
            raise InternalError("a graph has a node twice", location=graph.name)
        # A ring: None stands behind the last node and before the first.
        ring = (None, *nodes, None)
        self._next: dict[Node | None, Node | None] = dict(itertools.pairwise(ring))
        self._previous: dict[Node | None, Node | None] = dict(
            itertools.pairwise(reversed(ring))
        )
        # value -> node -> how many operands of the node are the value
        self._uses: dict[Value, dict[Node, int]] = {}
        for node in nodes:
            self._add_uses(node, node.operands)

    def __enter__(self) -> Editor:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.finish()

    # --- looking

    def nodes(self) -> Iterator[Node]:
        """Nodes in order, robust against insertion and erasure while iterating.

        Nodes inserted before the current one are not visited, those after it are.
        """
        node = self._next[None]
        while node is not None:
            following = self._next[node]
            yield node
            # The visitor may have erased `node` or inserted after it.
            node = self._next[node] if node in self._inside else following
            # Erased nodes keep their links, so a chain of erasures still leads on.
            while node is not None and node not in self._inside:
                node = self._next[node]

    def reversed_nodes(self) -> Iterator[Node]:
        """Nodes from last to first, robust against erasure while iterating."""
        node = self._previous[None]
        while node is not None:
            before = self._previous[node]
            yield node
            while before is not None and before not in self._inside:
                before = self._previous[before]
            node = before

    def contains(self, node: Node) -> bool:
        """Whether `node` is (still) in the graph."""
        return node in self._inside

    def users(self, value: Value) -> tuple[Node, ...]:
        """The nodes that take `value`, each once, in no particular order."""
        return tuple(self._uses.get(value, ()))

    def sole_user(self, value: Value) -> Node | None:
        """The node with the only use of `value`; None if there are more uses or an output."""
        uses = self._uses.get(value, {})
        if len(uses) != 1 or self.is_output(value):
            return None
        ((node, count),) = uses.items()
        return node if count == 1 else None

    def use_count(self, value: Value) -> int:
        """How many operands and graph outputs are `value`."""
        outputs = self.graph.outputs.count(value)
        return sum(self._uses.get(value, {}).values()) + outputs

    def is_output(self, value: Value) -> bool:
        """Whether the graph returns `value`."""
        return value in self.graph.outputs

    def is_used(self, value: Value) -> bool:
        """Whether a node takes `value`, or the graph returns it."""
        return bool(self._uses.get(value)) or self.is_output(value)

    # --- writing

    def create(
        self,
        schema: OpSchema,
        operands: Sequence[Value | None],
        attributes: Mapping[str, object] | None = None,
        *,
        before: Node | None,
        location: Location | None = None,
    ) -> Node:
        """A new node with inferred result types, inserted before `before` (None: at the end).

        Raises: the op's ModelError when the operands do not fit, with the node's location; InternalError when
        `before` is not in the graph.
        """
        complete = schema.complete(attributes or {})
        if location is None:
            location = UNKNOWN_LOCATION if before is None else before.location
        try:
            types = schema.infer(
                [None if v is None else v.type for v in operands], complete
            )
        except ModelError as error:
            if error.location is None and location is not UNKNOWN_LOCATION:
                error.location = location
            raise
        node = Node(schema, operands, complete, types, location=location)
        self.insert_before(before, node)
        return node

    def insert_before(self, anchor: Node | None, node: Node) -> None:
        """Put `node` before `anchor` (None: at the end).

        Raises: InternalError when `node` is in the graph, or `anchor` is not.
        """
        if node in self._inside:
            raise InternalError(f"op '{node.op}' is inserted twice", location=node.location)
        if anchor is not None and anchor not in self._inside:
            raise InternalError(
                f"op '{node.op}' is inserted before op '{anchor.op}', which is not in the graph",
                location=node.location,
            )
        self._inside.add(node)
        self._link(self._previous[anchor], node)
        self._link(node, anchor)
        self._add_uses(node, node.operands)
        self.modified = True

    def _link(self, before: Node | None, after: Node | None) -> None:
        self._next[before], self._previous[after] = after, before

    def replace_uses(self, old: Value, new: Value) -> None:
        """Make every operand and output that is `old` be `new`.

        `new` takes the name of `old` when it has none, and so does what it shows as a view; what it shows with
        the axes in another order has this order, `(0, 3, 1, 2)`, behind the name.
        """
        if old is new:
            return
        if old.type != new.type:
            raise InternalError(
                f"cannot replace a value of type {old.type} by one of type {new.type}",
                location=None if old.node is None else old.node.location,
            )
        for user in self.users(old):
            self._substitute(user, old, new)
        if self.is_output(old):
            self.graph.outputs[:] = [new if v is old else v for v in self.graph.outputs]
        _name(new, old.name)
        self.modified = True

    def replace(self, node: Node, values: Sequence[Value]) -> None:
        """Use `values` instead of the results of `node` and erase it."""
        for old, new in zip(node.results, values, strict=True):
            self.replace_uses(old, new)
        self.erase(node)

    def erase(self, node: Node) -> None:
        """Remove a node whose results nobody uses.

        Raises: InternalError when a result is used.
        """
        for value in node.results:
            if self._uses.get(value) or self.is_output(value):
                raise InternalError(
                    f"cannot erase op '{node.op}', its result '%{value.name}' is used",
                    location=node.location,
                )
        for value in node.present_operands:
            self._drop_use(value, node)
        self._link(self._previous[node], self._next[node])
        self._inside.remove(node)
        self.modified = True

    def erase_dead(self, node: Node | None) -> None:
        """Erase `node` and then its operands' makers, as far as nobody needs them.

        A node that is not PURE stays.
        """
        work = [node]
        while work:
            current = work.pop()
            if current is None or current not in self._inside:
                continue
            if not current.has(Trait.PURE):
                continue
            if any(self._uses.get(v) or self.is_output(v) for v in current.results):
                continue
            makers = [v.node for v in current.present_operands]
            self.erase(current)
            work.extend(makers)

    def finish(self) -> None:
        """Write the node list back, in topological order."""
        nodes: list[Node] = []
        node = self._next[None]
        while node is not None:
            nodes.append(node)
            node = self._next[node]
        is_sorted = not self.modified or self._is_sorted(nodes)
        self.graph.nodes[:] = nodes if is_sorted else self._sorted(nodes)

    # --- uses

    def _add_uses(self, node: Node, operands: Sequence[Value | None]) -> None:
        # Each of the passes counts the uses of the whole graph.
        everywhere = self._uses
        for value in operands:
            if value is None:
                continue
            uses = everywhere.get(value)
            if uses is None:
                everywhere[value] = {node: 1}
            else:
                uses[node] = uses.get(node, 0) + 1

    def _drop_use(self, value: Value, node: Node) -> None:
        uses = self._uses[value]
        uses[node] -= 1
        if not uses[node]:
            del uses[node]

    def _substitute(self, user: Node, old: Value, new: Value) -> None:
        for index, value in enumerate(user.operands):
            if value is old:
                user.operands[index] = new
                self._drop_use(old, user)
                self._add_uses(user, (new,))

    # --- order

    def _is_sorted(self, nodes: Sequence[Node]) -> bool:
        """Whether all nodes stand behind the makers of their operands."""
        ahead = set(nodes)
        for node in nodes:
            ahead.remove(node)
            for value in node.operands:
                if value is not None and value.node in ahead:
                    return False
        return True

    def _sorted(self, nodes: Sequence[Node]) -> list[Node]:
        """A topological order that stays as close to the given one as it can."""
        place = {node: index for index, node in enumerate(nodes)}
        binders = _Binders(nodes)
        waiting: dict[Node, int] = {}
        users: dict[Node, list[Node]] = {}
        for node in nodes:
            operands = node.present_operands
            makers = {v.node for v in operands if v.node is not None and v.node in place}
            makers |= binders.before(node)
            waiting[node] = len(makers)
            for maker in makers:
                users.setdefault(maker, []).append(node)
        ready = [place[node] for node in nodes if not waiting[node]]
        result: list[Node] = []
        while ready:
            node = nodes[heapq.heappop(ready)]
            result.append(node)
            for user in users.get(node, ()):
                waiting[user] -= 1
                if not waiting[user]:
                    heapq.heappush(ready, place[user])
        if len(result) != len(nodes):
            stuck = next(node for node in nodes if waiting[node])
            raise InternalError(
                f"op '{stuck.op}' depends on itself", location=stuck.location
            )
        return result


def _name(value: Value, name: str) -> None:
    """Name what has no name; an order of axes is that of the shape that a view shows, and no further."""
    while name and not value.name and (node := value.node) is not None:
        value.name, order = name, node.attributes.get("perm", "")
        if not order and (name.endswith(")") or not node.has(Trait.VIEW)):
            return
        value, name = node.operand(), f"{name}{order}"


@final
class _Binders:
    """Which nodes bind the symbols in the types of others."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._of: dict[str, Node] = {
            symbol.name: node for node in nodes for symbol in node.bound_sizes
        }

    def before(self, node: Node) -> set[Node]:
        """Those that must stand before `node`."""
        if not self._of:
            return set()
        names = size_names(node)
        return {self._of[name] for name in names & self._of.keys()} - {node}


def size_names(node: Node) -> set[str]:
    """The names of the sizes in types and attributes of a node, and of what stands in its regions."""
    values = [*node.results, *node.present_operands]
    names = set(names_in(dim for value in values for dim in value.type.shape))
    for held in node.attributes.values():
        if isinstance(held, tuple):
            parts = cast("tuple[object, ...]", held)
            names |= names_in(part for part in parts if isinstance(part, Expr))
    for region in node.regions:
        for inner in region:
            names |= size_names(inner)
    return names
