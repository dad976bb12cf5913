"""Queues run work when its waits are reached, in any order of submission, and pass on failures."""

from __future__ import annotations

import threading

import pytest

from tilewright.base.errors import DeviceError
from tilewright.base.status import StatusCode, failure
from tilewright.runtime.hal.buffer import Buffer, BufferUsage, MemoryType
from tilewright.runtime.hal.command_buffer import BufferRef
from tilewright.runtime.hal.device import Device
from tilewright.runtime.hal.fence import Fence

TYPE, USAGE = int(MemoryType.DEVICE_LOCAL), int(BufferUsage.DEFAULT)
SECOND_NS = 1_000_000_000


def fence(device: Device) -> Fence:
    return Fence.at(device.create_semaphore(), 1)


def filled(device: Device, size: int, byte: bytes = b"\x00") -> Buffer:
    buffer = device.allocator.allocate(TYPE, USAGE, size)
    buffer.fill(byte)
    return buffer


def test_a_transient_buffer_lives_from_alloca_to_dealloca(device: Device) -> None:
    ready, done, gone = fence(device), fence(device), fence(device)
    buffer = device.queue_alloca(None, ready, TYPE, USAGE, 64)
    device.queue_fill(ready, done, BufferRef(buffer), b"\x05")
    device.queue_dealloca(done, gone, buffer)
    gone.wait(10 * SECOND_NS)
    assert buffer.byte_length == 64


def test_single_transfers_run_without_a_command_buffer(device: Device) -> None:
    source, target = filled(device, 16), filled(device, 16)
    fences = [fence(device) for _ in range(3)]
    device.queue_update(None, fences[0], b"abcd", BufferRef(source, 4, 4))
    device.queue_copy(fences[0], fences[1], BufferRef(source), BufferRef(target))
    device.queue_fill(fences[1], fences[2], BufferRef(target, 12, 4), b"\x01\x02")
    fences[2].wait(10 * SECOND_NS)
    assert target.read() == bytes(4) + b"abcd" + bytes(4) + b"\x01\x02\x01\x02"


def test_a_barrier_signals_after_its_waits(device: Device) -> None:
    first, second = fence(device), fence(device)
    device.queue_barrier(first, second)
    assert second.query() is StatusCode.DEFERRED
    first.signal()
    second.wait(10 * SECOND_NS)


def test_work_may_be_submitted_in_reverse_order(device: Device) -> None:
    seen: list[int] = []
    fences = [fence(device) for _ in range(6)]
    for step in reversed(range(5)):
        device.queue_host_call(
            fences[step], fences[step + 1], lambda step=step: seen.append(step)
        )
    assert seen == []
    fences[0].signal()
    fences[5].wait(10 * SECOND_NS)
    assert seen == [0, 1, 2, 3, 4]


def test_work_waits_for_several_fences(device: Device) -> None:
    first, second, done = fence(device), fence(device), fence(device)
    target = filled(device, 4)
    device.queue_fill(Fence.join([first, second]), done, BufferRef(target), b"\x09")
    first.signal()
    assert done.query() is StatusCode.DEFERRED
    second.signal()
    done.wait(10 * SECOND_NS)
    assert target.read() == b"\x09" * 4


def test_a_thread_may_signal_what_work_waits_for(device: Device) -> None:
    first, done = fence(device), fence(device)
    target = filled(device, 4)
    device.queue_fill(first, done, BufferRef(target), b"\x08")
    thread = threading.Timer(0.01, first.signal)
    thread.start()
    done.wait(10 * SECOND_NS)
    assert target.read() == b"\x08" * 4
    thread.join()


def test_failed_work_fails_its_fence_and_all_that_wait_for_it(device: Device) -> None:
    def explode() -> None:
        raise failure(StatusCode.DATA_LOSS, "exploded")

    fences = [fence(device) for _ in range(3)]
    target = filled(device, 4, b"\x01")
    device.queue_host_call(None, fences[0], explode)
    device.queue_fill(fences[0], fences[1], BufferRef(target), b"\x02")
    device.queue_barrier(fences[1], fences[2])
    with pytest.raises(DeviceError, match="exploded"):
        fences[2].wait(10 * SECOND_NS)
    assert target.read() == b"\x01" * 4


def test_failures_reach_work_that_was_waiting_already(device: Device) -> None:
    first, done = fence(device), fence(device)
    seen: list[int] = []
    device.queue_host_call(first, done, lambda: seen.append(1))
    first.fail(failure(StatusCode.CANCELLED, "never mind"))
    with pytest.raises(DeviceError, match="never mind"):
        done.wait(10 * SECOND_NS)
    assert seen == []


def test_failed_work_that_signals_nothing_raises(device: Device) -> None:
    def explode() -> None:
        raise failure(StatusCode.DATA_LOSS, "exploded")

    with pytest.raises(DeviceError, match="exploded"):
        device.queue_host_call(None, None, explode)


def test_a_timeline_carries_several_steps(device: Device) -> None:
    semaphore = device.create_semaphore()
    seen: list[int] = []
    for step in (2, 1, 3):
        device.queue_host_call(
            Fence.at(semaphore, step),
            Fence.at(semaphore, step + 1),
            lambda step=step: seen.append(step),
        )
    semaphore.signal(1)
    semaphore.wait(4, 10 * SECOND_NS)
    assert seen == [1, 2, 3]


def test_many_threads_submit_at_once(device: Device) -> None:
    def work(index: int) -> None:
        for value in range(30):
            done = fence(device)
            device.queue_fill(None, done, BufferRef(buffers[index]), bytes((value,)))
            done.wait(10 * SECOND_NS)
            if buffers[index].read() != bytes((value,)) * 256:
                wrong.append((index, value))

    buffers = [filled(device, 256) for _ in range(4)]
    wrong: list[tuple[int, int]] = []
    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_flushing_a_queue_is_allowed_any_time(device: Device) -> None:
    before, after = fence(device), fence(device)
    device.queue_flush()
    device.queue_barrier(before, after)
    device.queue_flush()  # what waits goes on waiting
    assert after.query() is StatusCode.DEFERRED
    before.signal()
    device.queue_flush()
    after.wait(10 * SECOND_NS)
