"""Command buffers of a GPU: recorded as data, run through a stream or as a graph.

Commands that run once are put into the stream; those that run often become a graph when they
first run, and are put into the stream where a graph cannot say it: a grid that lies in a buffer,
collectives, or times of single commands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from tilewright.base.status import StatusCode
from tilewright.runtime.drivers.cuda.context import CudaStream
from tilewright.runtime.drivers.cuda.graph import CudaGraph
from tilewright.runtime.drivers.cuda.lowering import has_grid_in_buffer, lower_command
from tilewright.runtime.drivers.cuda.nccl_channel import NcclChannel
from tilewright.runtime.drivers.cuda.nccl_commands import check_collective, issue_collective
from tilewright.runtime.drivers.cuda.operations import Operation
from tilewright.runtime.drivers.cuda.stream_commands import issue_operation
from tilewright.runtime.hal.channel import Channel
from tilewright.runtime.hal.collective import CollectiveOp
from tilewright.runtime.hal.command_buffer import BufferRef, CommandBufferMode
from tilewright.runtime.hal.deferred_command_buffer import (
    Barrier,
    Collective,
    Command,
    CommandOwner,
    DeferredCommandBuffer,
)


@final
class CudaCommandBuffer(DeferredCommandBuffer):
    """A command buffer of a GPU.

    `graph` is there once it ran as one, `channels` are those of its collectives.
    """

    __slots__ = ("channels", "graph", "uses_graph")

    def __init__(
        self,
        mode: int,
        categories: int,
        binding_capacity: int,
        owner: CommandOwner,
        *,
        prefers_graph: bool,
    ) -> None:
        super().__init__(mode, categories, binding_capacity, owner)
        self.uses_graph: bool = prefers_graph and not mode & CommandBufferMode.ONE_SHOT
        self.graph: CudaGraph | None = None
        self.channels: tuple[NcclChannel, ...] = ()

    def collective(
        self,
        channel: Channel,
        op: CollectiveOp,
        parameter: int,
        send: BufferRef,
        receive: BufferRef,
        element_count: int,
    ) -> None:
        super().collective(channel, op, parameter, send, receive, element_count)
        problem = check_collective(op, channel.count)
        if problem:
            raise self.log.error(StatusCode.UNIMPLEMENTED, problem)

    def end(self) -> None:
        super().end()
        collectives = [c for c in self.commands if isinstance(c, Collective)]
        found = (c.channel for c in collectives if isinstance(c.channel, NcclChannel))
        self.channels = tuple(dict.fromkeys(found))
        if collectives or any(map(has_grid_in_buffer, self.commands)):
            self.uses_graph = False


@final
class Execution:
    """One run of a command buffer.

    Args:
        owner: the command buffer.
        commands: its commands, the binding table put in.
        stream: where they run.
    Ownership: holds the buffers until the GPU is through with them.
    """

    __slots__ = ("_commands", "_graph", "_owner", "_stream")

    def __init__(
        self, owner: CudaCommandBuffer, commands: Sequence[Command], stream: CudaStream
    ) -> None:
        self._owner: CudaCommandBuffer = owner
        self._commands: Sequence[Command] = commands
        self._stream: CudaStream = stream
        self._graph: CudaGraph | None = None

    def issue(self) -> None:
        """Put the commands into the stream."""
        if self._owner.uses_graph:
            self._launch_graph()
            return
        for command in self._commands:
            issue_command(command, self._stream)

    def _launch_graph(self) -> None:
        groups = _lower_groups(self._commands)
        graph, self._owner.graph = self._owner.graph, None  # a failed update leaves none
        if graph is None or not graph.try_update(groups):
            graph = CudaGraph(self._stream.context, groups)
        self._owner.graph = graph
        self._graph = graph
        graph.launch(self._stream)


def issue_command(command: Command, stream: CudaStream) -> None:
    """Put one command into a stream."""
    if has_grid_in_buffer(command):
        stream.synchronize()  # the grid is what earlier commands have written
    if isinstance(command, Collective):
        issue_collective(command, stream)
        return
    for operation in lower_command(command):
        issue_operation(operation, stream)


def _lower_groups(commands: Sequence[Command]) -> list[list[Operation]]:
    groups: list[list[Operation]] = [[]]
    for command in commands:
        if isinstance(command, Barrier):
            groups.append([])
        else:
            groups[-1] += lower_command(command)
    return groups
