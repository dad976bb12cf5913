"""An event: a point between commands of one command buffer that later commands wait for.

Source: IREE `hal/event.h`.
"""

from __future__ import annotations

from typing import final


@final
class Event:
    """An event of one command buffer, the first that it is recorded in.

    Attributes:
        queue_affinity: the queues that its command buffer may run on.
        recording: the recording that it belongs to.
    """

    __slots__ = ("queue_affinity", "recording")

    def __init__(self, queue_affinity: int = -1) -> None:
        self.queue_affinity: int = queue_affinity
        self.recording: object | None = None
