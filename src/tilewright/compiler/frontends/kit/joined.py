"""Sizes along which the inputs of a model are only joined to others.

Called by `rounds`, which lets them be 0.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.base import symbolic
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.ir import Graph, Node, Value


def joined_sizes(graph: Graph) -> list[str]:
    """Sizes along which inputs are only joined to others, as a cache of keys is that begins with no key.

    Such a size may be 0; every other one is at least 1, which lets kernels do without a question.
    """
    users: dict[Value, list[Node]] = {}
    for node in graph.walk():
        for operand in node.present_operands:
            users.setdefault(operand, []).append(node)
    votes: dict[str, bool] = {}
    for value in graph.inputs:
        for axis, dim in enumerate(value.type.shape):
            for name in _bare_name(dim):
                only = _is_only_joined(value, axis, users)
                votes[name] = votes.get(name, True) and only
    return [name for name, only in votes.items() if only]


def _bare_name(dim: Dim) -> list[str]:
    """The symbol, at least 1, that a dimension is by itself."""
    symbols = list(symbolic.symbols(dim))
    is_bare = len(symbols) == 1 and str(dim) == symbols[0].name and symbols[0].lower == 1
    return [symbols[0].name] if is_bare else []


def _is_only_joined(value: Value, axis: int, users: Mapping[Value, list[Node]]) -> bool:
    readers = users.get(value, [])
    for node in readers:
        if node.op == "cast":
            if not _is_only_joined(node.result, axis, users):
                return False
        elif node.op != "concat" or node.attributes["axis"] != axis:
            return False
    return bool(readers)
