"""Queues of local devices: long chains, fences as results, several failures."""

from __future__ import annotations

import threading

import pytest

from fakes.scarce_threads import threads_left
from tilewright.base.errors import DeviceError
from tilewright.base.status import StatusCode, failure
from tilewright.runtime.hal.fence import Fence
from tilewright.runtime.hal.local.submission_queue import SubmissionQueue
from tilewright.runtime.hal.semaphore import Semaphore

LONG = 5000
SECOND_NS = 1_000_000_000


@pytest.fixture(params=[False, True], ids=["no thread", "thread"])
def queue(request: pytest.FixtureRequest) -> SubmissionQueue:
    return SubmissionQueue(has_thread=request.param)


def fence() -> Fence:
    return Fence.at(Semaphore(), 1)


def test_a_long_chain_does_not_nest(queue: SubmissionQueue) -> None:
    seen: list[int] = []
    fences = [fence() for _ in range(LONG + 1)]
    for i in range(LONG):
        queue.submit(fences[i], fences[i + 1], lambda i=i: seen.append(i))
    fences[0].signal()
    fences[LONG].wait(60 * SECOND_NS)
    assert seen == list(range(LONG))


def test_a_failure_travels_down_a_long_chain(queue: SubmissionQueue) -> None:
    fences = [fence() for _ in range(LONG + 1)]
    for i in range(LONG):
        queue.submit(fences[i], fences[i + 1], lambda: pytest.fail("ran"))
    fences[0].fail(failure(StatusCode.DATA_LOSS, "broken at the root"))
    with pytest.raises(DeviceError, match="broken at the root"):
        fences[LONG].wait(60 * SECOND_NS)


def test_work_that_returns_a_fence_is_done_when_that_is_reached(
    queue: SubmissionQueue,
) -> None:
    inner, failing, done, broken = fence(), fence(), fence(), fence()
    queue.submit(None, done, lambda: inner)
    queue.submit(None, broken, lambda: failing)
    assert done.query() is StatusCode.DEFERRED
    inner.signal()
    done.wait(20 * SECOND_NS)
    failing.fail(failure(StatusCode.ABORTED, "inside"))
    with pytest.raises(DeviceError, match="inside"):
        broken.wait(20 * SECOND_NS)


def test_work_may_wait_for_what_it_sets_free(queue: SubmissionQueue) -> None:
    start, middle, done, end = fence(), fence(), fence(), fence()
    other = SubmissionQueue(has_thread=False)
    other.submit(middle, done, lambda: None)

    def work() -> None:
        middle.signal()
        done.wait(20 * SECOND_NS)

    queue.submit(start, end, work)
    start.signal()
    end.wait(20 * SECOND_NS)
    assert done.query() is StatusCode.OK


def test_a_fence_that_cannot_be_signalled_does_not_stop_the_others() -> None:
    queue = SubmissionQueue(has_thread=False)
    start, spent, last = fence(), Fence.at(Semaphore(3), 2), fence()
    seen: list[str] = []
    queue.submit(start, spent, lambda: seen.append("first"))
    queue.submit(start, last, lambda: seen.append("second"))
    with pytest.raises(DeviceError, match="signal of 2, the semaphore is at 3"):
        start.signal()
    last.wait(0)
    assert seen == ["first", "second"]


def test_work_without_a_fence_that_fails_on_the_queues_thread_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue, start, after = SubmissionQueue(has_thread=True), fence(), fence()
    seen: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: seen.append(args.exc_value))
    error = ValueError("nobody catches this")

    def explode() -> None:
        raise error

    queue.submit(start, None, explode)
    queue.submit(start, after, lambda: None)
    start.signal()
    after.wait(20 * SECOND_NS)
    assert seen == [error]


def test_work_that_gets_no_thread_is_done_by_who_sets_it_free() -> None:
    queue = SubmissionQueue(has_thread=True)
    before, after = fence(), fence()
    seen: list[threading.Thread] = []
    queue.submit(before, after, lambda: seen.append(threading.current_thread()))
    with threads_left(0):
        before.signal()
    after.wait(SECOND_NS)
    assert seen == [threading.current_thread()]
