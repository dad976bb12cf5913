"""A row of a sweep: a name and how its model is built.

What it is: the noun that tables hold and that is measured.
What it is not: a measurement (``contest.py``).
Who calls it: the tables, ``blocks.py``, the commands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

from sweep.network import OPSET, Network, Operand

Build = Callable[[Network], Sequence[str]]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A small model.

    Attributes:
        name: ``family/op: what is special``; unique, the seed of its numbers.
        build: Appends nodes and returns the names of the results.
        tolerance: Largest relative Frobenius error against the peer; None follows the types.
    """

    name: str
    build: Build
    opset: int = OPSET
    tolerance: float | None = None

    @property
    def family(self) -> str:
        """The part of the name before the slash."""
        return self.name.partition("/")[0]


def single(
    name: str,
    kind: str,
    *operands: Operand,
    outputs: int = 1,
    keep: Sequence[int] | None = None,
    domain: str = "",
    opset: int = OPSET,
    tolerance: float | None = None,
    **attributes: Any,
) -> Case:
    """Return a case of one node, whose results ``keep`` (all unless told) are the model's."""

    def build(network: Network) -> Sequence[str]:
        results = network.ops(kind, operands, outputs=outputs, domain=domain, **attributes)
        return [results[index] for index in (range(outputs) if keep is None else keep)]

    return Case(name=name, build=build, opset=opset, tolerance=tolerance)


def word(*shapes: tuple[float, ...]) -> str:
    """Return shapes as text, for names."""
    return " by ".join("x".join(map(str, shape)) for shape in shapes)
