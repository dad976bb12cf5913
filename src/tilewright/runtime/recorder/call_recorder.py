"""Records a call with arrays: a command list whose slots are those that `RecordedCall` numbers.

Not here: what is recorded.  Called by plan binding and by recorded calls of bytecode.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Sequence
from typing import Any, final

from tilewright.base.record import record
from tilewright.formats.byte_view import Buffer
from tilewright.runtime.native import CommandList, Heap, Pool, RecordedCall
from tilewright.runtime.recorder.recorder import Recorder

Allocate = Callable[[], Any]


@final
@record
class ReplayedCall:
    """Commands, and the call with arrays that they make.

    Attributes:
        over: makes a call of the same commands that returns what other functions make (`outputs`), and takes objects
            of a type with DLPack's table of C functions (`tensors`).

    Thread-safety: `call` may be called from any thread, by several at once.
    """

    commands: CommandList
    call: RecordedCall
    over: Callable[..., RecordedCall]


class _Role(enum.IntEnum):
    """What a slot is for, in the order in which `RecordedCall` numbers them."""

    INPUT = 0
    OUTPUT = 1
    CONSTANT = 2
    SCRATCH = 3
    ROW = 4


@final
class CallRecorder:
    """A recorder whose slots are inputs, outputs, constants, scratch and rows, made in this order.

    Thread-safety: one thread at a time.
    """

    def __init__(self) -> None:
        self.recorder: Recorder = Recorder()
        self._inputs: list[tuple[str, str, Sequence[int]]] = []
        self._outputs: list[Allocate] = []
        self._constants: list[Any] = []
        self._role: _Role = _Role.INPUT

    def input(
        self,
        name: str,
        formats: str,
        shape: Sequence[int],
        size_bytes: int,
        alignment: int = 1,
    ) -> int:
        """The slot of an array that calls take.

        Args:
            name: how errors call it.
            formats: letters of the buffer protocol that it may have, separated by `|`.
            shape: of the array.
            size_bytes: of the slot, at most those of the array.
            alignment: others are copied first.
        """
        self._enter(_Role.INPUT)
        self._inputs.append((name, formats, shape))
        return self.recorder.slot(size_bytes, alignment=alignment)

    def output(self, allocate: Allocate, size_bytes: int) -> int:
        """The slot of what calls return; `allocate` makes a fresh buffer for each."""
        self._enter(_Role.OUTPUT)
        self._outputs.append(allocate)
        return self.recorder.slot(size_bytes, writable=True)

    def constant(self, memory: Buffer, size_bytes: int) -> int:
        """The slot of memory that all calls read."""
        self._enter(_Role.CONSTANT)
        self._constants.append(memory)
        return self.recorder.slot(size_bytes)

    def scratch(self, size_bytes: int) -> int:
        """A slot that has memory of the heap while a call is under way."""
        self._enter(_Role.SCRATCH)
        return self.recorder.slot(size_bytes, writable=True)

    def row(self, size_bytes: int) -> int:
        """A slot that commands let be a row of another; it has no memory of its own."""
        self._enter(_Role.ROW)
        return self.recorder.row_slot(size_bytes)

    def build(
        self, pool: Pool | None, heap: Heap | None, counted_bytes: int = 0
    ) -> ReplayedCall:
        """Check what was recorded, and make a call of it.

        Args:
            pool: the workers; None for the calling thread alone.
            heap: what calls take their memory from; None: one without bound.
            counted_bytes: what a call takes beside its scratch, for the heap's capacity.
        Raises: ValueError, as `Recorder.build`.
        """
        commands = self.recorder.build()
        over = functools.partial(
            RecordedCall,
            commands,
            pool,
            tuple(self._inputs),
            constants=tuple(self._constants),
            heap=heap,
            counted_bytes=counted_bytes,
        )
        return ReplayedCall(commands, over(outputs=self._outputs), over)

    def _enter(self, role: _Role) -> None:
        assert role >= self._role, "slots of a call are made in the order of their roles"
        self._role = role
