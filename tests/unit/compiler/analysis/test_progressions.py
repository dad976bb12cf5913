from __future__ import annotations

import itertools
import math
import random

import pytest

from tilewright.compiler.analysis.progressions import (
    Positions,
    Walk,
    count,
    count_lines,
    union,
    walk_of,
)


def places(walk: Walk) -> set[int]:
    ranges = [range(0, stride * number, stride) for stride, number in walk]
    return {sum(place) for place in itertools.product(*ranges)}


def random_walk(generator: random.Random) -> Walk:
    strides = (1, 1, 2, 3, 4, 5, 8, 12, 16, 17, 32, 60, 64, 100)
    depth = generator.randrange(4)
    return walk_of(
        [(generator.choice(strides), generator.randrange(1, 7)) for _ in range(depth)]
    )


def test_nested_strides_are_counted_as_often_as_they_differ() -> None:
    assert count(()) == 1
    assert count(((1, 3), (2, 10))) == 21  # windows overlap
    assert count(((1, 4), (8, 5))) == 20  # rows with gaps
    assert count(((2, 3), (3, 2))) == 6  # 0 2 4, 3 5 7


@pytest.mark.thinned(4)
@pytest.mark.parametrize("seed", range(300))
def test_counts_are_those_of_enumeration(seed: int) -> None:
    generator = random.Random(seed)
    walk = random_walk(generator)
    assert count(walk) == len(places(walk))
    sets = [
        Positions(generator.randrange(20), random_walk(generator), 10**6) for _ in range(3)
    ]
    together = {s.start + p for s in sets for p in places(s.walk)}
    assert union(sets, count) >= len(together)


def test_what_has_no_pattern_and_is_large_is_counted_too_high_but_not_above_its_span() -> (
    None
):
    walk = ((6, 100), (10, 100), (15, 100))
    assert len(places(walk)) <= count(walk) <= 6 * 99 + 10 * 99 + 15 * 99 + 1


@pytest.mark.thinned(4)
@pytest.mark.parametrize("seed", range(200))
def test_lines_are_about_those_of_enumeration(seed: int) -> None:
    generator = random.Random(seed)
    walk, item = random_walk(generator), generator.choice((1, 4, 8))
    true = len({(p * item + byte) // 64 for p in places(walk) for byte in range(item)})
    assert 0.6 * true <= count_lines(walk, item, 64) <= 1.6 * true + 1


def test_rows_that_begin_on_lines_take_whole_lines() -> None:
    assert count_lines(((1, 16), (32, 5)), item_bytes=4, line_bytes=64) == 5
    assert count_lines(((1, 64), (64, 4)), item_bytes=4, line_bytes=64) == 16
    assert count_lines(((16, 9),), item_bytes=4, line_bytes=64) == 9
    assert count_lines(((8, 9),), item_bytes=4, line_bytes=64) == math.ceil(9 / 2)


def test_shifted_copies_of_a_walk_are_one_walk() -> None:
    stencil = [Positions(d, ((1, 10),), 10) for d in (0, 1, 2)]
    assert union(stencil, count) == 12
    rows = [Positions(d, ((1, 10),), 10) for d in (0, 1, 100, 101)]
    assert union(rows, count) == 22


def test_what_lies_within_something_gapless_is_not_counted_again() -> None:
    assert union([Positions(0, ((1, 10),), 10), Positions(3, ((2, 3),), 3)], count) == 10
    holes = Positions(0, ((1, 7),), 5)  # five of seven, nobody knows which
    assert union([holes, Positions(0, ((1, 4),), 4)], count) == 7
    assert union([], count) == 0
