"""A queue of a local device: runs work when what it waits for is reached.

Work that is ready runs at once on the thread that submits it, which takes part in the device's
pool anyway; the rest runs on whoever reaches the last wait, or on a thread of the queue's own.
Failures of the waits and of the work go to the fence that the work signals; work without one
raises.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import final

from tilewright.runtime.hal.fence import Fence

Work = Callable[[], object]


@final
class SubmissionQueue:
    """Runs submissions in the order of their fences.

    Args:
        has_thread: run deferred work on a thread of this queue instead of the signalling one.
    Thread-safety: may be used from any thread.
    """

    __slots__ = ("_lock", "_thread", "_work", "has_thread")

    def __init__(self, *, has_thread: bool) -> None:
        self.has_thread: bool = has_thread
        self._work: queue.SimpleQueue[Work] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock: threading.Lock = threading.Lock()

    def submit(self, wait: Fence | None, signal: Fence | None, work: Work) -> None:
        """Run `work` once `wait` is reached, then signal.

        Raises: what ready work raises, if there is no fence to fail.
        """
        if wait is not None:
            for semaphore, value in wait.timepoints:
                if semaphore.value < value:
                    self._defer(wait, signal, work)
                    return
        _run(signal, work)

    def _defer(self, wait: Fence, signal: Fence | None, work: Work) -> None:
        def reached(error: BaseException | None) -> None:
            if error is not None:
                if signal is not None:
                    signal.fail(error)
                return
            if self.has_thread:
                self._hand_over(lambda: _run(signal, work))
            else:
                _run(signal, work)

        wait.notify(reached)

    def _hand_over(self, work: Work) -> None:
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=_serve, args=(self._work,), name="tilewright-queue", daemon=True
                )
                self._thread.start()
        self._work.put(work)


def _serve(work: queue.SimpleQueue[Work]) -> None:
    while True:
        work.get()()


def _run(signal: Fence | None, work: Work) -> None:
    if signal is None:
        work()
        return
    try:
        work()
    except Exception as error:
        signal.fail(error)
    except BaseException as error:
        signal.fail(error)
        raise
    else:
        signal.signal()
