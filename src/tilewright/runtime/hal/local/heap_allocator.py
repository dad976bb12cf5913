"""Allocates buffers in the heap of a local device, beside what its calls take of it.

Called by local devices; replaceable through `Device.replace_allocator`.  Not here: counting, bounds
and reuse, which are the heap's (`native.Heap`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

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
_SIZE_LIMIT: Final = (1 << 63) - 1  # what the heap can be asked for
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
        limit_bytes: how much freed memory is kept for reuse at most; None: as much as was once in
            use at the same time.
        capacity_bytes: how much may be in use and kept together; None = what the system has.
        heap: take memory from this one instead, which others may share.
    """

    __slots__ = ("heap", "listener")

    def __init__(
        self,
        limit_bytes: int | None = None,
        capacity_bytes: int | None = None,
        *,
        heap: native.Heap | None = None,
    ) -> None:
        self.heap: native.Heap = heap or native.Heap(capacity_bytes, limit_bytes)
        self.listener: Callable[[Buffer], object] | None = None  # hears of every allocation

    @property
    def capacity_bytes(self) -> int | None:
        """How much may be in use and kept together; None = what the system has."""
        return self.heap.capacity_bytes

    def query_memory_heaps(self) -> tuple[MemoryHeap, ...]:
        capacity = self.capacity_bytes
        return (
            MemoryHeap(
                memory_type=_HEAP_TYPE,
                allowed_usage=_USAGE,
                max_allocation_size_bytes=-1 if capacity is None else capacity,
                min_alignment=ALIGNMENT_BYTES,
            ),
        )

    def query_statistics(self) -> AllocatorStatistics:
        report = native.MemoryReport.of(self.heap)
        return AllocatorStatistics(
            allocated_bytes=report.leased_bytes,
            freed_bytes=report.leased_bytes - report.in_use_bytes,
            peak_bytes=report.peak_bytes,
            live_bytes=report.in_use_bytes,
            pooled_bytes=report.kept_bytes,
            allocation_count=report.lease_count,
            live_count=report.live_count,
            reuse_count=report.reuse_count,
        )

    def allocate(self, memory_type: int, allowed_usage: int, size_bytes: int) -> Buffer:
        if size_bytes < 0:
            raise failure(StatusCode.INVALID_ARGUMENT, f"allocation of {size_bytes} bytes")
        if size_bytes > _SIZE_LIMIT:
            raise failure(
                StatusCode.RESOURCE_EXHAUSTED, f"no memory for {size_bytes} bytes"
            )
        memory = self.heap.lease(max(size_bytes, 1))
        storage = HeapStorage(memory, memory.address, size_bytes, is_block=True)
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
        self.heap.trim()
