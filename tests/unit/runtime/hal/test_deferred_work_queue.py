"""The queue on a device that is made of lists: states, order, failures, the end."""

from __future__ import annotations

import gc
import itertools
import os
import random
import signal
import threading
import weakref
from collections.abc import Callable

import pytest

from fakes.scarce_threads import threads_left
from tilewright.base.errors import DeviceError
from tilewright.base.status import StatusCode, failure
from tilewright.runtime.hal.deferred_work_queue import DeferredWorkQueue, QueueDevice
from tilewright.runtime.hal.device_semaphore import DeviceSemaphore
from tilewright.runtime.hal.fence import Fence
from tilewright.runtime.hal.semaphore import Semaphore

SECONDS = 20_000_000_000
DOMAIN = object()


class ListEvent:
    """A point in a list stream."""

    def __init__(self, stream: ListDevice, position: int) -> None:
        self.stream, self.position = stream, position


class ListDevice(QueueDevice):
    """A stream of callables; a thread of its own works it off, when allowed to."""

    def __init__(self, domain: object = DOMAIN) -> None:
        self._domain = domain
        self.log: list[object] = []
        self.stream: list[Callable[[], object]] = []
        self.done = 0
        self.error: Exception | None = None
        self.broken: str | None = None
        self.changed = threading.Condition()
        self.may_run = True
        self.ended = False
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            with self.changed:
                while not (self.may_run and self.done < len(self.stream)):
                    if self.ended:
                        return
                    self.changed.wait(5)
                work = self.stream[self.done]
            try:
                if self.error is None:
                    work()
            except Exception as error:
                self.error = error
            with self.changed:
                self.done += 1
                self.changed.notify_all()

    def put(self, work: Callable[[], object]) -> None:
        with self.changed:
            self.stream.append(work)
            self.changed.notify_all()

    def hold(self, *, held: bool) -> None:
        with self.changed:
            self.may_run = not held
            self.changed.notify_all()

    def end(self) -> None:
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def _check(self, name: str) -> None:
        if self.broken == name:
            raise failure(StatusCode.UNAVAILABLE, f"{name} is broken")

    @property
    def domain(self) -> object:
        return self._domain

    def bind_to_thread(self) -> None:
        self._check("bind")

    def record_event(self) -> object:
        self._check("record")
        return ListEvent(self, len(self.stream))

    def wait_event(self, event: object) -> None:
        assert isinstance(event, ListEvent)
        self.log.append("wait")
        if event.stream is not self:
            self.put(lambda: event.stream.synchronize_event(event))

    def synchronize_event(self, event: object) -> None:
        assert isinstance(event, ListEvent)
        self._check("event")
        self._reach(event.position)

    def synchronize(self) -> None:
        self._reach(len(self.stream))

    def _reach(self, position: int) -> None:
        with self.changed:
            while self.done < position:
                assert self.changed.wait(20)
        if self.error is not None:
            raise self.error


@pytest.fixture
def device():
    made = ListDevice()
    yield made
    made.end()


@pytest.fixture
def queue(device: ListDevice):
    made = DeferredWorkQueue(device, "test")
    yield made
    device.hold(held=False)
    made.close()


def fence(queue: DeferredWorkQueue) -> Fence:
    return Fence.at(queue.create_semaphore(), 1)


def test_work_is_issued_behind_issued_work_before_that_is_done(
    device: ListDevice, queue: DeferredWorkQueue
) -> None:
    device.hold(held=True)
    issued = threading.Semaphore(0)
    first, second = fence(queue), fence(queue)
    for before, after in ((None, first), (first, second)):
        queue.submit(before, after, lambda: (device.put(lambda: None), issued.release()))
    assert issued.acquire(timeout=20)
    assert issued.acquire(timeout=20)
    assert first.query() is second.query() is StatusCode.DEFERRED
    device.hold(held=False)
    second.wait(SECONDS)
    assert first.query() is StatusCode.OK


def test_work_that_waits_for_the_host_is_not_issued(queue: DeferredWorkQueue) -> None:
    seen: list[int] = []
    ready, done, other = fence(queue), fence(queue), fence(queue)
    queue.submit(ready, done, lambda: seen.append(1))
    queue.submit(None, other, lambda: seen.append(2))
    other.wait(SECONDS)
    assert seen == [2]
    ready.signal()
    done.wait(SECONDS)
    assert seen == [2, 1]


def test_queues_of_one_domain_wait_on_the_device() -> None:
    first, second = ListDevice(), ListDevice()
    left, right = DeferredWorkQueue(first, "left"), DeferredWorkQueue(second, "right")
    first.hold(held=True)
    seen: list[str] = []
    middle, end = fence(left), fence(right)
    issued = threading.Event()
    left.submit(None, middle, lambda: first.put(lambda: seen.append("left")))

    def issue() -> None:
        second.put(lambda: seen.append("right"))
        issued.set()

    right.submit(middle, end, issue)
    assert issued.wait(20)
    assert "wait" in second.log
    assert seen == []
    first.hold(held=False)
    end.wait(SECONDS)
    assert seen == ["left", "right"]
    for queue, device in ((left, first), (right, second)):
        queue.close()
        device.end()


def test_queues_of_other_domains_wait_on_the_host() -> None:
    first, second = ListDevice(), ListDevice(domain=object())
    left, right = DeferredWorkQueue(first, "left"), DeferredWorkQueue(second, "right")
    first.hold(held=True)
    middle, end = fence(left), fence(right)
    seen: list[str] = []
    left.submit(None, middle, lambda: first.put(lambda: None))
    right.submit(middle, end, lambda: seen.append("issued"))
    done = fence(right)
    right.submit(None, done, lambda: None)
    done.wait(SECONDS)
    assert seen == []
    first.hold(held=False)
    end.wait(SECONDS)
    assert second.log == []
    for queue, device in ((left, first), (right, second)):
        queue.close()
        device.end()


def explode() -> None:
    raise failure(StatusCode.DATA_LOSS, "exploded")


@pytest.mark.parametrize("where", ["issue", "device", "retire", "record", "bind"])
def test_failures_reach_all_that_depend_and_nothing_else(where: str) -> None:
    device = ListDevice()
    device.broken = where if where in ("record", "bind") else None
    queue = DeferredWorkQueue(device, "test")
    host = Fence.at(Semaphore(), 1)
    seen: list[int] = []
    fences = [fence(queue) for _ in range(3)]
    work = {
        "issue": explode,
        "device": lambda: device.put(explode),
    }.get(where, lambda: None)
    queue.submit(fences[0], fences[1], lambda: seen.append(1))
    queue.submit(fences[1], fences[2], lambda: seen.append(2))
    queue.submit(host, fences[0], work, explode if where == "retire" else None)
    host.signal()
    wanted = "is broken" if where in ("record", "bind") else "exploded"
    for each in fences:
        with pytest.raises(DeviceError, match=wanted):
            each.wait(SECONDS)
    if where in ("issue", "record", "bind"):
        assert seen == []
    queue.close()
    device.end()


def test_a_long_chain_fails_without_nesting(queue: DeferredWorkQueue) -> None:
    fences = [fence(queue) for _ in range(3000)]
    for before, after in itertools.pairwise(fences):
        queue.submit(before, after, lambda: None)
    fences[0].fail(failure(StatusCode.CANCELLED, "never mind"))
    with pytest.raises(DeviceError, match="never mind"):
        fences[-1].wait(SECONDS)


def test_work_without_a_fence_is_waited_for_and_raises(queue: DeferredWorkQueue) -> None:
    seen: list[int] = []
    queue.submit(None, None, lambda: seen.append(1))
    assert seen == [1]
    with pytest.raises(DeviceError, match="exploded"):
        queue.submit(None, None, explode)


class Resource:
    """What work uses."""


def submit_with_thing(
    queue: DeferredWorkQueue, done: Fence, issue: Callable[[], object]
) -> weakref.ref[Resource]:
    """Submit work that alone holds a resource."""
    resource = Resource()
    queue.submit(None, done, lambda: (resource, issue()))
    return weakref.ref(resource)


def test_what_is_used_is_let_go_before_the_signal(queue: DeferredWorkQueue) -> None:
    done = fence(queue)
    alive = submit_with_thing(queue, done, lambda: None)
    done.wait(SECONDS)
    assert alive() is None


def test_what_is_used_is_kept_until_the_stream_is_done_where_its_event_fails(
    device: ListDevice, queue: DeferredWorkQueue
) -> None:
    done = fence(queue)
    device.broken = "event"
    device.hold(held=True)
    alive = submit_with_thing(queue, done, lambda: device.put(lambda: None))
    with pytest.raises(DeviceError, match="DEADLINE_EXCEEDED"):
        done.wait(50_000_000)
    assert alive() is not None
    device.hold(held=False)
    with pytest.raises(DeviceError, match="event is broken"):
        done.wait(SECONDS)
    assert alive() is None


def test_host_work_runs_here_when_it_is_ready_and_elsewhere_later(
    queue: DeferredWorkQueue,
) -> None:
    here = threading.get_ident()
    threads: list[int] = []
    ready, done = fence(queue), fence(queue)
    queue.submit_host(None, None, lambda: threads.append(threading.get_ident()))
    queue.submit_host(ready, done, lambda: threads.append(threading.get_ident()))
    ready.signal()
    done.wait(SECONDS)
    assert threads[0] == here != threads[1]
    with pytest.raises(DeviceError, match="exploded"):
        queue.submit_host(None, None, explode)


def test_host_work_may_wait_for_work_behind_it(queue: DeferredWorkQueue) -> None:
    ready, inner, done = fence(queue), fence(queue), fence(queue)
    queue.submit_host(ready, done, lambda: inner.wait(SECONDS), blocks=True)
    queue.submit_host(ready, inner, lambda: None, blocks=True)
    ready.signal()
    done.wait(SECONDS)
    assert inner.query() is StatusCode.OK


def test_closing_completes_what_is_ready_and_cancels_what_waits(
    device: ListDevice,
) -> None:
    queue = DeferredWorkQueue(device, "test")
    device.hold(held=True)
    never, done, waiting = fence(queue), fence(queue), fence(queue)
    seen: list[int] = []
    queue.submit(None, done, lambda: device.put(lambda: seen.append(1)))
    queue.submit(never, waiting, lambda: seen.append(2))
    threading.Timer(0.02, lambda: device.hold(held=False)).start()
    queue.close()
    queue.close()
    assert done.query() is StatusCode.OK
    assert seen == [1]
    with pytest.raises(DeviceError, match="closed before the work began"):
        waiting.wait(0)
    never.signal()
    with pytest.raises(DeviceError, match="queue is closed"):
        queue.submit(None, fence(queue), lambda: None)


def test_threads_end_when_nobody_refers_to_the_queue(device: ListDevice) -> None:
    before = set(threading.enumerate())
    queue = DeferredWorkQueue(device, "lonely")
    queue.submit(None, None, lambda: None)
    threads = set(threading.enumerate()) - before
    assert {t.name for t in threads} == {
        f"tilewright-lonely-{role}" for role in ("issue", "retire", "host")
    }
    del queue
    gc.collect()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_is_told_at_once(queue: DeferredWorkQueue) -> None:
    queue.submit(None, None, lambda: None)
    child = os.fork()
    if child == 0:
        try:
            queue.submit(None, fence(queue), lambda: None)
        except DeviceError as error:
            os._exit(7 if "forked" in str(error) else 8)
        os._exit(9)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("how", ["signal", "close"])
def test_a_forked_child_does_not_wait_for_work_of_its_parent(
    queue: DeferredWorkQueue, how: str
) -> None:
    before, after = Fence.at(Semaphore(), 1), [fence(queue) for _ in range(2000)]
    for waits, signals in itertools.pairwise([before, *after]):
        queue.submit(waits, signals, lambda: None)
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # ends it where it hangs
        before.signal() if how == "signal" else queue.close()
        errors = [point[0].error for one in after for point in one.timepoints]
        os._exit(7 if all("forked" in str(error) for error in errors) else 8)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7
    before.signal()
    after[-1].wait(60_000_000_000)


def test_promises_hold_the_nearest_event() -> None:
    semaphore = DeviceSemaphore(1)
    heard: list[object] = []
    semaphore.issued.notify(4, heard.append)
    semaphore.promise(3, "three")
    semaphore.promise(5, "five")
    assert heard == [None]
    assert semaphore.value == 1
    assert semaphore.promised_event(2) == semaphore.promised_event(3) == "three"
    assert semaphore.promised_event(4) == "five"
    assert semaphore.promised_event(6) is None
    semaphore.signal(3)
    assert semaphore.promised_event(3) is None
    assert semaphore.promised_event(4) == "five"
    semaphore.fail(failure(StatusCode.ABORTED, "gone"))
    assert semaphore.promised_event(5) is None


@pytest.mark.thinned(3)
@pytest.mark.parametrize("seed", range(4))
def test_random_graphs_run_in_order_from_many_threads(seed: int) -> None:
    dice = random.Random(seed)
    devices = [ListDevice(), ListDevice(), ListDevice(domain=object())]
    queues = [DeferredWorkQueue(d, f"{i}") for i, d in enumerate(devices)]
    owners = [dice.randrange(3) for _ in range(120)]
    fences = [fence(queues[owner]) for owner in owners]
    depends = [sorted(dice.sample(range(i), min(i, dice.randrange(4)))) for i in range(120)]
    finished: list[bool] = [False] * 120
    wrong: list[int] = []

    def run(step: int) -> None:
        if not all(finished[d] for d in depends[step]):
            wrong.append(step)
        finished[step] = True

    def submit(steps: list[int]) -> None:
        for step in steps:
            wait = Fence.join([fences[d] for d in depends[step]])
            queue, device = queues[owners[step]], devices[owners[step]]
            if step % 7 == 0:
                queue.submit_host(wait, fences[step], lambda s=step: run(s), blocks=True)
            else:
                work = lambda d=device, s=step: d.put(lambda: run(s))  # noqa: E731
                queue.submit(wait, fences[step], work)

    order = list(range(120))
    dice.shuffle(order)
    threads = [threading.Thread(target=submit, args=(order[i::4],)) for i in range(4)]
    for thread in threads:
        thread.start()
    for each in fences:
        each.wait(SECONDS)
    assert wrong == []
    assert all(finished)
    for thread in threads:
        thread.join()
    for queue, device in zip(queues, devices, strict=True):
        queue.close()
        device.end()


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_queue_without_threads_says_so_and_goes_on_when_there_are(
    count: int, queue: DeferredWorkQueue, device: ListDevice
) -> None:
    with threads_left(count), pytest.raises(DeviceError, match="no further thread"):
        queue.submit(None, fence(queue), lambda: device.put(lambda: None))
    reached = fence(queue)
    queue.submit(None, reached, lambda: device.put(lambda: None))
    reached.wait(SECONDS)
    assert reached.query() is StatusCode.OK


def test_host_work_that_gets_no_thread_of_its_own_fails_its_fence(
    queue: DeferredWorkQueue,
) -> None:
    before, after = Fence.at(Semaphore(), 1), fence(queue)
    queue.submit_host(before, after, lambda: None, blocks=True)
    with threads_left(0):
        before.signal()
    with pytest.raises(DeviceError, match="no further thread"):
        after.wait(SECONDS)
