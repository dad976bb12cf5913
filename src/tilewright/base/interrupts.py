"""Ctrl-C that comes at the right moment, and is not lost; a request to end (SIGTERM, a terminal that is closed) that is one, too.

What does not survive an exception in its middle keeps it until its end; what Python itself drops, in
destructors and callbacks, comes again.  Called by front ends around the first import of packages with
extension modules, and by the command line.
"""

from __future__ import annotations

import _thread
import signal
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import Final

INTERRUPTED: Final = 128 + signal.SIGINT
"""The exit code, as shells report processes that signals ended."""
_ENDINGS: Final = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)
)
_AGAIN_S: Final = 0.01
"""Long enough for a callback to be over, too short to be noticed."""


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


def answer_termination() -> None:
    """From here on SIGTERM and SIGHUP unwind as Ctrl-C does, so that nothing is left half-written; a second SIGTERM ends the process.

    Where one was ignored, as `nohup` and the like may have it, it stays so.
    """
    for number in _ENDINGS:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _terminate)


def leave_termination() -> None:
    """From here on they end the process: nothing is half-written any more."""
    for number in _ENDINGS:
        if signal.getsignal(number) is _terminate:
            signal.signal(number, signal.SIG_DFL)


def exit_code() -> int:
    """That of a process which was interrupted, or which answered a request to end."""
    return 128 + _CAME[0] if _CAME else INTERRUPTED


_CAME: Final[list[int]] = []


def _terminate(number: int, frame: FrameType | None) -> None:
    leave_termination()
    if number != signal.SIGTERM:
        signal.signal(number, signal.SIG_IGN)  # system and shell both may send it
    _CAME.append(number)
    on_interrupt = signal.getsignal(signal.SIGINT)
    if callable(on_interrupt) and on_interrupt is not signal.default_int_handler:
        on_interrupt(signal.SIGINT, frame)  # `deferred` keeps it until its end
    else:
        raise KeyboardInterrupt


def keep_interrupts() -> None:
    """From here on an interrupt that Python ignores comes again."""
    sys.unraisablehook = _unraisable


def _unraisable(ignored: sys.UnraisableHookArgs, /) -> None:
    if not issubclass(ignored.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(ignored)
        return
    timer = threading.Timer(_AGAIN_S, _thread.interrupt_main)
    timer.daemon = True
    timer.start()
