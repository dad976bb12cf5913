"""Listens to what a call submits to a local device, and records it as one command list.

The list does in one native call what the call did in many: the same kernels on the same ranges,
with other inputs.  That holds only if the call would submit the same again, which the caller has
to know.  Called by `runtime.bytecode_machine`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Final, final

from tilewright.runtime.hal.buffer import Buffer
from tilewright.runtime.hal.command_buffer import BindingTable
from tilewright.runtime.hal.fence import Fence
from tilewright.runtime.hal.local.heap_storage import HeapStorage
from tilewright.runtime.hal.local.local_command_buffer import LocalCommandBuffer, SlotRange
from tilewright.runtime.recorder import CallRecorder, Recorder


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
        self._executed: list[tuple[Recorder, Sequence[SlotRange]]] = []

    @property
    def is_of_parent(self) -> bool:
        """Whether this process was forked while another thread recorded: nobody records now."""
        return self._thread[0] != os.getpid()

    @property
    def is_mine(self) -> bool:
        """Whether the running thread is the one that is listened to."""
        return _this_thread() == self._thread

    def refuse(self, reason: str) -> None:
        """The call does something that no list can."""
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
        elif commands.recorder is None:
            self.refuse("a command stands between lists")
        else:
            self._executed.append((commands.recorder, commands.slot_ranges(table)))

    def owns(self, storage: object) -> bool:
        """Whether the call made this memory."""
        return id(storage) in self._allocated

    def record(
        self,
        call: CallRecorder,
        inputs: Sequence[tuple[HeapStorage, int]],
        outputs: Sequence[tuple[HeapStorage, int]],
        *,
        copies_inputs: bool,
    ) -> bool:
        """Record what was submitted; whether it could be, else there is a refusal.

        Args:
            call: the recorder, which has slots for inputs and outputs only.
            inputs: memory of the call's inputs, which the caller exchanges, and their slots.
            outputs: memory of its results, which the call made, and their slots.
            copies_inputs: let the commands work on copies of the inputs, made by every run.
        """
        given = {id(storage): slot for storage, slot in inputs}
        slots = {} if copies_inputs else dict(given)
        slots.update((id(storage), slot) for storage, slot in outputs)
        ranges = [r for _, found in self._executed for r in found]
        others = {id(r.storage): r.storage for r in ranges if id(r.storage) not in slots}
        kept = [s for s in others.values() if not (self.owns(s) or id(s) in given)]
        fixed = {id(s) for s in kept} | (given.keys() & slots.keys())
        if any(r.writable and id(r.storage) in fixed for r in ranges):
            self.refuse("a command writes to memory that outlives the call")
        if self.refusal:
            return False
        for storage in kept:
            memory = storage.map(0, storage.size_bytes)
            slots[id(storage)] = call.constant(memory, storage.size_bytes)
        for key, storage in others.items():
            if key not in slots:
                slots[key] = call.scratch(storage.size_bytes)
        recorder = call.recorder
        for storage, slot in inputs if copies_inputs else ():
            key, size = id(storage), storage.size_bytes
            if key in slots:
                recorder.copy((slots[key], 0, size), (slot, 0, size), barrier=False)
        for commands, found in self._executed:
            places = [(slots[id(r.storage)], r.offset, r.length) for r in found]
            recorder.append(commands, places)
        for storage, offset, length, report in self._checked:
            recorder.on_finding(report, (slots[id(storage)], offset, length))
        return True


def _this_thread() -> tuple[int, int]:
    """Process and thread: a forked child gives the numbers of its parent's threads to its own."""
    return os.getpid(), threading.get_ident()
