"""Memory that this process has freed and the C library keeps: given back to the system.

After a compilation that is most of what a process has: arrays of a few megabytes each, freed in no order.
Called where one is over and the process goes on to something else.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc


def give_back_freed_memory() -> None:
    """Drop cycles of objects that nobody has, and give free pages to the system where the C library can (glibc)."""
    gc.collect()
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
