from __future__ import annotations

import pytest

from tilewright.base.symbolic import Dim, floordiv, mod, symbol, symbols
from tilewright.compiler.analysis.sizes import GUESS, estimate, likely_sizes, with_numbers


def test_estimates_take_a_guess_for_open_dimensions() -> None:
    n = symbol("N", 1)
    assert estimate(n) == 128
    assert estimate(n * 2) == 256
    assert estimate(symbol("B", 1, 4)) == 4
    assert estimate(7) == 7


def test_a_picture_is_large_enough_for_its_strides() -> None:
    n, h, w = symbol("N", 1), symbol("H", 1), symbol("W", 1)
    rows = floordiv(h - 1, 32) + 1
    assert estimate(rows) == 4
    few = estimate(n * floordiv(h, 16) * floordiv(w, 16))
    assert few == round(256 ** (1 / 3)) ** 3
    assert estimate(floordiv(symbol("K", 1, 8), 16)) == 0, "no larger than it can be"
    env = likely_sizes(symbols(n * h * w), [floordiv(h + 1, 32), w])
    assert env["H"] == 32 * 6
    assert env["W"] == env["N"] == 6


@pytest.mark.parametrize("divisor", [mod(symbol("n", 1), 8), mod(symbol("k", 1, 9), 9)])
def test_a_guess_that_leaves_nothing_of_a_divisor_is_none(divisor: Dim) -> None:
    assert estimate(floordiv(symbol("m", 1), divisor)) == GUESS
    assert with_numbers(floordiv(symbol("m", 1), divisor), {"n": 16, "k": 9}) == GUESS
    assert with_numbers(divisor, {"n": 17, "k": 10}) == 1
