"""A queue for devices that take work in streams: submissions in any order, each issued in time.

An entry is *pending* until everything it waits for is reached or issued to the same device,
*ready* until the worker thread takes it, *issued* until the device is through with it, and then
*completed*: the completion thread advances its semaphores.  Whatever goes wrong on the way fails
the semaphores that the entry would have signalled.  Knows the device as the few operations of
`QueueDevice`; used by drivers with native streams, tested with one that is made of lists.

Source: IREE `hal/utils/deferred_work_queue.h` (states, threads, device interface).
"""

from __future__ import annotations

import contextlib
import enum
import os
import queue
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import final

from tilewright.base.errors import DeviceError
from tilewright.base.fork_locks import Rank, fork_lock
from tilewright.base.host_thread import start_thread
from tilewright.base.status import StatusCode, failure
from tilewright.runtime.hal.device_semaphore import DeviceSemaphore
from tilewright.runtime.hal.fence import Fence
from tilewright.runtime.hal.semaphore import Semaphore, SemaphoreCompatibility

Work = Callable[[], object]


class QueueDevice(ABC):
    """What a queue asks of a device: one native stream, and events in it.

    Events are dropped when nothing refers to them any more.
    Thread-safety: `record_event` and `wait_event` are called on the worker thread,
    `synchronize…` on the completion thread.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def domain(self) -> object:
        """Devices with the same domain can wait for each other's events."""

    @abstractmethod
    def bind_to_thread(self) -> None:
        """Make the calling thread one that uses the device; called once per thread."""

    @abstractmethod
    def record_event(self) -> object:
        """An event that happens when everything issued so far is done."""

    @abstractmethod
    def wait_event(self, event: object) -> None:
        """Hold back what is issued from now on until an event of the domain happens."""

    @abstractmethod
    def synchronize_event(self, event: object) -> None:
        """Block until the event happens.  Raises: what the device reports."""

    @abstractmethod
    def synchronize(self) -> None:
        """Block until everything issued so far is done."""


@final
class EntryState(enum.Enum):
    """Where an entry is."""

    PENDING = "pending"
    READY = "ready"
    ISSUED = "issued"
    COMPLETED = "completed"


@final
class _Entry:
    """One submission."""

    __slots__ = ("error", "event", "issue", "lane", "retire", "signal", "state", "wait")

    def __init__(
        self, wait: Fence, signal: Fence | None, issue: Work, retire: Work, lane: _Lane
    ) -> None:
        self.wait: Fence = wait
        self.signal: Fence | None = signal
        self.issue: Work = issue
        self.retire: Work = retire
        self.lane: _Lane = lane
        self.state: EntryState = EntryState.PENDING
        self.event: object = None
        self.error: BaseException | None = None

    def finish(self, error: BaseException | None) -> None:
        """Let go of everything, then tell those who wait."""
        self.issue = self.retire = _nothing
        self.wait = _NO_FENCE
        self.event = None
        self.state = EntryState.COMPLETED
        if self.signal is None:
            return
        if error is not None:
            self.signal.fail(error)
            return
        try:
            self.signal.signal()
        except Exception as wrong:
            self.signal.fail(wrong)


class _Lane(enum.Enum):
    """Who takes an entry once it is ready."""

    DEVICE = enum.auto()
    HOST = enum.auto()
    OWN_THREAD = enum.auto()


@final
class DeferredWorkQueue:
    """Issues work to a device in the order of its fences.

    Args:
        device: the stream.
        name: of the threads.
    Ownership: work holds what it uses until the device is through with it; the threads end when
    the queue is closed or nobody refers to it.
    Thread-safety: may be used from any thread, the queue's own included.
    """

    __slots__ = ("__weakref__", "_core", "_finalizer")

    def __init__(self, device: QueueDevice, name: str) -> None:
        self._core: _Core = _Core(device, name)
        self._finalizer = weakref.finalize(self, self._core.stop)

    def create_semaphore(self, initial_value: int = 0) -> DeviceSemaphore:
        """A timeline that work of this queue can promise."""
        return DeviceSemaphore(initial_value, self._core.device.domain)

    def query_semaphore_compatibility(self, semaphore: Semaphore) -> SemaphoreCompatibility:
        """All for timelines whose work can be promised to the device, else what the host does."""
        is_own = (
            isinstance(semaphore, DeviceSemaphore)
            and semaphore.domain is self._core.device.domain
        )
        return SemaphoreCompatibility.ALL if is_own else SemaphoreCompatibility.HOST_ONLY

    def submit(
        self,
        wait: Fence | None,
        signal: Fence | None,
        issue: Work,
        retire: Work | None = None,
    ) -> None:
        """Issue work to the device once its waits are reached or issued.

        Args:
            wait: what must happen before; None for nothing.
            signal: what happens after.  Without it, work that is ready is waited for.
            issue: puts the work into the stream; called on the worker thread.
            retire: called when the device is through with it, before `signal`.
        Raises: what ready work raises, if there is no fence to fail; DeviceError (UNAVAILABLE)
        when the queue is closed.
        """
        self._core.check_open()
        blocks = signal is None and _is_reached(wait) and not self._core.is_own_thread()
        done = Fence.at(Semaphore(), 1) if blocks else signal
        waits = wait or _NO_FENCE
        entry = _Entry(waits, done, issue, retire or _nothing, _Lane.DEVICE)
        self._core.enter(entry, Fence(self._core.timelines(waits)))
        if blocks and done is not None:
            done.wait()

    def submit_host(
        self, wait: Fence | None, signal: Fence | None, work: Work, *, blocks: bool = False
    ) -> None:
        """Run host code once its waits are reached: at once on this thread if they are.

        Args:
            wait: what must happen before; None for nothing.
            signal: what happens after.
            work: the host code; what it raises fails `signal`, or is raised here where there is
                none and the work ran at once.
            blocks: the work may wait for other work of the queue: it gets a thread of its own.
        """
        self._core.check_open()
        if _is_reached(wait):
            _run_host(signal, work)
            return
        lane = _Lane.OWN_THREAD if blocks else _Lane.HOST
        entry = _Entry(wait or _NO_FENCE, signal, work, _nothing, lane)
        self._core.enter(entry, entry.wait)

    def close(self) -> None:
        """Complete what is ready, fail what still waits, and end the threads."""
        self._finalizer()
        self._core.join()


@final
class _Core:
    """What the threads share; the queue itself is only held by its users."""

    def __init__(self, device: QueueDevice, name: str) -> None:
        self.device: QueueDevice = device
        self._name: str = name
        self._pending: dict[int, _Entry] = {}
        self._ready: queue.SimpleQueue[_Entry | None] = queue.SimpleQueue()
        self._issued: queue.SimpleQueue[_Entry | None] = queue.SimpleQueue()
        self._host: queue.SimpleQueue[_Entry | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock: threading.RLock = fork_lock(Rank.QUEUE)
        self._closed: bool = False
        self._process: int = os.getpid()
        self._swept: bool = False  # pending entries were failed, none is taken any more

    # --- life -----------------------------------------------------------------------------------

    def check_open(self) -> None:
        if self._closed:
            raise failure(StatusCode.UNAVAILABLE, "the device's queue is closed")
        if self._is_of_parent:
            raise _of_parent()

    @property
    def _is_of_parent(self) -> bool:
        return os.getpid() != self._process

    def stop(self) -> None:
        """Tell the threads to end.  Safe in finalizers: takes no lock."""
        self._closed = True
        self._ready.put(None)

    def join(self) -> None:
        if self._is_of_parent:
            self._sweep()
            return
        for thread in list(self._threads):
            if thread is not threading.current_thread():
                thread.join()

    def is_own_thread(self) -> bool:
        return threading.current_thread() in self._threads

    def _start(self) -> None:
        """Have all threads.  Raises: DeviceError where there is no room for one; the next entry tries again."""
        serving = (
            ("issue", self._serve_ready),
            ("retire", self._serve_issued),
            ("host", self._serve_host),
        )
        for role, serve in serving[len(self._threads) :]:
            self._threads.append(start_thread(serve, f"tilewright-{self._name}-{role}"))

    # --- pending → ready ------------------------------------------------------------------------

    def timelines(self, wait: Fence) -> list[tuple[Semaphore, int]]:
        """What to wait for before issuing: for work of the same domain, that it is issued."""
        domain = self.device.domain
        return [
            (
                (s.issued, v)
                if isinstance(s, DeviceSemaphore) and s.domain is domain
                else (s, v)
            )
            for s, v in wait.timepoints
        ]

    def enter(self, entry: _Entry, before: Fence) -> None:
        with self._lock:
            self._start()
            self._pending[id(entry)] = entry
        before.notify(partial(self._make_ready, entry))
        if self._swept:
            self._sweep()

    def _make_ready(self, entry: _Entry, error: BaseException | None) -> None:
        if self._is_of_parent:
            self._sweep()
            return
        # Failures take the same way: a thread, not the stack, walks along chains of fences.
        with self._lock:
            if self._pending.pop(id(entry), None) is None:
                return
            entry.state = EntryState.READY
            entry.error = error
            lane = _Lane.DEVICE if error is not None else entry.lane
            if lane is _Lane.DEVICE:
                self._ready.put(entry)
            elif lane is _Lane.HOST:
                self._host.put(entry)
        if lane is _Lane.OWN_THREAD:
            try:
                start_thread(partial(_run_entry, entry), "tilewright-host-call")
            except DeviceError as problem:
                entry.finish(problem)

    def _sweep(self) -> None:
        """Fail what still waits: nobody is going to issue it."""
        with self._lock:
            self._swept = True
            left = list(self._pending.values())
            self._pending.clear()
        cancelled = failure(
            StatusCode.CANCELLED, "the device was closed before the work began"
        )
        for entry in left:
            entry.finish(_of_parent() if self._is_of_parent else cancelled)

    # --- ready → issued -------------------------------------------------------------------------

    def _serve_ready(self) -> None:
        broken = self._bind()
        while (entry := self._ready.get()) is not None:
            self._issue(entry, broken)
            del entry
        self._sweep()
        while not self._ready.empty():
            entry = self._ready.get()
            if entry is not None:
                self._issue(entry, broken)
        self._issued.put(None)
        self._host.put(None)

    def _bind(self) -> BaseException | None:
        try:
            self.device.bind_to_thread()
        except Exception as error:
            return error
        return None

    def _issue(self, entry: _Entry, broken: BaseException | None) -> None:
        error = entry.error or broken or _failed_wait(entry.wait)
        if error is not None:
            entry.finish(error)
            return
        try:
            self._wait_for_events(entry.wait)
            entry.issue()
        except Exception as wrong:  # whatever it is, it belongs to the fence
            entry.error = wrong
        try:
            entry.event = self.device.record_event()
        except Exception as wrong:
            entry.error = entry.error or wrong
        entry.state = EntryState.ISSUED
        if entry.error is None:
            self._promise(entry)
        self._issued.put(entry)

    def _wait_for_events(self, wait: Fence) -> None:
        for semaphore, value in wait.timepoints:
            if isinstance(semaphore, DeviceSemaphore):
                event = semaphore.promised_event(value)
                if event is not None:
                    self.device.wait_event(event)

    def _promise(self, entry: _Entry) -> None:
        if entry.signal is None:
            return
        for semaphore, value in entry.signal.timepoints:
            if (
                isinstance(semaphore, DeviceSemaphore)
                and semaphore.domain is self.device.domain
            ):
                semaphore.promise(value, entry.event)

    # --- issued → completed ---------------------------------------------------------------------

    def _serve_issued(self) -> None:
        self._bind()
        while (entry := self._issued.get()) is not None:
            self._retire(entry)
            del entry

    def _retire(self, entry: _Entry) -> None:
        error = entry.error
        try:
            self._await(entry)
            error = error or _failed_wait(entry.wait)
            if error is None:
                entry.retire()
        except Exception as wrong:
            error = error or wrong
        entry.finish(error)

    def _await(self, entry: _Entry) -> None:
        """Block until the device is through with it, also where its event cannot be waited for."""
        if entry.event is None:
            self.device.synchronize()
            return
        try:
            self.device.synchronize_event(entry.event)
        except Exception:
            with contextlib.suppress(Exception):  # says what has been said
                self.device.synchronize()
            raise

    # --- host work ------------------------------------------------------------------------------

    def _serve_host(self) -> None:
        self._bind()
        while (entry := self._host.get()) is not None:
            _run_entry(entry)
            del entry


def _of_parent() -> DeviceError:
    return failure(
        StatusCode.UNAVAILABLE,
        "the device was made before this process was forked, and has no threads here",
        hint="make the device in the child, or start it by 'spawn'",
    )


def _run_entry(entry: _Entry) -> None:
    try:
        entry.issue()
    except Exception as error:
        entry.finish(error)
    else:
        entry.finish(None)


def _run_host(signal: Fence | None, work: Work) -> None:
    if signal is None:
        work()
        return
    try:
        work()
    except Exception as error:
        signal.fail(error)
    else:
        signal.signal()


def _is_reached(wait: Fence | None) -> bool:
    return wait is None or wait.query() is StatusCode.OK


def _failed_wait(wait: Fence) -> BaseException | None:
    for semaphore, value in wait.timepoints:
        if semaphore.value < value and semaphore.error is not None:
            return semaphore.error
    return None


def _nothing() -> None:
    """The work of a barrier."""


_NO_FENCE = Fence()
