"""The first node where two sides part, in few runs and with little memory.

A tensor that differs has an ancestor where it began.  Each round asks both sides for some tensors
spread over the ancestors that are still in doubt, at most `limit_bytes` of them at a time: what
agrees clears its own ancestors, the first that differs is the next to look behind.  With `PROBES`
tensors a round, a thousand nodes take three or four rounds.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Final, final

from tilewright.api.compare.sides import values_by_name
from tilewright.base.difference import Difference
from tilewright.base.record import record
from tilewright.base.symbolic import Symbol, evaluate, symbols
from tilewright.compiler.graph.ir import Graph, Value
from tilewright.compiler.graph.schema import Trait

PROBES: Final = 16
Measure = Callable[[Sequence[str]], Sequence[Difference]]
"""Asks both sides for the tensors of these names."""


@final
@record(kw_only=True)
class Finding:
    """Where it begins.

    Attributes:
        location: in the model's terms.
        op: what it is in our graph.
        difference: of its result.
        is_confirmed: whether the result differs while everything the node reads agrees, all in one
            run in which they are outputs; otherwise the difference arises where nodes are fused.
        rounds: runs of both sides that the search took.
    """

    location: str
    op: str
    difference: Difference
    is_confirmed: bool
    rounds: int


@final
class Search:
    """Looks behind one tensor that differs.

    Args:
        graph: the model before any pass.
        measure: see `Measure`.
        dims: the dynamic dimensions of the inputs; sizes that depend on data are taken to be as
            large as the largest of them.
        names: tensors that both sides can be asked for.
        limit_bytes: of probes in one round and side.
    """

    def __init__(
        self,
        graph: Graph,
        measure: Measure,
        dims: Mapping[str, int],
        names: Container[str],
        limit_bytes: int,
    ) -> None:
        self._measure: Measure = measure
        largest = max(dims.values(), default=1)
        self._dims: Mapping[str, int] = defaultdict(lambda: largest, dims)
        self._sizes: dict[Symbol, Value] = {
            symbol: node.present_operands[0]
            for node in graph
            for symbol in node.bound_sizes
            if not node.results
        }
        self._names: dict[Value, str] = {
            v: n for n, v in values_by_name(graph).items() if n in names
        }
        self._order: tuple[Value, ...] = tuple(
            v for v in graph.values() if v in self._names
        )
        self._limit_bytes: int = limit_bytes
        self._good: set[Value] = set(graph.inputs)
        self._seen: dict[Value, Difference] = {}
        self._rounds: int = 0

    @property
    def seen(self) -> tuple[Difference, ...]:
        """Every tensor that was measured, in the order of the graph."""
        return tuple(self._seen[value] for value in self._order if value in self._seen)

    def find(self, difference: Difference) -> Finding:
        """The node where the difference of an output began."""
        bad = next(v for v, name in self._names.items() if name == difference.name)
        while region := self._in_doubt(bad):
            for value, found in self._ask(self._spread(region)).items():
                if found.is_beyond:
                    bad, difference = value, found
                    break
                self._good.add(value)
        return self._confirmed(bad, difference)

    def _ask(self, values: Sequence[Value]) -> dict[Value, Difference]:
        self._rounds += 1
        measured = self._measure([self._names[value] for value in values])
        found = dict(zip(values, measured, strict=True))
        self._seen.update(found)
        return found

    def _in_doubt(self, bad: Value) -> list[Value]:
        """Tensors behind `bad` that nothing known to agree stands before, in the graph's order."""
        reached: set[Value] = set()
        pending = [bad]
        while pending:
            for value in self._read_by(pending.pop()):
                if value not in reached and value not in self._good:
                    reached.add(value)
                    pending.append(value)
        return [value for value in self._order if value in reached and _is_computed(value)]

    def _read_by(self, value: Value) -> list[Value]:
        """What the node behind a value reads, and the numbers that became sizes of it."""
        operands = [] if value.node is None else value.node.present_operands
        named = (symbol for dim in value.type.shape for symbol in symbols(dim))
        return [*operands, *(self._sizes[s] for s in named if s in self._sizes)]

    def _spread(self, region: Sequence[Value]) -> list[Value]:
        """Up to `PROBES` of them, evenly, as many as the memory allows; at least one."""
        count = min(PROBES, len(region))
        while True:
            places = {(i + 1) * len(region) // (count + 1) for i in range(count)}
            probes = [region[place] for place in sorted(places)]
            if count == 1 or sum(map(self._bytes_of, probes)) <= self._limit_bytes:
                return probes
            count = (count + 1) // 2

    def _bytes_of(self, value: Value) -> int:
        shape = (evaluate(d, self._dims) for d in value.type.shape)
        return value.type.dtype.itemsize * math.prod(shape)

    def _confirmed(self, bad: Value, difference: Difference) -> Finding:
        node = bad.node
        assert node is not None
        around = [v for v in self._read_by(bad) if v in self._names and _is_computed(v)]
        found = self._ask([*dict.fromkeys(around), bad])
        holds = found[bad].is_beyond and not any(found[v].is_beyond for v in around)
        return Finding(
            location=str(node.location),
            op=node.op,
            difference=found[bad] if found[bad].is_beyond else difference,
            is_confirmed=holds,
            rounds=self._rounds,
        )


def _is_computed(value: Value) -> bool:
    """Whether a run makes it: not an input, not a constant."""
    return value.node is not None and not value.node.schema.traits & Trait.CONSTANT
