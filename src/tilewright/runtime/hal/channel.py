"""A channel: one participant's end of a group that runs collective operations.

The interfaces: of channels, of the groups behind those that work on host memory, and of the
providers that devices get groups from.  Not here: how participants meet and what operations compute
(`runtime.collectives`).

Source: IREE `hal/channel.h`, `hal/channel_provider.h`.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeAlias, final

from tilewright.base.errors import DeviceError
from tilewright.runtime.hal.collective import Contribution
from tilewright.runtime.hal.fence import Fence


class Channel(ABC):
    """One participant's end of a group.

    Args:
        rank: of this participant.
        count: of participants.
    Thread-safety: may be used from any thread; a rank's operations run in the order they are queued.
    """

    __slots__ = ("count", "rank")

    def __init__(self, rank: int, count: int) -> None:
        self.rank: int = rank
        self.count: int = count

    @abstractmethod
    def fail(self, error: BaseException) -> None:
        """Tell the others that this rank will not come."""

    @abstractmethod
    def split(self, color: int, key: int) -> Channel | None:
        """The channel of those with the same color, ordered by key; a negative color leaves.

        Waits until every rank has called it, so each needs a thread of its own.
        Raises: DeviceError when some ranks run a collective instead, or failed.
        """


Watcher: TypeAlias = weakref.WeakMethod[Callable[[DeviceError], None]]


class HostGroup(ABC):
    """The participants of channels: how they find each other and move bytes of the host.

    The n-th operation of every rank is the same operation; sends and receives pair up in order.
    Thread-safety: may be used from any thread.
    """

    def __init__(self, name: str, count: int) -> None:
        self.name: str = name
        self.count: int = count

    @abstractmethod
    def join(self, rank: int, contribution: Contribution) -> Fence:
        """Take part in an operation; the fence is reached when this rank's data is there."""

    @abstractmethod
    def split(self, rank: int, color: int, key: int) -> HostChannel | None:
        """As `Channel.split`."""

    @abstractmethod
    def fail(self, error: BaseException) -> None:
        """Nobody will complete what is under way, or anything later."""

    @abstractmethod
    def watch(self, failed: Watcher) -> None:
        """Call a method, if its object still lives, when a participant has failed."""

    @abstractmethod
    def compare(self, rank: int, contribution: Contribution) -> None:
        """Say what this rank is about to do with others by means of its own.

        Raises: DeviceError when the group has failed, or it is known here that they do something
            else; then they are told.
        """

    @abstractmethod
    def identifier(self, rank: int, make: Callable[[], bytes]) -> bytes:
        """Bytes that all ranks share, made by one of them; may wait for that rank.

        For those who bring their own way to meet (NCCL) and need a name for it.
        """


@final
class HostChannel(Channel):
    """A channel whose operations work on host memory.

    Args:
        group: where it meets the others.
    """

    __slots__ = ("__weakref__", "group")

    def __init__(self, rank: int, count: int, group: HostGroup) -> None:
        super().__init__(rank, count)
        self.group: HostGroup = group

    def __repr__(self) -> str:
        return f"<rank {self.rank} of {self.group}>"

    def join(self, contribution: Contribution) -> Fence:
        """Take part in an operation; the fence is reached when this rank's data is there."""
        return self.group.join(self.rank, contribution)

    def fail(self, error: BaseException) -> None:
        if self.count > 1:
            self.group.fail(error)

    def split(self, color: int, key: int) -> HostChannel | None:
        if self.count == 1:
            return None if color < 0 else self
        return self.group.split(self.rank, color, key)


class ChannelProvider(ABC):
    """Where a device gets the groups of its channels from.

    Thread-safety: may be used from any thread.
    """

    @property
    @abstractmethod
    def spans_processes(self) -> bool:
        """Whether participants may be in other processes than this one."""

    @abstractmethod
    def query_default_rank_and_count(self) -> tuple[int, int]:
        """This participant's rank in the default group, and how many there are."""

    @abstractmethod
    def open_group(self, name: str, rank: int, count: int) -> HostGroup:
        """The group of that name, as one of its ranks; the default group has no name.

        A group of one is by itself, whatever its name.

        Raises: DeviceError for a rank or a count that cannot be.
        """
