"""Sizes of the inputs of a model that may be 0 though its results have elements.

Called by `rounds`, which lets them.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.base import symbolic
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.ir import Graph, Node, Value
from tilewright.compiler.graph.schema import Trait
from tilewright.compiler.ops import catalogue

Readers = Mapping[Value, list[tuple[Node, int]]]
Place = tuple[Value, int]
"""A value and one of its axes."""


def may_be_empty(graph: Graph) -> list[str]:
    """Sizes along which all that reads an input says that it may be empty (`empty_axes` of the ops).

    A cache of keys may begin with no key, a scatter may have no update.  These may be 0 where letting every size be 0
    asks for more sizes to be equal.
    """
    readers: dict[Value, list[tuple[Node, int]]] = {}
    for node in graph.walk():
        for place, operand in enumerate(node.operands):
            if operand is not None:
                readers.setdefault(operand, []).append((node, place))
    spared: dict[Place, bool] = {}
    votes: dict[str, bool] = {}
    for value in graph.inputs:
        for axis, dim in enumerate(value.type.shape):
            for name in _bare_name(dim):
                votes[name] = votes.get(name, True) and _is_spared(
                    value, axis, readers, spared
                )
    return [name for name, is_spared in votes.items() if is_spared]


def _bare_name(dim: Dim) -> list[str]:
    """The symbol, at least 1, that a dimension is by itself."""
    symbols = list(symbolic.symbols(dim))
    is_bare = len(symbols) == 1 and str(dim) == symbols[0].name and symbols[0].lower == 1
    return [symbols[0].name] if is_bare else []


def _is_spared(
    value: Value, axis: int, readers: Readers, spared: dict[Place, bool]
) -> bool:
    """Whether somebody reads the value, and nobody needs an element along the axis.

    Walked without recursion, each value once: chains of operators are longer than a call stack.
    """
    waiting = [value]
    while waiting:
        current = waiting[-1]
        ahead = [
            node.result
            for node, _ in readers.get(current, ())
            if _goes_on(node) and (node.result, axis) not in spared
        ]
        if ahead:
            waiting += ahead
            continue
        waiting.pop()
        found = readers.get(current, [])
        spared[current, axis] = bool(found) and all(
            spared[node.result, axis] if _goes_on(node) else _reads_none(node, place, axis)
            for node, place in found
        )
    return spared[value, axis]


def _goes_on(node: Node) -> bool:
    """Whether a node reads an element for each of its result, so that those who read that decide."""
    traits = catalogue.lookup(node.op).schema.traits
    return Trait.ELEMENTWISE in traits and len(node.operands) == 1


def _reads_none(node: Node, place: int, axis: int) -> bool:
    op = catalogue.lookup(node.op)
    if op.empty_axes is None:
        return False
    types = [None if o is None else o.type for o in node.operands]
    return axis in op.empty_axes(types, op.complete(node.attributes), place)
