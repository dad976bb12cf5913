"""A channel: a group of participants that collective commands run in.

Only a single participant exists so far: collectives across devices need a driver that has them.

Source: IREE `hal/channel.h`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from tilewright.base.status import StatusCode, failure


@final
@dataclass(frozen=True, slots=True)
class Channel:
    """One participant's end of a group."""

    rank: int = 0
    count: int = 1

    def split(self, color: int, key: int) -> Channel | None:
        """The channel of those with the same color, ordered by key; a negative color leaves.

        Raises: DeviceError when there are others, whom nothing here can reach.
        """
        del key
        if self.count != 1:
            raise failure(StatusCode.UNIMPLEMENTED, f"split of {self.count} participants")
        return None if color < 0 else self
