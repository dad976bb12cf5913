"""Reads of sizes that nobody needs: the host would wait for a number that no size follows from.

Only for numbers that are computed as data wherever they are not sizes (`NodeMaker.elements`), and whose bounds hold
by how they are made: leaving such a read out leaves out no check.  Called by importers when a graph is whole.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import cast

from tilewright.base.symbolic import Dim, Expr, names_in
from tilewright.compiler.graph.ir import Graph, Node


def drop_idle_reads(
    graph: Graph, names: Collection[str], assumed: Iterable[Dim] = ()
) -> None:
    """Take away what binds the symbols of these names that neither a node nor an assumption mentions."""
    if not names:
        return
    needed = set(names_in(assumed))
    for node in graph.walk():
        needed |= _mentioned(node)
    _drop(graph, set(names) - needed)


def _drop(graph: Graph, idle: Collection[str]) -> None:
    graph.nodes[:] = [node for node in graph.nodes if not _is_idle(node, idle)]
    for node in graph.nodes:
        for region in node.regions:
            _drop(region, idle)


def _is_idle(node: Node, idle: Collection[str]) -> bool:
    bound = node.bound_sizes
    binds_alone = bool(bound) and not node.results and not node.regions
    return binds_alone and all(symbol.name in idle for symbol in bound)


def _mentioned(node: Node) -> frozenset[str]:
    """The symbols that a node needs a value of, other than those that it binds."""
    dims = [dim for value in node.results for dim in value.type.shape]
    if not node.bound_sizes or node.results:
        dims += [dim for held in node.attributes.values() for dim in _sizes_in(held)]
    return names_in(dims)


def _sizes_in(attribute: object) -> Iterator[Dim]:
    if isinstance(attribute, Expr):
        yield attribute
    elif isinstance(attribute, tuple):
        for item in cast("tuple[object, ...]", attribute):
            yield from _sizes_in(item)
