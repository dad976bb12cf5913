"""Rewrites: functions from a matched node to what replaces it.

A rewrite looks at one node and returns the values to use instead of its results.  Where it does not apply it says
so with `need` and `given`, or returns None.  The driver applies the rewrites of a pass in node order until nothing
changes.  Rewrites write new nodes
through an `Emitter`, which puts them before the matched node.  What ops exist comes from the
`lookup` of whoever applies them (`transforms.rewrite_pass`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ParamSpec, TypeVar, final

import numpy as np

from tilewright.base.dtypes import DType
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.editor import Editor
from tilewright.compiler.graph.ir import Graph, Location, Node, Value
from tilewright.compiler.graph.schema import Array, OpSchema
from tilewright.compiler.passes.graph_pass import PassResult

P = ParamSpec("P")
Given = TypeVar("Given")
Lookup = Callable[[str], OpSchema]
Replacement = Value | Sequence[Value] | None
_MOST_ROUNDS = 16


@final
class NoMatchError(Exception):
    """A node is not what a rewrite is looking for; the next rewrite is tried."""


def need(condition: object) -> None:
    """Go on if the condition is true.  Raises: NoMatchError.

    What is asked of every node of a graph first, and seldom true, is better answered by None: it costs less.
    """
    if not condition:
        raise NoMatchError


def given(value: Given | None) -> Given:
    """`value`, which is there.  Raises: NoMatchError where it is None."""
    if value is None:
        raise NoMatchError
    return value


def attempt(look: Callable[P, Given], *args: P.args, **named: P.kwargs) -> Given | None:
    """What `look` finds; None where something that it needs is not so."""
    try:
        return look(*args, **named)
    except NoMatchError:
        return None


@final
@record(eq=False, frozen=False)
class Emitter:
    """Makes nodes before `anchor`, with its location; types are inferred."""

    edit: Editor
    lookup: Lookup
    anchor: Node | None
    location: Location | None = None

    def node(
        self,
        op: str,
        operands: Sequence[Value | None],
        attributes: Mapping[str, object] | None = None,
    ) -> Node:
        """A new node of the op called `op`."""
        schema = self.lookup(op)
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

    def reshape(self, x: Value, shape: Sequence[Dim]) -> Value:
        """The elements of `x` under a shape; `x` itself if it has that."""
        if x.type.shape == tuple(shape):
            return x
        return self.op("reshape", (x,), {"shape": shape})

    def cast(self, x: Value, dtype: DType) -> Value:
        """The elements of `x` as a type; `x` itself if they are of that."""
        return x if x.type.dtype is dtype else self.op("cast", (x,), {"dtype": dtype})

    def concat(self, parts: Sequence[Value], axis: int) -> Value:
        """The parts behind one another; a single one as it is."""
        return parts[0] if len(parts) == 1 else self.op("concat", parts, {"axis": axis})

    def constant(self, array: Array) -> Value:
        """A new constant; the array is kept, not copied."""
        return self.op("constant", (), {"value": array})

    def scalar(self, value: float, like: Value) -> Value:
        """A constant of rank 0 in the element type of `like`."""
        return self.constant(np.asarray(value).astype(like.type.dtype.numpy))


Rewrite = Callable[[Node, Emitter], Replacement]
Rewrites = Mapping[str, Sequence[Rewrite]]
"""By op name, tried in order; the key `*` holds for every op."""


def merge_rewrites(
    *tables: Rewrites,
) -> dict[str, tuple[Rewrite, ...]]:
    """Several rewrite tables as one; rewrites of the same op keep the order of the tables."""
    result: dict[str, tuple[Rewrite, ...]] = {}
    for table in tables:
        for op, rewrites in table.items():
            result[op] = (*result.get(op, ()), *rewrites)
    return result


def apply_rewrites(graph: Graph, rewrites: Rewrites, lookup: Lookup) -> PassResult:
    """Apply `rewrites` in node order until a round changes nothing; counts by rewrite name."""
    counts: dict[str, int] = {}
    everywhere = tuple(rewrites.get("*", ()))
    of_op = {op: (*own, *everywhere) for op, own in rewrites.items()}
    if not everywhere and of_op.keys().isdisjoint(node.schema.name for node in graph.nodes):
        return PassResult(modified=False)  # an editor counts all uses first
    with Editor(graph) as edit:
        for _ in range(_MOST_ROUNDS):
            before = sum(counts.values())
            for node in edit.nodes():
                candidates = of_op.get(node.schema.name, everywhere)
                if candidates and any(map(edit.is_used, node.results)):
                    _try_rewrites(node, candidates, Emitter(edit, lookup, node), counts)
            if sum(counts.values()) == before:
                break
        return PassResult(edit.modified, counts)


def _try_rewrites(
    node: Node, rewrites: Sequence[Rewrite], emit: Emitter, counts: dict[str, int]
) -> None:
    for rewrite in rewrites:
        try:
            found = rewrite(node, emit)
        except NoMatchError:
            continue
        if found is None:
            continue
        values = [found] if isinstance(found, Value) else list(found)
        _replace(emit.edit, node, values)
        name = getattr(rewrite, "__name__", "rewrite").strip("_")
        counts[name] = counts.get(name, 0) + 1
        return


def _replace(edit: Editor, node: Node, values: Sequence[Value]) -> None:
    makers = [v.node for v in node.present_operands]
    for old, new in zip(node.results, values, strict=True):
        edit.replace_uses(old, new)
    edit.erase_dead(node)
    for maker in makers:
        edit.erase_dead(maker)
