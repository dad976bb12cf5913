"""A device of the host CPU: heap memory, command lists, and a queue that runs them on a pool or alone.

Drivers choose the pool and the queue and bring loaders; everything else is the same for all of
them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import partial
from typing import Final, final

from tilewright.base.fork_locks import Rank, fork_lock
from tilewright.base.status import StatusCode, failure
from tilewright.base.target import Target
from tilewright.runtime import native
from tilewright.runtime.hal.allocator import Allocator
from tilewright.runtime.hal.buffer import Buffer
from tilewright.runtime.hal.channel import Channel, HostChannel
from tilewright.runtime.hal.command_buffer import (
    BindingTable,
    CommandBuffer,
    CommandBufferMode,
    CommandCategory,
)
from tilewright.runtime.hal.device import (
    ANY_QUEUE,
    Device,
    DispatchTime,
    HostWork,
    ProfilingFamily,
)
from tilewright.runtime.hal.executable_loaders import ExecutableLoader, ExecutableLoaders
from tilewright.runtime.hal.fence import Fence
from tilewright.runtime.hal.local.call_listener import CallListener
from tilewright.runtime.hal.local.cpu_features import CPU_CATEGORY, CpuFeatures
from tilewright.runtime.hal.local.heap_allocator import HeapAllocator
from tilewright.runtime.hal.local.local_command_buffer import LocalCommandBuffer
from tilewright.runtime.hal.local.submission_queue import SubmissionQueue, Work

_RECORDING: Final = fork_lock(Rank.QUEUE)


@final
class LocalDevice(Device):
    """The host CPU as a device.

    Args:
        name: the driver's, for messages.
        pool: the workers, or None to run on the submitting thread alone.
        loaders: what executables it takes.
        has_thread: whether work that must wait runs on a thread of its queue.
        queue_count: how many queues there are; their threads run deferred work beside each other.
        allocator: where buffers come from; None = the heap without bounds.
        machine: the CPU that programs are told of, which must be able to run what they choose;
            None = this one.
    """

    def __init__(
        self,
        name: str,
        pool: native.Pool | None,
        loaders: Sequence[ExecutableLoader],
        *,
        has_thread: bool,
        queue_count: int = 1,
        allocator: Allocator | None = None,
        machine: Target | None = None,
    ) -> None:
        self.name: str = name
        self.pool: native.Pool | None = pool
        self._loaders: ExecutableLoaders = ExecutableLoaders(loaders)
        self._allocator: Allocator = allocator or HeapAllocator()
        self._heap: native.Heap = native.Heap()  # beside an allocator that has none
        self._queues: tuple[SubmissionQueue, ...] = tuple(
            SubmissionQueue(has_thread=has_thread, name=f"tilewright-queue-{i}")
            for i in range(queue_count)
        )
        self._cpu: CpuFeatures = CpuFeatures(machine)
        self._times: list[DispatchTime] | None = None
        self._listener: CallListener | None = None
        self._families: ProfilingFamily = ProfilingFamily.DISPATCHES

    def __repr__(self) -> str:
        return f"<device {self.name} with {self.thread_count} threads>"

    @property
    def id(self) -> str:
        return "local"

    @property
    def thread_count(self) -> int:
        """Threads that run kernels, the caller's included."""
        return 1 if self.pool is None else self.pool.thread_count

    @property
    def machine(self) -> Target:
        """The CPU that programs are told of."""
        return self._cpu.machine

    @property
    def allocator(self) -> Allocator:
        return self._allocator

    @property
    def heap(self) -> native.Heap:
        """What calls take their memory from: the allocator's, so that one cap holds for all."""
        heap = self._allocator
        return heap.heap if isinstance(heap, HeapAllocator) else self._heap

    def memory_report(self) -> native.MemoryReport:
        return native.MemoryReport.of(self.heap)

    def replace_allocator(self, allocator: Allocator) -> None:
        self._allocator = allocator

    def query_i64(self, category: str, key: str) -> int | None:
        if category == "hal.device.id":
            return int(fnmatchcase(self.id, key))
        if category == "hal.executable.format":
            return int(self._loaders.can_prepare_format(key))
        if category == CPU_CATEGORY:
            return self._cpu.query(key)
        return self.query_capabilities().get(f"{category}::{key}")

    def query_capabilities(self) -> Mapping[str, int]:
        return {
            "hal.device::concurrency": len(self._queues),
            "hal.dispatch::concurrency": self.thread_count,
        }

    def _open_channel(self, rank: int, count: int, group: str) -> Channel:
        return HostChannel(
            rank, count, self.channel_provider.open_group(group, rank, count)
        )

    def create_command_buffer(
        self,
        mode: int = CommandBufferMode.DEFAULT,
        categories: int = CommandCategory.ANY,
        queue_affinity: int = ANY_QUEUE,
        binding_capacity: int = 0,
    ) -> CommandBuffer:
        del queue_affinity
        return LocalCommandBuffer(mode, categories, binding_capacity)

    @property
    def executable_loaders(self) -> ExecutableLoaders:
        return self._loaders

    # --- queues ---------------------------------------------------------------------------------

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
        del pool
        buffer = self._allocator.allocate(memory_type, allowed_usage, size_bytes)
        self._submit(affinity, "alloca", wait, signal, _nothing)
        return buffer

    def queue_dealloca(
        self,
        wait: Fence | None,
        signal: Fence | None,
        buffer: Buffer,
        *,
        affinity: int = ANY_QUEUE,
    ) -> None:
        # The memory goes back when nobody refers to it any more, which may be later, never sooner.
        self._submit(affinity, "dealloca", wait, signal, buffer.discard)

    def queue_execute(
        self,
        wait: Fence | None,
        signal: Fence | None,
        commands: CommandBuffer | None,
        bindings: BindingTable = (),
        *,
        affinity: int = ANY_QUEUE,
    ) -> None:
        if commands is None:
            self._submit(affinity, "barrier", wait, signal, _nothing)
            return
        if not isinstance(commands, LocalCommandBuffer):
            raise failure(StatusCode.INVALID_ARGUMENT, "a command buffer of another device")
        if commands.has_collectives and wait is not None:
            recorded = commands
            wait.notify(lambda error: None if error is None else recorded.abandon(error))
        if self._listener is not None and self._listener.is_mine:
            self._listener.executed(wait, commands, bindings)
        profile = None
        if self._times is not None and self._families & ProfilingFamily.DISPATCHES:
            profile = self._times.append
        work: Work = partial(commands.execute, self.pool, bindings, profile, self.heap)
        self._submit(affinity, "execute", wait, signal, work)

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
        del blocks  # all work is host code here
        self._submit(affinity, name, wait, signal, work)

    def _submit(
        self, affinity: int, name: str, wait: Fence | None, signal: Fence | None, work: Work
    ) -> None:
        """Submit to the queue that an affinity names."""
        index = 0
        if len(self._queues) > 1 or affinity != ANY_QUEUE:
            index = self._select(affinity)
        times = self._times
        if times is not None and self._families & ProfilingFamily.QUEUE_OPERATIONS:
            work = _timed(name, index, work, times.append)
        self._queues[index].submit(wait, signal, work)

    def _select(self, affinity: int) -> int:
        """The least busy of the queues whose bits are set.

        Raises: DeviceError (INVALID_ARGUMENT) when there is none of them.
        """
        allowed = [i for i in range(len(self._queues)) if affinity >> i & 1]
        if not allowed:
            raise failure(
                StatusCode.INVALID_ARGUMENT,
                f"queue affinity 0x{affinity:X}, expected a bit of the {len(self._queues)} "
                "queues there are",
            )
        return min(allowed, key=lambda i: self._queues[i].pending_count)

    @contextmanager
    def listen_to_call(self) -> Generator[CallListener | None]:
        """Listen to what this thread allocates and submits.

        Yields: None where another thread is listened to, or an allocator cannot be.
        """
        listener = CallListener()
        heap = self._allocator
        with _RECORDING:
            if (
                self._listener is not None and not self._listener.is_of_parent
            ) or not isinstance(heap, HeapAllocator):
                heap = None
            else:
                self._listener = listener
                heap.listener = listener.allocated
        try:
            yield None if heap is None else listener
        finally:
            if heap is not None:
                self._listener = heap.listener = None

    def note_load(self) -> None:
        if self._listener is not None and self._listener.is_mine:
            self._listener.refuse("the call reads what is in a buffer")

    def checked(
        self, buffer: Buffer, offset: int, length: int, report: Callable[..., object]
    ) -> None:
        """This thread reads in a buffer what kernels found; `report` fails for a finding."""
        if self._listener is not None and self._listener.is_mine:
            self._listener.checked(buffer, offset, length, report)

    @property
    def is_profiled(self) -> bool:
        """Whether somebody asked for the times of commands."""
        return self._times is not None

    # --- profiling ------------------------------------------------------------------------------

    def profiling_begin(
        self, families: ProfilingFamily = ProfilingFamily.DISPATCHES
    ) -> None:
        self._families = families
        self._times = []

    def profiling_flush(self) -> tuple[DispatchTime, ...]:
        times = self._times
        if times is None:
            return ()
        taken = tuple(times)
        del times[: len(taken)]  # the list stays: work under way will write into it
        return taken

    def profiling_end(self) -> tuple[DispatchTime, ...]:
        times = self.profiling_flush()
        self._times = None
        return times


def _timed(
    name: str, queue: int, work: Work, report: Callable[[DispatchTime], None]
) -> Work:
    """The work, telling how long it took."""

    def run() -> object:
        begin = time.perf_counter_ns()
        try:
            return work()
        finally:
            report(
                DispatchTime(
                    name=name,
                    workgroup_count=(1, 1, 1),
                    duration_ns=time.perf_counter_ns() - begin,
                    family=ProfilingFamily.QUEUE_OPERATIONS,
                    queue=queue,
                    begin_ns=begin,
                )
            )

    return run


def _nothing() -> None:
    """The work of a barrier."""
