"""Threads of the host that run work handed over to them, started when there is some.

They end once nobody can hand over more, or after a while without work, so that devices and sessions
leave none behind; a forked child starts its own.  Not the workers that run kernels (`native.Pool`).
Called by queues and by calls that begin now and end later.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Final, final

from tilewright.base.errors import DeviceError
from tilewright.base.fork_locks import Rank, fork_lock
from tilewright.base.host_thread import start_thread

Work = Callable[[], object]

IDLE_SECONDS: Final = 5.0


@final
class HostThreads:
    """Runs work in the order in which it was submitted, on up to `limit` threads.

    Args:
        name: of the threads.
        limit: how many there may be at a time.
    Ownership: what was submitted is still run when nobody refers to this object any more.
    Thread-safety: may be used from any thread.
    """

    __slots__ = ("__weakref__", "_crew")

    def __init__(self, name: str, limit: int = 1) -> None:
        self._crew: _Crew = _Crew(name, limit)
        # Not at the end of the process, which does not wait for daemons.
        weakref.finalize(self, self._crew.dismiss).atexit = False

    @property
    def pending_count(self) -> int:
        """How much work nobody has taken yet."""
        return len(self._crew.work)

    @property
    def thread_count(self) -> int:
        """How many threads there are now."""
        return self._crew.thread_count

    def submit(self, work: Work) -> None:
        """Run `work` soon; what it raises is reported as threads report it.

        Raises: DeviceError where the system starts no thread and none is there: the work will not run.
        """
        self._crew.submit(work)


@final
class _Crew:
    """What the threads share; the object in front of it is only held by those who submit."""

    __slots__ = (
        "_idle",
        "_is_dismissed",
        "_limit",
        "_lock",
        "_name",
        "_pid",
        "_wake",
        "thread_count",
        "work",
    )

    def __init__(self, name: str, limit: int) -> None:
        self.work: deque[Work] = deque()
        self.thread_count: int = 0
        self._name: str = name
        self._limit: int = limit
        self._lock: threading.RLock = fork_lock(Rank.QUEUE)
        self._wake: threading.Condition = threading.Condition(self._lock)
        self._idle: int = 0
        self._is_dismissed: bool = False
        self._pid: int = os.getpid()

    def submit(self, work: Work) -> None:
        with self._lock:
            if self._pid != os.getpid():
                self._forget_parent()
            self.work.append(work)
            if self._idle >= len(self.work):
                self._wake.notify()
            elif self.thread_count < self._limit:
                self._start()

    def dismiss(self) -> None:
        """Let the threads end when the work is done.

        Called from finalizers, wherever the collector runs: so it does not wait for the lock.  Whoever
        holds that may miss the news, and ends as an idle thread does.
        """
        self._is_dismissed = True
        if self._lock.acquire(blocking=False):
            self._wake.notify_all()
            self._lock.release()

    def _forget_parent(self) -> None:
        """In a forked child: the threads exist in the parent only."""
        self._wake = threading.Condition(self._lock)
        self.thread_count = self._idle = 0
        self._pid = os.getpid()

    def _start(self) -> None:
        try:
            start_thread(self._serve, self._name)
        except DeviceError:
            if self.thread_count == 0:
                self.work.pop()
                raise
            return  # the threads there are will get to it
        self.thread_count += 1

    def _serve(self) -> None:
        while (work := self._take()) is not None:
            try:
                work()
            except BaseException as error:
                report(error)
            del work  # nothing is kept alive while the thread sleeps

    def _take(self) -> Work | None:
        with self._lock:
            while not self.work:
                if self._is_dismissed or not self._sleep():
                    self.thread_count -= 1
                    return None
            return self.work.popleft()

    def _sleep(self) -> bool:
        """Whether there may be work now; not after a long time without."""
        self._idle += 1
        is_woken = self._wake.wait(IDLE_SECONDS)
        self._idle -= 1
        return is_woken or bool(self.work)


def report(error: BaseException) -> None:
    """Show an error that nobody is there to catch, as threads show theirs."""
    hook = threading.excepthook
    hook(
        threading.ExceptHookArgs(
            (type(error), error, error.__traceback__, threading.current_thread())
        )
    )
