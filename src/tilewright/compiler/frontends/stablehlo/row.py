"""The form of a row: which function imports an operation.

Rows live in the family files, `table` collects them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

from tilewright.compiler.frontends.stablehlo.call import Call
from tilewright.compiler.frontends.stablehlo.demands import Demand
from tilewright.compiler.frontends.stablehlo.held import Held

Result = Held | Sequence[Held]
Build = Callable[[Call], Result]


@final
@dataclass(frozen=True, slots=True)
class Row:
    """One operation.

    Args:
        name: with its dialect.
        build: makes the results.
        by_parts: for complex operands, does to each part what it does to real ones: it moves
            elements or is linear.
        pointwise: what it gives at one place needs the operands there alone, so that a region of such
            operations, which says what is done to numbers, can be imported on whole tensors.
        keeps: its results hold elements of its operands, or of its literal, as they are, so that nothing
            is rounded, and integers of quantized types are moved as such.
        ignores: attributes that do not change the result.
        demands: what the specification demands of its types and attributes, checked before.
    """

    name: str
    build: Build
    by_parts: bool = False
    pointwise: bool = False
    keeps: bool = False
    ignores: tuple[str, ...] = ()
    demands: tuple[Demand, ...] = ()


def row(
    name: str,
    build: Build,
    *,
    by_parts: bool = False,
    pointwise: bool = False,
    keeps: bool = False,
    ignores: Sequence[str] = (),
    demands: Sequence[Demand] = (),
) -> Row:
    """A row of StableHLO, spelled short; a name with a dot brings its dialect along."""
    full = name if "." in name else f"stablehlo.{name}"
    return Row(full, build, by_parts, pointwise, keeps, tuple(ignores), tuple(demands))
