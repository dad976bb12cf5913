"""Ctrl-C that is not lost.

Python ignores what is raised in destructors and callbacks, and so a KeyboardInterrupt that happens
to come there: the program would go on.  Called by the command line.
"""

from __future__ import annotations

import _thread
import sys
import threading
from typing import Final

_AGAIN_S: Final = 0.01
"""Long enough for the callback to be over, too short to be noticed."""


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
