"""Of two arrays that take outputs, none is written over the other."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.base.errors import InputError
from tilewright.base.separate_arrays import check_apart

MEMORY = np.zeros(10, np.float32)
SQUARE = np.zeros((4, 4), np.float32)


@pytest.mark.parametrize(
    ("y", "z"),
    [
        (MEMORY[:6], MEMORY[:6]),
        (MEMORY[:6], MEMORY[5:]),
        (MEMORY[5:], MEMORY),
        (SQUARE.T, SQUARE.T),
        (SQUARE, SQUARE.T),
        (SQUARE[:, :2], SQUARE[1:2]),
    ],
)
def test_what_shares_memory_is_refused(y: np.ndarray, z: np.ndarray) -> None:
    other = np.zeros(3, np.float32)
    for places in ([other, y, z], [other, z, y], [other, None, z, y], [y[:0], y, z]):
        with pytest.raises(
            InputError, match=r"output '[wyz]': got memory that output '[wyz]'"
        ):
            check_apart("xyzw", places + [None] * (4 - len(places)))


@pytest.mark.parametrize(
    "places",
    [
        [MEMORY[:5], MEMORY[3:3], MEMORY[5:]],
        [SQUARE[:, ::2], None, SQUARE[:, 1::2]],
        [MEMORY, None, None],
        [],
    ],
)
def test_what_is_apart_is_taken(places: list[np.ndarray | None]) -> None:
    check_apart("xyz"[: len(places)], places)  # raises nothing
    given = [place for place in places if place is not None]
    assert sum(np.shares_memory(a, b) for a in given for b in given) == sum(
        place.size > 0 for place in given
    )
