"""What pairs of sizes say that must agree."""

import pytest

from tilewright.base.symbolic import (
    Dim,
    evaluate,
    floordiv,
    maximum,
    minimum,
    mod,
    symbol,
)
from tilewright.formats.plan.size_relations import (
    Pair,
    Relation,
    SizeRelation,
    at_least,
    at_most,
    relation_of,
    unlike,
)

N, M = symbol("N", 0), symbol("M", 0)

HOLDS = {
    Relation.EQUAL: lambda size, other: size == other,
    Relation.NOT_NEGATIVE: lambda size, _: size >= 0,
    Relation.AT_MOST: lambda size, other: size <= other,
    Relation.AT_LEAST: lambda size, other: size >= other,
    Relation.MULTIPLE: lambda size, other: size % other == 0,
}

PAIRS: list[tuple[Pair, Relation, Dim, Dim]] = [
    (at_least(5 - N, 0), Relation.NOT_NEGATIVE, 5 - N, 0),
    (at_least(-N, 0), Relation.NOT_NEGATIVE, -N, 0),
    ((maximum(5 - N, 0), 5 - N), Relation.NOT_NEGATIVE, 5 - N, 0),
    (at_most(N, 4), Relation.AT_MOST, N, 4),
    ((4, minimum(N, 4)), Relation.AT_LEAST, N, 4),
    ((3, maximum(N, 3)), Relation.AT_MOST, N, 3),
    ((6 * N, 24 * floordiv(N, 4)), Relation.MULTIPLE, N, 4),
    ((4 * floordiv(N + 1, 4), N + 1), Relation.MULTIPLE, N + 1, 4),
    ((6 * N, 12 * floordiv(N, 4)), Relation.EQUAL, 6 * N, 12 * floordiv(N, 4)),
    ((M * N, 4 * M * floordiv(N, 4)), Relation.EQUAL, M * N, 4 * M * floordiv(N, 4)),
    ((N, minimum(N, M)), Relation.AT_MOST, N, M),
    ((minimum(N + 1, M), M), Relation.AT_MOST, M, N + 1),
    (at_least(N, M), Relation.AT_LEAST, N, M),
    (unlike(N, M), Relation.AT_LEAST, maximum(N - M, M - N), 1),
    ((maximum(N, 3), N), Relation.AT_LEAST, N, 3),
    ((mod(N + 1, 4), 0), Relation.MULTIPLE, N + 1, 4),
    ((0, mod(N, 4)), Relation.MULTIPLE, N, 4),
    ((5 - N, N), Relation.EQUAL, 5 - N, N),
    ((3, N), Relation.EQUAL, N, 3),
    ((N, N), Relation.EQUAL, N, N),
    # An extreme of others says nothing of the size that it must be: a slice of at most one beside another size.
    ((minimum(1, N), M), Relation.EQUAL, minimum(1, N), M),
    ((mod(N, 4), 1), Relation.EQUAL, mod(N, 4), 1),
]


@pytest.mark.parametrize(("pair", "relation", "size", "other"), PAIRS)
def test_a_pair_says_one_thing(
    pair: Pair, relation: Relation, size: Dim, other: Dim
) -> None:
    assert relation_of(pair) == SizeRelation(relation, size, other)


@pytest.mark.parametrize("pair", [row[0] for row in PAIRS])
def test_what_is_read_holds_exactly_where_the_pair_agrees(pair: Pair) -> None:
    relation, size, other = relation_of(pair)
    for n in range(9):
        for m in range(9):
            env = {"N": n, "M": m}
            left, right, size_, other_ = (evaluate(d, env) for d in (*pair, size, other))
            assert HOLDS[relation](size_, other_) is (left == right)


def test_sizes_that_must_differ_are_told_by_their_distance() -> None:
    distance = maximum(floordiv(N, 2) - M, M - floordiv(N, 2))
    found = relation_of((maximum(distance, 1), distance))
    told = found.broken_text(lambda size: evaluate(size, {"N": 4, "M": 2}))
    assert (
        told
        == "a size does not fit: the distance of (N // 2) and M is 0, expected at least 1"
    )
