"""The device of the null driver: every operation refused, each with what a driver does there.

Semaphores and fences of the host work, so that failures travel as they do on any device.
"""

from __future__ import annotations

from typing import final

from tilewright.base.errors import DeviceError
from tilewright.base.status import StatusCode, failure
from tilewright.formats.byte_view import Buffer as HostBytes
from tilewright.runtime.hal.allocator import Allocator, AllocatorStatistics, MemoryHeap
from tilewright.runtime.hal.buffer import Buffer
from tilewright.runtime.hal.command_buffer import (
    BindingTable,
    CommandBuffer,
    CommandBufferMode,
    CommandCategory,
)
from tilewright.runtime.hal.device import ANY_QUEUE, Device, HostWork
from tilewright.runtime.hal.executable_loaders import ExecutableLoaders
from tilewright.runtime.hal.fence import Fence


def _unimplemented(problem: str) -> DeviceError:
    return failure(StatusCode.UNIMPLEMENTED, f"the null device has no {problem}")


@final
class NullAllocator(Allocator):
    """Has no heaps.  A driver wraps its memory in a `Storage` and hands out buffers over it."""

    __slots__ = ()

    def query_memory_heaps(self) -> tuple[MemoryHeap, ...]:
        return ()

    def query_statistics(self) -> AllocatorStatistics:
        return AllocatorStatistics()

    def allocate(self, memory_type: int, allowed_usage: int, size_bytes: int) -> Buffer:
        del memory_type, allowed_usage, size_bytes
        raise _unimplemented("memory")

    def import_host(
        self, memory_type: int, allowed_usage: int, memory: HostBytes
    ) -> Buffer | None:
        del memory_type, allowed_usage, memory
        return None  # the honest answer of a device that cannot use host memory in place

    def export_host(self, buffer: Buffer) -> memoryview:
        del buffer
        raise _unimplemented("memory")

    def trim(self) -> None:
        """Nothing is kept."""


@final
class NullDevice(Device):
    """Refuses work.  A driver implements the methods below, most of them by its queue."""

    def __init__(self) -> None:
        self._allocator: Allocator = NullAllocator()

    @property
    def id(self) -> str:
        return "null"

    @property
    def allocator(self) -> Allocator:
        return self._allocator

    def replace_allocator(self, allocator: Allocator) -> None:
        self._allocator = allocator

    def query_i64(self, category: str, key: str) -> int | None:
        """Answers `hal.device.id` and `hal.executable.format`; programs choose by them."""
        if category == "hal.device.id":
            return int(key == self.id)
        return 0 if category == "hal.executable.format" else None

    def create_command_buffer(
        self,
        mode: int = CommandBufferMode.DEFAULT,
        categories: int = CommandCategory.ANY,
        queue_affinity: int = ANY_QUEUE,
        binding_capacity: int = 0,
    ) -> CommandBuffer:
        """A driver records here, into its own form or for a later replay."""
        del mode, categories, queue_affinity, binding_capacity
        raise _unimplemented("command buffers")

    @property
    def executable_loaders(self) -> ExecutableLoaders:
        """A driver brings the loaders of its formats."""
        return ExecutableLoaders(())

    def queue_alloca(
        self,
        wait: Fence | None,
        signal: Fence | None,
        memory_type: int,
        allowed_usage: int,
        size_bytes: int,
        *,
        pool: int = 0,
        affinity: int = ANY_QUEUE,
    ) -> Buffer:
        del wait, signal, memory_type, allowed_usage, size_bytes, pool, affinity
        raise _unimplemented("memory")

    def queue_dealloca(
        self,
        wait: Fence | None,
        signal: Fence | None,
        buffer: Buffer,
        *,
        affinity: int = ANY_QUEUE,
    ) -> None:
        del wait, signal, buffer, affinity
        raise _unimplemented("memory")

    def _submit_host(
        self,
        affinity: int,
        name: str,
        wait: Fence | None,
        signal: Fence | None,
        work: HostWork,
        *,
        blocks: bool = False,
    ) -> None:
        """A driver's queue runs reads, writes and host calls here."""
        del affinity, name, wait, signal, work, blocks
        raise _unimplemented("queue")

    def queue_execute(
        self,
        wait: Fence | None,
        signal: Fence | None,
        commands: CommandBuffer | None,
        bindings: BindingTable = (),
        *,
        affinity: int = ANY_QUEUE,
    ) -> None:
        del wait, signal, commands, bindings, affinity
        raise _unimplemented("queue")
