"""Files are read into and written from device memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.base.errors import DeviceError
from tilewright.runtime.hal.buffer import Buffer, BufferUsage, MemoryAccess, MemoryType
from tilewright.runtime.hal.device import Device
from tilewright.runtime.hal.fence import Fence
from tilewright.runtime.hal.file import StreamFile


def allocated(device: Device) -> Buffer:
    buffer = device.allocator.allocate(
        int(MemoryType.DEVICE_LOCAL), int(BufferUsage.DEFAULT), 16
    )
    buffer.fill(b"\x00")
    return buffer


def test_memory_is_read_as_a_file(device: Device) -> None:
    file = device.import_file(b"0123456789", int(MemoryAccess.READ))
    buffer, done = allocated(device), Fence.at(device.create_semaphore(), 1)
    device.queue_read(None, done, file, 2, buffer, 4, 5)
    done.wait()
    assert buffer.read() == bytes(4) + b"23456" + bytes(7)
    assert file.length == 10


def test_memory_is_written_as_a_file(device: Device) -> None:
    memory = bytearray(b"0123456789")
    file = device.import_file(memory, int(MemoryAccess.READ | MemoryAccess.WRITE))
    buffer, done = allocated(device), Fence.at(device.create_semaphore(), 1)
    buffer.write(b"abcdef")
    device.queue_write(None, done, buffer, 1, file, 5, 3)
    done.wait()
    assert memory == b"01234bcd89"


def test_files_of_the_system_are_read_and_written(device: Device, tmp_path: Path) -> None:
    path = tmp_path / "data.bin"
    path.write_bytes(b"0123456789")
    buffer, done = allocated(device), Fence.at(device.create_semaphore(), 2)
    with path.open("r+b") as stream:
        file = device.import_file(StreamFile(stream, int(MemoryAccess.ALL)), 0)
        first = Fence.at(done.timepoints[0][0], 1)
        device.queue_read(None, first, file, 5, buffer, 0, 5)
        device.queue_write(first, done, buffer, 0, file, 0, 5)
        done.wait()
    assert path.read_bytes() == b"5678956789"


def test_ranges_and_access_are_checked_at_once(device: Device) -> None:
    file = device.import_file(b"0123456789", int(MemoryAccess.READ))
    buffer = allocated(device)
    with pytest.raises(DeviceError, match="OUT_OF_RANGE"):
        device.queue_read(None, None, file, 8, buffer, 0, 3)
    with pytest.raises(DeviceError, match="OUT_OF_RANGE"):
        device.queue_read(None, None, file, 0, buffer, 10, 8)
    with pytest.raises(DeviceError, match="PERMISSION_DENIED"):
        device.queue_write(None, None, buffer, 0, file, 0, 3)


def test_a_single_participant_has_a_channel(device: Device) -> None:
    channel = device.create_channel()
    assert (channel.rank, channel.count) == (0, 1)
    assert channel.split(0, 0) is channel
    assert channel.split(-1, 0) is None
