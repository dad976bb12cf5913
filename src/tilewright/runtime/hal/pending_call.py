"""A call that was begun and ends later: a `concurrent.futures.Future` that queues can wait for, too.

Not here: what is called (`session`), and where it runs (`host_threads`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any, TypeVar, final

from tilewright.base.fork_locks import LATE_IMPORTS
from tilewright.base.status import StatusCode, failure
from tilewright.runtime.hal.fence import Fence
from tilewright.runtime.hal.host_threads import HostThreads
from tilewright.runtime.hal.semaphore import Semaphore

T = TypeVar("T")


@final
class PendingCall(Future[T]):
    """The result of a call, once there is one: `result()`, `concurrent.futures.wait`, or `await`.

    `fence` is reached when the call has ended, and fails when the call does; queues of any device
    can wait for it.
    Thread-safety: may be used from any thread.
    """

    def __init__(self, call: Callable[[], T], threads: HostThreads) -> None:
        super().__init__()
        self.fence: Fence = Fence.at(Semaphore(), 1)
        threads.submit(lambda: self._run(call))

    def __repr__(self) -> str:
        return f"<call, {'ended' if self.done() else 'pending'}>"

    def _run(self, call: Callable[[], T]) -> None:
        if not self.set_running_or_notify_cancel():
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
        with LATE_IMPORTS:
            import asyncio  # noqa: PLC0415 - 20 ms that only programs with a loop should pay

        return (yield from asyncio.wrap_future(self).__await__())
