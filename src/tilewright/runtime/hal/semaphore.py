"""A semaphore: a timeline of rising numbers that work waits for and signals.

A failed semaphore stays failed; everything that waits for it fails with the same error.  Made by
devices; what is here suits every device whose signals come from host code.

Source: IREE `hal/semaphore.h`.
"""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final

from tilewright.base.budget import CURRENT
from tilewright.base.fork_locks import Rank, fork_lock
from tilewright.base.status import StatusCode, failure
from tilewright.runtime.hal.awaiting import Reached, future_of

INFINITE: Final = -1


class SemaphoreCompatibility(enum.IntFlag):
    """What a device can do with a semaphore, and where the waiting is done."""

    HOST_WAIT = 1
    DEVICE_WAIT = 2
    HOST_SIGNAL = 4
    DEVICE_SIGNAL = 8
    HOST_ONLY = HOST_WAIT | HOST_SIGNAL
    ALL = HOST_WAIT | DEVICE_WAIT | HOST_SIGNAL | DEVICE_SIGNAL


# One lock for the few instructions in which any semaphore changes: cheaper to make semaphores.
_LOCK: Final = fork_lock(Rank.SEMAPHORE)
_LONGEST_SLEEP_S: Final = 3600.0  # the system takes no timeouts of centuries


class Semaphore:
    """A timeline.

    Thread-safety: may be used from any thread.
    """

    __slots__ = ("__weakref__", "_condition", "_failure", "_origin", "_timepoints", "value")

    def __init__(self, initial_value: int = 0) -> None:
        self.value: int = initial_value
        self._failure: BaseException | None = None
        self._origin: TracebackType | None = None
        self._condition: threading.Condition | None = None
        self._timepoints: list[tuple[int, Reached]] = []

    @property
    def error(self) -> BaseException | None:
        """Why the semaphore failed."""
        return self._failure

    @property
    def is_watched(self) -> bool:
        """Whether a signal would call somebody."""
        return bool(self._timepoints)

    def query(self) -> int:
        """The value now.  Raises: the error of a failed semaphore."""
        self._raise_failure()
        return self.value

    def _raise_failure(self) -> None:
        """Raise the failure as it was: each raise of one exception adds to its traceback."""
        if self._failure is not None:
            raise self._failure.with_traceback(self._origin)

    def signal(self, value: int) -> None:
        """Raise the timeline to `value`.

        Raises: DeviceError when `value` is not above the present one.
        """
        with _LOCK:
            if self._failure is not None:
                return
            if value <= self.value:
                raise failure(
                    StatusCode.INVALID_ARGUMENT,
                    f"signal of {value}, the semaphore is at {self.value}",
                )
            self.value = value
            ready = self._take_ready()
        if ready:
            _call(ready, None)

    def fail(self, error: BaseException) -> None:
        """Fail for good; the first error stays."""
        with _LOCK:
            if self._failure is not None:
                return
            self._failure, self._origin = error, error.__traceback__
            ready = self._take_ready()
        if ready:
            _call(ready, error)

    def _take_ready(self) -> list[Reached]:
        condition = self._condition
        if condition is not None:
            condition.notify_all()
        if not self._timepoints:
            return []
        ready = [r for v, r in self._timepoints if self._failure or v <= self.value]
        self._timepoints = (
            [] if self._failure else [(v, r) for v, r in self._timepoints if v > self.value]
        )
        return ready

    def notify(self, value: int, reached: Reached) -> None:
        """Call `reached` when the timeline gets to `value`, at once if it has."""
        with _LOCK:
            if self._failure is None and self.value < value:
                self._timepoints.append((value, reached))
                return
            error = None if self.value >= value else self._failure
        reached(error)

    def watch(self, value: int, reached: Reached) -> Callable[[], None]:
        """The same; the result takes the request back."""
        self.notify(value, reached)
        return lambda: self._forget(value, reached)

    def _forget(self, value: int, reached: Reached) -> None:
        with _LOCK:
            if (value, reached) in self._timepoints:
                self._timepoints.remove((value, reached))

    def reached(self, value: int) -> Awaitable[None]:
        """For asyncio: `await semaphore.reached(3)`.

        Raises (when awaited): the error of a failed semaphore.
        """
        return future_of(lambda reached: self.watch(value, reached))

    def wait(self, value: int, timeout_ns: int = INFINITE) -> None:
        """Block until `value` is reached, or the time of the call that waits is over.

        Raises: the error of a failed semaphore; DeviceError (DEADLINE_EXCEEDED); LimitError.
        """
        if self.value >= value:
            return
        account = CURRENT.account
        deadline = None if timeout_ns < 0 else time.monotonic_ns() + timeout_ns
        with _LOCK:
            if self._condition is None:
                self._condition = threading.Condition(_LOCK)
            while self.value < value and self._failure is None:
                remaining = _LONGEST_SLEEP_S
                if deadline is not None:
                    remaining = (deadline - time.monotonic_ns()) / 1e9
                    if remaining <= 0:
                        raise failure(
                            StatusCode.DEADLINE_EXCEEDED,
                            f"the semaphore is at {self.value}, waiting for {value}",
                        )
                if account is not None:
                    account.check_clock()
                    remaining = min(remaining, account.remaining_s)
                self._condition.wait(min(remaining, _LONGEST_SLEEP_S))
        if self.value < value:
            self._raise_failure()


def _call(ready: list[Reached], error: BaseException | None) -> None:
    """Tell everybody, also after one of them raised; then raise that."""
    raised: BaseException | None = None
    for reached in ready:
        try:
            reached(error)
        except BaseException as problem:
            raised = raised or problem
    if raised is not None:
        raise raised
