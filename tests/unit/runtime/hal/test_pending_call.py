"""Calls that were begun: results, failures, cancelling, asyncio, order."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import subprocess
import sys
import threading

import pytest

from tilewright.base.errors import DeviceError
from tilewright.base.status import StatusCode
from tilewright.runtime.hal.fence import Fence
from tilewright.runtime.hal.host_threads import HostThreads
from tilewright.runtime.hal.local.submission_queue import SubmissionQueue
from tilewright.runtime.hal.pending_call import PendingCall
from tilewright.runtime.hal.semaphore import Semaphore


def test_the_result_is_waited_for() -> None:
    gate = threading.Event()
    call = PendingCall(lambda: gate.wait(20) and 42, HostThreads("test"))
    assert not call.done()
    with pytest.raises(TimeoutError):
        call.result(timeout=0.01)
    gate.set()
    assert call.result(20) == 42
    assert call.done()
    assert not call.cancel()


def test_what_the_call_raises_is_raised() -> None:
    call = PendingCall(lambda: {}["nothing"], HostThreads("test"))
    for _ in range(2):
        with pytest.raises(KeyError, match="nothing"):
            call.result(20)
    assert call.fence.query() is StatusCode.INTERNAL


def test_only_calls_that_have_not_started_can_be_cancelled() -> None:
    threads, gate, started = HostThreads("test"), threading.Event(), threading.Event()

    def work() -> bool:
        started.set()
        return gate.wait(20)

    first = PendingCall(work, threads)
    second = PendingCall(lambda: pytest.fail("ran"), threads)
    assert started.wait(20)
    assert not first.cancel()
    assert second.cancel()
    assert second.cancel()
    gate.set()
    assert first.result(20)
    with pytest.raises(concurrent.futures.CancelledError):
        second.result(20)
    with pytest.raises(DeviceError, match="the call was cancelled"):
        second.fence.wait()


def test_the_standard_library_waits_for_calls() -> None:
    threads, gate = HostThreads("test"), threading.Event()
    first = PendingCall(lambda: 1, threads)
    second = PendingCall(lambda: gate.wait(20) and 2, threads)
    third = PendingCall(lambda: {}["nothing"], threads)
    ended: list[object] = []
    third.add_done_callback(ended.append)
    assert isinstance(first, concurrent.futures.Future)
    done, left = concurrent.futures.wait((first, second), 20, "FIRST_COMPLETED")
    assert (done, left) == ({first}, {second})
    gate.set()
    assert set(concurrent.futures.as_completed((first, second, third), 20)) == {
        first,
        second,
        third,
    }
    assert isinstance(third.exception(), KeyError)
    assert ended == [third]


def test_a_cancelled_call_counts_as_ended_for_the_standard_library() -> None:
    threads, gate = HostThreads("test"), threading.Event()
    blocker = PendingCall(lambda: gate.wait(20), threads)
    second = PendingCall(lambda: pytest.fail("ran"), threads)
    assert second.cancel()
    gate.set()
    done, left = concurrent.futures.wait((blocker, second), 20)
    assert (done, left) == ({blocker, second}, set())


def test_calls_are_awaited_together() -> None:
    threads = HostThreads("test", 2)

    async def main() -> list[int]:
        return list(await asyncio.gather(*(_square(threads, i) for i in range(20))))

    assert asyncio.run(main()) == [i * i for i in range(20)]


async def _square(threads: HostThreads, value: int) -> int:
    return await PendingCall(lambda: value * value, threads)


def test_a_cancelled_task_cancels_its_call() -> None:
    threads, gate = HostThreads("test"), threading.Event()
    blocker = PendingCall(lambda: gate.wait(20), threads)
    waiting = PendingCall(lambda: pytest.fail("ran"), threads)

    async def main() -> None:
        async def wait() -> None:
            await waiting

        task = asyncio.create_task(wait())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    gate.set()
    assert blocker.result(20)
    assert waiting.fence.query() is StatusCode.CANCELLED


def test_a_queue_waits_for_a_call() -> None:
    gate, seen = threading.Event(), []
    call = PendingCall(lambda: gate.wait(20) and seen.append("call"), HostThreads("test"))
    done = Fence.at(Semaphore(), 1)
    queue = SubmissionQueue(has_thread=True)
    queue.submit(call.fence, done, lambda: seen.append("queue"))
    gate.set()
    done.wait(20_000_000_000)
    assert seen == ["call", "queue"]


FORKED = """
import concurrent.futures, os, signal, threading
from tilewright.base.errors import DeviceError
from tilewright.runtime.hal.host_threads import HostThreads
from tilewright.runtime.hal.pending_call import PendingCall

threads, gate, started, ran = HostThreads("test"), threading.Event(), threading.Event(), []

def work():
    started.set()
    return gate.wait(20)

ended = PendingCall(lambda: 42, threads)
assert ended.result(20) == 42
running, waiting = PendingCall(work, threads), PendingCall(lambda: ran.append(1), threads)
assert started.wait(20)
held = threading.Event()

def hold():  # as every thread does for an instant that waits for the call
    with waiting._condition:
        held.set()
        threading.Event().wait(0.3)

holder = threading.Thread(target=hold)
holder.start()
assert held.wait(20)
child = os.fork()
if child == 0:
    signal.alarm(20)  # ends it where it hangs
    assert ended.result() == 42 and ended.exception() is None
    for call in (running, waiting):
        assert not call.done()
        for ask in (call.result, call.exception):
            try:
                ask()
            except DeviceError as error:
                assert "begun before this process was forked" in str(error), error
            else:
                raise AssertionError("it ended")
    assert PendingCall(lambda: 43, threads).result(10) == 43
    os._exit(0 if not ran else 1)
holder.join()
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
gate.set()
assert concurrent.futures.wait([running, waiting], 20).not_done == set() and ran == [1]
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_is_told_that_calls_of_its_parent_do_not_go_on() -> None:
    """And begins its own, whatever its parent's threads were doing with theirs."""
    subprocess.run([sys.executable, "-c", FORKED], check=True, timeout=120)
