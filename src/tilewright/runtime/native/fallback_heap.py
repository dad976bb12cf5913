"""The heap in Python: counts and bounds what is leased, and keeps nothing for reuse.

Not here: memory itself (`fallback_memory`).  Called by the fallback's plans and invocations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final, final

from tilewright.base.fork_locks import Rank, fork_lock
from tilewright.runtime.native.fallback_memory import Memory
from tilewright.runtime.native.memory_report import MemoryUse, raise_refusal

_ALIGNMENT_BYTES: Final = 64
# One for all heaps: destructors give back wherever the collector runs, also while this thread holds the
# lock for another heap; several locks would have no order.
_LOCK: Final = fork_lock(Rank.ALLOCATOR)


class _Leased(Memory):
    """A block that is counted for as long as it lives."""

    _lease: tuple[Heap, int, int] | None = None

    def count(self, heap: Heap, size_bytes: int, use: int) -> None:
        """From here on the heap hears when the block goes."""
        self._lease = (heap, size_bytes, use)

    def __del__(self) -> None:
        """Give it back."""
        if self._lease is not None:
            heap, size_bytes, use = self._lease
            heap.give_back(size_bytes, use)


@final
class Heap:
    """Memory with a cap.

    Args:
        capacity_bytes: what may be in use; None: no bound.
        kept_bytes: for the C core, which keeps blocks.
    """

    def __init__(
        self, capacity_bytes: int | None = None, kept_bytes: int | None = None
    ) -> None:
        for name, bound in (("capacity_bytes", capacity_bytes), ("kept_bytes", kept_bytes)):
            if bound is not None and bound < 0:
                raise ValueError(f"{name}: expected a number of bytes, at least 0, or None")
        self.capacity_bytes: int | None = capacity_bytes
        self._used: list[int] = [0] * len(MemoryUse)
        self._sizes: Counter[int] = Counter()
        self._peak = 0
        self._lease_count = 0
        self._leased = 0

    def lease(self, size_bytes: int, use: int = MemoryUse.TRANSIENT) -> Memory:
        """A block, for as long as the object lives."""
        if size_bytes < 0:
            raise ValueError(f"size_bytes is {size_bytes}, expected at least 0")
        if use not in range(len(MemoryUse)):
            raise ValueError(f"use is {use}, expected 0 to 2")
        size = -(-size_bytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
        self._take(size, use)
        try:
            memory = _Leased(size_bytes)
        except MemoryError:
            self.give_back(size, use)
            raise_refusal(size, 0, 0, use, ())
            raise
        memory.count(self, size, use)
        return memory

    @contextmanager
    def counting(self, size_bytes: int) -> Generator[None]:
        """Count memory of others as transient, where there is a capacity."""
        if self.capacity_bytes is None:
            yield
            return
        self._take(size_bytes, MemoryUse.TRANSIENT)
        try:
            yield
        finally:
            self.give_back(size_bytes, MemoryUse.TRANSIENT)

    def give_back(self, size: int, use: int) -> None:
        """What was taken is free again."""
        with _LOCK:
            self._used[use] -= size
            self._sizes[size] -= 1

    def trim(self) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing is kept."""

    def report(self) -> tuple[int, int, int, int, int, int, int, int, int]:
        """The numbers of `MemoryReport`."""
        with _LOCK:
            arenas, transients, scratch = self._used
            live = self._sizes.total() - self._sizes[0]
            rest = (0, self._peak, self._lease_count, 0, self._leased, live)
            return (arenas, transients, scratch, *rest)

    def _take(self, size: int, use: int) -> None:
        with _LOCK:
            used = sum(self._used)
            if self.capacity_bytes is not None and used + size > self.capacity_bytes:
                sizes = [n for n in self._sizes.elements() if n]
                raise_refusal(size, used, self.capacity_bytes, use, sizes)
            self._used[use] += size
            self._sizes[size] += 1
            self._lease_count += 1
            self._leased += size
            self._peak = max(self._peak, used + size)


DEFAULT_HEAP: Final = Heap()
