"""Pairs of sizes that say that one is not negative."""

from tilewright.base.symbolic import evaluate, maximum, symbol
from tilewright.formats.plan.signs import at_least_zero, is_at_least_zero

N = symbol("N", 0)


def test_a_pair_agrees_where_the_size_is_not_negative() -> None:
    size, other = at_least_zero(5 - N)
    for n in range(9):
        assert (evaluate(size, {"N": n}) == evaluate(other, {"N": n})) is (n <= 5)


def test_other_pairs_are_told_apart() -> None:
    assert is_at_least_zero(at_least_zero(5 - N))
    assert is_at_least_zero(at_least_zero(-N))
    assert not is_at_least_zero((5 - N, N))
    assert not is_at_least_zero((maximum(5 - N, 0), 5 - N))
    assert not is_at_least_zero((N, N))
    assert not is_at_least_zero((3, 4))
