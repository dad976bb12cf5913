"""Locks that a forked child finds free, whatever other threads were doing in the parent.

`fork` copies the memory of all threads but only the calling thread itself: a lock that another one
held stays locked for ever in the child, over data that is half changed.  A lock made here is taken
before every `os.fork` and let go on both sides after it.  A fork waits for whoever holds one, so sections are to be
short, and a holder never waits for a lock of an earlier rank.  Not for locks of single calls, which no child
inherits in use.  Called by the runtime, wherever state is shared by threads.

A thread that forks waits for locks in no way that could close a circle: where it does not get one soon, it lets go of
all and begins again, with twice the patience, or twice what it waited for that one, so that it comes to its end beside
long sections, too.  So it does no
harm that a handler of a signal, which runs wherever it interrupts a section, takes locks of any rank.  What it cannot
let go of is what the hooks of others took before ours were called, those that were registered after ours.  So
`logging`, whose lock is taken in the middle of many an import, and `concurrent.futures.thread`, whose lock every
`submit` takes, are imported here.  What the handler of a signal raises while a fork waits, Ctrl-C, too, Python prints
when the fork is done, as it does with all that hooks raise; it does not end the wait.  That cannot be otherwise: no
hook can call a fork off, so a wait that ended would be a child that finds locks taken for ever.
"""

from __future__ import annotations

import concurrent.futures.thread as _threads  # pyright: ignore[reportUnusedImport] # noqa: F401 - see above
import enum
import logging as _logging  # pyright: ignore[reportUnusedImport] # noqa: F401 - see above
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from itertools import repeat, takewhile
from operator import methodcaller
from typing import Any, Final, Protocol, final


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
    ALLOCATOR = 7  # destructors take it wherever the collector runs
    REGISTRATION = 8  # of the locks themselves


class Lock(Protocol):
    """What `threading.Lock` and `threading.RLock` have in common."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...

    def release(self) -> None: ...


# By rank; within one, by age.  Weak: a lock goes with its owner.
_LOCKS: Final[tuple[list[weakref.ref[Lock]], ...]] = tuple([] for _ in Rank)
# How long a fork waits for a lock while it holds others: at first, and at most.
_FIRST_PATIENCE_S: Final = 0.02
_MOST_PATIENCE_S: Final = 60.0

# Calls of C alone: no handler of a signal runs between a lock and the note that it is held, and so none that raises
# leaves one locked for ever.
_Step = Callable[[Any], Any]
_WAIT: Final[_Step] = methodcaller("acquire")
_RELEASE: Final[_Step] = methodcaller("release")


@final
class _Taken(threading.local):
    """What the thread that forks has taken."""

    def __init__(self) -> None:
        super().__init__()
        self.locks: list[Lock] = []


_TAKEN: Final = _Taken()


def fork_lock(rank: Rank) -> threading.RLock:
    """A new lock that no child inherits in use.

    Reentrant: handlers of signals and destructors run wherever they interrupt a thread, and may do
    what it was doing.  So what a section guards is consistent between any two of its statements.
    """
    lock = threading.RLock()
    with _REGISTRATION:  # a thread that forks has all the locks there are, and there will be no more until it has forked
        _register(lock, rank)
    return lock


def lock_count(rank: Rank) -> int:
    """How many locks of a rank there are now."""
    return len(_LOCKS[rank])


def _register(lock: Lock, rank: Rank) -> None:
    rows = _LOCKS[rank]
    rows.append(weakref.ref(lock, rows.remove))


def _all_locks() -> list[Lock]:
    rows = (row() for rows in _LOCKS for row in tuple(rows))
    return [lock for lock in rows if lock is not None]


def _take(step: _Step, locks: Iterable[Lock]) -> None:
    """Take locks, one after the other, up to the first that is not to be had."""
    _TAKEN.locks.extend(takewhile(step, locks))


def _take_all(patience_s: float) -> float | None:
    """Take all locks, each once.

    Returns: None when this thread has them; else it has none, and waited so many seconds for the one that it did not get.
    """
    locks = _all_locks()
    _take(methodcaller("acquire", timeout=patience_s), locks)
    taken = len(_TAKEN.locks)
    if taken == len(locks) and {*map(id, _all_locks())} <= {*map(id, locks)}:
        return None
    _after()
    began = time.monotonic()
    _take(_WAIT, locks[taken : taken + 1])
    waited_s = time.monotonic() - began
    _after()
    return waited_s


def _before() -> None:
    raised: BaseException | None = None
    patience_s = _FIRST_PATIENCE_S
    while True:
        try:
            waited_s = _take_all(patience_s)
            if waited_s is None:
                break
            patience_s = max(patience_s, waited_s)  # sections take as long here
        except BaseException as error:  # of a signal's handler: told when the child is safe
            raised = raised or error
            _after()
        patience_s = min(2 * patience_s, _MOST_PATIENCE_S)
    if raised is not None:
        raise raised


def _after() -> None:
    taken = _TAKEN.locks
    deque(map(_RELEASE, map(list.pop, repeat(taken, len(taken)))), 0)


_REGISTRATION: Final = threading.RLock()
_register(_REGISTRATION, Rank.REGISTRATION)

# Around imports that calls make when something is first needed.  Python's own locks of modules stay
# locked for ever in a child that is forked while another thread imports.
LATE_IMPORTS: Final = fork_lock(Rank.IMPORT)

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after)
    # Once more: a signal that came during the fork is handled where the first one begins, and its handler may raise.
    os.register_at_fork(after_in_parent=_after, after_in_child=_after)
