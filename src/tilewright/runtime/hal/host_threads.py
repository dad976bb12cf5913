"""Threads of the host that run work handed over to them, started when there is some.

Idle threads end after a while, so that devices and sessions leave none behind; a forked child starts
its own.  Not the workers that run kernels (`native.Pool`).  Called by queues and by calls that begin
now and end later.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, final

from tilewright.base.fork_locks import Rank, fork_lock

Work = Callable[[], object]

IDLE_SECONDS: Final = 5.0


@final
class HostThreads:
    """Runs work in the order in which it was submitted, on up to `limit` threads.

    Thread-safety: may be used from any thread.
    """

    __slots__ = ("_idle", "_lock", "_pid", "_threads", "_wake", "_work", "limit", "name")

    def __init__(self, name: str, limit: int = 1) -> None:
        self.name: str = name
        self.limit: int = limit
        self._work: deque[Work] = deque()
        self._lock: threading.Lock = fork_lock(Rank.QUEUE)
        self._wake: threading.Condition = threading.Condition(self._lock)
        self._threads: int = 0
        self._idle: int = 0
        self._pid: int = os.getpid()

    @property
    def pending_count(self) -> int:
        """How much work nobody has taken yet."""
        return len(self._work)

    @property
    def thread_count(self) -> int:
        """How many threads there are now."""
        return self._threads

    def submit(self, work: Work) -> None:
        """Run `work` soon; what it raises is reported as threads report it."""
        with self._lock:
            if self._pid != os.getpid():
                self._forget_parent()
            self._work.append(work)
            if self._idle >= len(self._work):
                self._wake.notify()
            elif self._threads < self.limit:
                self._start()

    def _forget_parent(self) -> None:
        """In a forked child: the threads exist in the parent only."""
        self._wake = threading.Condition(self._lock)
        self._threads = self._idle = 0
        self._pid = os.getpid()

    def _start(self) -> None:
        thread = threading.Thread(target=self._serve, name=self.name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            if self._threads == 0:
                self._work.pop()
                raise
            return  # the threads there are will get to it
        self._threads += 1

    def _serve(self) -> None:
        while (work := self._take()) is not None:
            try:
                work()
            except BaseException as error:
                report(error)
            del work  # nothing is kept alive while the thread sleeps

    def _take(self) -> Work | None:
        with self._lock:
            while not self._work:
                self._idle += 1
                woken = self._wake.wait(IDLE_SECONDS)
                self._idle -= 1
                if not woken and not self._work:
                    self._threads -= 1
                    return None
            return self._work.popleft()


def report(error: BaseException) -> None:
    """Show an error that nobody is there to catch, as threads show theirs."""
    hook = threading.excepthook
    hook(
        threading.ExceptHookArgs(
            (type(error), error, error.__traceback__, threading.current_thread())
        )
    )
