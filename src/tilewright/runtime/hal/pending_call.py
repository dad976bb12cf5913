"""A call that was begun and ends later: a `concurrent.futures.Future` that queues can wait for, too.

Not here: what is called (`session`), and where it runs (`host_threads`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any, Final, TypeVar, final

from tilewright.base.fork_locks import LATE_IMPORTS, Rank, fork_lock
from tilewright.base.status import StatusCode, failure
from tilewright.runtime.hal.fence import Fence
from tilewright.runtime.hal.host_threads import HostThreads
from tilewright.runtime.hal.semaphore import Semaphore

T = TypeVar("T")

# One lock for the few instructions in which any call changes: a forked child asks calls of its parent, too.
_LOCK: Final = fork_lock(Rank.QUEUE)


@final
class PendingCall(Future[T]):
    """The result of a call, once there is one: `result()`, `concurrent.futures.wait`, or `await`.

    `fence` is reached when the call has ended, and fails when the call does; queues of any device
    can wait for it.  In a forked child the calls of its parent do not go on: `result()`, `exception()` and
    `await` raise DeviceError there, `concurrent.futures.wait` and the fence wait for ever.
    Thread-safety: may be used from any thread.
    """

    def __init__(self, call: Callable[[], T], threads: HostThreads) -> None:
        super().__init__()
        self._condition: threading.Condition = threading.Condition(_LOCK)
        self._process: int = os.getpid()
        self.fence: Fence = Fence.at(Semaphore(), 1)
        threads.submit(lambda: self._run(call))

    def __repr__(self) -> str:
        return f"<call, {'ended' if self.done() else 'pending'}>"

    @property
    def _is_of_parent(self) -> bool:
        return self._process != os.getpid()

    def _check_goes_on(self) -> None:
        if self._is_of_parent and not self.done():
            raise failure(
                StatusCode.ABORTED,
                "the call was begun before this process was forked, and ends in the parent only",
                hint="begin it again, here",
            )

    def result(self, timeout: float | None = None) -> T:
        """What the call returned, once it has ended.

        Raises: what the call raised; TimeoutError; CancelledError; DeviceError (ABORTED) in a forked child.
        """
        self._check_goes_on()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What the call raised, once it has ended; None for nothing.  Raises: as `result`, but for that."""
        self._check_goes_on()
        return super().exception(timeout)

    def _run(self, call: Callable[[], T]) -> None:
        if self._is_of_parent or not self.set_running_or_notify_cancel():
            return
        try:
            result = call()
        except BaseException as error:
            self.set_exception(error)
            self.fence.fail(error)
            if not isinstance(error, Exception):
                raise
        else:
            self.set_result(result)
            self.fence.signal()

    def cancel(self) -> bool:
        """Give up a call that has not started; whether it is cancelled now."""
        is_cancelled = super().cancel()
        if is_cancelled and self.fence.query() is StatusCode.DEFERRED:
            self.fence.fail(failure(StatusCode.CANCELLED, "the call was cancelled"))
        return is_cancelled

    def __await__(self) -> Generator[Any, None, T]:
        """For asyncio: `await call`.  A cancelled task cancels a call that has not started."""
        self._check_goes_on()
        with LATE_IMPORTS:
            import asyncio  # noqa: PLC0415 - 20 ms that only programs with a loop should pay

        return (yield from asyncio.wrap_future(self).__await__())
