"""Simplification: the identities of `arithmetic_rules` and `movement_rules`, to a fixed point.

Local and always worth it; patterns of several nodes with a name of their own are recognised by
`recognize_activations` and `recognize_norms`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, final

from tilewright.compiler.graph.schema import OpSchema
from tilewright.compiler.ops import catalogue
from tilewright.compiler.passes import RewritePass, Rule
from tilewright.compiler.transforms import arithmetic_rules, movement_rules


def merged(*tables: Mapping[str, Sequence[Rule]]) -> dict[str, tuple[Rule, ...]]:
    """Several rule tables as one; rules of the same op keep the order of the tables."""
    result: dict[str, tuple[Rule, ...]] = {}
    for table in tables:
        for op, rules in table.items():
            result[op] = (*result.get(op, ()), *rules)
    return result


def lookup(name: str) -> OpSchema:
    """The schema of an op of the catalogue."""
    return catalogue.schema(name)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Simplify(RewritePass):
    """Apply identities until none is left.

    Requires: nothing.  Ensures: constants stand right of commutative ops; no reshape of a
    reshape, transpose of a transpose, slice of a slice; no op with a neutral operand.
    """

    lookup: ClassVar = staticmethod(lookup)
    ensures: ClassVar[frozenset[str]] = frozenset({"simplified"})

    def rules(self) -> Mapping[str, Sequence[Rule]]:
        """Both tables."""
        return merged(arithmetic_rules.RULES, movement_rules.RULES)
