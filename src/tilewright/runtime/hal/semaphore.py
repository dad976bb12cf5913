"""A semaphore: a timeline of rising numbers that work waits for and signals.

A failed semaphore stays failed; everything that waits for it fails with the same error.  Made by
devices; what is here suits every device whose signals come from host code.

Source: IREE `hal/semaphore.h`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from tilewright.base.status import StatusCode, failure

Reached = Callable[[BaseException | None], None]
"""Called once, when a value is reached (None) or never will be (the error)."""

INFINITE: Final = -1
# One lock for the few instructions in which any semaphore changes: cheaper to make semaphores.
_LOCK: Final = threading.Lock()


class Semaphore:
    """A timeline.

    Thread-safety: may be used from any thread.
    """

    __slots__ = ("_condition", "_failure", "_timepoints", "value")

    def __init__(self, initial_value: int = 0) -> None:
        self.value: int = initial_value
        self._failure: BaseException | None = None
        self._condition: threading.Condition | None = None
        self._timepoints: list[tuple[int, Reached]] = []

    @property
    def error(self) -> BaseException | None:
        """Why the semaphore failed."""
        return self._failure

    def query(self) -> int:
        """The value now.  Raises: the error of a failed semaphore."""
        if self._failure is not None:
            raise self._failure
        return self.value

    def is_reached(self, value: int) -> bool:
        """Whether a wait for `value` would return at once (or raise)."""
        return self.value >= value or self._failure is not None

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
        for reached in ready:
            reached(None)

    def fail(self, error: BaseException) -> None:
        """Fail for good; the first error stays."""
        with _LOCK:
            if self._failure is not None:
                return
            self._failure = error
            ready = self._take_ready()
        for reached in ready:
            reached(error)

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

    def wait(self, value: int, timeout_ns: int = INFINITE) -> None:
        """Block until `value` is reached.

        Raises: the error of a failed semaphore; DeviceError (DEADLINE_EXCEEDED).
        """
        if self.value >= value:
            return
        deadline = None if timeout_ns < 0 else time.monotonic_ns() + timeout_ns
        with _LOCK:
            if self._condition is None:
                self._condition = threading.Condition(_LOCK)
            while self.value < value and self._failure is None:
                remaining = None
                if deadline is not None:
                    remaining = (deadline - time.monotonic_ns()) / 1e9
                    if remaining <= 0:
                        raise failure(
                            StatusCode.DEADLINE_EXCEEDED,
                            f"the semaphore is at {self.value}, waiting for {value}",
                        )
                self._condition.wait(remaining)
            if self.value < value and self._failure is not None:
                raise self._failure
