"""Bounds of sums in which quotients meet what they were taken of, or each other.

`c * (x // c)` is `x - r` with 0 <= r < c, `c * (x // (a * c))` is `x // a - r`, and `(x + a) // c` is `x // c + r`: what is put in may cancel other terms,
whose ends do not add up then.  Sums are those of `polynomials`; what a monomial is the quotient of, and its bounds, is asked
of the caller.  Called by `algebra`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Generic, NamedTuple, TypeVar, final

from tilewright.base.symbolic.intervals import Bounds

A = TypeVar("A")
Term = tuple[tuple[A, ...], int]

_MOST_FORMS: Final = 24
"""Of one sum, which has as many as its quotients have orders; the first ones put in one after the other, the largest first."""


@final
class Quotient(NamedTuple, Generic[A]):
    """`dividend // divisor`: the terms of a sum, the constant among them, and a number above zero."""

    dividend: tuple[Term[A], ...]
    divisor: int


def sum_bounds(
    terms: Iterable[Term[A]],
    added: tuple[int, int],
    bounds_of: Callable[[tuple[A, ...]], Bounds],
) -> Bounds:
    """Bounds of a sum and of what is added to it, from those of its monomials alone."""
    lower: int | None
    upper: int | None
    lower, upper = added
    for monomial, factor in terms:
        low, high = bounds_of(monomial) if monomial else (1, 1)
        if factor < 0:
            low, high = high, low
        lower = None if lower is None or low is None else lower + low * factor
        upper = None if upper is None or high is None else upper + high * factor
    return lower, upper


def narrowed(
    interval: Bounds,
    terms: Iterable[Term[A]],
    quotients: Mapping[tuple[A, ...], Quotient[A]],
    bounds_of: Callable[[tuple[A, ...]], Bounds],
) -> Bounds:
    """`interval`, met with the bounds of other forms of the same sum, whose monomials in `quotients` are such."""
    first = _Form(dict(terms), (0, 0))
    met = {first.key()}
    ways = [first.others(quotients)]
    while ways and len(met) <= _MOST_FORMS:
        form = next(ways[-1], None)
        if form is None:
            ways.pop()
        elif form.key() not in met:
            met.add(form.key())
            ways.append(form.others(quotients))
            interval = _both(
                interval, sum_bounds(form.terms.items(), form.remainders, bounds_of)
            )
    return interval


@final
class _Form(NamedTuple, Generic[A]):
    """A sum as other terms, and the least and most that remainders add to them."""

    terms: dict[tuple[A, ...], int]
    remainders: tuple[int, int]

    def key(self) -> tuple[frozenset[Term[A]], tuple[int, int]]:
        return frozenset(self.terms.items()), self.remainders

    def others(self, quotients: Mapping[tuple[A, ...], Quotient[A]]) -> Iterator[_Form[A]]:
        """Forms without one quotient, the largest divisors first, of each the nearest dividend."""
        here = [(m, quotients[m]) for m in self.terms if m in quotients]
        here.sort(key=lambda found: -found[1].divisor)
        # A factor that the divisor does not divide may be one that it does when more of the quotient is put in for another.
        waiting = {m for m, by in here if self.terms[m] % by.divisor}
        for monomial, whole in here:
            for part, by in here:
                ratio, rest = divmod(whole.divisor, by.divisor)
                if rest == 0 and ratio > 1 and whole.dividend == by.dividend:
                    nearer = Quotient(((part, 1),), ratio)
                    yield from self._without(monomial, nearer, waiting)
                if ratio == 1 and rest == 0:
                    yield from self._beside(monomial, whole, part, by)
            yield from self._without(monomial, whole, waiting)

    def _beside(
        self,
        monomial: tuple[A, ...],
        whole: Quotient[A],
        part: tuple[A, ...],
        by: Quotient[A],
    ) -> Iterator[_Form[A]]:
        """One quotient for another that is taken off, by the same divisor, where a number alone parts their dividends.

        `(x + a) // d` is `x // d` and a / d, rounded down or up.
        """
        factor = self.terms[monomial]
        terms, other = dict(whole.dividend), dict(by.dividend)
        apart = terms.pop((), 0) - other.pop((), 0)
        if factor * self.terms[part] >= 0 or apart <= 0 or terms != other:
            return
        joined = {**self.terms, part: self.terms[part] + factor}
        del joined[monomial]
        if not joined[part]:
            del joined[part]
        ends = sorted(
            factor * n for n in (apart // whole.divisor, -(-apart // whole.divisor))
        )
        low, high = self.remainders
        yield _Form(joined, (low + ends[0], high + ends[1]))

    def _without(
        self, monomial: tuple[A, ...], whole: Quotient[A], waiting: set[tuple[A, ...]]
    ) -> Iterator[_Form[A]]:
        """The dividend less a remainder for a quotient, where that adds no terms and tells something.

        It does not where all that is joined has one sign: such terms lose nothing by standing apart, as their ends are
        met at once.
        """
        times, rest = divmod(self.terms[monomial], whole.divisor)
        added = {m: times * amount for m, amount in whole.dividend}
        before = {m: self.terms.get(m, 0) for m in added if m}
        if rest or not any(m in waiting or before[m] * added[m] < 0 for m in before):
            return
        new = sum(not amount for amount in before.values())
        if new > sum(amount == -added[m] for m, amount in before.items()):
            return
        terms = dict(self.terms)
        del terms[monomial]
        for other, amount in added.items():
            terms[other] = terms.get(other, 0) + amount
            if not terms[other]:
                del terms[other]
        ends = sorted((0, -times * (whole.divisor - 1)))
        low, high = self.remainders
        yield _Form(terms, (low + ends[0], high + ends[1]))


def _both(a: Bounds, b: Bounds) -> Bounds:
    """What lies in either interval."""
    lows = [low for low in (a[0], b[0]) if low is not None]
    highs = [high for high in (a[1], b[1]) if high is not None]
    return max(lows, default=None), min(highs, default=None)
