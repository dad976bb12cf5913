"""Commands that are recorded once more, to a plan that has others already.

Called by `local_command_buffer`, for `call_listener`.
"""

from __future__ import annotations

from typing import Any, NamedTuple, final

from tilewright.runtime.hal.local.heap_storage import HeapStorage
from tilewright.runtime.recorder import Recorder

Range = tuple[int, int, int]  # slot, offset, length; WHOLE_BUFFER until the table is known


class SlotRange(NamedTuple):
    """The memory of a plan slot in one execution."""

    storage: HeapStorage
    offset: int
    length: int
    writable: bool


@final
class LaterCommands:
    """A recorder to which commands are recorded behind others: the first one waits for those."""

    __slots__ = ("_first", "_recorder")

    def __init__(self, recorder: Recorder) -> None:
        self._recorder: Recorder = recorder
        self._first: bool = True

    def _barrier(self, barrier: object) -> bool:
        first, self._first = self._first, False
        return first or bool(barrier)

    def dispatch(self, *arguments: Any, barrier: bool = True, **options: Any) -> int:
        return self._recorder.dispatch(
            *arguments, barrier=self._barrier(barrier), **options
        )

    def copy(self, target: Range, source: Range, barrier: bool = True) -> int:
        return self._recorder.copy(target, source, barrier=self._barrier(barrier))

    def fill(self, target: Range, pattern: bytes, barrier: bool = True) -> int:
        return self._recorder.fill(target, pattern, barrier=self._barrier(barrier))

    def keep(self, owner: object) -> None:
        self._recorder.keep(owner)
