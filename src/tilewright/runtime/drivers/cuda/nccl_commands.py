"""Collectives among the commands of a GPU: put into its stream, and what they mean for an execution.

Who is alone copies to itself; NCCL is not asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

from tilewright.runtime.collectives.nccl_calls import calls_of, is_supported, make_share
from tilewright.runtime.drivers.cuda.context import CudaStream
from tilewright.runtime.drivers.cuda.lowering import address_of
from tilewright.runtime.drivers.cuda.nccl_channel import NcclChannel
from tilewright.runtime.drivers.cuda.operations import DeviceCopy, fill_operations
from tilewright.runtime.drivers.cuda.stream_commands import issue_operation
from tilewright.runtime.hal.collective import (
    CollectiveKind,
    CollectiveOp,
    Contribution,
    send_recv_peers,
)
from tilewright.runtime.hal.deferred_command_buffer import Collective


def check_collective(op: CollectiveOp, count: int) -> str:
    """Why GPUs cannot do this together; empty where they can."""
    if count == 1 and op.kind in (CollectiveKind.SEND, CollectiveKind.RECV):
        return f"{op.kind.name.lower()} needs another participant"
    if count > 1 and not is_supported(op):
        return f"NCCL has no {op}"
    return ""


def issue_collective(command: Collective, stream: CudaStream) -> None:
    """Put a collective into a stream; waits for other ranks the first time only.

    Raises: DeviceError when a rank has failed, or wants something else.
    """
    send = 0 if command.send is None else address_of(command.send)
    receive = 0 if command.receive is None else address_of(command.receive)
    _fill_from_nobody(command, receive, stream)
    channel = command.channel
    if not isinstance(channel, NcclChannel):
        _copy_alone(command, send, receive, stream)
        return
    op, parameter, count = command.op, command.parameter, command.element_count
    addresses = (send, receive)
    part = make_share(op, channel.rank, channel.count, addresses, count, parameter)
    contribution = Contribution(op, parameter, count, None, None)
    channel.issue(contribution, calls_of(op, part), stream)


def _fill_from_nobody(command: Collective, receive: int, stream: CudaStream) -> None:
    """What comes from nobody is zero."""
    if command.receive is None or command.op.kind is not CollectiveKind.SEND_RECV:
        return
    if send_recv_peers(command.parameter)[1] is None:
        for operation in fill_operations(receive, command.receive.length, b"\0"):
            issue_operation(operation, stream)


def _copy_alone(command: Collective, send: int, receive: int, stream: CudaStream) -> None:
    is_moved = command.send is not None and command.receive is not None
    if command.op.kind is CollectiveKind.SEND_RECV:
        is_moved = is_moved and send_recv_peers(command.parameter)[1] is not None
    if is_moved and send != receive and command.send is not None:
        issue_operation(DeviceCopy(receive, send, command.send.length), stream)


@final
class JointExecution:
    """One run of a command buffer that takes other participants.

    Args:
        channels: of its collectives.
        issue: puts the commands into the stream.
        retire: called when the GPU is through with them.
    """

    __slots__ = ("_channels", "_issue", "_retire")

    def __init__(
        self,
        channels: Sequence[NcclChannel],
        issue: Callable[[], object],
        retire: Callable[[], object],
    ) -> None:
        self._channels: Sequence[NcclChannel] = channels
        self._issue: Callable[[], object] = issue
        self._retire: Callable[[], object] = retire

    def issue(self) -> None:
        """Put the commands into the stream; the others are told when that fails."""
        try:
            self._issue()
        except Exception as error:
            self.abandon(error)
            raise
        for channel in self._channels:
            channel.begin()

    def retire(self) -> None:
        """Raises: DeviceError when a collective was aborted."""
        errors: list[Exception] = []
        for channel in self._channels:
            try:
                channel.end()
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]
        self._retire()

    def abandon(self, error: BaseException | None) -> None:
        """Tell the other participants that it will not run, if there is an error."""
        if error is not None:
            for channel in self._channels:
                channel.fail(error)
