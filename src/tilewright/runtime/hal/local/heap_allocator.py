"""Allocates buffers in host memory and keeps freed blocks for the next call.

Called by local devices; replaceable through `Device.replace_allocator`.
"""

from __future__ import annotations

import threading
from typing import Final, final

from tilewright.base.fork_locks import Rank, reentrant_fork_lock
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
    """One heap: memory of the host, visible to host and device alike."""

    __slots__ = (
        "_allocated",
        "_freed",
        "_lock",
        "_peak",
        "_pool",
        "_pooled",
        "limit_bytes",
    )

    def __init__(self, limit_bytes: int = POOL_LIMIT_BYTES) -> None:
        self.limit_bytes: int = limit_bytes
        self._pool: dict[int, list[native.Memory]] = {}
        self._pooled: int = 0
        self._allocated: int = 0
        self._freed: int = 0
        self._peak: int = 0
        # Blocks return from destructors, which may run while this thread holds the lock.
        self._lock: threading.RLock = reentrant_fork_lock(Rank.ALLOCATOR)

    def query_memory_heaps(self) -> tuple[MemoryHeap, ...]:
        return (
            MemoryHeap(
                memory_type=_HEAP_TYPE, allowed_usage=_USAGE, min_alignment=ALIGNMENT_BYTES
            ),
        )

    def query_statistics(self) -> AllocatorStatistics:
        with self._lock:
            return AllocatorStatistics(
                allocated_bytes=self._allocated,
                freed_bytes=self._freed,
                peak_bytes=self._peak,
                live_bytes=self._allocated - self._freed,
                pooled_bytes=self._pooled,
            )

    def allocate(self, memory_type: int, allowed_usage: int, size_bytes: int) -> Buffer:
        if size_bytes < 0:
            raise failure(StatusCode.INVALID_ARGUMENT, f"allocation of {size_bytes} bytes")
        memory = self._take(_size_class(size_bytes))
        storage = HeapStorage(memory, memory.address, size_bytes, release=self._release)
        return Buffer(
            storage,
            memory_type=memory_type | _HEAP_TYPE,
            allowed_usage=allowed_usage | _USAGE,
        )

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
        with self._lock:
            self._pool.clear()
            self._pooled = 0

    def _take(self, size: int) -> native.Memory:
        with self._lock:
            self._allocated += size
            self._peak = max(self._peak, self._allocated - self._freed)
            blocks = self._pool.get(size)
            if blocks:
                self._pooled -= size
                return blocks.pop()
        try:
            return native.Memory(size)
        except (MemoryError, OverflowError, ValueError) as error:
            with self._lock:
                self._allocated -= size
            raise failure(
                StatusCode.RESOURCE_EXHAUSTED, f"no memory for {size} bytes"
            ) from error

    def _release(self, memory: native.Memory) -> None:
        size = memory.size_bytes
        with self._lock:
            self._freed += size
            if self._pooled + size <= self.limit_bytes:
                self._pool.setdefault(size, []).append(memory)
                self._pooled += size


def _size_class(size_bytes: int) -> int:
    """Round up so that blocks of about equal size can stand in for each other: 1/8 waste at most."""
    if size_bytes <= 4096:
        return max(ALIGNMENT_BYTES, -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES)
    step = 1 << max(size_bytes.bit_length() - 4, 6)
    return -(-size_bytes // step) * step
