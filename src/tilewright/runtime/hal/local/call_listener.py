"""Listens to what a call submits to a local device, and makes one plan of it.

The plan does in one native call what the call did in many: the same kernels on the same ranges,
with other inputs.  That holds only if the call would submit the same again, which the caller has
to know.  Called by `runtime.bytecode_machine`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, final

from tilewright.runtime import native
from tilewright.runtime.hal.buffer import Buffer
from tilewright.runtime.hal.command_buffer import BindingTable
from tilewright.runtime.hal.fence import Fence
from tilewright.runtime.hal.local.heap_storage import ALIGNMENT_BYTES, HeapStorage
from tilewright.runtime.hal.local.later_commands import SlotRange
from tilewright.runtime.hal.local.local_command_buffer import LocalCommandBuffer
from tilewright.runtime.recorder import Recorder


@final
@dataclass(frozen=True, slots=True)
class CallPlan:
    """A call as a plan: slots are inputs, outputs, kept memory and scratch, in this order.

    Attributes:
        plan: the commands.
        output_bytes: sizes of the outputs' slots.
        kept: memory that outlives the call (weights), for the slots behind the outputs.
    """

    plan: native.CommandList
    output_bytes: tuple[int, ...]
    kept: tuple[HeapStorage, ...]


@final
class CallListener:
    """Hears of the submissions of one thread.

    `refusal` says why they cannot be replayed, if they cannot.
    """

    def __init__(self) -> None:
        self.refusal: str = ""
        self._thread: Final[tuple[int, int]] = _this_thread()
        self._allocated: dict[int, HeapStorage] = {}
        self._checked: list[tuple[HeapStorage, int, int, Callable[..., object]]] = []
        self._executed: list[tuple[LocalCommandBuffer, Sequence[SlotRange]]] = []

    @property
    def is_of_parent(self) -> bool:
        """Whether this process was forked while another thread recorded: nobody records now."""
        return self._thread[0] != os.getpid()

    @property
    def is_mine(self) -> bool:
        """Whether the running thread is the one that is listened to."""
        return _this_thread() == self._thread

    def refuse(self, reason: str) -> None:
        """The call does something that no plan can."""
        self.refusal = self.refusal or reason

    def allocated(self, buffer: Buffer) -> None:
        """A buffer was made, on any thread."""
        if self.is_mine and isinstance(buffer.storage, HeapStorage):
            self._allocated[id(buffer.storage)] = buffer.storage

    def checked(
        self, buffer: Buffer, offset: int, length: int, report: Callable[..., object]
    ) -> None:
        """What kernels found was read; a replay reads it behind its last command."""
        storage = buffer.storage
        if isinstance(storage, HeapStorage) and self.owns(storage):
            start = buffer.byte_offset + offset
            self._checked.append((storage, start, length, report))
        else:
            self.refuse("findings lie in memory that outlives the call")

    def executed(
        self, wait: Fence | None, commands: LocalCommandBuffer, table: BindingTable
    ) -> None:
        """Commands were submitted."""
        if wait is not None and any(s.value < v for s, v in wait.timepoints):
            self.refuse("work is submitted before what it waits for")
        elif not commands.is_plain:
            self.refuse("a command stands between plans")
        else:
            self._executed.append((commands, commands.slot_ranges(table)))

    def owns(self, storage: object) -> bool:
        """Whether the call made this memory."""
        return id(storage) in self._allocated

    def build(
        self,
        inputs: Sequence[HeapStorage],
        outputs: Sequence[HeapStorage],
        *,
        copies_inputs: bool,
    ) -> CallPlan | None:
        """The plan, or None with a refusal.

        Args:
            inputs: memory of the call's inputs, which the caller exchanges.
            outputs: memory of its results, which the call made.
            copies_inputs: let the commands work on copies of the inputs, made by every run.
        """
        recorder = Recorder()
        alignment = 1 if copies_inputs else ALIGNMENT_BYTES
        given = {id(s): recorder.slot(s.size_bytes, False, alignment) for s in inputs}
        slots = {} if copies_inputs else dict(given)
        for storage in outputs:
            slots[id(storage)] = recorder.slot(storage.size_bytes, True)
        ranges = [r for _, found in self._executed for r in found]
        others = {id(r.storage): r.storage for r in ranges if id(r.storage) not in slots}
        kept = [s for s in others.values() if not (self.owns(s) or id(s) in given)]
        fixed = {id(s) for s in kept} | (given.keys() & slots.keys())
        if any(r.writable and id(r.storage) in fixed for r in ranges):
            self.refuse("a command writes to memory that outlives the call")
        if self.refusal:
            return None
        for storage in kept:
            slots[id(storage)] = recorder.slot(storage.size_bytes)
        for key, storage in others.items():
            if key not in slots:
                slots[key] = recorder.slot(storage.size_bytes, True)
        for storage in [s for s in inputs if copies_inputs and id(s) in slots]:
            key, size = id(storage), storage.size_bytes
            recorder.copy((slots[key], 0, size), (given[key], 0, size), barrier=False)
        for commands, found in self._executed:
            places = [(slots[id(r.storage)], r.offset, r.length) for r in found]
            commands.record_again(recorder, places)
        for storage, offset, length, report in self._checked:
            recorder.on_finding(report, (slots[id(storage)], offset, length))
        plan = recorder.build()
        return CallPlan(plan, tuple(s.size_bytes for s in outputs), tuple(kept))


def _this_thread() -> tuple[int, int]:
    """Process and thread: a forked child gives the numbers of its parent's threads to its own."""
    return os.getpid(), threading.get_ident()
