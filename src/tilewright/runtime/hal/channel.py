"""A channel: one participant's end of a group that runs collective operations.

Groups live in one process: participants are devices, or queues of one, that create channels with the
same group name.  Nobody blocks while a collective waits for the others: whoever comes last moves the
data, and the rest of every participant's commands goes on from there.  Not here: what operations
compute (`collective`).

Source: IREE `hal/channel.h`, `hal/channel_provider.h`.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, final

from tilewright.base.fork_locks import Rank, fork_lock
from tilewright.base.status import StatusCode, failure
from tilewright.runtime.hal.collective import (
    CollectiveKind,
    Contribution,
    perform,
    transfer,
)
from tilewright.runtime.hal.fence import Fence
from tilewright.runtime.hal.semaphore import Semaphore


@final
@dataclass(slots=True)
class _Meeting:
    """Ranks that have come to one operation of all."""

    contributions: dict[int, Contribution] = field(default_factory=dict)
    splits: dict[int, tuple[int, int]] = field(default_factory=dict)  # rank → color, key
    channels: dict[int, Channel | None] = field(default_factory=dict)
    done: Fence = field(default_factory=lambda: Fence.at(Semaphore(), 1))


@final
class ChannelGroup:
    """Participants of collectives.

    The n-th operation of every rank is the same operation; sends and receives pair up in order.
    Thread-safety: may be used from any thread.
    """

    def __init__(self, name: str, count: int) -> None:
        self.name: str = name
        self.count: int = count
        self.ranks: set[int] = set()
        self._lock: threading.Lock = fork_lock(Rank.QUEUE)
        self._turns: list[int] = [0] * count
        self._meetings: dict[int, _Meeting] = {}
        self._senders: dict[tuple[int, int], deque[tuple[Contribution, Fence]]] = {}
        self._receivers: dict[tuple[int, int], deque[tuple[Contribution, Fence]]] = {}
        self._failure: BaseException | None = None

    def join(self, rank: int, contribution: Contribution) -> Fence:
        """Take part; the fence is reached when this rank's data is there."""
        if contribution.op.kind in (CollectiveKind.SEND, CollectiveKind.RECV):
            return self._meet_one(rank, contribution)
        meeting, complete = self._arrive(rank, contribution, None)
        if complete:
            _run(meeting)
        return meeting.done

    def split(self, rank: int, color: int, key: int) -> Channel | None:
        """Take part in a split, which waits until every rank has come, each on its own thread."""
        meeting, complete = self._arrive(rank, None, (color, key))
        if complete:
            self._divide(meeting)
        meeting.done.wait()
        return meeting.channels[rank]

    def fail(self, error: BaseException) -> None:
        """Nobody will complete what is under way, or anything later."""
        with self._lock:
            self._failure = self._failure or error
            fences = [meeting.done for meeting in self._meetings.values()]
            for waiting in (*self._senders.values(), *self._receivers.values()):
                fences += [fence for _, fence in waiting]
            self._meetings.clear()
            self._senders.clear()
            self._receivers.clear()
        for fence in fences:
            fence.fail(self._aborted(error))

    def _aborted(self, error: BaseException) -> BaseException:
        aborted = failure(
            StatusCode.ABORTED, f"another participant failed: {error}", location=self
        )
        aborted.__cause__ = error
        return aborted

    def __str__(self) -> str:
        return f"channel group '{self.name}' of {self.count}"

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
            part = ChannelGroup(f"{self.name}/{color}", len(members))
            for index, (_, rank) in enumerate(sorted(members)):
                meeting.channels[rank] = Channel(index, len(members), part)
        meeting.done.signal()


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


@final
@dataclass(frozen=True, slots=True)
class Channel:
    """One participant's end of a group.

    Thread-safety: may be used from any thread; a rank's operations run in the order they are queued.
    """

    rank: int = 0
    count: int = 1
    group: ChannelGroup = field(default_factory=lambda: ChannelGroup("alone", 1))

    def join(self, contribution: Contribution) -> Fence:
        """Take part in an operation; the fence is reached when this rank's data is there."""
        return self.group.join(self.rank, contribution)

    def fail(self, error: BaseException) -> None:
        """Tell the others that this rank will not come."""
        if self.count > 1:
            self.group.fail(error)

    def split(self, color: int, key: int) -> Channel | None:
        """The channel of those with the same color, ordered by key; a negative color leaves.

        Waits until every rank has called it, so each needs a thread of its own.
        Raises: DeviceError when some ranks run a collective instead, or failed.
        """
        if self.count == 1:
            return None if color < 0 else self
        return self.group.split(self.rank, color, key)


_GROUPS: Final[dict[tuple[str, int], list[weakref.ref[ChannelGroup]]]] = {}
_LOCK: Final = fork_lock(Rank.DRIVERS)


def open_channel(name: str, rank: int, count: int) -> Channel:
    """The end of a rank in the group of that name, made by whoever comes first.

    A rank that comes again opens the next group of the name.
    Raises: DeviceError (INVALID_ARGUMENT) for a rank outside of the group.
    """
    if not 0 <= rank < count:
        raise failure(
            StatusCode.INVALID_ARGUMENT,
            f"rank {rank} of a channel with {count} participants",
        )
    with _LOCK:
        rows = _GROUPS.setdefault((name, count), [])
        alive = [group for row in rows if (group := row()) is not None]
        group = next((g for g in alive if rank not in g.ranks), None)
        if group is None:
            group = ChannelGroup(name, count)
            alive.append(group)
        group.ranks.add(rank)
        rows[:] = [weakref.ref(g) for g in alive]
    return Channel(rank, count, group)
