"""Results of branches and loops are tensors of their own before torch takes a program apart.

Torch refuses to take apart an operator that runs graphs where one of them returns what it was given, a view of
it, or a tensor twice (`lambda x: x` as a branch); to us a result has no memory to share.  A copy in the graph
makes both agree.  Called by `export` and by the backend of `torch.compile`, before they ask torch to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import tilewright.compiler.frontends.torch.border as border

_OPERATORS: Final = ("associative_scan", "cond", "map", "map_impl", "scan", "while_loop")
"""Those whose graphs compute; the graphs of attention are functions of scores, which stay as they are."""


def shares_results(graphs: Sequence[Any]) -> bool:
    """Whether a graph that one of these runs returns memory that something else has."""
    return any(_shared(body) for graph in graphs for body in _bodies(graph))


def copy_shared_results(graphs: Sequence[Any]) -> None:
    """Let the graphs that these run return copies in place of memory that something else has."""
    for graph in graphs:
        for body in _bodies(graph):
            _copy(body)


def _bodies(module: Any) -> Iterator[Any]:
    for node in module.graph.nodes:
        if node.op != "call_function" or _name(node.target) not in _OPERATORS:
            continue
        for given in node.args:
            if border.is_instance(given, "fx.Node") and given.op == "get_attr":
                body = getattr(module, str(given.target), None)
                if hasattr(body, "graph"):
                    yield body


def _name(target: Any) -> str:
    return str(getattr(target, "_name", "") or getattr(target, "__name__", ""))


def _shared(body: Any) -> list[int]:
    """The places of results that are an argument, a view of one or of another result, or another result."""
    taken = {
        memory
        for node in body.graph.nodes
        if node.op in ("placeholder", "get_attr")
        for memory in _memory(node)
    }
    found: list[int] = []
    for place, result in enumerate(border.results_of(body.graph)):
        memory = _memory(result)
        if memory & taken:
            found.append(place)
        taken |= memory
    return found


def _memory(node: Any) -> frozenset[int]:
    """The node, and the memory that torch traced it with; nothing for what is no tensor."""
    if not border.is_instance(node, "fx.Node"):
        return frozenset()
    value = node.meta.get("val", node.meta.get("example_value"))
    if not border.is_instance(value, "Tensor"):
        return frozenset()
    return frozenset((id(node), value.untyped_storage()._cdata))


def _copy(body: Any) -> None:
    places = _shared(body)
    if not places:
        return
    results = list(border.results_of(body.graph))
    (last,) = (node for node in body.graph.nodes if node.op == "output")
    clone = border.load().ops.aten.clone.default
    for place in places:
        given = results[place]
        with body.graph.inserting_before(last):
            results[place] = body.graph.call_function(clone, (given,))
        results[place].meta = dict(given.meta)
    last.args = (type(last.args[0])(results),)
    body.recompile()
