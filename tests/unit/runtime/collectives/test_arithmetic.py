"""What collectives compute: averages of small integers over many ranks, and the order of the ranks."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.base import dtypes
from tilewright.runtime.collectives.arithmetic import reduce_arrays
from tilewright.runtime.hal.collective import CollectiveKind, CollectiveOp, Reduction


def average_of(name: str, parts: list[list[int]]) -> list[int]:
    dtype = dtypes.parse(name)
    op = CollectiveOp(
        kind=CollectiveKind.ALL_REDUCE, dtype=dtype, reduction=Reduction.AVERAGE
    )
    arrays = [np.array(part, dtype.numpy) for part in parts]
    return reduce_arrays(op, arrays).tolist()


@pytest.mark.parametrize("name", ["i8", "i16", "i32", "i64"])
def test_averages_of_integers_are_truncated_towards_zero(name: str) -> None:
    assert average_of(name, [[7, -7, 0, 1], [0, 0, -1, -2]]) == [3, -3, 0, 0]


@pytest.mark.parametrize("count", [127, 128, 200, 300])
def test_more_ranks_than_a_small_integer_has_numbers_have_an_average(count: int) -> None:
    rest = [[0, 0]] * (count - 1)
    assert average_of("i8", [[120, -120], *rest]) == [0, 0]
    assert average_of("u8", [[255, 3], *rest]) == [255 // count, 0]
