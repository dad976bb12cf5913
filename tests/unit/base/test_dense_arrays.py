"""Arrays come in order; what needs no copy is none, and what has no room is an error in words."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.base.dense_arrays import in_order
from tilewright.base.errors import DeviceError


def misaligned(array: np.ndarray) -> np.ndarray:
    room = np.zeros(array.nbytes + 1, np.uint8)[1:]
    view = room.view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


X = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize("array", [X, X[:0], np.array(3.0, np.float32), X[1:]])
def test_what_is_in_order_stays_as_it_is(array: np.ndarray) -> None:
    assert in_order(array) is array


@pytest.mark.parametrize(
    "array", [X.T, X[::-1], X[:, ::2], misaligned(X), np.broadcast_to(X[0], (3, 4))]
)
def test_everything_else_is_copied(array: np.ndarray) -> None:
    dense = in_order(array)
    assert dense.flags.c_contiguous
    assert dense.flags.aligned
    assert np.array_equal(dense, array)


def test_a_copy_without_room_is_an_error_in_words() -> None:
    with pytest.raises(
        DeviceError, match=r"no memory for a dense copy of .*RESOURCE_EXHAU"
    ):
        in_order(np.broadcast_to(np.float32(1), (1 << 50, 3)))
