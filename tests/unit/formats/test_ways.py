"""What cannot come to its end is found."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tilewright.formats.ways import first_lost


@pytest.mark.parametrize(
    ("ways", "lost"),
    [
        ([], None),
        ([(1,), (2,)], None),
        ([(0,)], 0),
        ([(1,), (2,), (1,)], 0),
        ([(1, 3), (2,), (1,)], 1),
        ([(1,), (2, 3), (1,)], None),
        ([(2,), (1,), (3,)], None),  # nothing leads to the circle
        ([(1, 2), (0, 3), (2,)], 2),
    ],
)
def test_the_first_place_without_a_way_to_the_end_is_named(
    ways: Sequence[Sequence[int]], lost: int | None
) -> None:
    assert first_lost(ways) == lost
