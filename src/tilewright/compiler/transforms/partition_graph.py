"""Partitioning: subgraphs that go to code generators of users become one `external` node each.

Every node belongs to at most one subgraph, and no subgraph depends on itself through others, so
that each can be one call.  Values that somebody outside needs are further results.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar, final

from tilewright.base.record import field, record
from tilewright.base.symbolic import names_in
from tilewright.base.text import identifier, unique
from tilewright.compiler.graph.compare import fingerprint
from tilewright.compiler.graph.copy import graph_of
from tilewright.compiler.graph.editor import Editor, size_names
from tilewright.compiler.graph.ir import Graph, Node, Value
from tilewright.compiler.graph.schema import Trait
from tilewright.compiler.graph.text import ArrayHashes
from tilewright.compiler.ops import control
from tilewright.compiler.passes import GraphPass, PassContext, PassResult
from tilewright.compiler.transforms.external_codegen import Codegen, NamedPattern
from tilewright.compiler.transforms.graph_pattern import Match, ask_user
from tilewright.compiler.transforms.matching import (
    is_constant,
    needed_outside,
    read_outside,
)


@final
@record(eq=False, frozen=False)
class Subgraph:
    """Nodes that one generator gets, and what others read from them."""

    codegen: Codegen
    nodes: set[Node]
    readers: set[Node]


@final
@record(kw_only=True)
class PartitionGraph(GraphPass):
    """Give what the patterns of code generators fit to them.

    Requires: nothing.  Ensures: each match is in an `external` node, whose region later passes do not
    enter; subgraphs that are equal have the same symbol.

    Args:
        codegens: in the order in which they may take nodes.
    """

    required_because: ClassVar[str] = (
        "it does what byoc asks for; leave the code generator out of byoc instead"
    )
    codegens: tuple[Codegen, ...] = ()

    def run(self, graph: Graph, _: PassContext) -> PassResult:
        """Match from the last node to the first, join what meets, write the nodes."""
        with Editor(graph) as edit:
            partition = _Partition(graph, edit)
            for codegen in self.codegens:
                partition.match(codegen)
            for codegen in self.codegens:
                if codegen.merge:
                    partition.merge(codegen)
            count = partition.build()
            return PassResult(edit.modified, {"subgraphs": count} if count else {})


@final
@record(eq=False, frozen=False)
class _Partition:
    """The subgraphs so far; a node that belongs to one stands for all of it."""

    graph: Graph
    edit: Editor
    of: dict[Node, Subgraph] = field(default_factory=dict[Node, Subgraph])
    all: list[Subgraph] = field(default_factory=list[Subgraph])
    place: dict[Node, int] = field(default_factory=dict[Node, int])
    reach: list[int] = field(default_factory=list[int])
    """For subgraphs by where they begin, where the last one ends: a tree of maxima (see `_end_of_ways_back`)."""

    def __post_init__(self) -> None:
        self.place = {node: index for index, node in enumerate(self.graph.nodes)}
        self.reach = [-1] * (len(self.place) + 1)

    def match(self, codegen: Codegen) -> None:
        """Take what the patterns of `codegen` fit, larger matches being rooted later."""
        for node in reversed(self.graph.nodes):
            for value in node.results if node not in self.of else ():
                nodes = self._fitting(codegen, value)
                if nodes:
                    self._add(Subgraph(codegen, nodes, self._readers_of(nodes)))
                    break

    def _fitting(self, codegen: Codegen, value: Value) -> set[Node]:
        for row in codegen.patterns:
            for found in row.pattern.all_matches(value):
                nodes = set(found.nodes)
                if self._is_free(nodes, codegen) and _is_accepted(codegen, row, found):
                    return nodes
        return set()

    def _is_free(self, nodes: set[Node], codegen: Codegen) -> bool:
        """Whether the nodes can be a subgraph of their own beside those that there are."""
        if not nodes or any(
            n in self.of or not n.has(Trait.PURE) or n.regions for n in nodes
        ):
            return False
        readers = self._readers_of(nodes)
        return self._can_stand_alone(nodes, codegen) and not self._returns_to(
            nodes, readers
        )

    def _add(self, subgraph: Subgraph) -> None:
        self.all.append(subgraph)
        self._take(subgraph, subgraph.nodes)

    def _take(self, subgraph: Subgraph, nodes: set[Node]) -> None:
        """Note that `nodes` belong to the subgraph, and how far it extends."""
        self.of.update(dict.fromkeys(nodes, subgraph))
        places = [self.place[node] for node in subgraph.nodes]
        begin, end = min(places) + 1, max(places)
        while begin < len(self.reach):
            self.reach[begin] = max(self.reach[begin], end)
            begin += begin & -begin

    def merge(self, codegen: Codegen) -> None:
        """Join subgraphs of one generator where one reads what the other makes."""
        changed = True
        while changed:
            changed = False
            for first in [s for s in self.all if s.codegen is codegen]:
                for second in self._neighbours(first):
                    changed |= self._join(first, second)

    def _neighbours(self, subgraph: Subgraph) -> list[Subgraph]:
        """Other subgraphs of the same generator that read from this one, in order."""
        found = {
            self.of[node]: None
            for node in self.ordered(subgraph.readers)
            if node in self.of
        }
        codegen = subgraph.codegen
        return [s for s in found if s is not subgraph and s.codegen is codegen]

    def _join(self, first: Subgraph, second: Subgraph) -> bool:
        """Put `second` into `first`, if no other way leads from one to the other."""
        if second not in self.all or first not in self.all:
            return False
        nodes = first.nodes | second.nodes
        readers = (first.readers | second.readers) - nodes
        if self._returns_to(nodes, readers):
            return False
        first.nodes, first.readers = nodes, readers
        self._take(first, second.nodes)
        self.all.remove(second)
        return True

    def _users(self, nodes: Iterable[Node]) -> Iterator[Node]:
        for node in nodes:
            for value in node.results:
                yield from self.edit.users(value)

    def _readers_of(self, nodes: set[Node]) -> set[Node]:
        """Others that take what the nodes make."""
        return {user for user in self._users(nodes) if user not in nodes}

    def _returns_to(self, nodes: set[Node], readers: set[Node]) -> bool:
        """Whether what `nodes` make comes back to them by way of others, subgraphs taken whole."""
        work = list(readers)
        end = self._end_of_ways_back(max(self.place[node] for node in nodes))
        seen: set[Node] = set()
        while work:
            node = work.pop()
            if node in seen or self.place[node] > end:
                continue
            if node in nodes:
                return True
            subgraph = self.of.get(node)
            # A subgraph that is about to be part of `nodes` counts as those.
            members = {node} if subgraph is None else subgraph.nodes
            if members & nodes:
                return True
            seen |= members
            work.extend(self._users(members))
        return False

    def _end_of_ways_back(self, place: int) -> int:
        """The place behind which no way leads back to `place` or before.

        Ways go on in the order of the graph, but for those through a subgraph, which is entered at any of its
        nodes and left at any: only one that begins before a place and ends behind it leads back there.
        Source: Fenwick, "A new data structure for cumulative frequency tables", 1994, with maxima for sums.
        """
        while True:
            end, position = place, place + 1
            while position:
                end = max(end, self.reach[position])
                position &= position - 1
            if end == place:
                return place
            place = end

    def ordered(self, nodes: Iterable[Node]) -> list[Node]:
        """Nodes in graph order."""
        return sorted(nodes, key=self.place.__getitem__)

    # --- what a subgraph consists of

    def _inputs(self, nodes: set[Node], codegen: Codegen) -> list[Value]:
        """What the nodes read from outside, in order of first use."""
        read = read_outside(self.ordered(nodes), nodes)
        return [v for v in read if not (codegen.bind_constants and is_constant(v))]

    def _outputs(self, nodes: set[Node]) -> list[Value]:
        """What somebody else needs of what the nodes make."""
        return needed_outside(self.ordered(nodes), nodes, self.edit)

    def _can_stand_alone(self, nodes: set[Node], codegen: Codegen) -> bool:
        """Whether the sizes in the nodes are those of what they read: whoever is called sees no others."""
        inputs = self._inputs(nodes, codegen)
        known = names_in(dim for value in inputs for dim in value.type.shape)
        return all(size_names(node) <= known for node in nodes)

    # --- writing

    def build(self) -> int:
        """Replace every subgraph by one node; returns how many there are."""
        names: dict[tuple[Codegen, str], str] = {}
        taken: set[str] = set()
        hashes = ArrayHashes()
        for subgraph in sorted(self.all, key=lambda s: min(self.place[n] for n in s.nodes)):
            region = self._region(subgraph)
            key = (subgraph.codegen, fingerprint(region, hashes=hashes))
            if key not in names:
                stem = identifier(f"{subgraph.codegen.name}_{_ops_of(region)}")
                names[key] = unique(stem, taken)
                taken.add(names[key])
            region.name = names[key]
            self._replace(subgraph, region)
        return len(self.all)

    def _region(self, subgraph: Subgraph) -> Graph:
        nodes, codegen = subgraph.nodes, subgraph.codegen
        inputs, outputs = self._inputs(nodes, codegen), self._outputs(nodes)
        given, taken = set(inputs), set[str]()
        names: list[str] = []
        for letter, values in (("x", inputs), ("y", outputs)):
            for index, value in enumerate(values):
                names.append(unique(identifier(value.name or f"{letter}{index}"), taken))
                taken.add(names[-1])
        parts = dict.fromkeys(  # constants that are bound stand in front of who reads them
            part
            for node in self.ordered(nodes)
            for part in (*(v.node for v in node.present_operands if v not in given), node)
            if part is not None
        )
        region = graph_of(parts, inputs, outputs, names)
        region.output_names = names[len(inputs) :]
        return region

    def _replace(self, subgraph: Subgraph, region: Graph) -> None:
        nodes = subgraph.nodes
        outputs = self._outputs(nodes)
        last = self.ordered(nodes)[-1]
        made = Node(
            control.external.schema,
            self._inputs(nodes, subgraph.codegen),
            {"symbol": region.name, "codegen": subgraph.codegen.name},
            [value.type for value in outputs],
            regions=[region],
            location=last.location,
            names=[value.name for value in outputs],
        )
        self.edit.insert_before(last, made)
        for old, new in zip(outputs, made.results, strict=True):
            self.edit.replace_uses(old, new)
        for node in reversed(self.ordered(nodes)):
            if self.edit.contains(node):
                self.edit.erase_dead(node)


def _is_accepted(codegen: Codegen, row: NamedPattern, found: Match) -> bool:
    subject = f"code generator '{codegen.name}': check of pattern '{row.name}'"
    return row.check is None or ask_user(subject, row.check, found)


def _ops_of(region: Graph) -> str:
    """The first ops, for a name that says something."""
    ops = [node.op for node in region if not node.has(Trait.CONSTANT)]
    return "_".join(ops[:3])
