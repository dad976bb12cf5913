"""Local devices: several queues, and profiles of what queues do."""

from __future__ import annotations

import threading

import pytest

from tilewright.base.errors import DeviceError
from tilewright.base.status import StatusCode
from tilewright.runtime.hal.command_buffer import BufferRef
from tilewright.runtime.hal.device import DispatchTime, ProfilingFamily
from tilewright.runtime.hal.fence import Fence
from tilewright.runtime.hal.local.heap_allocator import HeapAllocator
from tilewright.runtime.hal.local.local_device import LocalDevice

SECONDS = 20_000_000_000


def make(queues: int) -> LocalDevice:
    return LocalDevice("test", None, (), has_thread=True, queue_count=queues)


def fence() -> Fence:
    return Fence.at(make(1).create_semaphore(), 1)


def test_queues_do_not_wait_for_each_other() -> None:
    device = make(2)
    start, gate = fence(), threading.Event()
    blocked, free = fence(), fence()
    device.queue_host_call(start, blocked, lambda: gate.wait(20), affinity=0b01)
    device.queue_host_call(start, free, lambda: None, affinity=0b10)
    start.signal()
    free.wait(SECONDS)
    assert blocked.query() is StatusCode.DEFERRED  # queue 0 is still busy
    gate.set()
    blocked.wait(SECONDS)
    assert blocked.query() is StatusCode.OK


def test_any_queue_is_the_least_busy_one() -> None:
    device = make(3)
    start, gate = fence(), threading.Barrier(4)
    fences = []
    for _ in range(3):  # deferred: queues are chosen when work is submitted
        fences.append(fence())
        device.queue_host_call(
            start, fences[-1], lambda: gate.wait(20), affinity=1 << len(fences) - 1
        )
    start.signal()
    gate.wait(20)  # opens when all three wait there at once
    for f in fences:
        f.wait(SECONDS)
    assert [f.query() for f in fences] == [StatusCode.OK] * 3


def test_an_affinity_names_queues_there_are() -> None:
    device = make(2)
    with pytest.raises(
        DeviceError, match=r"queue affinity 0x4, expected a bit of the 2 queues"
    ):
        device.queue_barrier(None, None, affinity=0b100)
    assert device.query_capabilities()["hal.device::concurrency"] == 2


def test_profiles_tell_commands_from_queue_operations() -> None:
    device = make(2)
    buffer = device.allocator.allocate(0, 0, 64)

    def work() -> None:
        done, called = fence(), fence()
        device.queue_fill(None, done, BufferRef(buffer), b"\x01", affinity=0b10)
        device.queue_host_call(done, called, lambda: None)
        called.wait(SECONDS)

    device.profiling_begin(ProfilingFamily.DISPATCHES | ProfilingFamily.QUEUE_OPERATIONS)
    work()
    times = device.profiling_end()
    assert [(t.name, t.family.name, t.queue) for t in times] == [
        ("fill", "DISPATCHES", 0),
        ("execute", "QUEUE_OPERATIONS", 1),
        ("host_call", "QUEUE_OPERATIONS", 0),
    ]
    operations = [t for t in times if t.family is ProfilingFamily.QUEUE_OPERATIONS]
    assert operations[0].begin_ns + operations[0].duration_ns <= operations[1].begin_ns
    device.profiling_begin()
    work()
    assert [t.name for t in device.profiling_end()] == ["fill"]
    assert isinstance(times[0], DispatchTime)


def test_work_that_waits_across_a_flush_is_in_the_next_one() -> None:
    device = make(1)
    start, done, never = fence(), fence(), fence()
    buffer = device.allocator.allocate(0, 0, 64)
    device.profiling_begin(ProfilingFamily.DISPATCHES | ProfilingFamily.QUEUE_OPERATIONS)
    device.queue_fill(start, done, BufferRef(buffer), b"\x01")
    assert device.profiling_flush() == ()
    start.signal()
    done.wait(SECONDS)
    assert [t.name for t in device.profiling_flush()] == ["fill", "execute"]
    assert device.profiling_flush() == ()
    device.queue_fill(never, None, BufferRef(buffer), b"\x02")
    assert device.profiling_end() == ()
    assert device.profiling_flush() == ()


def test_devices_take_buffers_from_the_allocator_they_are_made_with() -> None:
    heap = HeapAllocator(capacity_bytes=128)
    device = LocalDevice("test", None, (), has_thread=False, allocator=heap)
    with pytest.raises(DeviceError, match="no room for 4096 bytes"):
        device.queue_alloca(None, None, 0, 0, 4096)
