"""What a model silently assumes about its dynamic dimensions, made explicit.

Adding `[N, 8]` to `[M, 8]` works only when N and M are the same number; a position table of 512
rows works only up to 512.  The node maker notes every such equality; `solve` turns those it
understands into facts about symbols, with which the model is imported again.  Then a call with
other sizes is refused at the border instead of reading past the end of a tensor.  What cannot be
solved stays a list of equalities for the runtime to check.

Not a constraint solver: equal symbols, symbols that are numbers or sums of others, and bounds
from `min` and `max`.  Called by `load`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import final

from tilewright.base import symbolic
from tilewright.base.record import field, record
from tilewright.base.symbolic import Dim, Expr, Symbol
from tilewright.compiler.graph.ir import Graph
from tilewright.compiler.graph.schema import Attributes, OpSchema, TensorType
from tilewright.formats.plan.size_relations import Relation, relation_of

Equality = tuple[Dim, Dim]


@final
@record
class Assumptions:
    """Symbols that stand for other dimensions, and bounds of those that remain."""

    equal: Mapping[str, Dim] = field(default_factory=dict[str, Dim])
    lower: Mapping[str, int] = field(default_factory=dict[str, int])
    upper: Mapping[str, int] = field(default_factory=dict[str, int])

    def dim(self, name: str, limit: int | None = None) -> Dim:
        """What the symbol called `name` stands for, of which the model may say that it is at most `limit`."""
        known = self.equal.get(name)
        if known is not None:
            return self._as_bounded(known)
        return symbolic.symbol(name, self.lower.get(name, 1), self.upper.get(name, limit))

    def _as_bounded(self, dim: Dim) -> Dim:
        """The same dimension; what was learned of its symbols after it was noted holds in it, too."""
        news = self.lower.keys() | self.upper.keys()
        bounded = {
            s.name: symbolic.symbol(
                s.name, self.lower.get(s.name, s.lower), self.upper.get(s.name, s.upper)
            )
            for s in symbolic.symbols(dim)
            if s.name in news
        }
        return symbolic.substitute(dim, bounded)

    def merged(self, other: Assumptions) -> Assumptions:
        """These assumptions and `other`, found with these in force."""
        replaced = {
            name: symbolic.substitute(dim, other.equal) for name, dim in self.equal.items()
        }
        return Assumptions(
            {**replaced, **other.equal},
            {**self.lower, **other.lower},
            {**self.upper, **other.upper},
        )


def equalities(
    schema: OpSchema,
    operands: Iterable[TensorType | None],
    results: Iterable[TensorType],
    attributes: Attributes,
) -> Iterable[Equality]:
    """The pairs of dimensions that one op takes to be equal without proof."""
    types = [t for t in operands if t is not None]
    result = next(iter(results), None)
    if result is None or not types or schema.equal_sizes is None:
        return ()
    return schema.equal_sizes(types, result, attributes)


def solve(pairs: Iterable[Equality], bare: Mapping[str, int]) -> Assumptions | None:
    """The first new fact that follows from `pairs`, or None.

    Args:
        pairs: dimensions that are equal in every run that works.
        bare: symbols that are a dimension of an input by themselves, and their place; only those
            can be told from actual shapes, and the earlier of two equal ones is kept.
    """
    for left, right in pairs:
        found = _bound((left, right)) or _same(left, right, bare)
        if found is not None:
            return found
    return None


def known_equalities(pairs: Iterable[Equality], graph: Graph) -> tuple[Equality, ...]:
    """The equalities of sizes that a run of the graph knows.

    A region that was tried and thrown away leaves equalities of sizes that it alone read from data.
    """
    shapes = (value.type.shape for value in graph.inputs)
    known = (
        symbolic.names_in(dim for shape in shapes for dim in shape) | graph.bound_names()
    )
    return tuple(pair for pair in pairs if symbolic.names_in(pair) <= known)


def _bound(pair: Equality) -> Assumptions | None:
    """`min(512, s) = s` says that `s` is at most 512."""
    relation, size, other = relation_of(pair)
    name = symbolic.only_atom(size)
    if not isinstance(name, Symbol) or not isinstance(other, int):
        return None
    if relation is Relation.AT_MOST:
        return Assumptions(upper={name.name: other})
    is_least = relation in (Relation.AT_LEAST, Relation.NOT_NEGATIVE)
    return Assumptions(lower={name.name: other}) if is_least else None


def _same(left: Dim, right: Dim, bare: Mapping[str, int]) -> Assumptions | None:
    """A symbol that is a number, another symbol or a sum of others."""
    difference = left - right
    if isinstance(difference, int):
        return None
    names = {s.name for s in symbolic.symbols(difference)}
    if not names <= bare.keys() or not _is_plain(difference):
        return None
    # The last symbol of the inputs gives way to those before it.
    for name in sorted(names, key=lambda n: -bare[n]):
        line = symbolic.linear(difference, name)
        if line is None or line[0] not in (1, -1):
            continue
        value = line[1] * (-1 if line[0] == 1 else 1)
        least = symbolic.bounds(value)[0]
        if least is not None and least >= 1:
            return Assumptions(equal={name: value})
    return None


def _is_plain(dim: Expr) -> bool:
    """Whether every term is a multiple of one symbol."""
    return all(
        len(monomial) == 1 and isinstance(monomial[0], Symbol) for monomial, _ in dim.terms
    )
