"""Commands recorded as data, for devices that put them into a stream or a graph of their own later.

Everything is checked when it is recorded; what names the binding table is checked, and replaced
by buffers, when the commands are submitted.  Where the memory of a buffer lies is only asked when
they are issued.  Not here: how commands run.

Source: IREE `hal/utils/deferred_command_buffer.h`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, final

from tilewright.base.status import StatusCode, failure
from tilewright.runtime.hal.buffer import Buffer
from tilewright.runtime.hal.channel import Channel
from tilewright.runtime.hal.collective import CollectiveOp
from tilewright.runtime.hal.command_buffer import (
    BindingTable,
    BufferRef,
    CommandBuffer,
    CommandBufferMode,
    RecordingState,
)
from tilewright.runtime.hal.executable import Executable

_ONE_SHOT: Final = int(CommandBufferMode.ONE_SHOT)
_U32: Final = 0xFFFF_FFFF

Grid = tuple[int, int, int]


@final
@dataclass(frozen=True, slots=True)
class Barrier:
    """What comes later waits for all that came before."""


@final
@dataclass(frozen=True, slots=True)
class Fill:
    """Repeat a pattern over a range."""

    target: BufferRef
    pattern: bytes


@final
@dataclass(frozen=True, slots=True)
class Update:
    """Write recorded bytes."""

    target: BufferRef
    data: bytes


@final
@dataclass(frozen=True, slots=True)
class Copy:
    """Copy a range to another of the same length."""

    source: BufferRef
    target: BufferRef


@final
@dataclass(frozen=True, slots=True)
class Dispatch:
    """Run a kernel over a grid, which may lie in a buffer as three u32."""

    executable: Executable
    function: int
    grid: Grid | BufferRef
    constants: tuple[int, ...]
    bindings: tuple[BufferRef, ...]

    @property
    def name(self) -> str:
        """The kernel's."""
        return self.executable.functions[self.function].name


@final
@dataclass(frozen=True, slots=True)
class Collective:
    """Do something with other participants of a channel.

    `send` and `receive` are None where this rank has no part in that.
    """

    channel: Channel
    op: CollectiveOp
    parameter: int
    element_count: int
    send: BufferRef | None
    receive: BufferRef | None


Command: TypeAlias = "Barrier | Fill | Update | Copy | Dispatch | Collective"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOwner:
    """How a device knows its own: what may be recorded into its command buffers."""

    owns_buffer: Callable[[Buffer], bool]
    owns_executable: Callable[[Executable], bool]
    owns_channel: Callable[[Channel], bool]


class DeferredCommandBuffer(CommandBuffer):
    """Recorded commands; `commands` is complete once recording has ended.

    Ownership: the commands hold buffers and executables.
    """

    __slots__ = ("_executed", "_has_slots", "_owner", "commands")

    def __init__(
        self, mode: int, categories: int, binding_capacity: int, owner: CommandOwner
    ) -> None:
        super().__init__(mode, categories, binding_capacity)
        self.commands: list[Command] = []
        self._owner: CommandOwner = owner
        self._has_slots: bool = False
        self._executed: bool = False

    # --- recording ------------------------------------------------------------------------------

    def execution_barrier(
        self, source_stages: int, target_stages: int, flags: int = 0
    ) -> None:
        del source_stages, target_stages, flags
        self._expect(RecordingState.RECORDING, "execution_barrier")
        self.log.barrier()
        if self.commands and not isinstance(self.commands[-1], Barrier):
            self.commands.append(Barrier())

    def fill_buffer(self, target: BufferRef, pattern: bytes, flags: int = 0) -> None:
        del flags
        length = self.begin_fill(target, pattern)
        place = self._own(target, length, writes=True)
        self.commands.append(Fill(place, bytes(pattern)))

    def update_buffer(self, source: bytes, target: BufferRef, flags: int = 0) -> None:
        del flags
        length = self.begin_update(source, target)
        place = self._own(target, length, writes=True)
        self.commands.append(Update(place, bytes(source)))

    def copy_buffer(self, source: BufferRef, target: BufferRef, flags: int = 0) -> None:
        del flags
        source_length, length = self.begin_copy(source, target)
        origin = self._own(source, source_length)
        self.commands.append(Copy(origin, self._own(target, length, writes=True)))

    def dispatch(
        self,
        executable: Executable,
        function: int,
        workgroup_count: Grid,
        constants: Sequence[int],
        bindings: Sequence[BufferRef],
        flags: int = 0,
    ) -> None:
        del flags
        places = self._begin_dispatch(executable, function, constants, bindings)
        x, y, z = workgroup_count
        grid = (x & _U32, y & _U32, z & _U32)
        values = tuple(value & _U32 for value in constants)
        self.commands.append(Dispatch(executable, function, grid, values, places))

    def dispatch_indirect(
        self,
        executable: Executable,
        function: int,
        workgroup_count: BufferRef,
        constants: Sequence[int],
        bindings: Sequence[BufferRef],
        flags: int = 0,
    ) -> None:
        del flags
        places = self._begin_dispatch(executable, function, constants, bindings)
        grid = self.check_grid(workgroup_count)
        grid = self._own(grid, grid.length)
        values = tuple(value & _U32 for value in constants)
        self.commands.append(Dispatch(executable, function, grid, values, places))

    def collective(
        self,
        channel: Channel,
        op: CollectiveOp,
        parameter: int,
        send: BufferRef,
        receive: BufferRef,
        element_count: int,
    ) -> None:
        sizes = self.begin_collective(channel, op, parameter, send, receive, element_count)
        if not self._owner.owns_channel(channel):
            raise self.log.error(StatusCode.INVALID_ARGUMENT, "a channel of another device")
        source = self._own(send._replace(length=sizes[0]), sizes[0]) if sizes[0] else None
        target = None
        if sizes[1]:
            target = receive._replace(length=sizes[1])
            target = self._own(target, sizes[1], writes=True)
        command = Collective(channel, op, parameter, element_count, source, target)
        self.commands.append(command)

    def _begin_dispatch(
        self,
        executable: Executable,
        function: int,
        constants: Sequence[int],
        bindings: Sequence[BufferRef],
    ) -> tuple[BufferRef, ...]:
        lengths = self.begin_dispatch(executable, function, constants, bindings)
        if not self._owner.owns_executable(executable):
            raise self.log.error(
                StatusCode.INVALID_ARGUMENT, "an executable of another device"
            )
        return tuple(map(self._own, bindings, lengths))

    def _own(self, ref: BufferRef, length: int, *, writes: bool = False) -> BufferRef:
        """The reference with the length that the checks have found, if it is known."""
        if ref.buffer is None:
            self._has_slots = True
            return ref
        if not self._owner.owns_buffer(ref.buffer):
            raise self.log.error(StatusCode.INVALID_ARGUMENT, "a buffer of another device")
        if writes and ref.buffer.storage.readonly:  # checked even where validation is off
            raise self.log.error(StatusCode.PERMISSION_DENIED, "the memory is read-only")
        return ref._replace(length=length)

    # --- submission -----------------------------------------------------------------------------

    def resolve(self, table: BindingTable = ()) -> list[Command]:
        """The commands for one execution, entries of the binding table put in.

        Raises: DeviceError when the table does not fit, recording has not ended, or commands for
        one execution are executed again.
        """
        self._expect(RecordingState.EXECUTABLE, "execute")
        if self.mode & _ONE_SHOT:
            if self._executed:
                raise failure(
                    StatusCode.FAILED_PRECONDITION,
                    "a one-shot command buffer is executed twice",
                )
            self._executed = True
        if not self._has_slots:
            return self.commands
        resolver = _Resolver(self, table)
        return [resolver.command(command) for command in self.commands]

    def check_entry(self, buffer: Buffer, entry: int) -> None:
        """Raise unless an entry of the binding table is a buffer of the device."""
        if not self._owner.owns_buffer(buffer):
            raise failure(
                StatusCode.INVALID_ARGUMENT,
                f"slot {entry} of the binding table has a buffer of another device",
            )
        self.log.check_slot(entry, buffer)


@final
class _Resolver:
    """Puts the entries of one binding table into commands."""

    def __init__(self, commands: DeferredCommandBuffer, table: BindingTable) -> None:
        self._commands: DeferredCommandBuffer = commands
        self._table: BindingTable = table
        self._entries: dict[int, BufferRef] = {}

    def command(self, command: Command) -> Command:
        match command:
            case Fill(target, pattern):
                found: Command = Fill(self._ref(target), pattern)
            case Update(target, data):
                found = Update(self._ref(target), data)
            case Copy(source, target):
                found = Copy(self._ref(source), self._ref(target))
            case Dispatch(executable, function, grid, constants, bindings):
                places = tuple(map(self._ref, bindings))
                if isinstance(grid, BufferRef):
                    grid = self._ref(grid)
                return Dispatch(executable, function, grid, constants, places)
            case Collective(channel, op, parameter, count, send, receive):
                send = None if send is None else self._ref(send)
                receive = None if receive is None else self._ref(receive)
                return Collective(channel, op, parameter, count, send, receive)
            case Barrier():
                return command
        _check_lengths(found)
        return found

    def _ref(self, ref: BufferRef) -> BufferRef:
        if ref.buffer is not None:
            return ref
        entry = self._entries.get(ref.slot)
        if entry is None:
            entry = self._entries[ref.slot] = self._entry(ref.slot)
        length = entry.length - ref.offset if ref.length < 0 else ref.length
        if length < 0 or ref.offset + length > entry.length:
            raise failure(
                StatusCode.OUT_OF_RANGE,
                f"slot {ref.slot} of the binding table has {entry.length} bytes, the "
                f"commands need {ref.offset + max(length, 0)}",
            )
        return BufferRef(entry.buffer, entry.offset + ref.offset, length)

    def _entry(self, slot: int) -> BufferRef:
        if slot >= len(self._table):
            raise failure(
                StatusCode.OUT_OF_RANGE,
                f"slot {slot} of a binding table with {len(self._table)} entries",
            )
        binding = self._table[slot]
        if binding.buffer is None:
            raise failure(
                StatusCode.INVALID_ARGUMENT, f"slot {slot} of the binding table is empty"
            )
        self._commands.check_entry(binding.buffer, slot)
        length = binding.buffer.check_range(binding.offset, binding.length, f"slot {slot}")
        return BufferRef(binding.buffer, binding.offset, length)


def _check_lengths(command: Fill | Update | Copy | Dispatch) -> None:
    """Raise where lengths that are known do not go together."""
    match command:
        case Fill(target, pattern) if target.length >= 0 and target.length % len(pattern):
            text = f"fill_buffer: {target.length} bytes with a pattern of {len(pattern)}"
        case Update(target, data) if target.length not in (-1, len(data)):
            text = f"update_buffer: {len(data)} bytes for a range of {target.length}"
        case Copy(source, target) if (
            source.length != target.length and min(source.length, target.length) >= 0
        ):
            text = f"copy_buffer: from {source.length} to {target.length} bytes"
        case _:
            return
    raise failure(StatusCode.INVALID_ARGUMENT, text)
