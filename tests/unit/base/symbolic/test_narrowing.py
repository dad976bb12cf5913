"""Bounds of sums whose quotients meet what they were taken of: right, near, and of long sums without trying all orders."""

from __future__ import annotations

import pytest

from tilewright.base.symbolic import Dim, bounds, evaluate, floordiv, symbol

n = symbol("n")
m = symbol("m", 0, 7)
LONG = 12
SIGNS = {
    "sum": [1] * (LONG + 1),
    "alternating": [(-1) ** j for j in range(LONG + 1)],
    "differences": [-LONG, *[1] * LONG],
    "shares": [(-1) ** (j // 3) for j in range(LONG + 1)],
}


def halves(signs: list[int], of: Dim) -> Dim:
    """What halving and doubling again leaves of a size, added up: the length of a pyramid laid flat."""
    return sum((sign * 2**j * floordiv(of, 2**j) for j, sign in enumerate(signs)), start=0)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("signs", SIGNS.values(), ids=SIGNS)
def test_sums_of_many_quotients_have_bounds(signs: list[int]) -> None:
    """There are more orders to put dividends in than a lifetime has seconds."""
    low, high = bounds(halves(signs, n))
    found = [evaluate(halves(signs, n), {"n": size}) for size in range(0, 1 << LONG, 37)]
    assert low is None or low <= min(found)
    assert high is None or high >= max(found)


def test_a_long_sum_of_one_sign_has_the_ends_of_its_terms() -> None:
    assert bounds(halves(SIGNS["sum"], n)) == (0, None)
    top = symbol("t", 64, 4095)
    ends = [evaluate(halves(SIGNS["sum"], top), {"t": size}) for size in (64, 4095)]
    assert list(bounds(halves(SIGNS["sum"], top))) == ends


def test_all_quotients_of_a_long_sum_are_put_back() -> None:
    """Each of them lies below what it was taken of by less than its divisor."""
    most = sum(2**j - 1 for j in range(1, LONG + 1))
    assert bounds(halves(SIGNS["differences"], n)) == (-most, 0)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (floordiv(n, 2) - 32 * floordiv(n, 64), (0, 31)),
        (2 * floordiv(n, 2) - n, (-1, 0)),
        # One quotient waits for another before both are what is taken away.
        (floordiv(n, 2) + 2 * floordiv(n, 4) - n, (-2, 0)),
        (floordiv(n, 2) - floordiv(n, 4) + 4 * floordiv(n, 8) - n, (None, 0)),
        # The nearest dividend tells more: 2 * (n // 2), not n.
        (4 * floordiv(n, 4) - 6 * floordiv(n, 2) + 2 * n, (-2, 2)),
        (n + m - 4 * floordiv(n + m, 4), (0, 3)),
        # A dividend with terms that are not there is put in where it takes as many away.
        (n - 4 * floordiv(n + m, 4), (-7, 3)),
        (n - 4 * floordiv(3 * n + m, 4), (None, None)),
        # Of two quotients by one divisor a number parts the dividends, and so the quotients.
        (floordiv(n, 32) - floordiv(n + 31, 32), (-1, 0)),
        (floordiv(n + 70, 32) - floordiv(n, 32), (2, 3)),
        (3 * floordiv(n + 8, 4) - 2 * floordiv(n, 4), (6, None)),
        (floordiv(n + 31, 32) - floordiv(n + m, 32), (None, None)),
        # Products of quotients, and factors that no divisor divides, stand as they are.
        (n - floordiv(n, 2) * floordiv(n, 2), (None, None)),
        (3 * floordiv(n, 2) - n, (None, None)),
    ],
)  # fmt: skip
def test_a_quotient_is_what_it_was_taken_of_less_a_remainder(
    value: Dim, expected: tuple[int | None, int | None]
) -> None:
    assert bounds(value) == expected
