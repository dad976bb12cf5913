"""Rewriting by rules: functions from a matched node to what replaces it.

A rule looks at one node and returns the values to use instead of its results, or None.  The
driver applies the rules of a pass in node order until nothing changes.  Rules write new nodes
through an `Emitter`, which puts them before the matched node.  What ops exist comes from the
`lookup` that a pass provides.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from tilewright.compiler.graph.editor import Editor
from tilewright.compiler.graph.ir import Graph, Location, Node, Value
from tilewright.compiler.graph.schema import Array, OpSchema
from tilewright.compiler.passes.context import PassContext
from tilewright.compiler.passes.graph_pass import GraphPass, PassResult

Lookup = Callable[[str], OpSchema]
Replacement = Value | Sequence[Value] | None
_MOST_ROUNDS = 16


@final
class Emitter:
    """Makes nodes before `anchor`, with its location; types are inferred."""

    __slots__ = ("_lookup", "anchor", "edit", "location")

    def __init__(
        self,
        edit: Editor,
        lookup: Lookup,
        anchor: Node | None,
        location: Location | None = None,
    ) -> None:
        self.edit: Editor = edit
        self.anchor: Node | None = anchor
        self.location: Location | None = location
        self._lookup: Lookup = lookup

    def node(
        self,
        op: str,
        operands: Sequence[Value | None],
        attributes: Mapping[str, object] | None = None,
    ) -> Node:
        """A new node of the op called `op`."""
        schema = self._lookup(op)
        return self.edit.create(
            schema, operands, attributes, before=self.anchor, location=self.location
        )

    def op(
        self,
        op: str,
        operands: Sequence[Value | None],
        attributes: Mapping[str, object] | None = None,
    ) -> Value:
        """The only result of a new node."""
        return self.node(op, operands, attributes).result

    def constant(self, array: Array) -> Value:
        """A new constant; the array is kept, not copied."""
        return self.op("constant", (), {"value": array})

    def scalar(self, value: float, like: Value) -> Value:
        """A constant of rank 0 in the element type of `like`."""
        return self.constant(np.asarray(value).astype(like.type.dtype.numpy))


Rule = Callable[[Node, Emitter], Replacement]


@dataclass(frozen=True, slots=True, kw_only=True)
class RewritePass(GraphPass, abc.ABC):
    """A pass that is a table of rules by op name; the key `*` holds for every op."""

    lookup: ClassVar[Callable[[str], OpSchema]]

    @abc.abstractmethod
    def rules(self) -> Mapping[str, Sequence[Rule]]:
        """The rules, tried in order for each node of the op."""

    def run(self, graph: Graph, context: PassContext) -> PassResult:  # noqa: ARG002 - every pass has it
        """Apply the rules until none matches."""
        return apply_rules(graph, self.rules(), type(self).lookup)


def merge_rules(*tables: Mapping[str, Sequence[Rule]]) -> dict[str, tuple[Rule, ...]]:
    """Several rule tables as one; rules of the same op keep the order of the tables."""
    result: dict[str, tuple[Rule, ...]] = {}
    for table in tables:
        for op, rules in table.items():
            result[op] = (*result.get(op, ()), *rules)
    return result


def apply_rules(
    graph: Graph, rules: Mapping[str, Sequence[Rule]], lookup: Lookup
) -> PassResult:
    """Apply `rules` in node order until a round changes nothing; counts by rule name."""
    counts: dict[str, int] = {}
    everywhere = tuple(rules.get("*", ()))
    with Editor(graph) as edit:
        for _ in range(_MOST_ROUNDS):
            before = sum(counts.values())
            for node in edit.nodes():
                if not node.results or not _is_used(edit, node):
                    continue
                candidates = (*rules.get(node.op, ()), *everywhere)
                _try_rules(node, candidates, Emitter(edit, lookup, node), counts)
            if sum(counts.values()) == before:
                break
        return PassResult(edit.modified, counts)


def _is_used(edit: Editor, node: Node) -> bool:
    return any(edit.users(v) or edit.is_output(v) for v in node.results)


def _try_rules(
    node: Node, rules: Sequence[Rule], emit: Emitter, counts: dict[str, int]
) -> None:
    for rule in rules:
        found = rule(node, emit)
        if found is None:
            continue
        values = [found] if isinstance(found, Value) else list(found)
        _replace(emit.edit, node, values)
        name = getattr(rule, "__name__", "rule").strip("_")
        counts[name] = counts.get(name, 0) + 1
        return


def _replace(edit: Editor, node: Node, values: Sequence[Value]) -> None:
    makers = [v.node for v in node.present_operands]
    for old, new in zip(node.results, values, strict=True):
        edit.replace_uses(old, new)
    edit.erase_dead(node)
    for maker in makers:
        edit.erase_dead(maker)
