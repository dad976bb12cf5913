"""Ctrl-C that comes at the right moment, and is not lost; a request to end (SIGTERM, a terminal that is closed) that is one, too.

What does not survive an exception in its middle keeps it until its end; what is dropped on the way, by Python in
destructors and callbacks, by an extension module that clears what it did not expect, by whoever takes every exception
for a failure, comes again.  Called by front ends around the first import of packages with extension modules, and by the
command line.
"""

from __future__ import annotations

import _thread
import signal
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import Final, final

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
    on_interrupt = signal.getsignal(signal.SIGINT)
    if not is_main or on_interrupt not in (signal.default_int_handler, _interrupt):
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
        signal.signal(signal.SIGINT, on_interrupt)
        if came:  # also where the block failed: nobody else would tell
            _interrupt(came[0], None)


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


def is_terminated() -> bool:
    """Whether a request to end was answered in this process."""
    return bool(_CAME)


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


@final
class _Interrupt(KeyboardInterrupt):
    """One that comes again where it dies before it was answered: whoever dropped it cannot be told to stop."""

    def __init__(self) -> None:
        super().__init__()
        # Elsewhere nobody says that it was answered.
        if signal.getsignal(signal.SIGINT) is _interrupt:
            _OPEN.add(id(self))

    def __del__(self) -> None:
        if id(self) in _OPEN:
            _OPEN.discard(id(self))
            _come_again()


_OPEN: Final[set[int]] = set()
"""The interrupts that are under way to whoever answers them."""


def keep_interrupts() -> None:
    """From here on an interrupt that is dropped before it was `answered` comes again."""
    sys.unraisablehook = _unraisable
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)


def answered() -> None:
    """Say that the interrupts so far had their effect.  Called by whoever catches one and does not raise it again."""
    _OPEN.clear()


def _interrupt(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise _Interrupt  # in no variable of a frame, which would keep it


def _unraisable(ignored: sys.UnraisableHookArgs, /) -> None:
    if not issubclass(ignored.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(ignored)
    elif not isinstance(ignored.exc_value, _Interrupt):  # which sees to itself
        _come_again()


def _come_again() -> None:
    # Not a `Thread`, whose start takes locks that may be held where a destructor runs.
    _thread.start_new_thread(_interrupt_later, ())


def _interrupt_later() -> None:
    time.sleep(_AGAIN_S)
    _thread.interrupt_main()
