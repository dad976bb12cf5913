"""Buffers are ranges of a storage, and never more than that."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.base.errors import DeviceError
from tilewright.runtime.drivers import registry
from tilewright.runtime.hal.buffer import READ, WHOLE_BUFFER, WRITE, Buffer
from tilewright.runtime.hal.local.heap_storage import HeapStorage


def made(size_bytes: int = 100) -> Buffer:
    device = registry.create_device("local-sync")
    buffer = device.allocator.allocate(0, 0, size_bytes)
    buffer.write(bytes(range(size_bytes)))
    return buffer


@pytest.mark.parametrize(
    ("offset", "length"),
    [
        (-1, WHOLE_BUFFER),
        (0, 101),
        (101, WHOLE_BUFFER),
        (99, 2),
        (1 << 40, 4),
        (0, 1 << 63),
    ],
)
def test_a_buffer_lies_in_its_storage(offset: int, length: int) -> None:
    """Commands take its word for where its bytes are."""
    with pytest.raises(DeviceError, match="OUT_OF_RANGE"):
        Buffer(made().storage, offset, length)


def test_a_part_of_a_storage_is_a_buffer() -> None:
    assert Buffer(made().storage, 98, 2).read() == b"bc"
    assert Buffer(made().storage, 100).read() == b""


def test_memory_that_nothing_may_write_to_is_not_written_to() -> None:
    array = np.arange(16, dtype=np.uint8)
    array.flags.writeable = False
    buffer = Buffer(HeapStorage.wrap(array))
    assert buffer.allowed_access & READ
    with pytest.raises(DeviceError, match="PERMISSION_DENIED"):
        buffer.map_range(WRITE)
    with pytest.raises(DeviceError, match="PERMISSION_DENIED"):
        buffer.fill(b"x")
