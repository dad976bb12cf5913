"""An allocator: hands out buffers of a device's heaps and counts them.

The interface; `local.heap_allocator` implements it on host memory.

Source: IREE `hal/allocator.h`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from tilewright.base.budget import CURRENT, OBJECT_BYTES
from tilewright.formats.byte_view import Buffer as HostBytes
from tilewright.runtime.hal.buffer import Buffer


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryHeap:
    """A kind of memory that can be asked for.  Units: bytes; -1 where there is no limit."""

    memory_type: int
    allowed_usage: int
    max_allocation_size_bytes: int = -1
    min_alignment: int = 64


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorStatistics:
    """What was allocated so far; `live` is what is in use now, `pooled` what is kept for reuse.

    Units: bytes, and numbers of blocks.
    """

    allocated_bytes: int = 0
    freed_bytes: int = 0
    peak_bytes: int = 0
    live_bytes: int = 0
    pooled_bytes: int = 0
    allocation_count: int = 0
    live_count: int = 0
    reuse_count: int = 0


def held(size_bytes: int, make: Callable[[], Buffer]) -> Buffer:
    """What `make` returns, its memory charged to the call that this thread works for.

    Raises: LimitError before anything is allocated; what `make` raises.
    """
    account = CURRENT.account
    if account is None:
        return make()
    budget, size = account.budget, max(0, size_bytes) + OBJECT_BYTES
    budget.take(size)
    try:
        buffer = make()
    except BaseException:
        budget.release(size)
        raise
    budget.attach(buffer.storage, size)
    return buffer


class Allocator(ABC):
    """Makes buffers.

    Thread-safety: may be used from any thread.
    """

    __slots__ = ()

    @abstractmethod
    def query_memory_heaps(self) -> tuple[MemoryHeap, ...]:
        """The heaps there are."""

    @abstractmethod
    def query_statistics(self) -> AllocatorStatistics:
        """The counters now."""

    @abstractmethod
    def allocate(self, memory_type: int, allowed_usage: int, size_bytes: int) -> Buffer:
        """A new buffer with undefined contents.

        Raises: DeviceError: RESOURCE_EXHAUSTED, INVALID_ARGUMENT.
        """

    @abstractmethod
    def import_host(
        self, memory_type: int, allowed_usage: int, memory: HostBytes
    ) -> Buffer | None:
        """A buffer over host memory without a copy; None where the device cannot use it in place.

        Ownership: the buffer keeps `memory` alive.
        """

    @abstractmethod
    def export_host(self, buffer: Buffer) -> memoryview:
        """The host memory of a buffer.  Raises: DeviceError where there is none."""

    @abstractmethod
    def trim(self) -> None:
        """Give memory that is kept for reuse back to the system."""
