"""Round numbers on axes."""

from __future__ import annotations

import pytest

from tilewright.api.report.palette import decades, nice_ticks, outcome_class
from tilewright.base.outcome import Outcome


@pytest.mark.parametrize(
    ("limit", "count", "base", "ticks"),
    [
        (10, 5, 10, [0, 2, 4, 6, 8, 10]),
        (7, 8, 10, [0, 1, 2, 3, 4, 5, 6, 7]),
        (1000, 4, 2, [0, 256, 512, 768]),
        (0, 5, 10, [0]),
    ],
)
def test_ticks_are_round_and_end_before_the_limit(
    limit: float, count: int, base: int, ticks: list[float]
) -> None:
    assert nice_ticks(limit, count, base) == ticks


def test_decades_lie_within_their_bounds() -> None:
    assert list(decades(0.5, 150)) == [1, 10, 100]
    assert list(decades(0.01, 0.01)) == [0.01]


def test_every_outcome_has_a_class_and_so_has_none() -> None:
    assert len({outcome_class(o) for o in (*Outcome, None)}) == len(Outcome) + 1
