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

Users = Mapping[Value, list[tuple[Node, int]]]


def may_be_empty(graph: Graph) -> list[str]:
    """Sizes along which all that reads an input says that it may be empty (`empty_axes` of the ops).

    A cache of keys may begin with no key, a scatter may have no update.  Every other size is at least 1, which lets
    kernels do without a question.
    """
    users: dict[Value, list[tuple[Node, int]]] = {}
    for node in graph.walk():
        for place, operand in enumerate(node.operands):
            if operand is not None:
                users.setdefault(operand, []).append((node, place))
    votes: dict[str, bool] = {}
    for value in graph.inputs:
        for axis, dim in enumerate(value.type.shape):
            for name in _bare_name(dim):
                votes[name] = votes.get(name, True) and _is_spared(value, axis, users)
    return [name for name, is_spared in votes.items() if is_spared]


def _bare_name(dim: Dim) -> list[str]:
    """The symbol, at least 1, that a dimension is by itself."""
    symbols = list(symbolic.symbols(dim))
    is_bare = len(symbols) == 1 and str(dim) == symbols[0].name and symbols[0].lower == 1
    return [symbols[0].name] if is_bare else []


def _is_spared(value: Value, axis: int, users: Users) -> bool:
    """Whether somebody reads the value, and nobody needs an element along the axis."""
    readers = users.get(value, [])
    return bool(readers) and all(
        _reads_none(node, place, axis, users) for node, place in readers
    )


def _reads_none(node: Node, place: int, axis: int, users: Users) -> bool:
    op = catalogue.lookup(node.op)
    if Trait.ELEMENTWISE in op.schema.traits and len(node.operands) == 1:
        return _is_spared(node.result, axis, users)
    if op.empty_axes is None:
        return False
    types = [None if o is None else o.type for o in node.operands]
    return axis in op.empty_axes(types, op.complete(node.attributes), place)
