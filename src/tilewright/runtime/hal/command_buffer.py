"""A command buffer: commands recorded once, executed on a queue once or many times.

The interface, the checks that every device wants, and the table that replaces buffers when
recorded commands run again.

Source: IREE `hal/command_buffer.h`.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final, NamedTuple, final

from tilewright.base.status import StatusCode, failure
from tilewright.runtime.hal.buffer import (
    READ,
    WHOLE_BUFFER,
    WRITE,
    Buffer,
    BufferUsage,
)
from tilewright.runtime.hal.channel import Channel
from tilewright.runtime.hal.collective import CollectiveKind, CollectiveOp
from tilewright.runtime.hal.event import Event
from tilewright.runtime.hal.executable import Executable
from tilewright.runtime.hal.recording_log import RecordingLog


class CommandBufferMode(enum.IntFlag):
    """How a command buffer is going to be used."""

    DEFAULT = 0
    ONE_SHOT = 1
    ALLOW_INLINE_EXECUTION = 16
    UNVALIDATED = 32
    UNRETAINED = 64
    RETAIN_PROFILE_METADATA = 128
    RETAIN_DISPATCH_METADATA = 256


class CommandCategory(enum.IntFlag):
    """Which commands it may hold."""

    TRANSFER = 1
    DISPATCH = 2
    ANY = 3


class ExecutionStage(enum.IntFlag):
    """Where in the execution of commands a barrier stands."""

    ISSUE = 1
    PROCESS = 2
    DISPATCH = 4
    TRANSFER = 8
    RETIRE = 16
    HOST = 32


class BufferRef(NamedTuple):
    """A range of a buffer, or of slot `slot` of the binding table where `buffer` is None."""

    buffer: Buffer | None
    offset: int = 0
    length: int = WHOLE_BUFFER
    slot: int = 0


class BufferBinding(NamedTuple):
    """An entry of a binding table."""

    buffer: Buffer | None
    offset: int = 0
    length: int = WHOLE_BUFFER


BindingTable = Sequence[BufferBinding]

_UPDATE_LIMIT_BYTES: Final = 64 * 1024
_PATTERN_SIZES: Final = (1, 2, 4, 8)
_UNVALIDATED: Final = int(CommandBufferMode.UNVALIDATED)
_TRANSFER: Final = int(CommandCategory.TRANSFER)
_DISPATCH: Final = int(CommandCategory.DISPATCH)
# What operands of commands must be for; any bit will do.
SOURCE_USAGE: Final = int(BufferUsage.TRANSFER_SOURCE)
TARGET_USAGE: Final = int(BufferUsage.TRANSFER_TARGET)
BINDING_USAGE: Final = int(BufferUsage.DISPATCH_STORAGE | BufferUsage.DISPATCH_UNIFORM_READ)
GRID_USAGE: Final = int(BufferUsage.DISPATCH_INDIRECT_PARAMETERS)
GRID_BYTES: Final = 12


@final
class RecordingState(enum.Enum):
    """Where a command buffer is in its life."""

    INITIAL = "not begun"
    RECORDING = "recording"
    EXECUTABLE = "ended"


class CommandBuffer(ABC):
    """Records commands between `begin` and `end`.

    Ownership: holds the buffers and executables that its commands name.
    Thread-safety: recording on one thread; executing on any.
    """

    __slots__ = ("__weakref__", "binding_capacity", "categories", "log", "mode", "state")

    def __init__(self, mode: int, categories: int, binding_capacity: int) -> None:
        self.mode: int = mode
        self.categories: int = categories
        self.binding_capacity: int = binding_capacity
        self.state: RecordingState = RecordingState.INITIAL
        self.log: RecordingLog = RecordingLog()

    # --- life -----------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start recording.  Raises: DeviceError when it was recorded before."""
        self._expect(RecordingState.INITIAL, "begin")
        self.state = RecordingState.RECORDING

    def end(self) -> None:
        """Finish recording; from here the commands do not change."""
        self._expect(RecordingState.RECORDING, "end")
        if self.log.groups:
            raise failure(
                StatusCode.FAILED_PRECONDITION,
                f"{len(self.log.groups)} debug groups are open: "
                + ", ".join(f"'{label}'" for label in self.log.groups),
            )
        self.state = RecordingState.EXECUTABLE

    def _expect(self, state: RecordingState, subject: str) -> None:
        if self.state is not state:
            raise failure(
                StatusCode.FAILED_PRECONDITION,
                f"{subject}: the command buffer is {self.state.value}, expected {state.value}",
            )

    # --- checks of commands, for those who record them ----------------------------------------------

    def check_command(self, category: int, subject: str) -> None:
        """Begin a command: raise unless one of this category may be recorded now.

        Errors of the checks below name the command by its number, kind and debug groups.
        """
        if self.state is not RecordingState.RECORDING:
            self._expect(RecordingState.RECORDING, subject)
        self.log.begin_command(subject)
        if not self.categories & category:
            raise self.log.error(
                StatusCode.INVALID_ARGUMENT,
                f"the command buffer takes {CommandCategory(self.categories)!r}",
            )

    def check_reference(
        self, ref: BufferRef, subject: str, usage: int = 0, access: int = 0
    ) -> int:
        """The length of a reference to a buffer; -1 where the binding table will tell.

        Args:
            ref: the operand.
            subject: how errors call it.
            usage: what the buffer must be for, any bit of it; 0: anything.
            access: what the command does with it.
        Raises: DeviceError when it lies outside its buffer or the table, or the buffer may not be
            used so.
        """
        buffer = ref.buffer
        if buffer is not None:
            length = buffer.byte_length - ref.offset if ref.length < 0 else ref.length
            if (
                ref.offset < 0
                or ref.length < WHOLE_BUFFER
                or length < 0
                or (ref.offset + length > buffer.byte_length)
            ):
                raise self.log.error(
                    StatusCode.OUT_OF_RANGE,
                    f"{subject}: {ref.length} bytes at {ref.offset}, the buffer has "
                    f"{buffer.byte_length}",
                )
            if usage and not self.mode & _UNVALIDATED:
                self.log.check_buffer(buffer, subject, usage, access)
            return length
        if not 0 <= ref.slot < self.binding_capacity:
            raise self.log.error(
                StatusCode.OUT_OF_RANGE,
                f"{subject}: slot {ref.slot} of a binding table with {self.binding_capacity}",
            )
        if ref.offset < 0 or ref.length < WHOLE_BUFFER:
            raise self.log.error(
                StatusCode.OUT_OF_RANGE, f"{subject}: {ref.length} bytes at {ref.offset}"
            )
        if usage and not self.mode & _UNVALIDATED:
            self.log.need_slot(ref.slot, usage)
        return ref.length

    def begin_fill(self, target: BufferRef, pattern: bytes) -> int:
        """Begin a fill; the length of the target, -1 where the binding table will tell."""
        self.check_command(_TRANSFER, "fill_buffer")
        if len(pattern) not in _PATTERN_SIZES:
            raise self.log.error(
                StatusCode.INVALID_ARGUMENT,
                f"pattern of {len(pattern)} bytes, expected 1, 2, 4 or 8",
            )
        length = self.check_reference(target, "target", TARGET_USAGE, WRITE)
        if length >= 0 and length % len(pattern):
            raise self.log.error(
                StatusCode.INVALID_ARGUMENT,
                f"target: {length} bytes, expected a multiple of the pattern's {len(pattern)}",
            )
        return length

    def begin_update(self, source: bytes, target: BufferRef) -> int:
        """Begin an update; the length of the target, -1 where the binding table will tell."""
        self.check_command(_TRANSFER, "update_buffer")
        check_update(source)
        length = self.check_reference(target, "target", TARGET_USAGE, WRITE)
        if 0 <= length != len(source):
            raise self.log.error(
                StatusCode.INVALID_ARGUMENT,
                f"target: {length} bytes, expected the {len(source)} of the source",
            )
        return length

    def begin_copy(self, source: BufferRef, target: BufferRef) -> tuple[int, int]:
        """Begin a copy; both lengths, -1 where the binding table will tell."""
        self.check_command(_TRANSFER, "copy_buffer")
        from_length = self.check_reference(source, "source", SOURCE_USAGE, READ)
        length = self.check_reference(target, "target", TARGET_USAGE, WRITE)
        if from_length != length and min(from_length, length) >= 0:
            raise self.log.error(
                StatusCode.INVALID_ARGUMENT, f"from {from_length} to {length} bytes"
            )
        if source.buffer is not None and target.buffer is not None:
            start = source.buffer.byte_offset + source.offset
            distance = target.buffer.byte_offset + target.offset - start
            if source.buffer.storage is target.buffer.storage and abs(distance) < length:
                raise self.log.error(
                    StatusCode.INVALID_ARGUMENT,
                    f"source and target overlap: {length} bytes, {abs(distance)} apart",
                )
        return from_length, length

    def begin_dispatch(
        self,
        executable: Executable,
        function: int,
        constants: Sequence[int],
        bindings: Sequence[BufferRef],
    ) -> list[int]:
        """Begin a dispatch; the lengths of its bindings, -1 where the binding table will tell."""
        self.check_command(_DISPATCH, "dispatch")
        problem = _dispatch_problem(executable, function, len(constants), len(bindings))
        if problem is not None:
            raise self.log.error(*problem)
        name = executable.functions[function].name
        return [
            self.check_reference(
                ref, f"kernel '{name}': binding {index}", BINDING_USAGE, READ
            )
            for index, ref in enumerate(bindings)
        ]

    def begin_collective(
        self,
        channel: Channel,
        op: CollectiveOp,
        parameter: int,
        send: BufferRef,
        receive: BufferRef,
        element_count: int,
    ) -> tuple[int, int]:
        """Begin a collective; the bytes it sends and receives, 0 where it has no part in that."""
        self.check_command(CommandCategory.ANY, f"collective {op}")
        peers = op.peers(parameter)
        if element_count < 0 or any(not 0 <= peer < channel.count for peer in peers):
            raise self.log.error(
                StatusCode.OUT_OF_RANGE,
                f"{element_count} elements, ranks {list(peers)} of {channel.count}",
            )
        if op.kind is CollectiveKind.ALL_TO_ALL and element_count % channel.count:
            raise self.log.error(
                StatusCode.INVALID_ARGUMENT,
                f"{element_count} elements, expected a multiple of {channel.count} ranks",
            )
        counts = op.byte_counts(channel.rank, channel.count, parameter, element_count)
        for ref, size, subject, usage, access in (
            (send, counts.send, "send", SOURCE_USAGE | BINDING_USAGE, READ),
            (receive, counts.receive, "receive", TARGET_USAGE | BINDING_USAGE, WRITE),
        ):
            length = self.check_reference(ref, subject, usage, access) if size else 0
            if 0 <= length < size:
                raise self.log.error(
                    StatusCode.OUT_OF_RANGE, f"{subject}: {length} bytes, expected {size}"
                )
        return counts.send, counts.receive

    def check_grid(self, workgroup_count: BufferRef) -> BufferRef:
        """The twelve bytes that an indirect dispatch reads its grid from."""
        ref = workgroup_count._replace(length=GRID_BYTES)
        self.check_reference(ref, "workgroup count", GRID_USAGE, READ)
        if ref.offset % 4:
            raise self.log.error(
                StatusCode.INVALID_ARGUMENT,
                f"workgroup count: at byte {ref.offset}, expected a multiple of 4",
            )
        return ref

    # --- commands -------------------------------------------------------------------------------

    def begin_debug_group(self, label: str) -> None:
        """Name the commands up to the matching end."""
        self._expect(RecordingState.RECORDING, "begin_debug_group")
        self.log.groups.append(label)

    def end_debug_group(self) -> None:
        """Close the innermost group."""
        self._expect(RecordingState.RECORDING, "end_debug_group")
        if not self.log.groups:
            raise failure(StatusCode.FAILED_PRECONDITION, "no debug group is open")
        self.log.groups.pop()

    @abstractmethod
    def execution_barrier(
        self, source_stages: int, target_stages: int, flags: int = 0
    ) -> None:
        """Later commands wait for all earlier ones."""

    def signal_event(self, event: Event, source_stages: int) -> None:
        """Signal an event when the earlier commands are done."""
        del source_stages
        self._expect(RecordingState.RECORDING, "signal_event")
        self.log.signal_event(event)

    def reset_event(self, event: Event, source_stages: int) -> None:
        """Reset an event."""
        del source_stages
        self._expect(RecordingState.RECORDING, "reset_event")
        self.log.reset_event(event)

    def wait_events(
        self, events: Sequence[Event], source_stages: int, target_stages: int
    ) -> None:
        """Later commands wait for the events: with a barrier, which is more than any asks for."""
        self._expect(RecordingState.RECORDING, "wait_events")
        if self.log.wait_events(events):
            self.execution_barrier(source_stages, target_stages)

    def advise_buffer(self, ref: BufferRef, flags: int, arg0: int, arg1: int) -> None:
        """Say how a buffer is going to be used; a device may ignore it."""
        del flags, arg0, arg1
        self.check_reference(ref, "advise_buffer")

    @abstractmethod
    def fill_buffer(self, target: BufferRef, pattern: bytes, flags: int = 0) -> None:
        """Repeat 1, 2, 4 or 8 bytes over a range."""

    @abstractmethod
    def update_buffer(self, source: bytes, target: BufferRef, flags: int = 0) -> None:
        """Write bytes that are recorded with the command."""

    @abstractmethod
    def copy_buffer(self, source: BufferRef, target: BufferRef, flags: int = 0) -> None:
        """Copy between ranges of equal length that do not overlap."""

    def collective(
        self,
        channel: Channel,
        op: CollectiveOp,
        parameter: int,
        send: BufferRef,
        receive: BufferRef,
        element_count: int,
    ) -> None:
        """Run a collective operation with the other participants of the channel.

        Args:
            channel: this participant's end.
            op: what all do.
            parameter: the root or the peer (see `CollectiveOp.byte_counts`).
            send: what this rank brings, unused where it brings nothing.
            receive: where its result goes, unused where it gets none.
            element_count: elements per rank.
        Raises: DeviceError where the device has no collectives.
        """
        del channel, op, parameter, send, receive, element_count
        raise failure(StatusCode.UNIMPLEMENTED, "collectives on this device")

    @abstractmethod
    def dispatch(
        self,
        executable: Executable,
        function: int,
        workgroup_count: tuple[int, int, int],
        constants: Sequence[int],
        bindings: Sequence[BufferRef],
        flags: int = 0,
    ) -> None:
        """Run a kernel over a grid of workgroups."""

    @abstractmethod
    def dispatch_indirect(
        self,
        executable: Executable,
        function: int,
        workgroup_count: BufferRef,
        constants: Sequence[int],
        bindings: Sequence[BufferRef],
        flags: int = 0,
    ) -> None:
        """Run a kernel over a grid that a buffer holds as three u32."""


def check_update(source: bytes) -> None:
    """Raise when recorded data is larger than a command may carry."""
    if len(source) > _UPDATE_LIMIT_BYTES:
        raise failure(
            StatusCode.OUT_OF_RANGE,
            f"update of {len(source)} bytes, at most {_UPDATE_LIMIT_BYTES}",
        )


def check_dispatch(
    executable: Executable, function: int, constant_count: int, binding_count: int
) -> None:
    """Raise unless a dispatch brings what the kernel takes."""
    problem = _dispatch_problem(executable, function, constant_count, binding_count)
    if problem is not None:
        raise failure(*problem)


def _dispatch_problem(
    executable: Executable, function: int, constant_count: int, binding_count: int
) -> tuple[StatusCode, str] | None:
    functions = executable.functions
    if not 0 <= function < len(functions):
        return (
            StatusCode.OUT_OF_RANGE,
            f"function {function} of an executable with {len(functions)}",
        )
    info = functions[function]
    if info.binding_count < 0:
        return None  # executables of old compilers need not say
    if info.constant_count == constant_count and info.binding_count == binding_count:
        return None
    return (
        StatusCode.INVALID_ARGUMENT,
        (
            f"kernel '{info.name}': got {constant_count} constants and {binding_count} "
            f"bindings, expected {info.constant_count} and {info.binding_count}"
        ),
    )
