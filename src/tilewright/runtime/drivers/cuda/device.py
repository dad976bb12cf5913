"""A GPU as a device: a stream for work behind a deferred queue, and one for what the host awaits.

Not here: how GPUs are found (`driver`).

Source: IREE `hal/drivers/cuda/cuda_device.c` (what a device owns and in which order it is made).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import Final, final

from tilewright.base.status import StatusCode, failure
from tilewright.runtime.collectives.nccl_library import open_nccl
from tilewright.runtime.drivers.cuda.allocator import CudaAllocator
from tilewright.runtime.drivers.cuda.command_buffer import (
    CudaCommandBuffer,
    Execution,
)
from tilewright.runtime.drivers.cuda.context import CudaContext, CudaStream, EventPool
from tilewright.runtime.drivers.cuda.executable import CudaExecutable, CudaExecutableLoader
from tilewright.runtime.drivers.cuda.nccl_channel import NcclChannel
from tilewright.runtime.drivers.cuda.nccl_commands import JointExecution
from tilewright.runtime.drivers.cuda.profiling import ProfiledExecution, TimedOperation
from tilewright.runtime.drivers.cuda.storage import CudaStorage
from tilewright.runtime.drivers.cuda.stream_device import StreamDevice
from tilewright.runtime.hal.allocator import Allocator
from tilewright.runtime.hal.buffer import Buffer
from tilewright.runtime.hal.channel import Channel
from tilewright.runtime.hal.command_buffer import (
    BindingTable,
    CommandBuffer,
    CommandBufferMode,
    CommandCategory,
)
from tilewright.runtime.hal.deferred_command_buffer import CommandOwner
from tilewright.runtime.hal.deferred_work_queue import DeferredWorkQueue, Work
from tilewright.runtime.hal.device import (
    ANY_QUEUE,
    Device,
    DispatchTime,
    HostWork,
    ProfilingFamily,
)
from tilewright.runtime.hal.executable import Executable
from tilewright.runtime.hal.executable_loaders import ExecutableLoaders
from tilewright.runtime.hal.fence import Fence
from tilewright.runtime.hal.file import File
from tilewright.runtime.hal.semaphore import Semaphore, SemaphoreCompatibility

_MULTIPROCESSORS, _MAJOR, _MINOR = 16, 75, 76  # CUdevice_attribute
_STAGING_BYTES: Final = 64 << 20


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CudaOptions:
    """How a device works.

    Attributes:
        uses_graphs: command buffers that run often become graphs.
        uses_pool: the GPU's own memory comes from a stream-ordered pool.
    """

    uses_graphs: bool = True
    uses_pool: bool = True


@final
class CudaDevice(Device):
    """One GPU.

    Args:
        context: its primary context.
        options: how to use it.
    Ownership: streams, pools and threads end when nobody refers to the device and to what it made;
    `close` waits for that.
    """

    def __init__(self, context: CudaContext, options: CudaOptions) -> None:
        self.context: CudaContext = context
        self.options: CudaOptions = options
        self._dispatch: CudaStream = CudaStream(context)
        self._transfer: CudaStream = CudaStream(context)
        self._events: EventPool = EventPool(context)
        self._timing_events: EventPool = EventPool(context, has_timing=True)
        self._own_allocator: CudaAllocator = CudaAllocator(
            context, self._dispatch, self._transfer, uses_pool=options.uses_pool
        )
        self._allocator: Allocator = self._own_allocator
        self._owner: CommandOwner = CommandOwner(
            owns_buffer=partial(_owns_buffer, context),
            owns_executable=partial(_owns_executable, context),
            owns_channel=partial(_owns_channel, context),
        )
        self._loaders: ExecutableLoaders = ExecutableLoaders(
            (CudaExecutableLoader(context),)
        )
        self._default_channel: NcclChannel | None = None
        self._times: list[DispatchTime] | None = None
        self._families: ProfilingFamily = ProfilingFamily.DISPATCHES
        self._queue: DeferredWorkQueue = DeferredWorkQueue(
            StreamDevice(self._dispatch, self._events), f"cuda-{context.ordinal}"
        )

    def __repr__(self) -> str:
        return f"<device cuda {self.context.ordinal}>"

    def close(self) -> None:
        """Complete what is under way, fail what still waits, and end the threads."""
        self._queue.close()

    @property
    def id(self) -> str:
        return "cuda"

    @property
    def allocator(self) -> Allocator:
        return self._allocator

    def replace_allocator(self, allocator: Allocator) -> None:
        self._allocator = allocator

    def query_i64(self, category: str, key: str) -> int | None:
        if category == "hal.device.id":
            return int(fnmatchcase(self.id, key))
        if category == "hal.executable.format":
            return int(self._loaders.can_prepare_format(key))
        return self.query_capabilities().get(f"{category}::{key}")

    def query_capabilities(self) -> Mapping[str, int]:
        query = self.context.query_attribute
        return {
            "hal.device::concurrency": 1,
            "hal.dispatch::concurrency": query(_MULTIPROCESSORS),
            "cuda.device::compute_capability_major": query(_MAJOR),
            "cuda.device::compute_capability_minor": query(_MINOR),
        }

    def trim(self) -> None:
        super().trim()
        self._events.trim()
        self._timing_events.trim()

    # --- things made for the device --------------------------------------------------------------

    def _open_channel(self, rank: int, count: int, group: str) -> Channel:
        library = open_nccl()
        others = self.channel_provider.open_group(group, rank, count)
        channel = self._default_channel
        if channel is None or channel.group is not others:
            channel = NcclChannel(library, self.context, others, rank, count)
        if not group:  # programs ask for it in every call, and communicators are dear
            self._default_channel = channel
        return channel

    def create_command_buffer(
        self,
        mode: int = CommandBufferMode.DEFAULT,
        categories: int = CommandCategory.ANY,
        queue_affinity: int = ANY_QUEUE,
        binding_capacity: int = 0,
    ) -> CommandBuffer:
        del queue_affinity
        return CudaCommandBuffer(
            mode,
            categories,
            binding_capacity,
            self._owner,
            prefers_graph=self.options.uses_graphs,
        )

    @property
    def executable_loaders(self) -> ExecutableLoaders:
        return self._loaders

    def create_semaphore(self, initial_value: int = 0) -> Semaphore:
        return self._queue.create_semaphore(initial_value)

    def query_semaphore_compatibility(self, semaphore: Semaphore) -> SemaphoreCompatibility:
        return self._queue.query_semaphore_compatibility(semaphore)

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
        del pool, affinity
        if self._allocator is not self._own_allocator:
            buffer = self._allocator.allocate(memory_type, allowed_usage, size_bytes)
            self._submit("alloca", wait, signal, _nothing)
            return buffer
        buffer, allocate = self._own_allocator.allocate_transient(
            memory_type, allowed_usage, size_bytes
        )
        self._submit("alloca", wait, signal, allocate)
        return buffer

    def queue_dealloca(
        self,
        wait: Fence | None,
        signal: Fence | None,
        buffer: Buffer,
        *,
        affinity: int = ANY_QUEUE,
    ) -> None:
        del affinity
        self._submit("dealloca", wait, signal, partial(_deallocate, buffer))

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
        del affinity, name
        self._queue.submit_host(wait, signal, work, blocks=blocks)

    def _reading(
        self, source: File, source_offset: int, target: Buffer, offset: int, length: int
    ) -> HostWork:
        target.check_range(offset, length, "target")
        return partial(_read, source, source_offset, target, offset, length)

    def _writing(
        self, source: Buffer, offset: int, target: File, target_offset: int, length: int
    ) -> HostWork:
        source.check_range(offset, length, "source")
        return partial(_write, source, offset, target, target_offset, length)

    def queue_execute(
        self,
        wait: Fence | None,
        signal: Fence | None,
        commands: CommandBuffer | None,
        bindings: BindingTable = (),
        *,
        affinity: int = ANY_QUEUE,
    ) -> None:
        del affinity
        if commands is None:
            self._submit("barrier", wait, signal, _nothing)
            return
        if not isinstance(commands, CudaCommandBuffer):
            raise failure(StatusCode.INVALID_ARGUMENT, "a command buffer of another device")
        resolved = commands.resolve(bindings)
        times = self._times
        issue = Execution(commands, resolved, self._dispatch).issue
        retire: Work = _nothing
        if times is not None and self._families & ProfilingFamily.DISPATCHES:
            profiled = ProfiledExecution(
                resolved, self._dispatch, self._timing_events, times.append
            )
            issue, retire = profiled.issue, profiled.retire
        if commands.channels:
            joint = JointExecution(commands.channels, issue, retire)
            issue, retire = joint.issue, joint.retire
            outcome = signal or wait  # a signal fails whatever goes wrong, here or before
            if outcome is not None:
                outcome.notify(joint.abandon)
        self._submit("execute", wait, signal, issue, retire)

    def _submit(
        self,
        name: str,
        wait: Fence | None,
        signal: Fence | None,
        issue: Work,
        retire: Work | None = None,
    ) -> None:
        times = self._times
        if times is not None and self._families & ProfilingFamily.QUEUE_OPERATIONS:
            timed = TimedOperation(
                name,
                issue,
                retire or _nothing,
                self._dispatch,
                self._timing_events,
                times.append,
            )
            issue, retire = timed.issue, timed.retire
        self._queue.submit(wait, signal, issue, retire)

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
        del times[: len(taken)]
        return taken

    def profiling_end(self) -> tuple[DispatchTime, ...]:
        times = self.profiling_flush()
        self._times = None
        return times


def _owns_buffer(context: CudaContext, buffer: Buffer) -> bool:
    storage = buffer.storage
    return isinstance(storage, CudaStorage) and storage.stream.context is context


def _owns_executable(context: CudaContext, executable: Executable) -> bool:
    return isinstance(executable, CudaExecutable) and executable.context is context


def _owns_channel(context: CudaContext, channel: Channel) -> bool:
    is_ours = isinstance(channel, NcclChannel) and channel.context is context
    return is_ours or channel.count == 1


def _deallocate(buffer: Buffer) -> None:
    storage = buffer.storage
    if buffer.discard() and isinstance(storage, CudaStorage):
        storage.free()


def _read(
    source: File, source_offset: int, target: Buffer, target_offset: int, length: int
) -> None:
    """Copy from a file in pieces, so that little host memory is needed."""
    staging = memoryview(bytearray(min(length, _STAGING_BYTES)))
    for start in range(0, length, _STAGING_BYTES):
        piece = staging[: min(_STAGING_BYTES, length - start)]
        source.read_into(source_offset + start, piece)
        target.write(piece, target_offset + start)


def _write(
    source: Buffer, source_offset: int, target: File, target_offset: int, length: int
) -> None:
    staging = memoryview(bytearray(min(length, _STAGING_BYTES)))
    for start in range(0, length, _STAGING_BYTES):
        piece = staging[: min(_STAGING_BYTES, length - start)]
        source.read_into(piece, source_offset + start)
        target.write_from(target_offset + start, piece)


def _nothing() -> None:
    """The work of a barrier."""
