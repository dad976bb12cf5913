"""Sizes that are known only at run time, taken for numbers: the one place where they are guessed.

Cost models, verdicts and footprints ask here, so that they rank kernels by the same guesses.  Nothing
that must be right goes by these numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from tilewright.base import symbolic
from tilewright.base.symbolic import Dim, Symbol
from tilewright.compiler.kernel.ir import For, If, Statement
from tilewright.compiler.kernel.rewrite import dim_if_defined

GUESS: Final = 128
"""What a dimension known only at run time is taken for."""
MAY_BE_LARGER: Final = 8
"""How many times as large as it is taken for a size may well be, that is known only at run time."""


def estimate(dim: Dim) -> int:
    """A likely value of `dim`; a product of open sizes (images times words) is no power of one."""
    if isinstance(dim, int):
        return dim
    likely = likely_sizes(symbolic.symbols(dim), (dim,))
    value = symbolic.substitute_if_defined(dim, likely)
    return value if isinstance(value, int) else GUESS


def with_numbers(value: Dim, numbers: Mapping[str, Dim]) -> Dim:
    """`value` with numbers in the place of symbols; a guess if they leave nothing of a size that divides."""
    result = dim_if_defined(value, numbers) if numbers else value
    return GUESS if result is None else result


def likely_sizes(found: Iterable[Symbol], dims: Iterable[Dim] = ()) -> dict[str, Dim]:
    """A likely value of each size, for all that stand in one product.

    `dims` is what is made of them: where next to nothing would be left of a size, such as that of a picture after its
    strides, it is so many times as large.
    """
    sizes = tuple(found)
    open_sizes = sum(s.upper is None or s.upper > GUESS for s in sizes)
    each = GUESS if open_sizes < 2 else round((2 * GUESS) ** (1 / open_sizes))
    env: dict[str, Dim] = {s.name: _within(s, each) for s in sizes}
    for dividend, divisor in (pair for dim in dims for pair in symbolic.quotients(dim)):
        left = symbolic.substitute_if_defined(dividend, env)
        if isinstance(left, int) and left < 2 * divisor:
            held = symbolic.symbols(dividend)
            env |= {s.name: _within(s, each * divisor) for s in sizes if s in held}
    return env


def _within(size: Symbol, value: int) -> int:
    high = value if size.upper is None else min(value, size.upper)
    return max(high, size.lower or 0)


def trip_count(nest: Iterable[For], outside: Mapping[str, Dim] | None = None) -> int:
    """How often the innermost of nested loops runs, estimated; `outside` says where the loops around them are."""
    count = 1
    for loop in nest:
        extent = symbolic.substitute(loop.extent, outside) if outside else loop.extent
        count *= max(1, estimate(extent))
    return count


def steps_in(body: Iterable[Statement]) -> int:
    """Most steps that loops nested in a body take, estimated."""
    most = 1
    for statement in body:
        if isinstance(statement, For):
            most = max(most, max(1, estimate(statement.extent)) * steps_in(statement.body))
        elif isinstance(statement, If):
            most = max(most, steps_in(statement.body))
    return most
