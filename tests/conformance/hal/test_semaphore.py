"""Semaphores are timelines; failures stay and spread."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tilewright.base.errors import DeviceError
from tilewright.base.status import StatusCode, failure
from tilewright.runtime.hal.device import Device
from tilewright.runtime.hal.fence import Fence
from tilewright.runtime.hal.semaphore import Semaphore, SemaphoreCompatibility


def test_a_semaphore_begins_where_told_and_only_rises(device: Device) -> None:
    semaphore = device.create_semaphore(5)
    assert semaphore.query() == 5
    semaphore.signal(9)
    assert semaphore.query() == 9
    for value in (9, 3):
        with pytest.raises(DeviceError, match="INVALID_ARGUMENT"):
            semaphore.signal(value)


def test_waiting_for_the_past_returns_at_once(device: Device) -> None:
    semaphore = device.create_semaphore(5)
    for value in (0, 4, 5):
        semaphore.wait(value, timeout_ns=0)
    assert semaphore.query() == 5


def test_a_wait_ends_at_its_deadline(device: Device) -> None:
    for timeout_ns in (0, 2_000_000):
        with pytest.raises(DeviceError, match="DEADLINE_EXCEEDED"):
            device.create_semaphore().wait(1, timeout_ns)


def test_another_thread_can_signal(device: Device) -> None:
    semaphore = device.create_semaphore()
    thread = threading.Timer(0.01, lambda: semaphore.signal(2))
    thread.start()
    semaphore.wait(1)
    assert semaphore.query() == 2
    thread.join()


def test_a_failure_wakes_waiters_and_stays(device: Device) -> None:
    semaphore = device.create_semaphore()
    error = failure(StatusCode.DATA_LOSS, "lost")
    thread = threading.Timer(0.01, lambda: semaphore.fail(error))
    thread.start()
    with pytest.raises(DeviceError, match="lost"):
        semaphore.wait(1)
    thread.join()
    semaphore.fail(failure(StatusCode.ABORTED, "later"))
    semaphore.signal(7)
    with pytest.raises(DeviceError, match="lost"):
        semaphore.query()


def test_callbacks_hear_once_when_a_value_is_reached(device: Device) -> None:
    semaphore = device.create_semaphore()
    heard: list[tuple[int, object]] = []
    semaphore.notify(1, lambda error: heard.append((1, error)))
    semaphore.notify(3, lambda error: heard.append((3, error)))
    assert heard == []
    semaphore.signal(2)
    assert heard == [(1, None)]
    error = failure(StatusCode.ABORTED, "gone")
    semaphore.fail(error)
    semaphore.notify(2, lambda error: heard.append((2, error)))
    semaphore.notify(4, lambda error: heard.append((4, error)))
    assert heard == [(1, None), (3, error), (2, None), (4, error)]


def test_a_fence_is_reached_when_all_its_timepoints_are(device: Device) -> None:
    first, second = device.create_semaphore(), device.create_semaphore()
    fence = Fence.join([Fence.at(first, 1), None, Fence.at(second, 2), Fence.at(first, 3)])
    assert len(fence.timepoints) == 2
    heard: list[object] = []
    fence.notify(heard.append)
    first.signal(1)
    second.signal(2)
    assert fence.query() is StatusCode.DEFERRED
    assert heard == []
    first.signal(3)
    assert fence.query() is StatusCode.OK
    assert heard == [None]
    fence.wait(0)


def test_a_fence_fails_with_the_first_failure(device: Device) -> None:
    first, second = device.create_semaphore(), device.create_semaphore()
    fence = Fence([(first, 1), (second, 1)])
    heard: list[object] = []
    fence.notify(heard.append)
    error = failure(StatusCode.UNAVAILABLE, "gone")
    second.fail(error)
    first.fail(failure(StatusCode.ABORTED, "later"))
    assert heard == [error]
    assert fence.query() in (StatusCode.UNAVAILABLE, StatusCode.ABORTED)
    with pytest.raises(DeviceError):
        fence.wait()


def test_a_fence_signals_and_fails_all_its_semaphores(device: Device) -> None:
    semaphores = [device.create_semaphore() for _ in range(3)]
    Fence((s, 4) for s in semaphores).signal()
    assert [s.query() for s in semaphores] == [4, 4, 4]
    Fence((s, 5) for s in semaphores).fail(failure(StatusCode.ABORTED, "stop"))
    for semaphore in semaphores:
        with pytest.raises(DeviceError, match="stop"):
            semaphore.query()


def test_a_fence_signals_the_others_where_one_cannot_be(device: Device) -> None:
    """Else what waits for them would wait for ever."""
    first, second = device.create_semaphore(5), device.create_semaphore()
    with pytest.raises(DeviceError, match="signal of 5, the semaphore is at 5"):
        Fence([(first, 5), (second, 1)]).signal()
    second.wait(1, 0)


def test_a_fence_fails_all_also_where_a_listener_raises(device: Device) -> None:
    first, second = device.create_semaphore(), device.create_semaphore()

    def refuse(_: BaseException | None) -> None:
        raise LookupError("listener")

    first.notify(1, refuse)
    with pytest.raises(LookupError, match="listener"):
        Fence([(first, 1), (second, 1)]).fail(RuntimeError("lost"))
    assert str(second.error) == "lost"


@pytest.mark.parametrize("fails_before", [True, False])
def test_a_wait_for_a_fence_ends_with_a_failure_of_any_semaphore(
    device: Device, fails_before: bool
) -> None:
    """Whatever the order: nobody may ever signal the others."""
    first, second = device.create_semaphore(), device.create_semaphore()
    fail = threading.Timer(0 if fails_before else 0.05, second.fail, [RuntimeError("lost")])
    fail.start()
    if fails_before:
        fail.join()
    with pytest.raises(RuntimeError, match="lost"):
        Fence([(first, 1), (second, 1)]).wait(10_000_000_000)
    fail.join()
    assert not first.is_watched


def test_an_empty_fence_is_reached(device: Device) -> None:
    del device
    fence = Fence()
    assert fence.query() is StatusCode.OK
    fence.wait(0)
    fence.signal()


def test_asyncio_awaits_semaphores_and_fences(device: Device) -> None:
    first, second = device.create_semaphore(), device.create_semaphore()
    fence = Fence(((first, 2), (second, 1)))

    async def main() -> None:
        threading.Timer(0.01, first.signal, (2,)).start()
        threading.Timer(0.02, second.signal, (1,)).start()
        await first.reached(1)
        await fence
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(first.reached(9), 0.01)
        threading.Timer(0.01, first.fail, (failure(StatusCode.ABORTED, "gone"),)).start()
        with pytest.raises(DeviceError, match="gone"):
            await first.reached(3)
        await fence  # what was reached stays reached

    asyncio.run(main())


def test_a_device_waits_for_all_semaphores(device: Device) -> None:
    first, second = device.create_semaphore(), device.create_semaphore()
    both = Fence(((first, 2), (second, 1)))
    first.signal(2)
    with pytest.raises(DeviceError, match="DEADLINE_EXCEEDED"):
        device.wait_semaphores(both, timeout_ns=1_000_000)
    thread = threading.Timer(0.01, lambda: second.signal(1))
    thread.start()
    device.wait_semaphores(both)
    thread.join()


def test_a_device_waits_for_any_semaphore(device: Device) -> None:
    first, second = device.create_semaphore(), device.create_semaphore()
    either = Fence(((first, 2), (second, 1)))
    with pytest.raises(DeviceError, match="DEADLINE_EXCEEDED"):
        device.wait_semaphores(either, timeout_ns=1_000_000, wait_for_all=False)
    assert not first.is_watched
    assert not second.is_watched
    thread = threading.Timer(0.01, lambda: second.signal(1))
    thread.start()
    device.wait_semaphores(either, wait_for_all=False)
    thread.join()
    assert first.query() == 0
    assert not first.is_watched
    device.wait_semaphores(either, timeout_ns=0, wait_for_all=False)
    device.wait_semaphores(Fence(), timeout_ns=0, wait_for_all=False)


def test_a_wait_for_any_semaphore_hears_of_a_failure(device: Device) -> None:
    first, second = device.create_semaphore(), device.create_semaphore()
    second.fail(failure(StatusCode.DATA_LOSS, "lost"))
    with pytest.raises(DeviceError, match="lost"):
        device.wait_semaphores(Fence(((first, 1), (second, 1))), wait_for_all=False)


def test_two_semaphores_that_are_reached_end_one_wait(device: Device) -> None:
    semaphores = [device.create_semaphore() for _ in range(4)]
    either = Fence((s, 1) for s in semaphores)
    threads = [threading.Thread(target=s.signal, args=(1,)) for s in semaphores]
    for thread in threads:
        thread.start()
    device.wait_semaphores(either, wait_for_all=False)
    for thread in threads:
        thread.join()
    assert [s.query() for s in semaphores] == [1] * 4


def test_a_device_tells_what_it_does_with_a_semaphore(device: Device) -> None:
    own = device.query_semaphore_compatibility(device.create_semaphore())
    assert own == SemaphoreCompatibility.ALL
    foreign = device.query_semaphore_compatibility(Semaphore())
    assert foreign & SemaphoreCompatibility.HOST_ONLY == SemaphoreCompatibility.HOST_ONLY
