"""Times of commands and of queue operations, taken by the GPU itself with events.

While somebody profiles single commands, all of them go through the stream: a graph has no room
between its nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

from tilewright.runtime.drivers.cuda.command_buffer import issue_command
from tilewright.runtime.drivers.cuda.context import CudaEvent, CudaStream, EventPool
from tilewright.runtime.hal.command_buffer import BufferRef
from tilewright.runtime.hal.deferred_command_buffer import (
    Barrier,
    Collective,
    Command,
    Copy,
    Dispatch,
    Fill,
    Update,
)
from tilewright.runtime.hal.device import DispatchTime, ProfilingFamily

TimeSink = Callable[[DispatchTime], None]


@final
class ProfiledExecution:
    """One run of a command buffer through the stream, with an event around each command.

    Args:
        commands: the commands, the binding table put in.
        stream: where they run.
        events: a pool with timing.
        report: hears the time of each command.
    """

    __slots__ = ("_commands", "_events", "_report", "_stream", "_times")

    def __init__(
        self,
        commands: Sequence[Command],
        stream: CudaStream,
        events: EventPool,
        report: TimeSink,
    ) -> None:
        self._commands: Sequence[Command] = commands
        self._stream: CudaStream = stream
        self._events: EventPool = events
        self._report: TimeSink = report
        self._times: list[tuple[Command, CudaEvent, CudaEvent]] = []

    def issue(self) -> None:
        """Put the commands into the stream."""
        for command in self._commands:
            if isinstance(command, Barrier):
                continue
            start = self._events.record(self._stream)
            issue_command(command, self._stream)
            end = self._events.record(self._stream)
            self._times.append((command, start, end))

    def retire(self) -> None:
        """Report the times."""
        for command, start, end in self._times:
            name, workgroups = _describe(command)
            nanoseconds = round(end.milliseconds_since(start) * 1e6)
            self._report(
                DispatchTime(
                    name=name, workgroup_count=workgroups, duration_ns=max(0, nanoseconds)
                )
            )


@final
class TimedOperation:
    """A queue operation between two events.

    Args:
        name: of the operation.
        issue: puts it into the stream.
        retire: called when it is done.
        stream: where it runs.
        events: a pool with timing.
        report: hears the time.
    """

    __slots__ = (
        "_end",
        "_events",
        "_issue",
        "_name",
        "_report",
        "_retire",
        "_start",
        "_stream",
    )

    def __init__(
        self,
        name: str,
        issue: Callable[[], object],
        retire: Callable[[], object],
        stream: CudaStream,
        events: EventPool,
        report: TimeSink,
    ) -> None:
        self._name: str = name
        self._issue: Callable[[], object] = issue
        self._retire: Callable[[], object] = retire
        self._stream: CudaStream = stream
        self._events: EventPool = events
        self._report: TimeSink = report
        self._start: CudaEvent | None = None
        self._end: CudaEvent | None = None

    def issue(self) -> None:
        """Put the operation into the stream."""
        self._start = self._events.record(self._stream)
        self._issue()
        self._end = self._events.record(self._stream)

    def retire(self) -> None:
        """Report the time."""
        self._retire()
        if self._start is None or self._end is None:
            return
        self._report(
            DispatchTime(
                name=self._name,
                workgroup_count=(1, 1, 1),
                duration_ns=max(0, round(self._end.milliseconds_since(self._start) * 1e6)),
                family=ProfilingFamily.QUEUE_OPERATIONS,
            )
        )


def _describe(command: Command) -> tuple[str, tuple[int, int, int]]:
    match command:
        case Dispatch(grid=grid):
            # A grid in a buffer is not read twice: the count of such a dispatch stays open.
            return command.name, (0, 0, 0) if isinstance(grid, BufferRef) else grid
        case Fill():
            return "fill", (1, 1, 1)
        case Update():
            return "update", (1, 1, 1)
        case Copy():
            return "copy", (1, 1, 1)
        case Collective(op=op):
            return str(op), (1, 1, 1)
        case Barrier():
            return "barrier", (1, 1, 1)
