"""Commands recorded as a plan of the C core, replayed once or many times.

Ranges of buffers become ranges of plan slots: one slot per storage and one per entry of the
binding table, so a replay only passes addresses.  A dispatch whose grid lies in a buffer cuts the
plan in two, and so does one that the host interprets.  Called by local devices.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, cast, final

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
from tilewright.runtime.hal.local.later_commands import LaterCommands, Range, SlotRange
from tilewright.runtime.recorder import Recorder

_ONE_SHOT: Final = int(CommandBufferMode.ONE_SHOT)
_GRID: Final = struct.Struct("<3I")
_U32: Final = 0xFFFF_FFFF
_PIECE_BYTES: Final = 64 << 20
_PIECE_COMMANDS: Final = 4096

Record = Callable[[Recorder, "_Ranges"], object]
Profile = Callable[[DispatchTime], None]


@final
class _Ranges:
    """Resolves recorded ranges against the lengths of a binding table."""

    __slots__ = ("lengths",)

    def __init__(self, lengths: Sequence[int]) -> None:
        self.lengths: Sequence[int] = lengths

    def __call__(self, range_: Range) -> Range:
        slot, offset, length = range_
        return range_ if length >= 0 else (slot, offset, self.lengths[slot] - offset)


@final
class _Command:
    """One recorded command.

    `grid` is the range that an indirect dispatch reads its grid from; `host` the dispatch that is
    interpreted, which `record` does not know; `collective` what is done with other devices.
    """

    __slots__ = ("collective", "grid", "host", "moved", "name", "record", "workgroups")

    def __init__(
        self,
        name: str,
        record: Callable[..., object],
        workgroups: tuple[int, int, int] = (1, 1, 1),
        grid: Range | None = None,
        host: HostDispatch | None = None,
        moved: int = 0,
    ) -> None:
        self.moved: int = moved
        self.name: str = name
        self.record: Callable[..., object] = record
        self.workgroups: tuple[int, int, int] = workgroups
        self.grid: Range | None = grid
        self.host: HostDispatch | None = host
        self.collective: Collective | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it can be part of a plan with others."""
        return self.grid is None and self.host is None and self.collective is None


Part = tuple[native.CommandList, "list[_Command]"] | _Command


@final
class LocalCommandBuffer(CommandBuffer):
    """A command buffer of a local device."""

    __slots__ = (
        "_addresses",
        "_barrier",
        "_commands",
        "_executed",
        "_extents",
        "_keep",
        "_late",
        "_plans",
        "_slots",
        "_table_slots",
        "_writable",
    )

    def __init__(self, mode: int, categories: int, binding_capacity: int) -> None:
        super().__init__(mode, categories, binding_capacity)
        self._commands: list[_Command] = []
        self._slots: dict[object, int] = {}
        self._addresses: list[int] = []  # per slot; 0 for entries of the binding table
        self._extents: list[int] = []  # per slot: the bytes that commands reach
        self._writable: list[bool] = []
        self._table_slots: list[tuple[int, int]] = []  # (slot, entry of the binding table)
        self._keep: list[object] = []
        self._barrier: bool = False
        self._late: bool = False  # some length is known only with the binding table
        self._plans: list[Part] = []
        self._executed: bool = False

    # --- recording ------------------------------------------------------------------------------

    def end(self) -> None:
        super().end()
        if not self._late:
            self._plans = self._build(_Ranges(self._extents))

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
        barrier = self._take_barrier()
        self._commands.append(
            _Command(
                "fill",
                lambda b, r: b.fill(r(place), pattern, barrier=barrier),
                moved=self._reach(place),
            )
        )

    def update_buffer(self, source: bytes, target: BufferRef, flags: int = 0) -> None:
        del flags
        place = self._range(target, self.begin_update(source, target), writes=True)
        data = self._slot(HeapStorage.wrap(bytes(source)), len(source), writes=False)
        self._copy("update", (data, 0, len(source)), place)

    def copy_buffer(self, source: BufferRef, target: BufferRef, flags: int = 0) -> None:
        del flags
        lengths = self.begin_copy(source, target)
        origin = self._range(source, lengths[0], writes=False)
        place = self._range(target, lengths[1], writes=True)
        self._copy("copy", origin, place)

    def _copy(self, name: str, origin: Range, place: Range) -> None:
        barrier = self._take_barrier()
        self._commands.append(
            _Command(
                name,
                lambda b, r: b.copy(r(place), r(origin), barrier=barrier),
                moved=self._reach(place),
            )
        )

    def _reach(self, place: Range) -> int:
        """Bytes of a range; those that a binding table will tell count as a whole piece."""
        return place[2] if place[2] >= 0 else _PIECE_BYTES

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
        command = self._dispatch(executable, function, constants, bindings)
        command.workgroups = (x & _U32, y & _U32, z & _U32)
        self._commands.append(command)

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
        command = self._dispatch(executable, function, constants, bindings)
        grid = self.check_grid(workgroup_count)
        command.grid = self._range(grid, grid.length, writes=False)
        self._commands.append(command)

    def _dispatch(
        self,
        executable: Executable,
        function: int,
        constants: Sequence[int],
        bindings: Sequence[BufferRef],
    ) -> _Command:
        lengths = self.begin_dispatch(executable, function, constants, bindings)
        if not isinstance(executable, LocalExecutable | HostExecutable):
            raise self.log.error(
                StatusCode.INVALID_ARGUMENT, "an executable of another device"
            )
        places = [
            self._range(ref, length, writes=False)
            for ref, length in zip(bindings, lengths, strict=True)
        ]
        if isinstance(executable, HostExecutable):
            return self._host_dispatch(executable, function, constants, bindings)
        export = executable.exports[function]
        barrier = self._take_barrier()
        values = tuple(constants)

        def record(
            recorder: Recorder, resolve: _Ranges, grid: tuple[int, int, int]
        ) -> None:
            ranges = [resolve(place) for place in places]
            executable.record(recorder, function, ranges, grid, values, barrier=barrier)

        return _Command(export.name, record)

    def _host_dispatch(
        self,
        executable: HostExecutable,
        function: int,
        constants: Sequence[int],
        bindings: Sequence[BufferRef],
    ) -> _Command:
        name = executable.functions[function].name
        self._take_barrier()  # it stands between plans, so everything before has ended
        places = tuple((ref.buffer, ref.slot, ref.offset, ref.length) for ref in bindings)
        host = HostDispatch(executable, function, tuple(constants), places)
        return _Command(name, _refuse_to_record, host=host)

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
        self._take_barrier()  # it stands between plans, so everything before has ended
        command = _Command(str(op), _refuse_to_record)
        command.collective = Collective(channel, op, parameter, element_count, *places)
        self._commands.append(command)

    def _take_barrier(self) -> bool:
        barrier, self._barrier = self._barrier, False
        return barrier

    def _range(self, ref: BufferRef, length: int, *, writes: bool) -> Range:
        """Where a reference is among the plan's slots; its length was resolved by the checks."""
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

    def _slot(self, key: HeapStorage | int, reach: int, *, writes: bool) -> int:
        """The plan slot of a storage or of an entry of the binding table."""
        name: object = key if isinstance(key, int) else ("storage", id(key))
        slot = self._slots.get(name)
        if slot is None:
            slot = self._slots[name] = len(self._extents)
            self._extents.append(reach)
            self._writable.append(writes)
            self._addresses.append(0 if isinstance(key, int) else key.address)
            if isinstance(key, int):
                self._table_slots.append((slot, key))
            else:
                self._keep.append(key)
            return slot
        self._extents[slot] = max(self._extents[slot], reach)
        self._writable[slot] |= writes
        return slot

    # --- building -------------------------------------------------------------------------------

    def _build(self, resolve: _Ranges) -> list[Part]:
        """Plans between the dispatches whose grid is known late.

        What a budget pays for is cut into pieces, between which the clock is looked at.
        """
        parts: list[Part] = []
        pending: list[_Command] = []
        is_metered, moved = CURRENT.account is not None, 0
        for command in self._commands:
            if command.is_plain:
                pending.append(command)
                moved += command.moved
                if not is_metered or (
                    moved < _PIECE_BYTES and len(pending) < _PIECE_COMMANDS
                ):
                    continue
                parts.append((self._plan(pending, resolve), pending))
                pending, moved = [], 0
                continue
            if pending:
                parts.append((self._plan(pending, resolve), pending))
                pending = []
            parts.append(command)
        if pending:
            parts.append((self._plan(pending, resolve), pending))
        return parts

    def _plan(
        self,
        commands: Sequence[_Command],
        resolve: _Ranges,
        grid: tuple[int, int, int] | None = None,
    ) -> native.CommandList:
        recorder = Recorder()
        for length, writable in zip(resolve.lengths, self._writable, strict=True):
            recorder.slot(length, writable)
        for command in commands:
            if command.name in ("fill", "copy", "update") and command.grid is None:
                command.record(recorder, resolve)
            else:
                command.record(recorder, resolve, grid or command.workgroups)
        try:
            return recorder.build()
        except ValueError as error:
            raise failure(StatusCode.INVALID_ARGUMENT, str(error)) from error

    # --- once more, as part of a longer plan ----------------------------------------------------

    @property
    def is_plain(self) -> bool:
        """Whether all commands can be part of a plan."""
        return all(command.is_plain for command in self._commands)

    def slot_ranges(self, table: BindingTable) -> list[SlotRange]:
        """The memory of each slot, given a binding table.  Raises: as `execute`."""
        self._resolve(table)
        entries = dict(self._table_slots)
        storages = iter(self._keep)
        found: list[SlotRange] = []
        for slot, writable in enumerate(self._writable):
            if slot not in entries:
                storage = cast("HeapStorage", next(storages))
                found.append(SlotRange(storage, 0, storage.size_bytes, writable))
                continue
            binding = table[entries[slot]]
            buffer = cast("Buffer", binding.buffer)
            length = _binding_range(binding, entries[slot])[1]
            offset = buffer.byte_offset + binding.offset
            found.append(
                SlotRange(cast("HeapStorage", buffer.storage), offset, length, writable)
            )
        return found

    def record_again(self, recorder: Recorder, places: Sequence[Range]) -> None:
        """Record all commands to another plan, behind what it has.

        Args:
            recorder: of that plan.
            places: the range of its slots that each slot here becomes.
        """

        def moved(range_: Range) -> Range:
            slot, offset, length = range_
            target, base, room = places[slot]
            return target, base + offset, room - offset if length < 0 else length

        again = LaterCommands(recorder)
        for command in self._commands:
            if command.name in ("fill", "copy", "update"):
                command.record(again, moved)
            else:
                command.record(again, moved, command.workgroups)

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
        plans = self._plans
        if self._late:
            plans = self._build(_Ranges(self._table_lengths(table)))
        run = _Run(self, pool, table, addresses, profile, heap)
        if not self.has_collectives:
            for part in plans:
                run.part(part)
            return None
        return run_with_others(plans, _collective_of, run.part, table)

    @property
    def has_collectives(self) -> bool:
        """Whether running it takes other participants."""
        return any(command.collective is not None for command in self._commands)

    def abandon(self, error: BaseException) -> None:
        """Tell the other participants of its collectives that it will not run."""
        for command in self._commands:
            if command.collective is not None:
                command.collective.channel.fail(error)

    def run_alone(self, command: _Command, run: _Run) -> None:
        """Run a command that no plan could take: its grid is known now, or it is interpreted."""
        grid = command.workgroups
        if command.grid is not None:
            grid = _read_grid(command.grid, run.addresses)
        if command.host is not None:
            _run_host(command, command.host, grid, run.pool, run.table, run.profile)
            return
        lengths = self._table_lengths(run.table) if self._late else self._extents
        plan = self._plan([command], _Ranges(lengths), grid)
        _run(plan, [command], run)

    def _table_lengths(self, table: BindingTable) -> list[int]:
        lengths = list(self._extents)
        for slot, entry in self._table_slots:
            lengths[slot] = _binding_range(table[entry], entry)[1]
        return lengths

    def _resolve(self, table: BindingTable) -> list[int]:
        """The address of each slot."""
        addresses = list(self._addresses)
        for slot, entry in self._table_slots:
            if entry >= len(table):
                raise failure(
                    StatusCode.OUT_OF_RANGE,
                    f"slot {entry} of a binding table with {len(table)} entries",
                )
            address, length = _binding_range(table[entry], entry)
            self.log.check_slot(entry, cast("Buffer", table[entry].buffer))
            if length < self._extents[slot]:
                raise failure(
                    StatusCode.OUT_OF_RANGE,
                    f"slot {entry} of the binding table has {length} bytes, the commands "
                    f"need {self._extents[slot]}",
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

    def part(self, part: Part) -> None:
        """Run a plan, or a command that stands between plans."""
        account = CURRENT.account
        if account is not None:
            account.check_clock()
        if isinstance(part, _Command):
            self.commands.run_alone(part, self)
        else:
            if account is not None:
                account.spend(sum(1 + c.moved // BYTES_PER_STEP for c in part[1]))
            _run(part[0], part[1], self)


def _collective_of(part: Part) -> Collective | None:
    return part.collective if isinstance(part, _Command) else None


def _refuse_to_record(*arguments: object) -> None:
    del arguments
    raise AssertionError("it stands between plans")


def _read_grid(place: Range, addresses: Sequence[int]) -> tuple[int, int, int]:
    slot, offset, _ = place
    data = native.read_process_memory(addresses[slot] + offset, _GRID.size)
    return cast("tuple[int, int, int]", _GRID.unpack(data))


def _run_host(
    command: _Command,
    host: HostDispatch,
    grid: tuple[int, int, int],
    pool: native.Pool | None,
    table: BindingTable,
    profile: Profile | None,
) -> None:
    begin = time.perf_counter_ns()
    host.run(grid, table, 1 if pool is None else pool.thread_count)
    if profile is not None:
        took = time.perf_counter_ns() - begin
        profile(
            DispatchTime(
                name=command.name, workgroup_count=grid, duration_ns=took, begin_ns=begin
            )
        )


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


def _run(plan: native.CommandList, commands: Sequence[_Command], run: _Run) -> None:
    profile = run.profile
    try:
        if profile is None:
            plan.run(run.pool, run.addresses, run.heap)
            return
        times = plan.run_timed(run.pool, run.addresses, run.heap)
    except native.KernelError as error:
        raise error.for_user from error
    except RecursionError:  # of the caller's, not of the device
        raise
    except RuntimeError as error:
        raise failure(StatusCode.ABORTED, str(error)) from error
    except ValueError as error:
        raise failure(StatusCode.INVALID_ARGUMENT, str(error)) from error
    for command, timing in zip(commands, map(native.Timing.of, times), strict=True):
        profile(
            DispatchTime(
                name=command.name,
                workgroup_count=command.workgroups,
                duration_ns=timing.duration_ns,
                begin_ns=timing.begin_ns,
                threads=timing.threads,
            )
        )
