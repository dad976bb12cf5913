"""Commands of a local device, recorded once and replayed once or many times.

Ranges of buffers become ranges of slots: one slot per storage and one per entry of the binding
table, so a replay only passes addresses.  A dispatch whose grid lies in a buffer cuts the commands in
two lists, and so does one that the host interprets.  Called by local devices.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias, cast, final

from tilewright.base.budget import BYTES_PER_STEP, CURRENT
from tilewright.base.status import StatusCode, failure
from tilewright.runtime import native
from tilewright.runtime.hal.buffer import WRITE, Buffer
from tilewright.runtime.hal.channel import Channel, HostChannel
from tilewright.runtime.hal.collective import CollectiveOp
from tilewright.runtime.hal.command_buffer import (
    BindingTable,
    BufferBinding,
    BufferRef,
    CommandBuffer,
    CommandBufferMode,
    RecordingState,
)
from tilewright.runtime.hal.device import DispatchTime
from tilewright.runtime.hal.executable import Executable
from tilewright.runtime.hal.fence import Fence
from tilewright.runtime.hal.local.collective_command import Collective, run_with_others
from tilewright.runtime.hal.local.executable import LocalExecutable
from tilewright.runtime.hal.local.heap_storage import HeapStorage
from tilewright.runtime.hal.local.host_executable import HostDispatch, HostExecutable
from tilewright.runtime.recorder import Command, Grid, Range, Recorder, raise_failure

_ONE_SHOT: Final = int(CommandBufferMode.ONE_SHOT)
_GRID: Final = struct.Struct("<3I")
_U32: Final = 0xFFFF_FFFF
_PIECE_BYTES: Final = 64 << 20
_PIECE_COMMANDS: Final = 4096

Profile = Callable[[DispatchTime], None]


class SlotRange(NamedTuple):
    """The memory of a slot in one execution."""

    storage: HeapStorage
    offset: int
    length: int
    writable: bool


@final
class _Replay(NamedTuple):
    """Commands of the recorder that run as one list."""

    commands: Sequence[Command]
    built: native.CommandList


@final
class _IndirectDispatch(NamedTuple):
    """The command of the recorder whose grid lies in memory when it runs."""

    ordinal: int
    grid: Range


@final
class _HostDispatch(NamedTuple):
    """A dispatch that is interpreted; `place` is its grid, or where that lies when it runs."""

    dispatch: HostDispatch
    place: Grid | Range
    is_indirect: bool = False


_Alone: TypeAlias = _IndirectDispatch | _HostDispatch | Collective
_Part: TypeAlias = _Replay | _Alone


@final
class LocalCommandBuffer(CommandBuffer):
    """A command buffer of a local device."""

    __slots__ = (
        "_addresses",
        "_alone",
        "_barrier",
        "_executed",
        "_late",
        "_parts",
        "_places",
        "_recorder",
        "_slots",
        "_table_slots",
    )

    def __init__(self, mode: int, categories: int, binding_capacity: int) -> None:
        super().__init__(mode, categories, binding_capacity)
        self._recorder: Recorder = Recorder()
        self._alone: list[tuple[int, _Alone]] = []  # before which command of the recorder
        self._slots: dict[object, int] = {}
        self._places: list[HeapStorage | int] = []  # per slot; or the binding table's entry
        self._addresses: list[int] = []  # per slot; 0 for entries of the binding table
        self._table_slots: list[tuple[int, int]] = []  # (slot, entry of the binding table)
        self._barrier: bool = False
        self._late: bool = False  # some length is known only with the binding table
        self._parts: list[_Part] = []
        self._executed: bool = False

    # --- recording ------------------------------------------------------------------------------

    def end(self) -> None:
        super().end()
        if not self._late:
            self._parts = self._build(None)

    def execution_barrier(
        self, source_stages: int, target_stages: int, flags: int = 0
    ) -> None:
        del source_stages, target_stages, flags
        self._expect(RecordingState.RECORDING, "execution_barrier")
        self._barrier = True
        self.log.barrier()

    def fill_buffer(self, target: BufferRef, pattern: bytes, flags: int = 0) -> None:
        del flags
        place = self._range(target, self.begin_fill(target, pattern), writes=True)
        self._recorder.fill(place, pattern, self._take_barrier())

    def update_buffer(self, source: bytes, target: BufferRef, flags: int = 0) -> None:
        del flags
        place = self._range(target, self.begin_update(source, target), writes=True)
        data = self._slot(HeapStorage.wrap(bytes(source)), len(source), writes=False)
        origin = data, 0, len(source)
        self._recorder.copy(place, origin, self._take_barrier(), "update")

    def copy_buffer(self, source: BufferRef, target: BufferRef, flags: int = 0) -> None:
        del flags
        lengths = self.begin_copy(source, target)
        origin = self._range(source, lengths[0], writes=False)
        place = self._range(target, lengths[1], writes=True)
        self._recorder.copy(place, origin, self._take_barrier())

    def dispatch(
        self,
        executable: Executable,
        function: int,
        workgroup_count: tuple[int, int, int],
        constants: Sequence[int],
        bindings: Sequence[BufferRef],
        flags: int = 0,
    ) -> None:
        del flags
        x, y, z = workgroup_count
        grid = x & _U32, y & _U32, z & _U32
        host = self._dispatch(executable, function, grid, constants, bindings)
        if host is not None:
            self._stand_alone(_HostDispatch(host, grid))

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
        ordinal = self._recorder.command_count
        host = self._dispatch(executable, function, (0, 0, 0), constants, bindings)
        ref = self.check_grid(workgroup_count)
        place = self._range(ref, ref.length, writes=False)
        if host is None:
            self._alone.append((ordinal, _IndirectDispatch(ordinal, place)))
        else:
            self._stand_alone(_HostDispatch(host, place, is_indirect=True))

    def _dispatch(
        self,
        executable: Executable,
        function: int,
        grid: Grid,
        constants: Sequence[int],
        bindings: Sequence[BufferRef],
    ) -> HostDispatch | None:
        """Record a dispatch; or what is to be interpreted instead."""
        lengths = self.begin_dispatch(executable, function, constants, bindings)
        if not isinstance(executable, LocalExecutable | HostExecutable):
            raise self.log.error(
                StatusCode.INVALID_ARGUMENT, "an executable of another device"
            )
        places = [
            self._range(ref, length, writes=False)
            for ref, length in zip(bindings, lengths, strict=True)
        ]
        barrier = self._take_barrier()
        if isinstance(executable, HostExecutable):
            ranges = tuple(
                (ref.buffer, ref.slot, ref.offset, ref.length) for ref in bindings
            )
            return HostDispatch(executable, function, tuple(constants), ranges)
        export = executable.exports[function]
        self._recorder.kernel(
            executable, export, places, grid, tuple(constants), barrier=barrier
        )
        return None

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
        if not isinstance(channel, HostChannel):
            raise self.log.error(StatusCode.INVALID_ARGUMENT, "a channel of another device")
        places: list[BufferRef | None] = []
        for ref, size in zip((send, receive), sizes, strict=True):
            place = ref._replace(length=size) if size else None
            places.append(place)
            if place is not None:
                self._range(place, size, writes=ref is receive)
        self._take_barrier()
        self._stand_alone(Collective(channel, op, parameter, element_count, *places))

    def _stand_alone(self, command: _HostDispatch | Collective) -> None:
        """A command between lists: all before it has ended, so it needs no barrier."""
        self._alone.append((self._recorder.command_count, command))

    def _take_barrier(self) -> bool:
        barrier, self._barrier = self._barrier, False
        return barrier

    def _range(self, ref: BufferRef, length: int, *, writes: bool) -> Range:
        """Where a reference is among the slots; its length was resolved by the checks."""
        if ref.buffer is None:
            self._late |= length < 0
            reach = ref.offset + max(length, 0)
            return self._slot(ref.slot, reach, writes=writes), ref.offset, length
        storage = ref.buffer.storage
        if not isinstance(storage, HeapStorage):
            raise self.log.error(StatusCode.INVALID_ARGUMENT, "a buffer of another device")
        if writes and not ref.buffer.allowed_access & WRITE:
            raise self.log.error(StatusCode.PERMISSION_DENIED, "the buffer is read-only")
        offset = ref.buffer.byte_offset + ref.offset
        return self._slot(storage, storage.size_bytes, writes=writes), offset, length

    def _slot(self, place: HeapStorage | int, reach: int, *, writes: bool) -> int:
        """The slot of a storage or of an entry of the binding table."""
        key: object = place if isinstance(place, int) else ("storage", id(place))
        slot = self._slots.get(key)
        if slot is not None:
            self._recorder.widen(slot, reach, writable=writes)
            return slot
        slot = self._slots[key] = self._recorder.slot(reach, writes)
        self._places.append(place)
        self._addresses.append(0 if isinstance(place, int) else place.address)
        if isinstance(place, int):
            self._table_slots.append((slot, place))
        return slot

    # --- building -------------------------------------------------------------------------------

    def _build(self, sizes_bytes: Sequence[int] | None) -> list[_Part]:
        """Lists, and between them the commands that stand alone."""
        parts: list[_Part] = []
        first = 0
        for ordinal, alone in self._alone:
            parts += self._lists(first, ordinal, sizes_bytes)
            parts.append(alone)
            first = ordinal + isinstance(alone, _IndirectDispatch)
        parts += self._lists(first, self._recorder.command_count, sizes_bytes)
        return parts

    def _lists(
        self, first: int, end: int, sizes_bytes: Sequence[int] | None
    ) -> Iterator[_Replay]:
        """One list; what a budget pays for is cut into pieces, between which the clock is looked at."""
        commands, moved = self._recorder.commands, 0
        for ordinal in range(first, end) if CURRENT.account is not None else ():
            moved += _bytes_moved(commands[ordinal])
            if moved >= _PIECE_BYTES or ordinal + 1 - first >= _PIECE_COMMANDS:
                yield self._list(commands[first : ordinal + 1], sizes_bytes)
                moved, first = 0, ordinal + 1
        if first < end:
            yield self._list(commands[first:end], sizes_bytes)

    def _list(
        self, commands: Sequence[Command], sizes_bytes: Sequence[int] | None
    ) -> _Replay:
        try:
            built = self._recorder.build(commands=commands, sizes_bytes=sizes_bytes)
        except ValueError as error:
            raise failure(StatusCode.INVALID_ARGUMENT, str(error)) from error
        return _Replay(commands, built)

    # --- once more, as part of a longer list ----------------------------------------------------

    @property
    def recorder(self) -> Recorder | None:
        """What was recorded, with the slots of `slot_ranges`; None where something stands alone."""
        return None if self._alone else self._recorder

    def slot_ranges(self, table: BindingTable) -> list[SlotRange]:
        """The memory of each slot, given a binding table.  Raises: as `execute`."""
        self._resolve(table)
        return [
            self._slot_range(slot, place, table) for slot, place in enumerate(self._places)
        ]

    def _slot_range(
        self, slot: int, place: HeapStorage | int, table: BindingTable
    ) -> SlotRange:
        writable = self._recorder.is_writable(slot)
        if isinstance(place, HeapStorage):
            return SlotRange(place, 0, place.size_bytes, writable)
        binding = table[place]
        buffer = cast("Buffer", binding.buffer)
        offset, length = (
            buffer.byte_offset + binding.offset,
            _binding_range(binding, place)[1],
        )
        return SlotRange(cast("HeapStorage", buffer.storage), offset, length, writable)

    # --- execution ------------------------------------------------------------------------------

    def execute(
        self,
        pool: native.Pool | None,
        table: BindingTable = (),
        profile: Profile | None = None,
        heap: native.Heap | None = None,
    ) -> Fence | None:
        """Run all commands now, on this thread and the workers of `pool`.

        Workgroup memory comes from `heap`; None: one without bound.

        Returns: None when done; a fence where a collective waits for other participants.
        Raises: DeviceError when the table does not fit or a kernel fails.
        """
        self._expect(RecordingState.EXECUTABLE, "execute")
        if self.mode & _ONE_SHOT:
            if self._executed:
                raise failure(
                    StatusCode.FAILED_PRECONDITION,
                    "a one-shot command buffer is executed twice",
                )
            self._executed = True
        addresses = self._resolve(table) if self._table_slots else self._addresses
        parts = self._build(self._table_sizes(table)) if self._late else self._parts
        run = _Run(self, pool, table, addresses, profile, heap)
        if not self.has_collectives:
            for part in parts:
                run.part(part)
            return None
        return run_with_others(parts, _collective_of, run.part, table)

    @property
    def has_collectives(self) -> bool:
        """Whether running it takes other participants."""
        return any(isinstance(alone, Collective) for _, alone in self._alone)

    def abandon(self, error: BaseException) -> None:
        """Tell the other participants of its collectives that it will not run."""
        for _, alone in self._alone:
            if isinstance(alone, Collective):
                alone.channel.fail(error)

    def with_grid(self, dispatch: _IndirectDispatch, run: _Run) -> _Replay:
        """A dispatch whose grid is there by now."""
        command = self._recorder.commands[dispatch.ordinal]
        grid = _read_grid(dispatch.grid, run.addresses)
        sizes = self._table_sizes(run.table) if self._late else None
        return self._list([command.with_workgroup_count(grid)], sizes)

    def _table_sizes(self, table: BindingTable) -> list[int]:
        sizes = self._recorder.sizes_bytes()
        for slot, entry in self._table_slots:
            sizes[slot] = _binding_range(table[entry], entry)[1]
        return sizes

    def _resolve(self, table: BindingTable) -> list[int]:
        """The address of each slot."""
        addresses, sizes = list(self._addresses), self._recorder.sizes_bytes()
        for slot, entry in self._table_slots:
            if entry >= len(table):
                raise failure(
                    StatusCode.OUT_OF_RANGE,
                    f"slot {entry} of a binding table with {len(table)} entries",
                )
            address, length = _binding_range(table[entry], entry)
            self.log.check_slot(entry, cast("Buffer", table[entry].buffer))
            if length < sizes[slot]:
                raise failure(
                    StatusCode.OUT_OF_RANGE,
                    f"slot {entry} of the binding table has {length} bytes, the commands "
                    f"need {sizes[slot]}",
                )
            addresses[slot] = address
        return addresses


class _Run(NamedTuple):
    """One execution: what all its parts run with."""

    commands: LocalCommandBuffer
    pool: native.Pool | None
    table: BindingTable
    addresses: Sequence[int]
    profile: Profile | None
    heap: native.Heap | None

    def part(self, part: _Part) -> None:
        """Run a list, or a command that stands between lists."""
        account = CURRENT.account
        if account is not None:
            account.check_clock()
        match part:
            case _Replay():
                if account is not None:
                    steps = (1 + _bytes_moved(c) // BYTES_PER_STEP for c in part.commands)
                    account.spend(sum(steps))
                self._replay(part)
            case _IndirectDispatch():
                self._replay(self.commands.with_grid(part, self))
            case _HostDispatch():
                self._interpret(part)
            case _:
                raise AssertionError("collectives are joined, not run")

    def _replay(self, replay: _Replay) -> None:
        profile, built = self.profile, replay.built
        try:
            if profile is None:
                built.run(self.pool, self.addresses, self.heap)
                return
            times = built.run_timed(self.pool, self.addresses, self.heap)
        except (RuntimeError, ValueError) as error:
            raise_failure(error)
        timings = map(native.Timing.of, times)
        for command, timing in zip(replay.commands, timings, strict=True):
            profile(
                DispatchTime(
                    name=command.name,
                    workgroup_count=command.workgroup_count,
                    duration_ns=timing.duration_ns,
                    begin_ns=timing.begin_ns,
                    threads=timing.threads,
                )
            )

    def _interpret(self, host: _HostDispatch) -> None:
        grid = host.place
        if host.is_indirect:
            grid = _read_grid(host.place, self.addresses)
        begin = time.perf_counter_ns()
        host.dispatch.run(
            grid, self.table, 1 if self.pool is None else self.pool.thread_count
        )
        if self.profile is not None:
            self.profile(
                DispatchTime(
                    name=host.dispatch.name,
                    workgroup_count=grid,
                    duration_ns=time.perf_counter_ns() - begin,
                    begin_ns=begin,
                )
            )


def _collective_of(part: _Part) -> Collective | None:
    return part if isinstance(part, Collective) else None


def _bytes_moved(command: Command) -> int:
    """By a transfer; one whose length a binding table will tell counts as a whole piece."""
    if not command.writes:
        return 0
    length = command.bindings[0][2]
    return length if length >= 0 else _PIECE_BYTES


def _read_grid(place: Range, addresses: Sequence[int]) -> Grid:
    slot, offset, _ = place
    data = native.read_process_memory(addresses[slot] + offset, _GRID.size)
    return cast("Grid", _GRID.unpack(data))


def _binding_range(binding: BufferBinding, entry: int) -> tuple[int, int]:
    """Address and length of an entry of the binding table."""
    buffer = binding.buffer
    if buffer is None:
        raise failure(
            StatusCode.INVALID_ARGUMENT, f"slot {entry} of the binding table is empty"
        )
    storage = buffer.storage
    if not isinstance(storage, HeapStorage):
        raise failure(
            StatusCode.INVALID_ARGUMENT,
            f"slot {entry} of the binding table has a buffer of another device",
        )
    length = binding.length
    if binding.offset or length != buffer.byte_length:
        length = buffer.check_range(binding.offset, binding.length, f"slot {entry}")
    return storage.address + buffer.byte_offset + binding.offset, length
