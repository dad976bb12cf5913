"""Interval arithmetic: no value of the operation lies outside, and bounded inputs give tight ends."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.base.symbolic.intervals import (
    Bounds,
    floordiv_bounds,
    max_bounds,
    min_bounds,
    mod_bounds,
    product_bounds,
)

Rule = Callable[[Bounds, Bounds], Bounds]
WIDTH = 8


@st.composite
def intervals(draw: st.DrawFn, least: int = -WIDTH) -> tuple[Bounds, list[int]]:
    """Bounds, and values in them up to a few steps into an open end."""
    low, high = sorted((draw(st.integers(least, WIDTH)), draw(st.integers(least, WIDTH))))
    values = list(range(low, high + 1))
    open_low = draw(st.booleans()) and least < 0
    open_high = draw(st.booleans())
    if open_low:
        values += range(low - 5, low)
    if open_high:
        values += range(high + 1, high + 6)
    return (None if open_low else low, None if open_high else high), values


def contains(interval: Bounds, value: int) -> bool:
    low, high = interval
    return (low is None or low <= value) and (high is None or value <= high)


@pytest.mark.parametrize(
    ("rule", "operation"),
    [(product_bounds, int.__mul__), (min_bounds, min), (max_bounds, max)],
)
@given(a=intervals(), b=intervals())
def test_no_value_lies_outside(
    rule: Rule,
    operation: Callable[[int, int], int],
    a: tuple[Bounds, list[int]],
    b: tuple[Bounds, list[int]],
) -> None:
    found = rule(a[0], b[0])
    for x, y in itertools.product(a[1], b[1]):
        assert contains(found, operation(x, y))


@pytest.mark.parametrize(
    ("rule", "operation"),
    [(floordiv_bounds, int.__floordiv__), (mod_bounds, int.__mod__)],
)
@given(a=intervals(), b=intervals(least=1))
def test_no_quotient_or_remainder_by_a_positive_divisor_lies_outside(
    rule: Rule,
    operation: Callable[[int, int], int],
    a: tuple[Bounds, list[int]],
    b: tuple[Bounds, list[int]],
) -> None:
    found = rule(a[0], b[0])
    for x, y in itertools.product(a[1], b[1]):
        assert contains(found, operation(x, y))


@given(a=intervals(), b=intervals())
def test_closed_products_and_extremes_are_tight(
    a: tuple[Bounds, list[int]], b: tuple[Bounds, list[int]]
) -> None:
    if None in (*a[0], *b[0]):
        return
    for rule, operation in (
        (product_bounds, int.__mul__),
        (min_bounds, min),
        (max_bounds, max),
    ):
        values = [operation(x, y) for x, y in itertools.product(a[1], b[1])]
        assert rule(a[0], b[0]) == (min(values), max(values))


def test_a_divisor_that_may_be_zero_leaves_everything_open() -> None:
    assert floordiv_bounds((0, 5), (0, 5)) == (None, None)
    assert mod_bounds((0, 5), (None, 5)) == (None, None)
