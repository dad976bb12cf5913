"""Records commands over slots, and packs them into the tables of a command list.

Not here: scheduling or memory planning.  Called by whoever knows what to record (see the package).
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol, final

from tilewright.formats.executable import FLAG_KEEPS_DENORMALS
from tilewright.runtime.native.core import CommandList, Memory
from tilewright.runtime.native.library import Export
from tilewright.runtime.native.records import (
    BINDING,
    BINDING_WRITABLE,
    COMMAND,
    COMMAND_BARRIER,
    COMMAND_FLUSH_DENORMALS,
    COMMAND_ON_FINDING,
    SLOT,
    SLOT_ROW,
    SLOT_WRITABLE,
    Kind,
)

Range = tuple[int, int, int]
"""(slot, offset, length) in bytes; a negative length reaches to the end of the slot."""
Grid = tuple[int, int, int]

_NO_GRID: Final = (0,) * 7


class LoadedCode(Protocol):
    """An executable in memory: what its kernels are given, and what keeps them mapped."""

    @property
    def environment(self) -> Memory: ...


@final
class Command(NamedTuple):
    """A recorded command.

    Attributes:
        kind: what it does.
        flags: whether it waits for all before it, and how it runs.
        bindings: what it reads and writes.
        writes: of those, from the first on, which it is known to write; kernels do not say.
        constants: of a dispatch.
        sizes: workgroups along x, y and z, their sizes, bytes of workgroup memory.
        payload: function and environment, the pattern of a fill, the command that a goto leads to, the slot of a row.
        callee: what a host call calls.
        name: what errors and profiles call it.
    """

    kind: Kind
    flags: int
    bindings: Sequence[Range]
    writes: Sequence[bool] = ()
    constants: Sequence[int] = ()
    sizes: Sequence[int] = _NO_GRID
    payload: tuple[int, int] = (0, 0)
    callee: Callable[..., object] | None = None
    name: str = ""

    @property
    def workgroup_count(self) -> Grid:
        """Of a dispatch; transfers and calls are one."""
        x, y, z = self.sizes[:3]
        return (x, y, z) if self.kind is Kind.DISPATCH else (1, 1, 1)

    def with_workgroup_count(self, count: Grid) -> Command:
        """The same over another grid."""
        return self._replace(sizes=(*count, *self.sizes[3:]))


class Recorder:
    """Records slots and commands; `build` has all of them checked.

    Thread-safety: one thread at a time.
    """

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self._slots: list[tuple[int, int, int]] = []  # size, flags, alignment
        self._owners: dict[int, object] = {}

    @property
    def command_count(self) -> int:
        """Commands recorded so far."""
        return len(self.commands)

    def slot(self, size_bytes: int, writable: bool = False, alignment: int = 1) -> int:
        """Add a buffer that every run supplies.

        Returns:
            Its number: slots count up from 0.
        """
        self._slots.append((size_bytes, SLOT_WRITABLE if writable else 0, alignment))
        return len(self._slots) - 1

    def row_slot(self, size_bytes: int) -> int:
        """Add a slot that commands let be a row of another; a run gives None for it.  Returns: its number."""
        self._slots.append((size_bytes, SLOT_ROW, 1))
        return len(self._slots) - 1

    def widen(self, slot: int, size_bytes: int, *, writable: bool) -> None:
        """Let a slot be at least so large, and writable if it was not."""
        before, flags, alignment = self._slots[slot]
        flags |= SLOT_WRITABLE if writable else 0
        self._slots[slot] = (max(before, size_bytes), flags, alignment)

    def is_writable(self, slot: int) -> bool:
        """Whether some command may write to a slot."""
        return self._slots[slot][1] == SLOT_WRITABLE

    def sizes_bytes(self) -> list[int]:
        """The size of every slot."""
        return [size_bytes for size_bytes, _, _ in self._slots]

    def dispatch(  # noqa: PLR0913 - keyword-only options
        self,
        function: int,
        bindings: Sequence[Range],
        workgroup_count: Grid,
        *,
        constants: Sequence[int] = (),
        environment: int = 0,
        workgroup_size: Grid = (1, 1, 1),
        local_memory_bytes: int = 0,
        barrier: bool = True,
        flushes_denormals: bool = False,
        name: str = "",
    ) -> int:
        """Record a kernel over a grid of workgroups; returns the command's ordinal.

        `flushes_denormals`: the kernel runs with denormal operands and results taken as zero.
        `name`: what errors call it.
        """
        flags = COMMAND_FLUSH_DENORMALS if flushes_denormals else 0
        return self._append(
            Command(
                Kind.DISPATCH,
                flags | COMMAND_BARRIER if barrier else flags,
                bindings,
                constants=constants,
                sizes=(*workgroup_count, *workgroup_size, local_memory_bytes),
                payload=(function, environment),
                name=name,
            )
        )

    def kernel(
        self,
        code: LoadedCode,
        export: Export,
        bindings: Sequence[Range],
        workgroup_count: Grid,
        constants: Sequence[int] = (),
        *,
        barrier: bool = True,
        is_inline: bool = False,
    ) -> int:
        """Record a kernel of an executable library, which the list keeps; returns the ordinal.

        Args:
            code: the executable.
            export: the kernel.
            bindings: what it reads and writes.
            workgroup_count: the grid.
            constants: push constants, u32.
            barrier: whether it waits for what was recorded before.
            is_inline: it runs as the caller's thread is, which IREE's inline HAL leaves alone; all
                other kernels have denormals taken as zero unless they are marked.
        """
        x, y, z = export.workgroup_size
        keeps_denormals = is_inline or bool(export.flags & FLAG_KEEPS_DENORMALS)
        self.keep(code)
        return self.dispatch(
            export.function,
            bindings,
            workgroup_count,
            constants=constants,
            environment=code.environment.address,
            workgroup_size=(x or 1, y or 1, z or 1),
            local_memory_bytes=export.local_memory_bytes,
            barrier=barrier,
            flushes_denormals=not keeps_denormals,
            name=export.name,
        )

    def copy(
        self, target: Range, source: Range, barrier: bool = True, name: str = "copy"
    ) -> int:
        """Record a copy between two ranges of equal length that do not overlap."""
        flags = COMMAND_BARRIER if barrier else 0
        both = (target, source)
        return self._append(Command(Kind.COPY, flags, both, (True,), name=name))

    def fill(self, target: Range, pattern: bytes, barrier: bool = True) -> int:
        """Record the repetition of 1, 2, 4 or 8 bytes over a range."""
        return self._append(
            Command(
                Kind.FILL,
                COMMAND_BARRIER if barrier else 0,
                (target,),
                (True,),
                constants=pattern,
                name="fill",
            )
        )

    def host_call(
        self,
        function: Callable[..., object],
        bindings: Sequence[Range],
        writable: Sequence[bool] = (),
        barrier: bool = True,
    ) -> int:
        """Record a call of `function` with one byte view per binding; none is writable by default."""
        flags = COMMAND_BARRIER if barrier else 0
        return self._append(
            Command(Kind.HOST_CALL, flags, bindings, writable, callee=function)
        )

    def on_finding(self, function: Callable[..., object], findings: Range) -> int:
        """Record a call of `function` with the findings, made if there is one among them.

        `findings` are records of 64 bytes with an i64 at their start, the least one for none.
        """
        flags = COMMAND_BARRIER | COMMAND_ON_FINDING
        return self._append(Command(Kind.HOST_CALL, flags, (findings,), callee=function))

    def goto(self, target: int = -1, unless: Range | None = None) -> int:
        """Record that the run goes on at another command.

        Args:
            target: its ordinal; `lead` says it where it is not known yet.
            unless: only where the first byte of this range is 0.
        """
        bindings = () if unless is None else (unless,)
        payload = (max(target, 0), 0)
        return self._append(
            Command(Kind.GOTO, COMMAND_BARRIER, bindings, payload=payload, name="goto")
        )

    def lead(self, goto: int, target: int) -> None:
        """Say where a goto leads."""
        self.commands[goto] = self.commands[goto]._replace(payload=(target, 0))

    def row(self, slot: int, table: Range, place: Range) -> int:
        """Record that `slot` is the row of `table` at the i64 in `place`, from here on.

        The place counts from the end where it is negative; one out of range is moved to the nearest row.
        """
        payload, both = (slot, 0), (place, table)
        return self._append(
            Command(Kind.ROW, COMMAND_BARRIER, both, payload=payload, name="row")
        )

    def keep(self, owner: object) -> None:
        """Make the list hold a reference, to the code or environment that its commands use."""
        self._owners[id(owner)] = owner

    def append(self, other: Recorder, places: Sequence[Range]) -> None:
        """Record what another recorder has behind what is here; its first command waits for that.

        Args:
            other: whose commands.
            places: the range of a slot here that each of its slots becomes; of a slot for rows, another such slot.
        """

        def moved(range_: Range) -> Range:
            slot, offset, length = range_
            target, base, room = places[slot]
            return target, base + offset, room - offset if length < 0 else length

        waits, first = COMMAND_BARRIER, len(self.commands)
        for command in other.commands:
            target, rest = command.payload
            if command.kind is Kind.GOTO:
                target += first
            elif command.kind is Kind.ROW:
                target = places[target][0]
            self.commands.append(
                command._replace(
                    flags=command.flags | waits,
                    bindings=[moved(range_) for range_ in command.bindings],
                    payload=(target, rest),
                )
            )
            waits = 0
        self._owners.update(other._owners)

    def build(
        self,
        list_type: Callable[..., Any] = CommandList,
        *,
        commands: Sequence[Command] | None = None,
        sizes_bytes: Sequence[int] | None = None,
    ) -> CommandList:
        """Check what was recorded, and make a list of it.

        Args:
            list_type: which core's.
            commands: of those that were recorded, or made from them; None: all.
            sizes_bytes: of the slots, where they are known only now.

        Raises:
            ValueError: a range leaves its slot, a read-only slot is written, a count is too large.
        """
        sizes = self.sizes_bytes() if sizes_bytes is None else sizes_bytes
        tables = _Tables(sizes)
        try:
            for command in self.commands if commands is None else commands:
                tables.add(command)
            slots = b"".join(
                SLOT.pack(size, flags, alignment)
                for size, (_, flags, alignment) in zip(sizes, self._slots, strict=True)
            )
        except (struct.error, OverflowError) as error:
            raise ValueError(f"a number does not fit its record: {error}") from error
        return list_type(
            bytes(tables.commands),
            bytes(tables.bindings),
            slots,
            tables.constants.tobytes(),
            tuple(tables.host_calls),
            tuple(self._owners.values()),
            tuple(tables.names),
        )

    def _append(self, command: Command) -> int:
        self.commands.append(command)
        return len(self.commands) - 1


@final
class _Tables:
    """The records of a list in the making."""

    __slots__ = ("bindings", "commands", "constants", "host_calls", "names", "sizes")

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes: Sequence[int] = sizes
        self.commands: bytearray = bytearray()
        self.bindings: bytearray = bytearray()
        self.constants: array[int] = array("I")
        self.host_calls: list[Callable[..., object]] = []
        self.names: list[str] = []

    def add(self, command: Command) -> None:
        """Pack a command and what it refers to."""
        kind, flags, ranges, writes, constants, sizes, payload, callee, name = command
        first, constant_first = len(self.bindings) // BINDING.size, 0
        for index, (slot, offset, length) in enumerate(ranges):
            writable = BINDING_WRITABLE if index < len(writes) and writes[index] else 0
            room = length if length >= 0 else self.sizes[slot] - offset
            self.bindings += BINDING.pack(slot, writable, offset, room)
        if kind is Kind.DISPATCH:
            constant_first = len(self.constants)
            self.constants.extend([value & 0xFFFFFFFF for value in constants])
        elif kind is Kind.FILL:
            payload = (int.from_bytes(bytes(constants[:8]), "little"), 0)
        elif callee is not None:
            payload = (len(self.host_calls), 0)
            self.host_calls.append(callee)
        self.names.append(name)
        self.commands += COMMAND.pack(
            *(kind, flags, first, len(ranges), constant_first, len(constants)),
            *(*sizes, 0, *payload),
        )
