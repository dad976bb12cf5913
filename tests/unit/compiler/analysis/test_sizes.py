from __future__ import annotations

from tilewright.base.symbolic import symbol
from tilewright.compiler.analysis.sizes import estimate


def test_estimates_take_a_guess_for_open_dimensions() -> None:
    n = symbol("N", 1)
    assert estimate(n) == 128
    assert estimate(n * 2) == 256
    assert estimate(symbol("B", 1, 4)) == 4
    assert estimate(7) == 7
