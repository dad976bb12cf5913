"""Sizes that must not be negative, said as pairs of sizes that must agree: a size, and the larger of it and 0.

Called by `compiler.program`, which writes such pairs, and by whoever words the error of one that does not hold.
"""

from __future__ import annotations

from tilewright.base.symbolic import Dim, maximum

Pair = tuple[Dim, Dim]


def at_least_zero(size: Dim) -> Pair:
    """The pair that agrees where `size` is not negative."""
    return size, maximum(size, 0)


def is_at_least_zero(pair: Pair) -> bool:
    """Whether a pair says no more than that its first size is not negative."""
    size, other = pair
    return size != other and other == maximum(size, 0)
