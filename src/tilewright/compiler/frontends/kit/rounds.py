"""Importing a model again and again, until what it assumes about its sizes is settled.

Called by the front doors of front ends whose models have sizes that a call decides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from tilewright.base import symbolic
from tilewright.compiler.frontends.kit.assumptions import (
    Assumptions,
    known_equalities,
    solve,
)
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.graph.ir import Graph

MAX_ROUNDS: Final = 12


class Imported(Protocol):
    """What came of importing a model once."""

    @property
    def graph(self) -> Graph: ...
    @property
    def maker(self) -> NodeMaker: ...


Found = TypeVar("Found", bound=Imported)


def until_settled(run: Callable[[Assumptions], Found]) -> Found:
    """What importing gives under all that it assumes; the rest is left to the checks of a call."""
    assumed = Assumptions()
    imported = run(assumed)
    for _ in range(MAX_ROUNDS):
        found = solve(imported.maker.assumptions, _bare_symbols(imported.graph))
        if found is None:
            break
        assumed = assumed.merged(found)
        imported = run(assumed)
    graph = imported.graph
    graph.equalities = known_equalities(imported.maker.assumptions, graph)
    return imported


def _bare_symbols(graph: Graph) -> dict[str, int]:
    """Symbols that are a dimension of an input by themselves, in order."""
    found: dict[str, int] = {}
    for value in graph.inputs:
        for dim in value.type.shape:
            names = [s.name for s in symbolic.symbols(dim)]
            if len(names) == 1 and str(dim) == names[0]:
                found.setdefault(names[0], len(found))
    return found
