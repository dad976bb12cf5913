"""Groups of participants that live in one process.

Participants are devices, or queues of one, that open groups with the same name.  Whoever comes last
to a collective moves the data, and the rest of every participant's commands goes on from there.
What devices are given as their provider of channels where nobody asks for another.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, final

from tilewright.base.errors import DeviceError
from tilewright.base.fork_locks import Rank, fork_lock
from tilewright.base.status import StatusCode, failure
from tilewright.runtime.collectives.agreement import difference
from tilewright.runtime.collectives.arithmetic import perform, transfer
from tilewright.runtime.hal.channel import ChannelProvider, HostChannel, HostGroup, Watcher
from tilewright.runtime.hal.collective import CollectiveKind, Contribution
from tilewright.runtime.hal.fence import Fence
from tilewright.runtime.hal.semaphore import Semaphore


@final
@dataclass(slots=True)
class _Meeting:
    """Ranks that have come to one operation of all."""

    contributions: dict[int, Contribution] = field(default_factory=dict)
    splits: dict[int, tuple[int, int]] = field(default_factory=dict)  # rank → color, key
    channels: dict[int, HostChannel | None] = field(default_factory=dict)
    done: Fence = field(default_factory=lambda: Fence.at(Semaphore(), 1))


class _Occasion(NamedTuple):
    """The n-th thing that ranks do together; a pair is a sender and a receiver."""

    ranks: tuple[int, ...]
    turn: int


@final
class ProcessGroup(HostGroup):
    """Participants that are devices, or queues of one, of this process.

    Nobody blocks: whoever comes last moves the data.
    Thread-safety: may be used from any thread.
    """

    def __init__(self, name: str, count: int) -> None:
        super().__init__(name, count)
        self.ranks: set[int] = set()
        self._lock: threading.RLock = fork_lock(Rank.QUEUE)
        self._turns: Counter[int] = Counter()  # of the ranks that have come
        self._meetings: dict[int, _Meeting] = {}
        self._senders: dict[tuple[int, int], deque[tuple[Contribution, Fence]]] = {}
        self._receivers: dict[tuple[int, int], deque[tuple[Contribution, Fence]]] = {}
        self._failure: BaseException | None = None
        self._watchers: list[Watcher] = []
        self._announced: dict[_Occasion, tuple[int, Contribution]] = {}
        self._occasions: Counter[_Occasion] = Counter()
        self._comparisons: Counter[tuple[int, bool, tuple[int, ...]]] = Counter()
        self._identifier: bytes | None = None

    def join(self, rank: int, contribution: Contribution) -> Fence:
        if contribution.op.kind in (CollectiveKind.SEND, CollectiveKind.RECV):
            return self._meet_one(rank, contribution)
        meeting, complete = self._arrive(rank, contribution, None)
        if complete:
            _run(meeting)
        return meeting.done

    def split(self, rank: int, color: int, key: int) -> HostChannel | None:
        meeting, complete = self._arrive(rank, None, (color, key))
        if complete:
            self._divide(meeting)
        meeting.done.wait()
        return meeting.channels[rank]

    def fail(self, error: BaseException) -> None:
        with self._lock:
            first = self._failure is None
            self._failure = self._failure or error
            watchers = tuple(self._watchers) if first else ()
            fences = [meeting.done for meeting in self._meetings.values()]
            for waiting in (*self._senders.values(), *self._receivers.values()):
                fences += [fence for _, fence in waiting]
            self._meetings.clear()
            self._senders.clear()
            self._receivers.clear()
        aborted = self._aborted(error)
        for fence in fences:
            fence.fail(aborted)
        for failed in watchers:
            _tell(failed, aborted)

    def watch(self, failed: Watcher) -> None:
        with self._lock:
            known = self._failure
            self._watchers.append(failed)
        if known is not None:
            _tell(failed, self._aborted(known))

    def compare(self, rank: int, contribution: Contribution) -> None:
        wanted = rank, contribution
        with self._lock:
            if self._failure is not None:
                raise self._aborted(self._failure)
            occasion = self._next_occasion(rank, contribution)
            known = self._announced.setdefault(occasion, wanted)
            self._occasions[occasion] += 1
            if self._occasions[occasion] == len(occasion.ranks):
                del self._announced[occasion], self._occasions[occasion]
        first, second = sorted((known, wanted), key=lambda row: row[0])
        problem = difference(*first, *second)
        if problem:
            error = failure(StatusCode.INVALID_ARGUMENT, problem, location=self)
            self.fail(error)
            raise error

    def identifier(self, rank: int, make: Callable[[], bytes]) -> bytes:
        del rank  # whoever comes first
        made = make() if self._identifier is None else b""
        with self._lock:
            if self._identifier is None:
                self._identifier = made
            return self._identifier

    def _aborted(self, error: BaseException) -> DeviceError:
        aborted = failure(
            StatusCode.ABORTED, f"another participant failed: {error}", location=self
        )
        aborted.__cause__ = error
        return aborted

    def __str__(self) -> str:
        return f"channel group '{self.name}' of {self.count}"

    def _next_occasion(self, rank: int, contribution: Contribution) -> _Occasion:
        """At which ranks that do not move their data here do something together."""
        kind, peer = contribution.op.kind, contribution.parameter
        ranks = tuple(range(self.count))
        if kind in (CollectiveKind.SEND, CollectiveKind.RECV):
            ranks = (rank, peer) if kind is CollectiveKind.SEND else (peer, rank)
        turn = self._comparisons[rank, kind is CollectiveKind.RECV, ranks]
        self._comparisons[rank, kind is CollectiveKind.RECV, ranks] += 1
        return _Occasion(ranks, turn)

    def _arrive(
        self, rank: int, contribution: Contribution | None, split: tuple[int, int] | None
    ) -> tuple[_Meeting, bool]:
        with self._lock:
            if self._failure is not None:
                raise self._aborted(self._failure)
            turn = self._turns[rank]
            self._turns[rank] += 1
            meeting = self._meetings.setdefault(turn, _Meeting())
            if contribution is not None:
                meeting.contributions[rank] = contribution
            if split is not None:
                meeting.splits[rank] = split
            complete = len(meeting.contributions) + len(meeting.splits) == self.count
            if complete:
                del self._meetings[turn]
        return meeting, complete

    def _meet_one(self, rank: int, contribution: Contribution) -> Fence:
        """A send and a receive of two ranks, in the order in which each of them comes."""
        sends = contribution.op.kind is CollectiveKind.SEND
        peer = contribution.parameter
        pair = (rank, peer) if sends else (peer, rank)
        own, other = (
            (self._senders, self._receivers) if sends else (self._receivers, self._senders)
        )
        fence = Fence.at(Semaphore(), 1)
        with self._lock:
            if self._failure is not None:
                raise self._aborted(self._failure)
            waiting = other.get(pair)
            if not waiting:
                own.setdefault(pair, deque()).append((contribution, fence))
                return fence
            partner, partner_fence = waiting.popleft()
        both = (contribution, partner) if sends else (partner, contribution)
        _settle((fence, partner_fence), lambda: transfer(*both))
        return fence

    def _divide(self, meeting: _Meeting) -> None:
        if meeting.contributions:
            meeting.done.fail(_disagreement(self))
            return
        groups: dict[int, list[tuple[int, int]]] = {}
        for rank, (color, key) in meeting.splits.items():
            meeting.channels[rank] = None
            if color >= 0:
                groups.setdefault(color, []).append((key, rank))
        for color, members in groups.items():
            part = ProcessGroup(f"{self.name}/{color}", len(members))
            for index, (_, rank) in enumerate(sorted(members)):
                meeting.channels[rank] = HostChannel(index, len(members), part)
        meeting.done.signal()


def _tell(failed: Watcher, error: DeviceError) -> None:
    method = failed()
    if method is not None:
        method(error)


def _disagreement(place: object) -> BaseException:
    return failure(
        StatusCode.INVALID_ARGUMENT,
        "some ranks split the channel where others run a collective",
        location=place,
    )


def _run(meeting: _Meeting) -> None:
    if meeting.splits:
        meeting.done.fail(_disagreement("channel"))
        return
    ranks = [meeting.contributions[rank] for rank in sorted(meeting.contributions)]
    _settle((meeting.done,), lambda: perform(ranks))


def _settle(fences: Sequence[Fence], work: object) -> None:
    assert callable(work)
    try:
        work()
    except Exception as error:
        for fence in fences:
            fence.fail(error)
    else:
        for fence in fences:
            fence.signal()


_GROUPS: Final[dict[tuple[str, int], list[weakref.ref[ProcessGroup]]]] = {}
_LOCK: Final = fork_lock(Rank.DRIVERS)


@final
class ProcessChannels(ChannelProvider):
    """Groups of this process, found by their names; who does not say otherwise is alone."""

    @property
    def spans_processes(self) -> bool:
        return False

    def query_default_rank_and_count(self) -> tuple[int, int]:
        return 0, 1

    def open_group(self, name: str, rank: int, count: int) -> ProcessGroup:
        """The group of that name, made by whoever comes first.

        A rank that comes again opens the next group of the name.
        """
        if count == 1:
            return ProcessGroup(name, 1)
        with _LOCK:
            _forget_names()
            rows = _GROUPS.setdefault((name, count), [])
            alive = [group for row in rows if (group := row()) is not None]
            group = next((g for g in alive if rank not in g.ranks), None)
            if group is None:
                group = ProcessGroup(name, count)
                alive.append(group)
            group.ranks.add(rank)
            rows[:] = [weakref.ref(g) for g in alive]
        return group


def _forget_names() -> None:
    """Drop names whose groups are gone; only with the lock.

    The two that were looked at longest ago: so no call takes long, and names go faster than they come.
    """
    for key in tuple(itertools.islice(_GROUPS, 2)):
        rows = _GROUPS.pop(key)
        if any(row() is not None for row in rows):
            _GROUPS[key] = rows


PROCESS_CHANNELS: Final = ProcessChannels()
