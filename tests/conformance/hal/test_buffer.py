"""Buffers are mapped, read, written and cut into parts."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.base.errors import DeviceError
from tilewright.runtime.hal.buffer import (
    WHOLE_BUFFER,
    Buffer,
    BufferUsage,
    MemoryAccess,
    MemoryType,
)
from tilewright.runtime.hal.device import Device


@pytest.fixture
def buffer(device: Device) -> Buffer:
    made = device.allocator.allocate(
        int(MemoryType.DEVICE_LOCAL), int(BufferUsage.DEFAULT), 100
    )
    made.write(bytes(range(100)))
    return made


def test_what_is_written_is_read(buffer: Buffer) -> None:
    buffer.write(b"hello", 7)
    assert buffer.read(6, 7) == b"\x06hello\x0c"


@pytest.fixture
def mappable(device: Device) -> Buffer:
    made = device.allocator.allocate(
        int(MemoryType.DEVICE_LOCAL | MemoryType.HOST_VISIBLE),
        int(BufferUsage.DEFAULT | BufferUsage.MAPPING),
        100,
    )
    made.write(bytes(range(100)))
    return made


@pytest.mark.parametrize("pattern", [b"\x01", b"\x01\x02", b"\x01\x02\x03\x04"])
def test_a_pattern_is_repeated_over_a_range(buffer: Buffer, pattern: bytes) -> None:
    buffer.fill(pattern, 8, 16)
    assert buffer.read(8, 16) == pattern * (16 // len(pattern))
    assert buffer.read(7, 1) == b"\x07"
    assert buffer.read(24, 1) == b"\x18"


def test_a_pattern_that_does_not_fit_is_refused(buffer: Buffer) -> None:
    with pytest.raises(DeviceError, match="INVALID_ARGUMENT"):
        buffer.fill(b"\x01\x02\x03\x04", 0, 5)
    with pytest.raises(DeviceError, match="INVALID_ARGUMENT"):
        buffer.fill(b"\x01\x02\x03", 0, 6)


def test_parts_share_memory_and_can_be_cut_again(buffer: Buffer) -> None:
    part = buffer.subspan(10, 50).subspan(5)
    assert part.byte_length == 45
    assert part.read(0, 3) == bytes((15, 16, 17))
    part.write(b"\xff")
    assert buffer.read(15, 1) == b"\xff"
    assert part.allocation_size == buffer.allocation_size


def test_an_empty_part_is_allowed_at_the_end(buffer: Buffer) -> None:
    part = buffer.subspan(100, 0)
    assert part.read() == b""
    part.write(b"")


@pytest.mark.parametrize(
    ("offset", "length"), [(-1, 1), (0, 101), (101, WHOLE_BUFFER), (99, 2)]
)
def test_ranges_outside_are_refused(buffer: Buffer, offset: int, length: int) -> None:
    with pytest.raises(DeviceError, match="OUT_OF_RANGE"):
        buffer.subspan(offset, length)
    with pytest.raises(DeviceError, match="OUT_OF_RANGE"):
        buffer.map_range(MemoryAccess.READ, offset, length)


def test_a_mapping_is_writable_only_when_asked(mappable: Buffer) -> None:
    buffer = mappable
    assert buffer.map_range(MemoryAccess.READ).readonly
    view = buffer.map_range(MemoryAccess.READ | MemoryAccess.WRITE, 4, 4)
    view[:] = b"wxyz"
    buffer.flush_range(4, 4)
    buffer.invalidate_range(4, 4)
    assert buffer.read(4, 4) == b"wxyz"


def test_numpy_sees_the_memory_itself(mappable: Buffer) -> None:
    buffer = mappable
    array = np.frombuffer(buffer.map_range(MemoryAccess.WRITE, 0, 8), np.uint8)
    array[3] = 200
    assert buffer.read(3, 1) == b"\xc8"
