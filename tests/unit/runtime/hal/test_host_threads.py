"""Threads of the host: order, limits, idleness, failures, fork."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time

import pytest

from fakes.scarce_threads import threads_left
from tilewright.base.errors import DeviceError
from tilewright.runtime.hal import host_threads
from tilewright.runtime.hal.host_threads import HostThreads


def test_one_thread_keeps_the_order() -> None:
    threads, seen, done = HostThreads("test"), [], threading.Event()
    for value in range(500):
        threads.submit(lambda value=value: seen.append(value))
    threads.submit(done.set)
    assert done.wait(20)
    assert seen == list(range(500))
    assert threads.thread_count == 1


def test_no_more_threads_than_the_limit_and_no_fewer_than_needed() -> None:
    threads = HostThreads("test", 3)
    gate, inside = threading.Barrier(4), threading.Semaphore(0)

    def work() -> None:
        inside.release()
        gate.wait(20)

    for _ in range(3):
        threads.submit(work)
    for _ in range(3):
        assert inside.acquire(timeout=20)
    late = threading.Event()
    threads.submit(late.set)
    assert threads.thread_count == 3
    assert threads.pending_count == 1
    gate.wait(20)
    assert late.wait(20)


def test_idle_threads_end_and_start_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_threads, "IDLE_SECONDS", 0.01)
    threads = HostThreads("test")
    for _ in range(2):
        done = threading.Event()
        threads.submit(done.set)
        assert done.wait(20)
        deadline = time.monotonic() + 120
        while threads.thread_count and time.monotonic() < deadline:
            time.sleep(0.005)
        assert threads.thread_count == 0


def test_what_work_raises_is_reported_and_the_rest_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: seen.append(args.exc_value))
    threads, done, error = HostThreads("test"), threading.Event(), ValueError("no")

    def explode() -> None:
        raise error

    threads.submit(explode)
    threads.submit(done.set)
    assert done.wait(20)
    assert seen == [error]


def test_finished_work_is_let_go() -> None:
    threads, done = HostThreads("test"), threading.Event()
    gone = threading.Event()

    class Heavy:
        def __del__(self) -> None:
            gone.set()

        def __call__(self) -> None:
            done.set()

    threads.submit(Heavy())
    assert done.wait(20)
    gc.collect()
    assert gone.wait(20)


def test_threads_end_with_the_last_who_could_submit_after_the_work_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host_threads, "IDLE_SECONDS", 600.0)

    def named() -> list[str]:
        return [t.name for t in threading.enumerate() if t.name == "test leaving"]

    def wait_until_none_is_left() -> None:
        deadline = time.monotonic() + 120  # less than idle threads stay
        while named() and time.monotonic() < deadline:
            time.sleep(0.005)
        assert named() == []

    threads, done = HostThreads("test leaving", 2), threading.Event()
    threads.submit(done.set)
    assert done.wait(20)
    assert named() == ["test leaving"]
    del threads  # while they are idle
    wait_until_none_is_left()

    threads, gate, seen = HostThreads("test leaving"), threading.Event(), list[int]()
    threads.submit(lambda: gate.wait(20))
    for value in range(3):
        threads.submit(lambda value=value: seen.append(value))
    del threads  # while they work
    gate.set()
    wait_until_none_is_left()
    assert seen == [0, 1, 2]


def test_threads_may_be_let_go_by_one_that_holds_their_lock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As the collector does when it runs inside of them."""
    monkeypatch.setattr(host_threads, "IDLE_SECONDS", 0.01)
    threads = HostThreads("test")
    crew, done = threads._crew, threading.Event()
    threads.submit(done.set)
    assert done.wait(20)
    with crew._lock:
        del threads
    deadline = time.monotonic() + 120
    while crew.thread_count and time.monotonic() < deadline:
        time.sleep(0.005)
    assert crew.thread_count == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_starts_its_own_threads() -> None:
    script = """
import os, threading
from tilewright.runtime.hal.host_threads import HostThreads
threads = HostThreads("test", 2)
first = threading.Event()
threads.submit(first.set)
assert first.wait(20)
for _ in range(10):  # while the thread is idle, asleep on the condition
    child = os.fork()
    done = [threading.Event() for _ in range(4)]
    for event in done:
        threads.submit(event.set)
    fine = all(event.wait(60) for event in done)
    if child == 0:
        os._exit(0 if fine else 1)
    assert fine and os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


def test_work_that_no_thread_will_run_is_not_taken() -> None:
    crew, done = HostThreads("test"), threading.Event()
    with threads_left(0), pytest.raises(DeviceError, match="no further thread"):
        crew.submit(lambda: pytest.fail("was refused"))
    assert (crew.pending_count, crew.thread_count) == (0, 0)
    crew.submit(done.set)
    assert done.wait(60)
