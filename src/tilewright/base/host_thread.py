"""Threads that are started in one way, and what is said where the system has none left.

Called by queues, channels and whoever else has work for a thread of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from tilewright.base.status import StatusCode, failure

NO_ROOM_HINT: Final = (
    "end other processes, or raise what one user or container may have (ulimit -u)"
)
"""What to do where the system starts no further thread or process."""


def start_thread(work: Callable[[], object], name: str | None = None) -> threading.Thread:
    """A daemon that runs `work`.

    Raises: DeviceError (RESOURCE_EXHAUSTED) where the system starts none; nothing has begun then.
    """
    thread = threading.Thread(target=work, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise failure(
            StatusCode.RESOURCE_EXHAUSTED,
            "the system starts no further thread",
            hint=NO_ROOM_HINT,
        ) from error
    return thread
