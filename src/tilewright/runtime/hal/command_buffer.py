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
from tilewright.runtime.hal.buffer import WHOLE_BUFFER, Buffer
from tilewright.runtime.hal.channel import Channel
from tilewright.runtime.hal.event import Event
from tilewright.runtime.hal.executable import Executable


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

    __slots__ = ("binding_capacity", "categories", "depth", "mode", "state")

    def __init__(self, mode: int, categories: int, binding_capacity: int) -> None:
        self.mode: int = mode
        self.categories: int = categories
        self.binding_capacity: int = binding_capacity
        self.state: RecordingState = RecordingState.INITIAL
        self.depth: int = 0
        if mode & CommandBufferMode.ONE_SHOT and binding_capacity:
            raise failure(
                StatusCode.INVALID_ARGUMENT,
                "a one-shot command buffer with a binding table, expected one or the other",
            )

    # --- life -----------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start recording.  Raises: DeviceError when it was recorded before."""
        self._expect(RecordingState.INITIAL, "begin")
        self.state = RecordingState.RECORDING

    def end(self) -> None:
        """Finish recording; from here the commands do not change."""
        self._expect(RecordingState.RECORDING, "end")
        if self.depth:
            raise failure(
                StatusCode.FAILED_PRECONDITION, f"{self.depth} debug groups are open"
            )
        self.state = RecordingState.EXECUTABLE

    def _expect(self, state: RecordingState, what: str) -> None:
        if self.state is not state:
            raise failure(
                StatusCode.FAILED_PRECONDITION,
                f"{what}: the command buffer is {self.state.value}, expected {state.value}",
            )

    def check_command(self, category: int, what: str) -> None:
        """Raise unless a command of this category may be recorded now."""
        if self.state is not RecordingState.RECORDING:
            self._expect(RecordingState.RECORDING, what)
        if not self.categories & category:
            raise failure(
                StatusCode.INVALID_ARGUMENT,
                f"{what}: the command buffer takes {CommandCategory(self.categories)!r}",
            )

    def check_reference(self, ref: BufferRef, what: str) -> int:
        """The length of a reference to a buffer; -1 where the binding table will tell.

        Raises: DeviceError when it lies outside its buffer or the table.
        """
        if ref.buffer is not None:
            return ref.buffer.check_range(ref.offset, ref.length, what)
        if not 0 <= ref.slot < self.binding_capacity:
            raise failure(
                StatusCode.OUT_OF_RANGE,
                f"{what}: slot {ref.slot} of a binding table with {self.binding_capacity}",
            )
        if ref.offset < 0 or ref.length < WHOLE_BUFFER:
            raise failure(
                StatusCode.OUT_OF_RANGE, f"{what}: {ref.length} bytes at {ref.offset}"
            )
        return ref.length

    # --- commands -------------------------------------------------------------------------------

    def begin_debug_group(self, label: str) -> None:
        """Name the commands up to the matching end."""
        del label
        self._expect(RecordingState.RECORDING, "begin_debug_group")
        self.depth += 1

    def end_debug_group(self) -> None:
        """Close the innermost group."""
        self._expect(RecordingState.RECORDING, "end_debug_group")
        if self.depth == 0:
            raise failure(StatusCode.FAILED_PRECONDITION, "no debug group is open")
        self.depth -= 1

    @abstractmethod
    def execution_barrier(
        self, source_stages: int, target_stages: int, flags: int = 0
    ) -> None:
        """Later commands wait for all earlier ones."""

    @abstractmethod
    def signal_event(self, event: Event, source_stages: int) -> None:
        """Signal an event when the earlier commands are done."""

    @abstractmethod
    def reset_event(self, event: Event, source_stages: int) -> None:
        """Reset an event."""

    @abstractmethod
    def wait_events(
        self, events: Sequence[Event], source_stages: int, target_stages: int
    ) -> None:
        """Later commands wait for the events."""

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

    def collective(self, channel: Channel, *arguments: object) -> None:
        """Run a collective operation.  Raises: DeviceError where the device has none."""
        del channel, arguments
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
    functions = executable.functions
    if not 0 <= function < len(functions):
        raise failure(
            StatusCode.OUT_OF_RANGE,
            f"function {function} of an executable with {len(functions)}",
        )
    info = functions[function]
    if info.binding_count < 0:
        return  # executables of old compilers need not say
    if info.constant_count != constant_count or info.binding_count != binding_count:
        raise failure(
            StatusCode.INVALID_ARGUMENT,
            f"got {constant_count} constants and {binding_count} bindings, expected "
            f"{info.constant_count} and {info.binding_count}",
            location=f"kernel '{info.name}'",
        )
