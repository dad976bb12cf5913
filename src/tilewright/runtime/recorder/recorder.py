"""Packs commands into the records of a command list.

Not here: scheduling or memory planning.  Called by whoever knows what to record (see the package).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from tilewright.runtime.native.core import CommandList
from tilewright.runtime.native.records import (
    BINDING,
    BINDING_WRITABLE,
    COMMAND,
    COMMAND_BARRIER,
    COMMAND_FLUSH_DENORMALS,
    COMMAND_ON_FINDING,
    SLOT,
    SLOT_WRITABLE,
    Kind,
)

Range = tuple[int, int, int]  # (slot, offset, length) in bytes


class Recorder:
    """Records slots and commands; `build` checks all of them.

    Thread-safety: one thread at a time.
    """

    def __init__(self) -> None:
        self._slots = bytearray()
        self._bindings = bytearray()
        self._commands = bytearray()
        self._constants = array("I")
        self._host_calls: list[Callable[..., object]] = []
        self._owners: dict[int, object] = {}
        self._names: dict[int, str] = {}

    @property
    def command_count(self) -> int:
        """Commands recorded so far."""
        return len(self._commands) // COMMAND.size

    def slot(self, size_bytes: int, writable: bool = False, alignment: int = 1) -> int:
        """Add a buffer that every run supplies.

        Returns:
            Its number: slots count up from 0.
        """
        ordinal = len(self._slots) // SLOT.size
        self._slots += SLOT.pack(size_bytes, SLOT_WRITABLE if writable else 0, alignment)
        return ordinal

    def dispatch(  # noqa: PLR0913 - keyword-only options
        self,
        function: int,
        bindings: Sequence[Range],
        workgroup_count: tuple[int, int, int],
        *,
        constants: Sequence[int] = (),
        environment: int = 0,
        workgroup_size: tuple[int, int, int] = (1, 1, 1),
        local_memory_bytes: int = 0,
        barrier: bool = True,
        flushes_denormals: bool = False,
        name: str = "",
    ) -> int:
        """Record a kernel over a grid of workgroups; returns the command's ordinal.

        `flushes_denormals`: the kernel runs with denormal operands and results taken as zero.
        `name`: what errors call it.
        """
        if name:
            self._names[self.command_count] = name
        first = len(self._constants)
        self._constants.extend(value & 0xFFFFFFFF for value in constants)
        return self._append(
            Kind.DISPATCH,
            bindings,
            barrier=barrier,
            flags=COMMAND_FLUSH_DENORMALS if flushes_denormals else 0,
            constants=(first, len(constants)),
            grid=(*workgroup_count, *workgroup_size, local_memory_bytes),
            payload=(function, environment),
        )

    def copy(self, target: Range, source: Range, barrier: bool = True) -> int:
        """Record a copy between two ranges of equal length that do not overlap."""
        return self._append(
            Kind.COPY, (target, source), barrier=barrier, writable=(True, False)
        )

    def fill(self, target: Range, pattern: bytes, barrier: bool = True) -> int:
        """Record the repetition of 1, 2, 4 or 8 bytes over a range."""
        return self._append(
            Kind.FILL,
            (target,),
            barrier=barrier,
            writable=(True,),
            constants=(0, len(pattern)),
            payload=(int.from_bytes(pattern[:8], "little"), 0),
        )

    def host_call(
        self,
        function: Callable[..., object],
        bindings: Sequence[Range],
        writable: Sequence[bool] | None = None,
        barrier: bool = True,
    ) -> int:
        """Record a call of `function` with one byte view per binding; none is writable by default."""
        self._host_calls.append(function)
        return self._append(
            Kind.HOST_CALL,
            bindings,
            barrier=barrier,
            writable=tuple(writable) if writable is not None else (False,) * len(bindings),
            payload=(len(self._host_calls) - 1, 0),
        )

    def on_finding(self, function: Callable[..., object], findings: Range) -> int:
        """Record a call of `function` with the findings, made if there is one among them.

        `findings` are records of 64 bytes with an i64 at their start, the least one for none.
        """
        self._host_calls.append(function)
        return self._append(
            Kind.HOST_CALL,
            (findings,),
            barrier=True,
            flags=COMMAND_ON_FINDING,
            payload=(len(self._host_calls) - 1, 0),
        )

    def keep(self, owner: object) -> None:
        """Make the list hold a reference, to the code or environment that its commands use."""
        self._owners[id(owner)] = owner

    def build(self, list_type: Callable[..., Any] = CommandList) -> CommandList:
        """Check the records and make the list.

        Raises:
            ValueError: a range leaves its slot, a read-only slot is written, a count is too large.
        """
        return list_type(
            bytes(self._commands),
            bytes(self._bindings),
            bytes(self._slots),
            self._constants.tobytes(),
            tuple(self._host_calls),
            tuple(self._owners.values()),
            tuple(self._names.get(i, "") for i in range(max(self._names, default=-1) + 1)),
        )

    def _append(
        self,
        kind: int,
        bindings: Sequence[Range],
        *,
        barrier: bool,
        flags: int = 0,
        writable: Sequence[bool] = (),
        constants: tuple[int, int] = (0, 0),
        grid: Sequence[int] = (0,) * 7,
        payload: tuple[int, int] = (0, 0),
    ) -> int:
        ordinal = self.command_count
        first = len(self._bindings) // BINDING.size
        written = chain(writable, (False,) * (len(bindings) - len(writable)))
        for (slot, offset, length), writes in zip(bindings, written, strict=True):
            flag = BINDING_WRITABLE if writes else 0
            self._bindings += BINDING.pack(slot, flag, offset, length)
        self._commands += COMMAND.pack(
            kind,
            flags | (COMMAND_BARRIER if barrier else 0),
            first,
            len(bindings),
            *constants,
            *grid,
            0,
            *payload,
        )
        return ordinal
