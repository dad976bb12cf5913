"""Allocates memory of a GPU: its own from a stream-ordered pool, host memory pinned or shared.

Called by devices, and by their queues for transient buffers.  Memory goes back in the order of the
stream that work is issued to, so a buffer may be dropped as soon as its work is issued.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from ctypes import c_uint64, c_void_p
from functools import partial
from typing import Final, final

from tilewright.base.errors import DeviceError
from tilewright.base.fork_locks import Rank, fork_lock
from tilewright.base.status import StatusCode, failure
from tilewright.formats.byte_view import Buffer as HostBytes
from tilewright.formats.byte_view import view_bytes
from tilewright.runtime.drivers.cuda.context import (
    CudaContext,
    CudaStream,
    drop,
    out_handle,
)
from tilewright.runtime.drivers.cuda.resource import Resource
from tilewright.runtime.drivers.cuda.storage import CudaStorage, host_address
from tilewright.runtime.drivers.cuda.structures import PoolProps
from tilewright.runtime.hal.allocator import Allocator, AllocatorStatistics, MemoryHeap
from tilewright.runtime.hal.buffer import (
    READ,
    Buffer,
    BufferUsage,
    MemoryAccess,
    MemoryType,
)

_ACCESS: Final = int(MemoryAccess.ALL)
_DEVICE_LOCAL: Final = 32
_HOST_VISIBLE: Final = int(MemoryType.HOST_VISIBLE)
_MAPPING: Final = int(BufferUsage.MAPPING)
_MAPPING_OPTIONAL: Final = int(BufferUsage.MAPPING_OPTIONAL)

DEVICE_TYPE: Final = int(MemoryType.DEVICE_LOCAL | MemoryType.OPTIMAL)
PINNED_TYPE: Final = int(
    MemoryType.HOST_LOCAL | MemoryType.HOST_COHERENT | MemoryType.DEVICE_VISIBLE
)
MANAGED_TYPE: Final = int(
    MemoryType.DEVICE_LOCAL | MemoryType.HOST_VISIBLE | MemoryType.HOST_COHERENT
)
_USAGE: Final = int(
    BufferUsage.DEFAULT
    | BufferUsage.DISPATCH_INDIRECT_PARAMETERS
    | BufferUsage.DISPATCH_UNIFORM_READ
    | BufferUsage.SHARING_IMMUTABLE
    | BufferUsage.SHARING_CONCURRENT
)
_HOST_USAGE: Final = _USAGE | _MAPPING | int(BufferUsage.SHARING_EXPORT)

ALIGNMENT_BYTES: Final = 256
_IMPORT_ALIGNMENT_BYTES: Final = 64
RELEASE_THRESHOLD_BYTES: Final = 256 << 20
"""What a pool keeps for the next allocations when a stream is waited for."""

_MANAGED_CONCURRENTLY, _POOLS, _READ_ONLY_REGISTER = 89, 115, 113  # CUdevice_attribute
_PINNED_ALLOCATION, _ON_DEVICE = 1, 1  # CUmemAllocationType, CUmemLocationType
_RELEASE_THRESHOLD, _RESERVED_NOW, _USED_NOW = 4, 5, 7  # CUmemPool_attribute
_PORTABLE_MAPPED: Final = (
    3  # CU_MEMHOSTALLOC_PORTABLE | DEVICEMAP, and the same for registering
)
_REGISTER_READ_ONLY: Final = 8
_ATTACH_GLOBAL: Final = 1


@final
class MemoryPool:
    """A pool of the GPU's memory whose blocks come and go in the order of streams."""

    __slots__ = ("context", "handle", "resource")

    def __init__(self, context: CudaContext) -> None:
        self.context: CudaContext = context
        self.resource: Resource | None = None
        props = PoolProps(
            allocation_type=_PINNED_ALLOCATION,
            location_type=_ON_DEVICE,
            location_id=context.device,
        )
        self.handle: int = context.create("cuMemPoolCreate", ctypes.byref(props))
        self.resource = context.own("cuMemPoolDestroy", self.handle)
        threshold = c_uint64(RELEASE_THRESHOLD_BYTES)
        context.call(
            "cuMemPoolSetAttribute",
            self.handle,
            _RELEASE_THRESHOLD,
            ctypes.byref(threshold),
        )

    def __del__(self) -> None:
        drop(self.resource)

    def allocate(self, size_bytes: int, stream: CudaStream) -> int:
        """An address that is good from here on in the stream."""
        return self.context.create(
            "cuMemAllocFromPoolAsync", size_bytes, self.handle, stream.handle
        )

    def query_unused(self) -> int:
        """Bytes that are kept for the next allocations."""
        reserved, used = c_uint64(), c_uint64()
        for attribute, value in ((_RESERVED_NOW, reserved), (_USED_NOW, used)):
            self.context.call(
                "cuMemPoolGetAttribute", self.handle, attribute, ctypes.byref(value)
            )
        return max(0, reserved.value - used.value)

    def trim(self) -> None:
        """Give back what is not in use."""
        self.context.call("cuMemPoolTrimTo", self.handle, 0)


@final
class _Counters:
    """What was allocated.  Thread-safety: any thread, destructors included."""

    __slots__ = ("allocated", "freed", "lock", "peak")

    def __init__(self) -> None:
        self.allocated: int = 0
        self.freed: int = 0
        self.peak: int = 0
        # Blocks return from destructors, which may run while this thread holds the lock.
        self.lock: threading.RLock = fork_lock(Rank.ALLOCATOR)

    def add(self, size_bytes: int) -> None:
        with self.lock:
            self.allocated += size_bytes
            self.peak = max(self.peak, self.allocated - self.freed)

    def remove(self, size_bytes: int) -> None:
        with self.lock:
            self.freed += size_bytes


@final
class CudaAllocator(Allocator):
    """Memory of one GPU.

    Args:
        context: of the GPU.
        dispatch: the stream that work is issued to; memory goes back in its order.
        transfer: the stream of what the host waits for.
        uses_pool: whether the GPU's own memory comes from a pool.
    """

    __slots__ = ("_counters", "_dispatch", "_pool", "_transfer", "context")

    def __init__(
        self,
        context: CudaContext,
        dispatch: CudaStream,
        transfer: CudaStream,
        *,
        uses_pool: bool = True,
    ) -> None:
        self.context: CudaContext = context
        self._dispatch: CudaStream = dispatch
        self._transfer: CudaStream = transfer
        self._counters: _Counters = _Counters()
        has_pools = uses_pool and context.query_attribute(_POOLS)
        self._pool: MemoryPool | None = MemoryPool(context) if has_pools else None

    def query_memory_heaps(self) -> tuple[MemoryHeap, ...]:
        heaps = [
            MemoryHeap(
                memory_type=DEVICE_TYPE, allowed_usage=_USAGE, min_alignment=ALIGNMENT_BYTES
            ),
            MemoryHeap(memory_type=PINNED_TYPE, allowed_usage=_HOST_USAGE),
        ]
        if self._has_managed:
            heaps.append(MemoryHeap(memory_type=MANAGED_TYPE, allowed_usage=_HOST_USAGE))
        return tuple(heaps)

    def query_statistics(self) -> AllocatorStatistics:
        counters = self._counters
        pooled = 0 if self._pool is None else self._pool.query_unused()
        with counters.lock:
            return AllocatorStatistics(
                allocated_bytes=counters.allocated,
                freed_bytes=counters.freed,
                peak_bytes=counters.peak,
                live_bytes=counters.allocated - counters.freed,
                pooled_bytes=pooled,
            )

    @property
    def _has_managed(self) -> bool:
        return self.context.query_attribute(_MANAGED_CONCURRENTLY) != 0

    # --- allocation -----------------------------------------------------------------------------

    def allocate(self, memory_type: int, allowed_usage: int, size_bytes: int) -> Buffer:
        if size_bytes < 0:
            raise failure(StatusCode.INVALID_ARGUMENT, f"allocation of {size_bytes} bytes")
        if not _wants_host(memory_type, allowed_usage):
            storage = CudaStorage(self._transfer, size_bytes)
            if size_bytes:
                self._retry(partial(self._bind_device, storage))
            return _buffer(storage, memory_type, allowed_usage, DEVICE_TYPE, _USAGE)
        is_managed = memory_type & _DEVICE_LOCAL and self._has_managed
        make = self._make_managed if is_managed else self._make_pinned
        storage = self._retry(partial(make, size_bytes))
        if is_managed:
            return _buffer(storage, memory_type, allowed_usage, MANAGED_TYPE, _HOST_USAGE)
        asked = memory_type & ~_DEVICE_LOCAL  # as near as there is
        return _buffer(storage, asked, allowed_usage, PINNED_TYPE, _HOST_USAGE)

    def allocate_transient(
        self, memory_type: int, allowed_usage: int, size_bytes: int
    ) -> tuple[Buffer, Callable[[], object]]:
        """A buffer whose memory comes when it is its turn in the stream.

        Returns: the buffer, and what allocates it, to be called when it is issued.
        """
        if self._pool is None or size_bytes <= 0 or _wants_host(memory_type, allowed_usage):
            return self.allocate(memory_type, allowed_usage, size_bytes), _nothing
        storage = CudaStorage(self._transfer, size_bytes)
        bind = partial(self._bind_pooled, self._pool, storage)
        buffer = _buffer(storage, memory_type, allowed_usage, DEVICE_TYPE, _USAGE)
        return buffer, partial(self._retry, bind)

    def _retry(self, allocate: Callable[[], CudaStorage]) -> CudaStorage:
        """Allocate; where there is no memory, once more without what is only kept for reuse."""
        try:
            return allocate()
        except DeviceError as error:
            if error.code != StatusCode.RESOURCE_EXHAUSTED or self._pool is None:
                raise
            self.trim()
            return allocate()

    def _bind_device(self, storage: CudaStorage) -> CudaStorage:
        if self._pool is None:
            pointer = self.context.create("cuMemAlloc", storage.size_bytes)
            self._bind(storage, pointer, "cuMemFree", pointer)
            return storage
        pointer = self._pool.allocate(storage.size_bytes, self._transfer)
        try:
            self._transfer.synchronize()
        except DeviceError:
            # Only in the stream it came from is it sure to go after it came.
            self.context.give_back("cuMemFreeAsync", pointer, self._transfer.handle)
            raise
        self._bind(storage, pointer, "cuMemFreeAsync", pointer, self._dispatch.handle)
        return storage

    def _bind_pooled(self, pool: MemoryPool, storage: CudaStorage) -> CudaStorage:
        pointer = pool.allocate(storage.size_bytes, self._dispatch)
        self._bind(storage, pointer, "cuMemFreeAsync", pointer, self._dispatch.handle)
        return storage

    def _make_pinned(self, size_bytes: int) -> CudaStorage:
        if size_bytes == 0:
            return CudaStorage(self._transfer, 0)
        place = self.context.create("cuMemHostAlloc", size_bytes, _PORTABLE_MAPPED)
        storage = CudaStorage(self._transfer, size_bytes, host_address=place)
        self._bind(storage, 0, "cuMemFreeHost", place)
        storage.move_to(self._device_pointer(place))
        return storage

    def _make_managed(self, size_bytes: int) -> CudaStorage:
        if size_bytes == 0:
            return CudaStorage(self._transfer, 0)
        place = self.context.create("cuMemAllocManaged", size_bytes, _ATTACH_GLOBAL)
        storage = CudaStorage(self._transfer, size_bytes, host_address=place)
        self._bind(storage, place, "cuMemFree", place)
        with self.context:
            arguments = (place, size_bytes, self.context.device, self._transfer.handle)
            self.context.library.call("cuMemPrefetchAsync", *arguments)
        return storage

    def _device_pointer(self, place: int) -> int:
        with self.context:
            name = "cuMemHostGetDevicePointer"
            return out_handle(self.context.library, name, c_void_p(place), 0)

    def _bind(
        self, storage: CudaStorage, pointer: int, function: str, *arguments: object
    ) -> None:
        self._counters.add(storage.size_bytes)
        pool = self._pool.resource if self._pool is not None else None
        needed = [r for r in (self._dispatch.resource, pool) if r is not None]
        counted = Resource(partial(self._counters.remove, storage.size_bytes))
        storage.bind(
            pointer, self.context.own(function, *arguments, after=[counted, *needed])
        )
        counted.release()  # the storage's resource is its user now

    # --- host memory ----------------------------------------------------------------------------

    def import_host(
        self, memory_type: int, allowed_usage: int, memory: HostBytes
    ) -> Buffer | None:
        view = view_bytes(memory)
        place = host_address(view)
        if memory_type & _DEVICE_LOCAL or not len(view):
            return None
        if place % _IMPORT_ALIGNMENT_BYTES:
            return None
        flags = _PORTABLE_MAPPED
        if view.readonly:
            if not self.context.query_attribute(_READ_ONLY_REGISTER):
                return None
            flags |= _REGISTER_READ_ONLY
        with self.context:
            library = self.context.library
            if library.try_call("cuMemHostRegister", c_void_p(place), len(view), flags):
                return None  # registered already, or memory that cannot be pinned
        storage = CudaStorage(
            self._transfer,
            len(view),
            host_address=place,
            owner=view,
            readonly=view.readonly,
        )
        self._bind(storage, 0, "cuMemHostUnregister", place)
        storage.move_to(self._device_pointer(place))
        buffer = _buffer(storage, memory_type, allowed_usage, PINNED_TYPE, _HOST_USAGE)
        buffer.allowed_access = READ if view.readonly else _ACCESS
        return buffer

    def export_host(self, buffer: Buffer) -> memoryview:
        return buffer.map_range(buffer.allowed_access & _ACCESS)

    def trim(self) -> None:
        self._dispatch.synchronize()
        self._transfer.synchronize()
        if self._pool is not None:
            self._pool.trim()


def _wants_host(memory_type: int, allowed_usage: int) -> bool:
    if memory_type & _HOST_VISIBLE:
        return True
    return bool(allowed_usage & _MAPPING) and not allowed_usage & _MAPPING_OPTIONAL


def _buffer(
    storage: CudaStorage, asked: int, usage: int, memory_type: int, allowed_usage: int
) -> Buffer:
    return Buffer(
        storage, memory_type=asked | memory_type, allowed_usage=usage | allowed_usage
    )


def _nothing() -> None:
    """The memory is there already."""
