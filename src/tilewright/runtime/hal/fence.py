"""A fence: timepoints of several semaphores that are waited for, or signalled, together.

Source: IREE `hal/fence.h`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import Any, Final, final

from tilewright.base.errors import DeviceError
from tilewright.base.status import StatusCode, code_of, failure
from tilewright.runtime.hal.awaiting import Reached, future_of
from tilewright.runtime.hal.semaphore import INFINITE, Semaphore

Timepoint = tuple[Semaphore, int]
_NAMED: Final = 8  # of the semaphores of a fence, in an error


@final
class Fence:
    """A list of (semaphore, value).

    Thread-safety: waiting, signalling and failing may happen on any thread; inserting may not.
    """

    __slots__ = ("timepoints",)

    def __init__(self, timepoints: Iterable[Timepoint] = ()) -> None:
        self.timepoints: tuple[Timepoint, ...] = tuple(timepoints)

    @staticmethod
    def at(semaphore: Semaphore, value: int) -> Fence:
        """A fence of one timepoint."""
        return Fence(((semaphore, value),))

    @staticmethod
    def join(fences: Iterable[Fence | None]) -> Fence:
        """A fence that is reached when all are; absent ones count as reached."""
        present = [fence for fence in fences if fence is not None]
        if len(present) == 1:
            return Fence(present[0].timepoints)
        return Fence(_merged(point for fence in present for point in fence.timepoints))

    def insert(self, semaphore: Semaphore, value: int) -> None:
        """Add a timepoint; of one semaphore the highest value counts."""
        self.timepoints = _merged((*self.timepoints, (semaphore, value)))

    def extend(self, other: Fence) -> None:
        """Add all timepoints of another fence."""
        if not self.timepoints:
            self.timepoints = other.timepoints
            return
        self.timepoints = _merged((*self.timepoints, *other.timepoints))

    def query(self) -> StatusCode:
        """OK when reached, DEFERRED when not yet, else the code of the failure."""
        pending = StatusCode.OK
        for semaphore, value in self.timepoints:
            if semaphore.value >= value:
                continue
            if semaphore.error is not None:
                return code_of(semaphore.error)
            pending = StatusCode.DEFERRED
        return pending

    def signal(self) -> None:
        """Bring every semaphore to its value.

        Raises: the first failure, of a semaphore that is there or beyond, when all others are signalled: what waits
            for those must not wait for ever.
        """
        _do_all(partial(semaphore.signal, value) for semaphore, value in self.timepoints)

    def fail(self, error: BaseException) -> None:
        """Fail every semaphore.  Raises: what those raise who hear of it, when all have."""
        _do_all(partial(semaphore.fail, error) for semaphore, _ in self.timepoints)

    def wait(self, timeout_ns: int = INFINITE) -> None:
        """Block until every timepoint is reached.

        Raises: the first failure; DeviceError (DEADLINE_EXCEEDED).
        """
        waiting = [(s, value) for s, value in self.timepoints if s.value < value]
        if len(waiting) == 1:
            semaphore, value = waiting[0]
            semaphore.wait(value, timeout_ns)
        elif waiting:
            # Not one after the other: the first may never be reached where the second has failed.
            self._wait_for(Fence(waiting).watch, timeout_ns, needed=len(self.timepoints))

    def wait_any(self, timeout_ns: int = INFINITE) -> None:
        """Block until one timepoint is reached; a fence without any is.

        Raises: what a semaphore fails with before one is reached; DeviceError (DEADLINE_EXCEEDED).
        """
        if not self.timepoints or any(s.value >= value for s, value in self.timepoints):
            return

        def watch(reached: Reached) -> Callable[[], None]:
            once = _Countdown(1, reached)
            undo = [semaphore.watch(value, once) for semaphore, value in self.timepoints]
            return partial(_do_all, undo)

        self._wait_for(watch, timeout_ns, needed=1)

    def _wait_for(
        self, watch: Callable[[Reached], Callable[[], None]], timeout_ns: int, needed: int
    ) -> None:
        """Block until what `watch` is given is called, or time is over and so many timepoints are reached all the same.

        Raises: what it is called with; as `Semaphore.wait`.
        """
        done = Semaphore()
        take_back = watch(lambda error: _settle(done, error))
        try:
            done.wait(1, timeout_ns)
        except DeviceError as error:
            if error is done.error or error.code != StatusCode.DEADLINE_EXCEEDED:
                raise
            late = self._late()
            if len(self.timepoints) - len(late) < needed:
                more = f"; and {len(late) - _NAMED} more" if len(late) > _NAMED else ""
                text = "; ".join(late[:_NAMED]) + more
                raise failure(StatusCode.DEADLINE_EXCEEDED, text) from None
        finally:
            take_back()

    def _late(self) -> list[str]:
        """Which semaphores are not there, where they are and what they are waited for.  Each value is read once."""
        positions = [(semaphore.value, value) for semaphore, value in self.timepoints]
        return [
            f"semaphore {place} of {len(positions)} is at {at}, waiting for {value}"
            for place, (at, value) in enumerate(positions, 1)
            if at < value
        ]

    def __await__(self) -> Generator[Any, None, None]:
        """For asyncio: `await fence`.  Raises: the first failure."""
        return future_of(self.watch).__await__()

    def notify(self, reached: Reached) -> None:
        """Call `reached` once, when every timepoint is reached or one has failed."""
        self.watch(reached)

    def watch(self, reached: Reached) -> Callable[[], None]:
        """The same; the result takes the request back."""
        waiting = [t for t in self.timepoints if t[0].value < t[1]]
        if not waiting:
            reached(None)
            return _nothing
        countdown = _Countdown(len(waiting), reached)
        undo = [semaphore.watch(value, countdown) for semaphore, value in waiting]
        return partial(_do_all, undo)


def _merged(timepoints: Iterable[Timepoint]) -> tuple[Timepoint, ...]:
    """One timepoint per semaphore, of which the highest value counts."""
    highest: dict[int, Timepoint] = {}
    for semaphore, value in timepoints:
        known = highest.get(id(semaphore))
        if known is None or known[1] < value:
            highest[id(semaphore)] = semaphore, value
    return tuple(highest.values())


def _settle(semaphore: Semaphore, error: BaseException | None) -> None:
    if error is None:
        semaphore.signal(1)
    else:
        semaphore.fail(error)


def _do_all(steps: Iterable[Callable[[], None]]) -> None:
    """Take every step, also after one that raised; then raise that."""
    raised: BaseException | None = None
    for step in steps:
        try:
            step()
        except BaseException as error:
            raised = raised or error
    if raised is not None:
        raise raised


def _nothing() -> None:
    """There is nothing to take back."""


@final
class _Countdown:
    """Calls on when it was called often enough, or with the first error."""

    __slots__ = ("_left", "_reached")

    def __init__(self, count: int, reached: Reached) -> None:
        self._left: list[None] = [None] * count
        self._reached: list[Reached] = [reached]

    def __call__(self, error: BaseException | None) -> None:
        with contextlib.suppress(IndexError):  # of one that counts the first call alone
            self._left.pop()  # list operations are atomic: the last one sees an empty list
        if (error is not None or not self._left) and self._reached:
            try:
                reached = self._reached.pop()
            except IndexError:
                return  # another thread was faster
            reached(error)
