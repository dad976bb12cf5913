"""An event: a point between commands of one command buffer that later commands wait for.

Source: IREE `hal/event.h`.
"""

from __future__ import annotations

from typing import final


@final
class Event:
    """An event; which device it belongs to is all that a device needs to know."""

    __slots__ = ("queue_affinity",)

    def __init__(self, queue_affinity: int = -1) -> None:
        self.queue_affinity: int = queue_affinity
