"""Locks that a forked child finds free, whatever other threads were doing in the parent.

`fork` copies the memory of all threads but only the calling thread itself: a lock that another one
held stays locked for ever in the child, over data that is half changed.  A lock made here is taken
before every `os.fork` and let go on both sides after it.  For short critical sections only, and a
holder never waits for a lock of an earlier rank.  Not for locks of single calls, which no child
inherits in use.  Called by the runtime, wherever state is shared by threads.
"""

from __future__ import annotations

import enum
import os
import threading
import weakref
from typing import Final, Protocol, final


@final
class Rank(enum.IntEnum):
    """The order in which locks may be taken: whoever holds one takes only later ones."""

    IMPORT = 0
    DRIVERS = 1
    MODULE = 2
    BINDING = 3
    QUEUE = 4
    SEMAPHORE = 5
    BUDGET = 6
    ALLOCATOR = 7  # the last one: destructors take it wherever the collector runs


class Lock(Protocol):
    """What `threading.Lock` and `threading.RLock` have in common."""

    def acquire(self) -> bool: ...

    def release(self) -> None: ...


# By rank; within one, by age.  Weak: a lock goes with its owner.
_LOCKS: Final[tuple[list[weakref.ref[Lock]], ...]] = tuple([] for _ in Rank)
_HELD: Final[list[Lock]] = []


def fork_lock(rank: Rank) -> threading.RLock:
    """A new lock that no child inherits in use.

    Reentrant: handlers of signals and destructors run wherever they interrupt a thread, and may do
    what it was doing.  So what a section guards is consistent between any two of its statements.
    """
    lock = threading.RLock()
    _register(lock, rank)
    return lock


def lock_count(rank: Rank) -> int:
    """How many locks of a rank there are now."""
    return len(_LOCKS[rank])


def _register(lock: Lock, rank: Rank) -> None:
    rows = _LOCKS[rank]
    rows.append(weakref.ref(lock, rows.remove))


def _before() -> None:
    for rows in _LOCKS:
        for row in tuple(rows):
            lock = row()
            if lock is not None:
                lock.acquire()
                _HELD.append(lock)


def _after() -> None:
    while _HELD:
        _HELD.pop().release()


# Around imports that calls make when something is first needed.  Python's own locks of modules stay
# locked for ever in a child that is forked while another thread imports.
LATE_IMPORTS: Final = fork_lock(Rank.IMPORT)

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after)
