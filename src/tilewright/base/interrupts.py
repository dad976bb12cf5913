"""Ctrl-C, a moment later: around what does not survive an exception in its middle.

Called by front ends around the first import of packages with extension modules.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def deferred() -> Generator[None]:
    """Keep an interrupt until the end of the block.

    Only on the main thread, where Python delivers signals, and only where the program left SIGINT to
    Python (elsewhere nothing is raised in the block).
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    came: list[int] = []

    def keep(number: int, frame: FrameType | None) -> None:
        del frame
        came.append(number)

    signal.signal(signal.SIGINT, keep)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if came:
        raise KeyboardInterrupt
