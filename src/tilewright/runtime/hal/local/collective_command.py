"""Collectives inside a command buffer of the host: run up to one, meet the others, go on.

Nothing blocks: where others have not come yet, the rest of the commands goes on when they have, on
the thread of whoever comes last.  Called by `local_command_buffer`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar, final

from tilewright.base.status import StatusCode
from tilewright.runtime.hal.channel import HostChannel
from tilewright.runtime.hal.collective import CollectiveOp, Contribution
from tilewright.runtime.hal.command_buffer import BindingTable, BufferRef
from tilewright.runtime.hal.fence import Fence
from tilewright.runtime.hal.local.host_executable import binding_view
from tilewright.runtime.hal.semaphore import Semaphore

Part = TypeVar("Part")


@final
@dataclass(frozen=True, slots=True)
class Collective:
    """A recorded operation; `send` and `receive` are None where this rank has no part in that."""

    channel: HostChannel
    op: CollectiveOp
    parameter: int
    element_count: int
    send: BufferRef | None
    receive: BufferRef | None

    def join(self, table: BindingTable) -> Fence:
        """Take part now; the fence is reached when the data is there."""
        return self.channel.join(
            Contribution(
                self.op,
                self.parameter,
                self.element_count,
                None if self.send is None else _view(self.send, table),
                None if self.receive is None else _view(self.receive, table),
            )
        )


def _view(ref: BufferRef, table: BindingTable) -> memoryview:
    return binding_view(ref.buffer, ref.slot, ref.offset, ref.length, table)


def run_with_others(
    parts: Sequence[Part],
    collective_of: Callable[[Part], Collective | None],
    run_part: Callable[[Part], object],
    table: BindingTable,
) -> Fence | None:
    """Run the parts in order.

    Returns: None when all are done, else a fence that is reached when they are.
    Raises: what a part raises before the first wait; the other participants are told.
    """
    channels = [c.channel for part in parts if (c := collective_of(part)) is not None]

    def go_on(rest: Iterator[Part]) -> Fence | None:
        try:
            for part in rest:
                collective = collective_of(part)
                if collective is None:
                    run_part(part)
                    continue
                meeting = collective.join(table)
                if meeting.query() is not StatusCode.OK:
                    return later(meeting, rest)
        except BaseException as error:
            for channel in channels:
                channel.fail(error)
            raise
        return None

    def later(meeting: Fence, rest: Iterator[Part]) -> Fence:
        done = Fence.at(Semaphore(), 1)

        def met(error: BaseException | None) -> None:
            if error is not None:
                done.fail(error)
                return
            try:
                again = go_on(rest)
            except Exception as problem:
                done.fail(problem)
                return
            if again is None:
                done.signal()
            else:
                again.notify(lambda e: done.signal() if e is None else done.fail(e))

        meeting.notify(met)
        return done

    return go_on(iter(parts))
