"""Allocators hand out buffers and count them."""

from __future__ import annotations

import mmap

import numpy as np
import pytest

from tilewright.base.errors import DeviceError
from tilewright.runtime.hal.buffer import BufferUsage, MemoryAccess, MemoryType
from tilewright.runtime.hal.device import Device

TYPE, USAGE = int(MemoryType.DEVICE_LOCAL), int(BufferUsage.DEFAULT)
HOST_TYPE = int(MemoryType.HOST_LOCAL | MemoryType.DEVICE_VISIBLE)


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 4096, 5000, 1 << 20])
def test_a_buffer_has_the_size_that_was_asked_for(device: Device, size: int) -> None:
    buffer = device.allocator.allocate(TYPE, USAGE, size)
    assert buffer.byte_length == size
    assert buffer.memory_type & TYPE == TYPE
    assert buffer.allowed_usage & USAGE == USAGE


def test_heaps_are_listed(device: Device) -> None:
    assert device.allocator.query_memory_heaps()


def test_allocations_are_counted_and_given_back(device: Device) -> None:
    before = device.allocator.query_statistics()
    buffer = device.allocator.allocate(TYPE, USAGE, 1 << 20)
    during = device.allocator.query_statistics()
    assert during.live_bytes >= before.live_bytes + (1 << 20)
    del buffer
    after = device.allocator.query_statistics()
    assert after.live_bytes == before.live_bytes
    assert after.peak_bytes >= during.live_bytes
    device.trim()
    assert device.allocator.query_statistics().pooled_bytes == 0


def test_memory_is_reused_only_when_nothing_refers_to_it(device: Device) -> None:
    usage = USAGE | int(BufferUsage.MAPPING)
    buffer = device.allocator.allocate(HOST_TYPE, usage, 4096)
    buffer.fill(b"\x5a")
    view = buffer.map_range(MemoryAccess.READ)
    del buffer
    others = [device.allocator.allocate(HOST_TYPE, usage, 4096) for _ in range(4)]
    for other in others:
        other.fill(b"\x00")
    assert bytes(view) == b"\x5a" * 4096


def test_absurd_sizes_are_refused(device: Device) -> None:
    with pytest.raises(DeviceError, match="INVALID_ARGUMENT"):
        device.allocator.allocate(TYPE, USAGE, -1)
    with pytest.raises(DeviceError, match="RESOURCE_EXHAUSTED"):
        device.allocator.allocate(TYPE, USAGE, 1 << 60)


def test_aligned_host_memory_is_imported_in_place(device: Device) -> None:
    memory = mmap.mmap(-1, 4096)
    buffer = device.allocator.import_host(HOST_TYPE, USAGE, memory)
    assert buffer is not None
    buffer.write(b"abc", 5)
    assert memory[5:8] == b"abc"
    assert bytes(device.allocator.export_host(buffer)[5:8]) == b"abc"


def test_memory_that_kernels_could_not_use_is_not_imported(device: Device) -> None:
    aligned = np.frombuffer(mmap.mmap(-1, 4096), np.uint8)
    assert device.allocator.import_host(HOST_TYPE, USAGE, aligned[4:]) is None


def test_read_only_memory_stays_read_only(device: Device) -> None:
    memory = np.frombuffer(mmap.mmap(-1, 4096), np.uint8)
    memory.flags.writeable = False
    buffer = device.allocator.import_host(HOST_TYPE, USAGE, memory)
    assert buffer is not None
    assert buffer.read(0, 4) == bytes(4)
    with pytest.raises(DeviceError, match="PERMISSION_DENIED"):
        buffer.write(b"x")
