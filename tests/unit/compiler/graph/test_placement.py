"""Where constants lie in memory."""

import tracemalloc

import numpy as np
import pytest

from tilewright.compiler.graph.placement import LINE_BYTES, empty_at_line
from tilewright.compiler.graph.schema import Array
from tilewright.compiler.ops.catalogue import schema


@pytest.mark.parametrize("shape", [(), (3,), (5, 7), (0, 4), (33, 65)])
def test_room_begins_at_a_cache_line_and_is_whole(shape: tuple[int, ...]) -> None:
    for dtype in (np.dtype(np.float32), np.dtype(np.int8), np.dtype(np.float64)):
        room = empty_at_line(shape, dtype)
        assert (room.shape, room.dtype) == (shape, dtype)
        assert room.size == 0 or room.ctypes.data % LINE_BYTES == 0
        room[...] = 1
        assert np.all(room == 1)


@pytest.mark.parametrize("columns", [16, 19])
def test_packed_weights_are_made_where_kernels_read_them(columns: int) -> None:
    weights: Array = np.arange(6 * columns, dtype=np.float32).reshape(6, columns)
    pack = schema("pack_panels")
    (packed,) = pack.evaluate([weights], {"panel": 8})
    assert packed.ctypes.data % LINE_BYTES == 0
    for panel, rows in enumerate(packed):
        part = weights[:, panel * 8 : panel * 8 + 8]
        assert np.array_equal(rows[:, : part.shape[1]], part)
        assert not np.any(rows[:, part.shape[1] :])


def test_a_border_of_columns_takes_no_copy_of_the_weights() -> None:
    weights: Array = np.ones((1003, 256), np.float32).T
    pack = schema("pack_panels")
    tracemalloc.start()
    try:
        (packed,) = pack.evaluate([weights], {"panel": 16})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert packed.shape == (63, 256, 16)
    assert packed.sum() == weights.size
    assert peak < 1.1 * packed.nbytes
