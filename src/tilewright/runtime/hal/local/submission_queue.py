"""A queue of a local device: runs work when what it waits for is reached.

Work that is ready runs at once on the thread that submits it, which takes part in the device's
pool anyway; the rest runs on whoever reaches the last wait, or on a thread of the queue's own.
Failures of the waits and of the work go to the fence that the work signals; work without one
raises.  Work that returns a fence is done when that fence is reached.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, final

from tilewright.base.budget import CURRENT, OBJECT_BYTES, Account, acting_for
from tilewright.base.errors import DeviceError
from tilewright.runtime.hal.fence import Fence
from tilewright.runtime.hal.host_threads import HostThreads, report

Work = Callable[[], object]


@final
class SubmissionQueue:
    """Runs submissions in the order of their fences.

    Args:
        has_thread: run deferred work on a thread of this queue instead of the signalling one.
        name: of the thread.
    Thread-safety: may be used from any thread.
    """

    __slots__ = ("_threads",)

    def __init__(self, *, has_thread: bool, name: str = "tilewright-queue") -> None:
        self._threads: HostThreads | None = HostThreads(name) if has_thread else None

    @property
    def pending_count(self) -> int:
        """How much work is ready and waits for the queue's thread."""
        return 0 if self._threads is None else self._threads.pending_count

    def submit(self, wait: Fence | None, signal: Fence | None, work: Work) -> None:
        """Run `work` once `wait` is reached, then signal.

        Raises: what ready work raises, if there is no fence to fail.
        """
        if wait is not None:
            for semaphore, value in wait.timepoints:
                if semaphore.value < value:
                    self._defer(wait, signal, work)
                    return
        if _CHAIN.steps is None and not _is_watched(signal):
            _run_alone(signal, work)
        else:
            _run_chain(_Step(signal, work))

    def _defer(self, wait: Fence, signal: Fence | None, work: Work) -> None:
        threads = self._threads
        account = CURRENT.account
        if account is not None:
            account.budget.keep(wait.timepoints[0][0], OBJECT_BYTES)
            work = partial(_run_for, account, work)

        def reached(error: BaseException | None) -> None:
            step = _Step(signal, work, error)
            if error is None and threads is not None and _hand_over(step, threads):
                return
            if _CHAIN.steps is not None:
                _CHAIN.steps.append(step)
            else:
                _run_chain(step)

        wait.notify(reached)


def _hand_over(step: _Step, threads: HostThreads) -> bool:
    """Whether a thread runs a step; where the system starts none, nothing is before it in the queue."""
    try:
        threads.submit(lambda: _run_chain(step))
    except DeviceError:
        return False
    return True


def _run_for(account: Account, work: Work) -> object:
    """Run work of a call whose budget pays for it, on whichever thread."""
    with acting_for(account):
        return work()


@final
class _Step(NamedTuple):
    """Work whose waits are over; `error` when they failed."""

    signal: Fence | None
    work: Work
    error: BaseException | None = None


@final
class _Chain(threading.local):
    """What the fences that this thread is signalling have set free; None outside of that."""

    steps: deque[_Step] | None = None


_CHAIN: Final = _Chain()


def _is_watched(signal: Fence | None) -> bool:
    if signal is not None:
        for semaphore, _ in signal.timepoints:
            if semaphore.is_watched:
                return True
    return False


def _run_alone(signal: Fence | None, work: Work) -> None:
    """Run work that sets nothing free: what most calls submit, at half the cost of a chain."""
    try:
        result = work()
    except BaseException as error:
        if signal is not None:
            signal.fail(error)
        if signal is None or not isinstance(error, Exception):
            raise
        return
    if isinstance(result, Fence):
        _chain_to(result, signal)
    elif signal is not None:
        signal.signal()


def _run_chain(first: _Step) -> None:
    """Run a step, then what it sets free, and so on: one after the other, however long the chain.

    Raises: the first failure that has no fence to go to.
    """
    outer = _CHAIN.steps
    steps: deque[_Step] = deque()
    step: _Step | None = first
    raised: BaseException | None = None
    while step is not None:
        try:
            _CHAIN.steps = (
                None  # what the work itself signals runs at once: it may wait for it
            )
            result, error = _attempt(step)
            if error is not None and (
                step.signal is None or not isinstance(error, Exception)
            ):
                raised = raised or error
            _CHAIN.steps = steps
            if isinstance(result, Fence):
                _chain_to(result, step.signal)
            elif step.signal is not None:
                _settle(step.signal, error)
        except BaseException as problem:
            raised = raised or problem
        finally:
            _CHAIN.steps = outer
        step = steps.popleft() if steps else None
    if raised is not None:
        raise raised


def _attempt(step: _Step) -> tuple[object, BaseException | None]:
    """What the work returned, or how it or its waits failed."""
    if step.error is not None:
        return None, None if step.signal is None else step.error
    try:
        return step.work(), None
    except BaseException as error:
        return None, error


def _settle(signal: Fence, error: BaseException | None) -> None:
    if error is None:
        signal.signal()
    else:
        signal.fail(error)


def _chain_to(pending: Fence, signal: Fence | None) -> None:
    """Signal when the work that goes on elsewhere is done."""

    def reached(error: BaseException | None) -> None:
        if signal is not None:
            _settle(signal, error)
        elif error is not None:
            report(error)

    pending.notify(reached)
