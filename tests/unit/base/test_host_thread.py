from __future__ import annotations

import threading

import pytest

from fakes.scarce_threads import threads_left
from tilewright.base.errors import DeviceError
from tilewright.base.host_thread import start_thread
from tilewright.base.status import StatusCode


def test_a_thread_runs_its_work_and_does_not_keep_the_process() -> None:
    done = threading.Event()
    thread = start_thread(done.set, "worker")
    assert done.wait(60)
    assert (thread.name, thread.daemon) == ("worker", True)
    thread.join()


def test_a_system_without_threads_is_told_in_words() -> None:
    with threads_left(0), pytest.raises(DeviceError, match="no further thread") as told:
        start_thread(lambda: None)
    assert told.value.code == StatusCode.RESOURCE_EXHAUSTED
    assert "ulimit -u" in str(told.value)
