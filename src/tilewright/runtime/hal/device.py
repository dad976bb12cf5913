"""A device: memory, queues, and everything that is made for them.

The interface of a driver's device.  Queue operations take a fence to wait for and one to signal;
they return at once or when done, and failures travel through the fence that they signal.  Not
here: how a device is found (`driver`).

Source: IREE `hal/device.h`.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

from tilewright.base.status import StatusCode, failure
from tilewright.base.target import Target
from tilewright.formats.byte_view import Buffer as HostBytes
from tilewright.runtime import native
from tilewright.runtime.hal.allocator import Allocator
from tilewright.runtime.hal.buffer import READ, WRITE, Buffer
from tilewright.runtime.hal.channel import Channel, ChannelProvider, HostChannel
from tilewright.runtime.hal.command_buffer import (
    BindingTable,
    BufferRef,
    CommandBuffer,
    CommandBufferMode,
    CommandCategory,
)
from tilewright.runtime.hal.event import Event
from tilewright.runtime.hal.executable import Executable
from tilewright.runtime.hal.executable_loaders import ExecutableLoaders
from tilewright.runtime.hal.fence import Fence
from tilewright.runtime.hal.file import File, HostFile
from tilewright.runtime.hal.semaphore import (
    INFINITE,
    Semaphore,
    SemaphoreCompatibility,
)

HostWork = Callable[[], object]

ANY_QUEUE: Final = -1
_PARTICIPANTS_LIMIT: Final = 1 << 16


class ProfilingFamily(enum.IntFlag):
    """What profiling looks at."""

    DISPATCHES = 1
    QUEUE_OPERATIONS = 2


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchTime:
    """How long a command or a queue operation took, as profiling saw it.

    Units: nanoseconds; `begin_ns` on the clock of `time.perf_counter_ns`, 0 where nobody looked.
    `threads` are those that ran some of a command, where that is known.
    """

    name: str
    workgroup_count: tuple[int, int, int]
    duration_ns: int
    family: ProfilingFamily = ProfilingFamily.DISPATCHES
    queue: int = 0
    begin_ns: int = 0
    threads: tuple[native.ThreadSpan, ...] = ()


class Device(ABC):
    """A device.

    Thread-safety: may be used from any thread.
    """

    _channel_provider: ChannelProvider | None = None

    @property
    @abstractmethod
    def id(self) -> str:
        """What programs ask for: `local`, `cuda`."""

    @property
    @abstractmethod
    def allocator(self) -> Allocator:
        """Where its buffers come from."""

    @abstractmethod
    def replace_allocator(self, allocator: Allocator) -> None:
        """Take buffers from another allocator from now on."""

    @property
    def channel_provider(self) -> ChannelProvider:
        """Where its channels meet other participants.

        Raises: DeviceError (UNAVAILABLE) where whoever made the device has given it none.
        """
        provider = self._channel_provider
        if provider is None:
            raise failure(
                StatusCode.UNAVAILABLE,
                "the device has no provider of channels",
                location=self,
                hint="give it one with replace_channel_provider(...)",
            )
        return provider

    def replace_channel_provider(self, provider: ChannelProvider) -> None:
        """Let channels made from now on meet others elsewhere."""
        self._channel_provider = provider

    @abstractmethod
    def query_i64(self, category: str, key: str) -> int | None:
        """A fact about the device, None where it is unknown."""

    @property
    def machine(self) -> Target | None:
        """The CPU that machine code is chosen for; None for what runs no code of the host."""
        return None

    def query_capabilities(self) -> Mapping[str, int]:
        """Numbers that describe the device."""
        return {}

    def trim(self) -> None:
        """Give back what is only kept for reuse."""
        self.allocator.trim()

    def memory_report(self) -> native.MemoryReport:
        """What calls and buffers have of its memory now, and what is kept for reuse."""
        counted = self.allocator.query_statistics()
        return native.MemoryReport(
            arenas_bytes=0,
            transients_bytes=counted.live_bytes,
            scratch_bytes=0,
            kept_bytes=counted.pooled_bytes,
            peak_bytes=counted.peak_bytes,
            lease_count=counted.allocation_count,
            reuse_count=counted.reuse_count,
            leased_bytes=counted.allocated_bytes,
            live_count=counted.live_count,
            capacity_bytes=None,
        )

    def note_load(self) -> None:  # noqa: B027 - most devices have nobody who wants to know
        """This thread reads what is in a buffer: what it does next may depend on that."""

    # --- things made for the device --------------------------------------------------------------

    def create_channel(self, rank: int = -1, count: int = -1, group: str = "") -> Channel:
        """A channel for collectives.

        Args:
            rank: of this participant; -1: what the channel provider says.
            count: how many take part; -1: what the channel provider says.
            group: by which name participants find each other; none for the default group.
        Raises: DeviceError (INVALID_ARGUMENT) for a rank outside of the group, or when others would
            take part and the device cannot have that.
        """
        if rank < 0 or count < 0:
            default = self.channel_provider.query_default_rank_and_count()
            rank = default[0] if rank < 0 else rank
            count = default[1] if count < 0 else count
        if not 0 <= rank < count <= _PARTICIPANTS_LIMIT:
            raise failure(
                StatusCode.INVALID_ARGUMENT,
                f"rank {rank} of a channel with {count} participants",
            )
        if count == 1:
            return HostChannel(0, 1, self.channel_provider.open_group(group, 0, 1))
        return self._open_channel(rank, count, group)

    def _open_channel(self, rank: int, count: int, group: str) -> Channel:
        """A channel that others take part in.  Raises: DeviceError where there is no such thing."""
        del rank
        raise failure(
            StatusCode.UNIMPLEMENTED,
            f"a channel of {count} participants on this device",
            location=f"group '{group}'",
        )

    @abstractmethod
    def create_command_buffer(
        self,
        mode: int = CommandBufferMode.DEFAULT,
        categories: int = CommandCategory.ANY,
        queue_affinity: int = ANY_QUEUE,
        binding_capacity: int = 0,
    ) -> CommandBuffer:
        """An empty command buffer."""

    def create_event(self, queue_affinity: int = ANY_QUEUE) -> Event:
        """An event."""
        return Event(queue_affinity)

    @property
    @abstractmethod
    def executable_loaders(self) -> ExecutableLoaders:
        """What prepares executables for this device."""

    def import_file(self, memory: HostBytes | File, access: int) -> File:
        """A file that queues can read and write."""
        return memory if isinstance(memory, File) else HostFile(memory, access)

    def create_semaphore(self, initial_value: int = 0) -> Semaphore:
        """A semaphore that queues can wait for and signal."""
        return Semaphore(initial_value)

    def query_semaphore_compatibility(self, semaphore: Semaphore) -> SemaphoreCompatibility:
        """What queues do with a semaphore themselves; the rest happens on the host, and is slower."""
        del semaphore
        return SemaphoreCompatibility.ALL

    def wait_semaphores(
        self, timepoints: Fence, timeout_ns: int = INFINITE, *, wait_for_all: bool = True
    ) -> None:
        """Block the calling thread until all timepoints, or any one of them, are reached.

        Raises: the first failure; DeviceError (DEADLINE_EXCEEDED).
        """
        if wait_for_all:
            timepoints.wait(timeout_ns)
        else:
            timepoints.wait_any(timeout_ns)

    # --- queues ---------------------------------------------------------------------------------

    @abstractmethod
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
        """A transient buffer, usable once `signal` is reached."""

    @abstractmethod
    def queue_dealloca(
        self,
        wait: Fence | None,
        signal: Fence | None,
        buffer: Buffer,
        *,
        affinity: int = ANY_QUEUE,
    ) -> None:
        """Give a transient buffer back once `wait` is reached."""

    def queue_read(
        self,
        wait: Fence | None,
        signal: Fence | None,
        source: File,
        source_offset: int,
        target: Buffer,
        target_offset: int,
        length: int,
        *,
        affinity: int = ANY_QUEUE,
    ) -> None:
        """Copy from a file."""
        source.check(READ, source_offset, length)
        work = self._reading(source, source_offset, target, target_offset, length)
        self._submit_host(affinity, "read", wait, signal, work)

    def queue_write(
        self,
        wait: Fence | None,
        signal: Fence | None,
        source: Buffer,
        source_offset: int,
        target: File,
        target_offset: int,
        length: int,
        *,
        affinity: int = ANY_QUEUE,
    ) -> None:
        """Copy to a file."""
        target.check(WRITE, target_offset, length)
        work = self._writing(source, source_offset, target, target_offset, length)
        self._submit_host(affinity, "write", wait, signal, work)

    def queue_host_call(
        self,
        wait: Fence | None,
        signal: Fence | None,
        function: Callable[[], object],
        *,
        affinity: int = ANY_QUEUE,
    ) -> None:
        """Call a host function between other work; what it raises fails `signal`."""
        self._submit_host(affinity, "host_call", wait, signal, function, blocks=True)

    @abstractmethod
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
        """Run host code once its waits are reached.

        Args:
            affinity: of the queue.
            name: of the operation, for profiles.
            wait: what must happen before.
            signal: what happens after, or fails with what the work raises.
            work: the host code.
            blocks: the work may wait for other work of the device.
        """

    # What transfers do between their waits and signals: here for memory that the host sees.

    def _reading(
        self, source: File, source_offset: int, target: Buffer, offset: int, length: int
    ) -> HostWork:
        """The work of a read, after checks of the buffer's range."""
        view = target.map_range(WRITE, offset, length)
        return lambda: source.read_into(source_offset, view)

    def _writing(
        self, source: Buffer, offset: int, target: File, target_offset: int, length: int
    ) -> HostWork:
        """The work of a write, likewise."""
        view = source.map_range(READ, offset, length)
        return lambda: target.write_from(target_offset, view)

    @abstractmethod
    def queue_execute(
        self,
        wait: Fence | None,
        signal: Fence | None,
        commands: CommandBuffer | None,
        bindings: BindingTable = (),
        *,
        affinity: int = ANY_QUEUE,
    ) -> None:
        """Execute a command buffer; without one, a barrier."""

    def queue_barrier(
        self, wait: Fence | None, signal: Fence | None, *, affinity: int = ANY_QUEUE
    ) -> None:
        """Signal when the waits are reached."""
        self.queue_execute(wait, signal, None, affinity=affinity)

    def queue_flush(self, affinity: int = ANY_QUEUE) -> None:
        """See to it that submitted work gets going."""
        del affinity

    # Single commands, as command buffers of one command where a device knows nothing better.

    def queue_fill(
        self,
        wait: Fence | None,
        signal: Fence | None,
        target: BufferRef,
        pattern: bytes,
        *,
        affinity: int = ANY_QUEUE,
    ) -> None:
        """Repeat a pattern over a range."""
        self._queue_one(wait, signal, affinity, lambda c: c.fill_buffer(target, pattern))

    def queue_update(
        self,
        wait: Fence | None,
        signal: Fence | None,
        source: bytes,
        target: BufferRef,
        *,
        affinity: int = ANY_QUEUE,
    ) -> None:
        """Write bytes of the host."""
        self._queue_one(wait, signal, affinity, lambda c: c.update_buffer(source, target))

    def queue_copy(
        self,
        wait: Fence | None,
        signal: Fence | None,
        source: BufferRef,
        target: BufferRef,
        *,
        affinity: int = ANY_QUEUE,
    ) -> None:
        """Copy between buffers."""
        self._queue_one(wait, signal, affinity, lambda c: c.copy_buffer(source, target))

    def queue_dispatch(
        self,
        wait: Fence | None,
        signal: Fence | None,
        executable: Executable,
        function: int,
        workgroup_count: tuple[int, int, int],
        constants: Sequence[int],
        bindings: Sequence[BufferRef],
        *,
        affinity: int = ANY_QUEUE,
    ) -> None:
        """Run a kernel."""
        self._queue_one(
            wait,
            signal,
            affinity,
            lambda c: c.dispatch(
                executable, function, workgroup_count, constants, bindings
            ),
        )

    def _queue_one(
        self,
        wait: Fence | None,
        signal: Fence | None,
        affinity: int,
        record: Callable[[CommandBuffer], object],
    ) -> None:
        commands = self.create_command_buffer(
            CommandBufferMode.ONE_SHOT, CommandCategory.ANY, affinity
        )
        commands.begin()
        record(commands)
        commands.end()
        self.queue_execute(wait, signal, commands, affinity=affinity)

    # --- profiling ------------------------------------------------------------------------------

    def profiling_begin(
        self, families: ProfilingFamily = ProfilingFamily.DISPATCHES
    ) -> None:
        """Time every command, or queue operation, from now on.

        Raises: DeviceError where the device cannot.
        """
        del families
        raise failure(StatusCode.UNIMPLEMENTED, "profiling on this device")

    def profiling_flush(self) -> tuple[DispatchTime, ...]:
        """The times since the last flush."""
        return ()

    def profiling_end(self) -> tuple[DispatchTime, ...]:
        """Stop timing; the times since the last flush."""
        return ()
