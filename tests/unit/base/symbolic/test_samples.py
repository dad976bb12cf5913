"""Values at two points: they are taken within the bounds, and never speak against a proof."""

from __future__ import annotations

import pytest
from hypothesis import given

from fakes.dimension_trees import Tree, trees
from tilewright.base import symbolic
from tilewright.base.symbolic import Dim, bounds, evaluate, opaque, symbol
from tilewright.base.symbolic.samples import samples

n = symbol("n", 1)
m = symbol("m", 3, 7)
FAR = (1 << 20) - 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (5, (5, 5)),
        (n, (1, FAR)),
        (m, (3, 7)),
        (symbol("z", -9, -2), (-2, -2)),
        (symbol("w", None, None), (1, FAR)),
        (2 * n * m - n + 4, (2 * 3 - 1 + 4, 13 * FAR + 4)),
        (n // 32, (0, FAR // 32)),
        (n % 32, (1, 31)),
        (symbolic.minimum(n, m + 1), (1, 8)),
        (symbolic.maximum(n, m + 1), (4, FAR)),
        (opaque("table[i]", "<table[i]>") + n, (1, FAR)),
    ],
)
def test_a_sample_is_the_value_near_0_and_far_from_it(
    value: Dim, expected: tuple[int, int]
) -> None:
    assert samples(value) == expected


@pytest.mark.parametrize("operation", ["floordiv", "mod"])
def test_there_is_no_sample_where_a_divisor_is_0(operation: str) -> None:
    empty = symbol("e", 0, 0)
    quotient = getattr(symbolic, operation)(n, empty + m - m * n)
    assert evaluate(empty + m - m * n, {"e": 0, "m": 3, "n": 1}) == 0
    assert samples(quotient) == ()
    assert samples(2 * quotient + n) == ()
    assert samples(quotient % 5) == ()


@given(trees)
def test_samples_lie_within_the_bounds(tree: Tree) -> None:
    low, high = bounds(tree.dim())
    for found in samples(tree.dim()):
        assert low is None or low <= found
        assert high is None or found <= high


@given(trees, trees)
def test_no_sample_keeps_a_proof_away(left: Tree, right: Tree) -> None:
    a, b = left.dim(), right.dim()
    most = bounds(a - b)[1]
    assert symbolic.proves_less(a, b) == (most is not None and most < 0)
    assert symbolic.proves_at_most(a, [b]) == (most is not None and most <= 0)
    of_both = (most, bounds(a - 3)[1])
    either = any(end is not None and end <= 0 for end in of_both)
    assert symbolic.proves_at_most(a, [b, 3]) == either
