"""What the GPU's driver has given us, counted by hand.

A stream must outlive the memory that goes back in its order, the context must outlive everything.
References say so while objects live, but the garbage collector runs the destructors of a cycle in
any order; so destructors only count down here, and what reaches nought is given back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from tilewright.base.fork_locks import Rank, fork_lock

# Reentrant: a destructor may run on the thread that holds it.
_LOCK: Final = fork_lock(Rank.ALLOCATOR)


@final
class Resource:
    """One thing that has to be given back.

    Args:
        give_back: how; called once, when nobody uses it any more.
        parents: what must be there until then.
    Ownership: the maker is its first user.
    Thread-safety: may be used from any thread, destructors included.
    """

    __slots__ = ("_give_back", "_parents", "_users")

    def __init__(self, give_back: Callable[[], object], *parents: Resource) -> None:
        self._give_back: Callable[[], object] = give_back
        self._parents: tuple[Resource, ...] = parents
        self._users: int = 1
        for parent in parents:
            parent.retain()

    def retain(self) -> None:
        """One user more."""
        with _LOCK:
            self._users += 1

    def release(self) -> None:
        """One user less; the last one gives it back, then its parents."""
        with _LOCK:
            self._users -= 1
            is_last = self._users == 0
        if not is_last:
            return
        self._give_back()
        for parent in self._parents:
            parent.release()
