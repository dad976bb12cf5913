"""Polynomials as mappings from monomials to factors; the empty monomial is the constant.

Knows nothing of what the atoms are, only that each has a key to sort by.  Called by `algebra`.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Final, Protocol, TypeVar


class Keyed(Protocol):
    """What monomials are products of."""

    key: str


A = TypeVar("A", bound=Keyed)
key_of: Final = operator.attrgetter("key")


def product_of(left: tuple[A, ...], right: tuple[A, ...]) -> tuple[A, ...]:
    """The product of two monomials."""
    if not left or not right:
        return left or right
    return tuple(sorted(left + right, key=key_of))


def divide(
    left: Mapping[tuple[A, ...], int], right: Mapping[tuple[A, ...], int]
) -> dict[tuple[A, ...], int] | None:
    """`left / right` where nothing is left over and the quotient has no more terms than `left`.

    Long division by the longest monomial: 896*n + 896 by 64*n + 64 is 14.
    """
    rest = dict(left)
    lead = max(right, key=len)
    quotient: dict[tuple[A, ...], int] = {}
    for _ in left:
        step = _first_step(rest, lead, right[lead])
        if step is None:
            return None
        monomial, factor = step
        quotient[monomial] = quotient.get(monomial, 0) + factor
        for other, amount in right.items():
            product = product_of(monomial, other)
            rest[product] = rest.get(product, 0) - factor * amount
            if not rest[product]:
                del rest[product]
        if not rest:
            return quotient
    return None


def _first_step(
    terms: Mapping[tuple[A, ...], int], lead: tuple[A, ...], by: int
) -> tuple[tuple[A, ...], int] | None:
    """The quotient of the first term that `by * lead` divides."""
    for monomial, amount in terms.items():
        rest = list(monomial)
        for atom in lead:
            if atom not in rest:
                break
            rest.remove(atom)
        else:
            if amount % by == 0:
                return tuple(rest), amount // by
    return None
