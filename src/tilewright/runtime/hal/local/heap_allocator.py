"""Allocates buffers in host memory and keeps freed blocks for the next call.

Called by local devices; replaceable through `Device.replace_allocator`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, final

from tilewright.base.fork_locks import Rank, fork_lock
from tilewright.base.status import StatusCode, failure
from tilewright.formats.byte_view import Buffer as HostBytes
from tilewright.runtime import native
from tilewright.runtime.hal.allocator import Allocator, AllocatorStatistics, MemoryHeap
from tilewright.runtime.hal.buffer import (
    READ,
    Buffer,
    BufferUsage,
    MemoryAccess,
    MemoryType,
)
from tilewright.runtime.hal.local.heap_storage import ALIGNMENT_BYTES, HeapStorage

_ACCESS: Final = int(MemoryAccess.ALL)
POOL_LIMIT_BYTES: Final = 256 << 20
_LISTED: Final = 4  # sizes that an error names
# One lock for all heaps: blocks return from destructors, which run wherever the collector does, also
# while this thread holds the lock for another heap; several locks would have no order.
_LOCK: Final = fork_lock(Rank.ALLOCATOR)
_HEAP_TYPE: Final = int(
    MemoryType.HOST_LOCAL
    | MemoryType.HOST_COHERENT
    | MemoryType.HOST_CACHED
    | MemoryType.DEVICE_LOCAL
    | MemoryType.OPTIMAL
)
_USAGE: Final = int(
    BufferUsage.DEFAULT
    | BufferUsage.DISPATCH_INDIRECT_PARAMETERS
    | BufferUsage.DISPATCH_UNIFORM_READ
    | BufferUsage.MAPPING
    | BufferUsage.SHARING_IMMUTABLE
    | BufferUsage.SHARING_EXPORT
    | BufferUsage.SHARING_CONCURRENT
)


@final
class HeapAllocator(Allocator):
    """One heap: memory of the host, visible to host and device alike.

    Args:
        limit_bytes: how much freed memory is kept for reuse at most.
        capacity_bytes: how much may be in use and kept together; None = what the system has.
    """

    __slots__ = (
        "_allocated",
        "_count",
        "_freed",
        "_live",
        "_peak",
        "_pool",
        "_pooled",
        "_reused",
        "capacity_bytes",
        "limit_bytes",
        "listener",
    )

    def __init__(
        self, limit_bytes: int = POOL_LIMIT_BYTES, capacity_bytes: int | None = None
    ) -> None:
        self.limit_bytes: int = limit_bytes
        self.capacity_bytes: int | None = capacity_bytes
        self.listener: Callable[[Buffer], object] | None = None  # hears of every allocation
        self._live: Counter[int] = Counter()  # blocks in use, by size
        self._count: int = 0
        self._reused: int = 0
        self._pool: dict[int, list[native.Memory]] = {}
        self._pooled: int = 0
        self._allocated: int = 0
        self._freed: int = 0
        self._peak: int = 0

    def query_memory_heaps(self) -> tuple[MemoryHeap, ...]:
        return (
            MemoryHeap(
                memory_type=_HEAP_TYPE,
                allowed_usage=_USAGE,
                max_allocation_size_bytes=(
                    -1 if self.capacity_bytes is None else self.capacity_bytes
                ),
                min_alignment=ALIGNMENT_BYTES,
            ),
        )

    def query_statistics(self) -> AllocatorStatistics:
        with _LOCK:
            return AllocatorStatistics(
                allocated_bytes=self._allocated,
                freed_bytes=self._freed,
                peak_bytes=self._peak,
                live_bytes=self._allocated - self._freed,
                pooled_bytes=self._pooled,
                allocation_count=self._count,
                live_count=self._live.total(),
                reuse_count=self._reused,
            )

    def allocate(self, memory_type: int, allowed_usage: int, size_bytes: int) -> Buffer:
        if size_bytes < 0:
            raise failure(StatusCode.INVALID_ARGUMENT, f"allocation of {size_bytes} bytes")
        memory = self._take(_size_class(size_bytes))
        storage = HeapStorage(memory, memory.address, size_bytes, release=self._release)
        buffer = Buffer(
            storage,
            memory_type=memory_type | _HEAP_TYPE,
            allowed_usage=allowed_usage | _USAGE,
        )
        listener = self.listener
        if listener is not None:
            listener(buffer)
        return buffer

    def import_host(
        self, memory_type: int, allowed_usage: int, memory: HostBytes
    ) -> Buffer | None:
        storage = HeapStorage.wrap(memory)
        if storage.address % ALIGNMENT_BYTES and storage.size_bytes:
            return None
        access = READ if storage.readonly else _ACCESS
        return Buffer(
            storage,
            memory_type=memory_type | _HEAP_TYPE,
            allowed_access=access,
            allowed_usage=allowed_usage | _USAGE,
        )

    def export_host(self, buffer: Buffer) -> memoryview:
        return buffer.map_range(buffer.allowed_access & _ACCESS)

    def trim(self) -> None:
        with _LOCK:
            self._pool.clear()
            self._pooled = 0

    def _take(self, size: int) -> native.Memory:
        with _LOCK:
            blocks = self._pool.get(size)
            reused = blocks.pop() if blocks else None
            if reused is not None:
                self._pooled -= size
                self._reused += 1
            else:
                self._make_room(size)
            self._allocated += size
            self._count += 1
            self._live[size] += 1
            self._peak = max(self._peak, self._allocated - self._freed)
        if reused is not None:
            return reused
        try:
            return native.Memory(size)
        except (MemoryError, OverflowError, ValueError) as error:
            with _LOCK:
                self._allocated -= size
                self._count -= 1
                self._live[size] -= 1
            raise failure(
                StatusCode.RESOURCE_EXHAUSTED, f"no memory for {size} bytes"
            ) from error

    def _make_room(self, size: int) -> None:
        """Within the capacity, if need be by letting go of what is kept for reuse."""
        live = self._allocated - self._freed
        if self.capacity_bytes is None or live + self._pooled + size <= self.capacity_bytes:
            return
        if live + size > self.capacity_bytes:
            raise failure(
                StatusCode.RESOURCE_EXHAUSTED,
                f"no room for {size} bytes: {live} of {self.capacity_bytes} are in use, "
                f"{self._describe_live()}",
                hint="give the device more with ?memory=, or hold fewer buffers at a time",
            )
        self._pool.clear()
        self._pooled = 0

    def _describe_live(self) -> str:
        """`3 blocks of 4096 bytes, 1 of 64`, what holds most first."""
        held = sorted(
            ((size, n) for size, n in self._live.items() if n), key=lambda r: -r[0] * r[1]
        )
        rows = [f"{n} x {size} bytes" for size, n in held[:_LISTED]]
        rest = sum(n for _, n in held[_LISTED:])
        return ", ".join([*rows, f"{rest} smaller"] if rest else rows) or "nothing held"

    def _release(self, memory: native.Memory) -> None:
        size = memory.size_bytes
        with _LOCK:
            self._freed += size
            self._live[size] -= 1
            if not self._live[size]:
                del self._live[size]
            if self._pooled + size <= self.limit_bytes:
                self._pool.setdefault(size, []).append(memory)
                self._pooled += size


def _size_class(size_bytes: int) -> int:
    """Round up so that blocks of about equal size can stand in for each other: 1/8 waste at most."""
    if size_bytes <= 4096:
        return max(ALIGNMENT_BYTES, -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES)
    step = 1 << max(size_bytes.bit_length() - 4, 6)
    return -(-size_bytes // step) * step
