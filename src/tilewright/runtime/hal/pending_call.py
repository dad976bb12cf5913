"""A call that was begun and ends later: a future for threads, asyncio and queues alike.

Not here: what is called (`session`), and where it runs (`host_threads`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final, Generic, TypeVar, final

from tilewright.base.status import StatusCode, failure
from tilewright.runtime.hal.awaiting import future_of
from tilewright.runtime.hal.fence import Fence
from tilewright.runtime.hal.host_threads import HostThreads
from tilewright.runtime.hal.semaphore import INFINITE, Semaphore

T = TypeVar("T")

_NS_PER_S: Final = 1_000_000_000


@final
class PendingCall(Generic[T]):
    """The result of a call, once there is one.

    `fence` is reached when the call has ended, and fails when the call does; queues of any device
    can wait for it.
    Thread-safety: may be used from any thread.
    """

    __slots__ = ("_results", "_tickets", "fence")

    def __init__(self, call: Callable[[], T], threads: HostThreads) -> None:
        self.fence: Fence = Fence.at(Semaphore(), 1)
        self._results: list[T] = []
        self._tickets: list[None] = [None]  # whoever takes it runs the call, or cancels it

        def run() -> None:
            if not self._take_ticket():
                return
            try:
                self._results.append(call())
            except BaseException as error:
                self.fence.fail(error)
                if not isinstance(error, Exception):
                    raise
            else:
                self.fence.signal()

        threads.submit(run)

    def __repr__(self) -> str:
        return f"<call, {'ended' if self.done() else 'pending'}>"

    def _take_ticket(self) -> bool:
        try:
            self._tickets.pop()
        except IndexError:
            return False
        return True

    def done(self) -> bool:
        """Whether the call has ended, by returning, failing or being cancelled."""
        return self.fence.query() is not StatusCode.DEFERRED

    def cancel(self) -> bool:
        """Give up a call that has not started; whether it is cancelled now."""
        if not self._take_ticket():
            return self.fence.query() is StatusCode.CANCELLED
        self.fence.fail(failure(StatusCode.CANCELLED, "the call was cancelled"))
        return True

    def result(self, timeout_s: float | None = None) -> T:
        """What the call returned; waits for it.

        Raises: what the call raised; DeviceError (DEADLINE_EXCEEDED) after `timeout_s` seconds,
        (CANCELLED).
        """
        self.fence.wait(INFINITE if timeout_s is None else int(timeout_s * _NS_PER_S))
        return self._results[0]

    def __await__(self) -> Generator[Any, None, T]:
        """For asyncio: `await call`.  A cancelled task cancels a call that has not started."""
        try:
            yield from future_of(self.fence.watch).__await__()
        except BaseException:
            self.cancel()
            raise
        return self._results[0]
