"""Channels between processes, through MPI: the provider that devices are given for it.

`mpi4py` (the extra `mpi`) is imported when somebody asks for a channel.  The default group is the
communicator; other names give others of the same ranks.  Called by whoever wants its devices to
meet other processes: `device.replace_channel_provider(MpiChannels())`, or `?collectives=mpi`.

Source: IREE `hal/channel_provider.h`; MPI 4.1, chapter 7 (groups, communicators).
"""

from __future__ import annotations

import atexit
import threading
import time
from typing import Final, cast, final

from tilewright.base.fork_locks import Rank, fork_lock
from tilewright.base.status import StatusCode, failure
from tilewright.runtime.collectives.mpi_group import MpiGroup
from tilewright.runtime.collectives.mpi_library import Communicator, Library, load_mpi
from tilewright.runtime.collectives.process_channels import ProcessGroup
from tilewright.runtime.hal.channel import ChannelProvider, HostGroup

_PAUSE_S: Final = 0.001


@final
class MpiChannels(ChannelProvider):
    """Groups of the processes of a communicator.

    Args:
        communicator: of mpi4py; None for all processes that were started together.
    Ownership: at exit its groups tell the other ranks that this one leaves.
    """

    def __init__(self, communicator: object = None) -> None:
        self._communicator: object = communicator
        self._groups: dict[str, MpiGroup] = {}
        self._lock: threading.RLock = fork_lock(Rank.DRIVERS)

    @property
    def spans_processes(self) -> bool:
        return True

    def query_default_rank_and_count(self) -> tuple[int, int]:
        _, world = self._load()
        self._open("")  # from here a rank that leaves can say so
        return world.rank, world.size

    def open_group(self, name: str, rank: int, count: int) -> HostGroup:
        """The group of that name; the first time all ranks have to ask for it.

        Raises: DeviceError (INVALID_ARGUMENT) where MPI counts otherwise.
        """
        if count == 1:
            return ProcessGroup(name, 1)
        _, world = self._load()
        if (rank, count) != (world.rank, world.size):
            raise failure(
                StatusCode.INVALID_ARGUMENT,
                f"rank {rank} of {count}, but for MPI this process is rank {world.rank} of "
                f"{world.size}",
                location=f"channel group '{name}'",
                hint="leave rank and count to the provider (-1), and split its channel",
            )
        return self._open(name)

    def _open(self, name: str) -> MpiGroup:
        mpi, world = self._load()
        with self._lock:
            group = self._groups.get(name)
            if group is None:
                group = self._groups[name] = MpiGroup(mpi, _duplicate(world), name)
                atexit.unregister(self.close)
                atexit.register(self.close)
        return group

    def close(self) -> None:
        """Leave all groups."""
        atexit.unregister(self.close)
        with self._lock:
            groups = list(self._groups.values())
            self._groups.clear()
        for group in groups:
            group.close()

    def _load(self) -> tuple[Library, Communicator]:
        mpi = load_mpi()
        world = self._communicator or mpi.COMM_WORLD
        return mpi, cast("Communicator", world)


def _duplicate(world: Communicator) -> Communicator:
    """A communicator of the same ranks that nobody else uses."""
    made, request = world.Idup()
    while not request.Test():
        time.sleep(_PAUSE_S)  # interruptible, unlike a call that waits
    return made
