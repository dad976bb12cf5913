"""Importing a model again and again, until what it assumes about its sizes is settled.

Called by the front doors of front ends whose models have sizes that a call decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol, TypeVar

from tilewright.base import symbolic
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.assumptions import (
    Assumptions,
    known_equalities,
    solve,
)
from tilewright.compiler.frontends.kit.empty_sizes import may_be_empty
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.graph.ir import Graph
from tilewright.formats.plan import Dimension
from tilewright.formats.plan.size_relations import Relation, relation_of

MAX_ROUNDS: Final = 12


class Imported(Protocol):
    """What came of importing a model once."""

    @property
    def graph(self) -> Graph: ...
    @property
    def maker(self) -> NodeMaker: ...
    @property
    def problems(self) -> Sequence[object]: ...


Found = TypeVar("Found", bound=Imported)


def until_settled(run: Callable[[Assumptions], Found]) -> Found:
    """What importing gives under all that it assumes; the rest is left to the checks of a call.

    Sizes that a call decides are at least 1 at first, and may be 0 then: all that leave an element of a result, so that
    a sum over nothing is one, and sizes of 0 go together.  Where that asks for more to be equal, only those along which
    nothing needs an element.
    """
    imported, assumed = _settled(run, Assumptions())
    for relaxed in _relaxations(imported):
        again, _ = _settled(run, assumed.merged(relaxed))
        # A slice of one is one element, or none of nothing: what is added to more elements must be one.
        if not again.problems and _equalities(again) <= _equalities(imported):
            imported = again
            break
    graph = imported.graph
    graph.equalities = known_equalities(imported.maker.assumptions, graph)
    return imported


def _equalities(imported: Imported) -> int:
    """How many sizes are assumed to be equal, in regions, too.

    A call looks at bounds and multiples, whatever else is assumed.
    """
    graph = imported.graph
    inner = (region.equalities for node in graph.walk() for region in node.regions)
    outer = known_equalities(imported.maker.assumptions, graph)
    found = (relation_of(pair).relation for pairs in (outer, *inner) for pair in pairs)
    return sum(relation is Relation.EQUAL for relation in found)


def _settled(
    run: Callable[[Assumptions], Found], assumed: Assumptions
) -> tuple[Found, Assumptions]:
    imported = run(assumed)
    for _ in range(MAX_ROUNDS):
        found = solve(imported.maker.assumptions, _bare_symbols(imported.graph))
        if found is None:
            break
        assumed = assumed.merged(found)
        imported = run(assumed)
    return imported, assumed


def _relaxations(imported: Imported) -> Iterator[Assumptions]:
    """Sizes that may be 0, though results may have elements then: as many as possible first."""
    if imported.problems:
        return
    graph = imported.graph
    shapes = [value.type.shape for value in graph.outputs]
    every = {
        name: 0
        for name in _bare_symbols(graph)
        if symbolic.bounds(_symbol_of(graph, name))[0] == 1
        and not Dimension(name, 0, 0, 1).leaves_nothing(shapes)
    }
    if every:
        yield Assumptions(lower=every)
    spared = [] if graph.bound_names() else may_be_empty(graph)
    if spared and set(spared) != set(every):
        yield Assumptions(lower=dict.fromkeys(spared, 0))


def _symbol_of(graph: Graph, name: str) -> Dim:
    dims = (dim for value in graph.inputs for dim in value.type.shape)
    return next(dim for dim in dims if str(dim) == name)


def _bare_symbols(graph: Graph) -> dict[str, int]:
    """Symbols that are a dimension of an input by themselves, in order."""
    found: dict[str, int] = {}
    for value in graph.inputs:
        for dim in value.type.shape:
            names = [s.name for s in symbolic.symbols(dim)]
            if len(names) == 1 and str(dim) == names[0]:
                found.setdefault(names[0], len(found))
    return found
