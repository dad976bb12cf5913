"""Groups of nodes that become kernels, and the question whether a group stays acyclic.

Bookkeeping for `fuse_kernels`: who belongs where, what a group reads and yields, and which groups
depend on which.  No policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import final

from tilewright.base.record import field, record
from tilewright.compiler.graph.editor import Editor
from tilewright.compiler.graph.ir import Graph, Node, Value
from tilewright.compiler.graph.schema import Role, Trait
from tilewright.compiler.transforms.fusion_classes import is_repeatable, role_of
from tilewright.compiler.transforms.matching import needed_outside, read_outside


@final
@record(eq=False, frozen=False)
class Group:
    """One kernel in the making; `root` makes what leaves it."""

    root: Node
    kind: Role
    nodes: set[Node] = field(default_factory=set[Node])

    @property
    def output(self) -> Value:
        """What the group yields."""
        return self.root.results[0]


@final
class Groups:
    """The state of fusion over one graph."""

    def __init__(self, graph: Graph, edit: Editor) -> None:
        self.graph: Graph = graph
        self.edit: Editor = edit
        self.place: dict[Node, int] = {node: i for i, node in enumerate(graph.nodes)}
        self.roles: dict[Node, Role] = {node: role_of(node) for node in graph.nodes}
        self._repeatable: set[Node] = {
            n for n, r in self.roles.items() if is_repeatable(n, r)
        }
        # The group of a node; repeatable nodes taken by several have none, only holders.
        self.of: dict[Node, Group] = {}
        self.holders: dict[Node, list[Group]] = {}
        self.all: list[Group] = []

    def role(self, node: Node) -> Role:
        """The part of the node."""
        return self.roles[node]

    def is_repeatable(self, node: Node) -> bool:
        """Whether several kernels may each do this for themselves."""
        return node in self._repeatable

    def start(self, node: Node, kind: Role) -> Group:
        """A new group with one node."""
        group = Group(node, kind, {node})
        self.of[node] = group
        self.holders.setdefault(node, []).append(group)
        self.all.append(group)
        return group

    def take(self, group: Group, nodes: Iterable[Node]) -> None:
        """Put nodes that belong to nobody into `group`; repeatable ones stay free for others."""
        for node in nodes:
            if node in group.nodes:
                continue
            group.nodes.add(node)
            self.holders.setdefault(node, []).append(group)
            if node not in self._repeatable:
                self.of[node] = group

    def give_back(self, group: Group, root: Node, nodes: Iterable[Node]) -> None:
        """Let `root` make what leaves `group`; `nodes` behind it belong to nobody."""
        group.root = root
        for node in nodes:
            group.nodes.discard(node)
            self.holders[node].remove(group)
            self.of.pop(node, None)

    def merge(self, group: Group, source: Group) -> None:
        """Put all of `source` into `group`, which reads what it makes; nothing is left of it."""
        for node in source.nodes:
            self.holders[node].remove(source)
            self.of.pop(node, None)
        nodes, source.nodes = source.nodes, set()
        self.take(group, nodes)

    def is_output(self, value: Value) -> bool:
        """Whether the graph returns the value."""
        return self.edit.is_output(value)

    def outputs(self, nodes: set[Node]) -> list[Value]:
        """What `nodes` make that is needed outside them (repeatable makers aside)."""
        makers = [node for node in nodes if self.roles[node] is not Role.FREE]
        return needed_outside(makers, nodes, self.edit)

    def inputs(self, group: Group) -> list[Value]:
        """What the group reads from outside, in order of first use."""
        return read_outside(self.canonical(group), group.nodes)

    def canonical(self, group: Group) -> list[Node]:
        """Operands before users, in an order that depends on the structure of the group alone."""
        done: dict[Node, None] = {}
        work: list[tuple[Node, bool]] = [(group.root, False)]
        while work:
            node, complete = work.pop()
            if complete:
                done[node] = None
            elif node not in done:
                work.append((node, True))
                makers = [v.node for v in reversed(node.present_operands)]
                work.extend(
                    (m, False) for m in makers if m is not None and m in group.nodes
                )
        return list(done)

    def is_needed(self, node: Node) -> bool:
        """Whether somebody reads a result of `node` from memory, now that users have groups."""
        if node.has(Trait.GUARD):
            return True
        return any(
            self.is_output(value)
            or any(self._reads(u, node) for u in self.edit.users(value))
            for value in node.results
        )

    def _reads(self, user: Node, node: Node) -> bool:
        holders = self.holders.get(user, ())
        if any(node not in group.nodes for group in holders):
            return True
        if user in self._repeatable:
            return self.is_needed(user)
        return not holders

    def ordered(self, nodes: Iterable[Node]) -> list[Node]:
        """Nodes in graph order."""
        return sorted(nodes, key=self.place.__getitem__)

    def depends(self, value: Value, nodes: set[Node]) -> bool:
        """Whether computing `value` needs something that `nodes` make, groups taken whole."""
        made = nodes - self._repeatable
        first = min(self.place[n] for n in made)
        work = [value.node] if value.node is not None else []
        seen: set[Node] = set()
        while work:
            node = work.pop()
            if node in seen:
                continue
            seen.add(node)
            if node in made:
                return True
            members = self._members(node)
            # A group that ends before `nodes` begin cannot read from them.
            if max(self.place[m] for m in members) < first:
                continue
            seen.update(members)
            work.extend(_makers(members))
        return False

    def _members(self, node: Node) -> set[Node]:
        group = self.of.get(node)
        return {node} if group is None else group.nodes


def _makers(nodes: Iterable[Node]) -> Iterator[Node]:
    for node in nodes:
        for value in node.present_operands:
            if value.node is not None:
                yield value.node
