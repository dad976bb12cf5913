"""asyncio waits for semaphores and fences; cancelled waits leave nothing behind."""

from __future__ import annotations

import asyncio
import threading
import traceback

import pytest

from tilewright.base.errors import DeviceError
from tilewright.base.status import StatusCode, failure
from tilewright.runtime.hal.fence import Fence
from tilewright.runtime.hal.semaphore import Semaphore


def test_a_value_is_awaited_while_another_thread_signals() -> None:
    semaphore = Semaphore()

    async def main() -> list[str]:
        seen: list[str] = []

        async def wait(value: int) -> None:
            await semaphore.reached(value)
            seen.append(f"{value}")

        tasks = [asyncio.create_task(wait(value)) for value in (2, 1)]
        await asyncio.sleep(0)
        threading.Timer(0.01, semaphore.signal, (1,)).start()
        threading.Timer(0.05, semaphore.signal, (5,)).start()
        await asyncio.gather(*tasks)
        await semaphore.reached(3)  # reached already
        return seen

    assert asyncio.run(main()) == ["1", "2"]


def test_a_fence_is_awaited_until_all_its_semaphores_are_there() -> None:
    first, second = Semaphore(), Semaphore()
    fence = Fence(((first, 1), (second, 2)))

    async def main() -> None:
        task = asyncio.ensure_future(_await(fence))
        first.signal(1)
        await asyncio.sleep(0.01)
        assert not task.done()
        second.signal(2)
        await task
        await fence

    asyncio.run(main())


async def _await(fence: Fence) -> None:
    await fence


def test_failures_reach_those_who_await() -> None:
    semaphore = Semaphore()

    async def main() -> None:
        threading.Timer(
            0.01, semaphore.fail, (failure(StatusCode.ABORTED, "broken"),)
        ).start()
        with pytest.raises(DeviceError, match="broken"):
            await Fence.at(semaphore, 1)
        with pytest.raises(DeviceError, match="broken"):
            await semaphore.reached(7)

    asyncio.run(main())


def test_waits_with_a_timeout_leave_no_timepoints() -> None:
    semaphore, other = Semaphore(), Semaphore()

    async def main() -> None:
        for _ in range(20):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(semaphore.reached(1), 0.001)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(Fence(((semaphore, 2), (other, 1))), 0.001)

    asyncio.run(main())
    assert semaphore._timepoints == other._timepoints == []


def test_a_signal_after_the_loop_is_gone_does_no_harm() -> None:
    semaphore = Semaphore()

    async def main() -> asyncio.Future[None]:
        future = semaphore.reached(1)
        assert isinstance(future, asyncio.Future)
        return future

    future = asyncio.run(main())
    semaphore.signal(1)
    assert not future.done()


def test_raising_one_failure_many_times_does_not_grow_its_traceback() -> None:
    semaphore = Semaphore()
    try:
        raise failure(StatusCode.ABORTED, "once")
    except DeviceError as error:
        semaphore.fail(error)
    depths = []
    for _ in range(50):
        with pytest.raises(DeviceError) as caught:
            semaphore.wait(1)
        depths.append(len(traceback.extract_tb(caught.value.__traceback__)))
    assert len(set(depths)) == 1
