"""The processes that a module runs in, and how they meet.

One by default.  `interpreter.run_parallel` brings several up, each a walk of its own over its function: one
walks at a time, until it must wait for others at a collective operation or for a message.  As walks write
one graph, what processes exchange are tensors of it.  Called by the importer and by the rows of collectives.

Source: StableHLO specification, "Execution", "Process grid", "Point-to-point communication".
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, final

from tilewright.base.errors import ModelError
from tilewright.base.host_thread import start_thread
from tilewright.compiler.frontends.kit.problems import SkipNodeError
from tilewright.compiler.frontends.stablehlo.held import Held

MAX_PROCESSES: Final = 256


@final
@dataclass(frozen=True, slots=True, order=True)
class Process:
    """A place in the grid."""

    replica: int
    partition: int


ALONE: Final = Process(0, 0)


@final
@dataclass(slots=True)
class _Meeting:
    """A collective operation that members of a group arrive at, in their order."""

    arrived: dict[Process, Sequence[Held]] = field(
        default_factory=dict["Process", "Sequence[Held]"]
    )
    left: int = 0


@final
class World:
    """The grid, who walks now, and what was sent.

    Args:
        replicas, partitions: the size of the grid.
        wait: lets other processes walk until a condition holds.
    """

    def __init__(
        self,
        replicas: int = 1,
        partitions: int = 1,
        wait: Callable[[Callable[[], bool]], None] | None = None,
    ) -> None:
        self.replicas: int = replicas
        self.partitions: int = partitions
        self.current: Process = ALONE
        self.feed: deque[Callable[[], list[Held]]] = deque()
        self._wait: Callable[[Callable[[], bool]], None] = wait or _alone
        self._meetings: dict[object, deque[_Meeting]] = {}
        self._sent: dict[int, deque[Sequence[Held]]] = {}

    @property
    def is_shared(self) -> bool:
        """Whether there are several processes."""
        return self.replicas * self.partitions > 1

    def meet(
        self, key: object, group: Sequence[Process], given: Sequence[Held]
    ) -> Mapping[Process, Sequence[Held]]:
        """What every member of a group brings to the same operation.

        Raises: ModelError if one never arrives.
        """
        me = self.current
        queue = self._meetings.setdefault((key, tuple(group)), deque())
        meeting = next((m for m in queue if me not in m.arrived), None)
        if meeting is None:
            meeting = _Meeting()
            queue.append(meeting)
        meeting.arrived[me] = given
        if len(meeting.arrived) < len(group):
            self._wait(lambda: len(meeting.arrived) == len(group))
        meeting.left += 1
        if meeting.left == len(group):
            queue.remove(meeting)
        return meeting.arrived

    def send(self, channel: int, given: Sequence[Held]) -> None:
        """Leave a message."""
        self._sent.setdefault(channel, deque()).append(given)

    def receive(self, channel: int) -> Sequence[Held]:
        """The next message of a channel.  Raises: ModelError if none ever comes."""
        queue = self._sent.setdefault(channel, deque())
        if not queue:
            self._wait(lambda: bool(queue))
        return queue.popleft()


def _alone(ready: Callable[[], bool]) -> None:
    if not ready():
        raise ModelError("waits for another process, and there is none")


def _always() -> bool:
    return True


@final
@dataclass(slots=True)
class _Walk:
    """One process: its thread, and what it waits for."""

    process: Process
    work: Callable[[], list[Held]]
    turn: threading.Event = field(default_factory=threading.Event)
    ready: Callable[[], bool] = _always
    is_over: bool = False
    results: list[Held] = field(default_factory=list["Held"])
    error: BaseException | None = None


@final
class Walks:
    """Lets walks take turns: one at a time, each until it waits.

    Args:
        works: what each process does.
        leave, enter: put away the state of the walk that stops, and bring back that of the next.
    """

    def __init__(
        self,
        works: Mapping[Process, Callable[[], list[Held]]],
        leave: Callable[[], object],
        enter: Callable[[object], None],
    ) -> None:
        self._walks: list[_Walk] = [_Walk(p, w) for p, w in works.items()]
        # Of the walks, as far as they have begun.
        self._threads: list[threading.Thread] = []
        self._back: threading.Event = threading.Event()
        self._now: _Walk = self._walks[0]
        self._is_stopped: bool = False
        self._leave: Callable[[], object] = leave
        self._enter: Callable[[object], None] = enter

    def run(self, world: World) -> dict[Process, list[Held]]:
        """The results of every process.

        Raises: ModelError if processes wait for each other for ever; DeviceError where the system starts no thread
            for one; what a walk raised.
        """
        start = self._leave()
        states: dict[Process, object] = {w.process: start for w in self._walks}
        try:
            for walk in self._walks:
                self._start(walk)
            while any(not walk.is_over for walk in self._walks):
                walk = next((w for w in self._walks if not w.is_over and w.ready()), None)
                if walk is None:
                    raise ModelError("processes wait for each other for ever")
                world.current = walk.process
                self._enter(states[walk.process])
                self._resume(walk)
                states[walk.process] = self._leave()
                if walk.error is not None:
                    raise walk.error
        finally:
            self._stop()
            self._enter(start)
        return {walk.process: walk.results for walk in self._walks}

    def wait(self, ready: Callable[[], bool]) -> None:
        """Called by a walk: let others go on until a condition holds."""
        walk = self._now
        walk.ready = ready
        self._back.set()
        walk.turn.wait()
        walk.turn.clear()
        if self._is_stopped:
            raise SkipNodeError("another process has a problem")

    def _start(self, walk: _Walk) -> None:
        def body() -> None:
            walk.turn.wait()
            walk.turn.clear()
            try:
                if not self._is_stopped:
                    walk.results = walk.work()
            except BaseException as error:
                walk.error = error
            walk.is_over = True
            self._back.set()

        self._threads.append(start_thread(body))

    def _resume(self, walk: _Walk) -> None:
        self._now = walk
        self._back.clear()
        walk.turn.set()
        self._back.wait()

    def _stop(self) -> None:
        """End the walks that have begun."""
        self._is_stopped = True
        for walk, thread in zip(self._walks, self._threads, strict=False):
            if not walk.is_over:
                self._resume(walk)
            thread.join()
