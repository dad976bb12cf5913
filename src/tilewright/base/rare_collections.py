"""Garbage that is looked for less often, while much is made that stays.

Of the memory of a compilation, or of the modules that one imports, little is garbage, and next to none of it is cyclic;
to find that out at the usual pace takes up to half of the time.  Called by the pipeline and where modules are
imported at first use.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from tilewright.base.fork_locks import Rank, fork_lock

_THRESHOLDS: Final = (200_000, 50, 100)
_LOCK: Final = fork_lock(Rank.IMPORT)
# The thresholds that were there before the first of those who are inside, once for each of them.
_BEFORE: Final[list[tuple[int, int, int]]] = []


@contextmanager
def rare_collections(*, stays: bool = False) -> Generator[None]:
    """Let the garbage collector of the process look less often, until the last thread has left.

    A program that sets thresholds meanwhile keeps what it set.

    Args:
        stays: what is made meanwhile, as the modules of an import, is there for good: at the end it is old at once, where
            the next look, for what is new, would go over all of it.  A program that froze objects keeps them frozen.
    """
    with _LOCK:
        _BEFORE.append(_BEFORE[0] if _BEFORE else gc.get_threshold())
        if len(_BEFORE) == 1 and 0 < _BEFORE[0][0] < _THRESHOLDS[0]:
            gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        with _LOCK:
            before = _BEFORE.pop()
            if not _BEFORE and gc.get_threshold() == _THRESHOLDS:
                gc.set_threshold(*before)
            if stays and not _BEFORE and gc.isenabled() and not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()  # to those that are looked at last
