"""Threads that are started in one way, and what is said where the system has none left.

Called by queues, channels and whoever else has work for a thread of its own.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from typing import Final

from tilewright.base.status import StatusCode, failure

NO_ROOM_HINT: Final = (
    "end other processes, or raise what one user or container may have (ulimit -u)"
)
"""What to do where the system starts no further thread or process."""
NO_FILES: Final = (errno.EMFILE, errno.ENFILE)
"""The system opens no further file."""
_NO_FILES_HINT: Final = (
    "close files, or raise how many one process may have open (ulimit -n)"
)


def room_hint(error: OSError) -> str:
    """What to do where the system starts no process for want of room."""
    return _NO_FILES_HINT if error.errno in NO_FILES else NO_ROOM_HINT


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
