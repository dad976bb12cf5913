"""Nested command buffers: recorded apart, then recorded into another one with a binding table.

Programs of `hal` versions before 5 may do that; today's execute a command buffer with a table
instead.  Not here: how commands run, which the outer command buffer decides.

Source: IREE `hal/command_buffer.h` of release 20240410 (`execute_commands`).
"""

from __future__ import annotations

from typing import Final

from tilewright.base.status import StatusCode, failure
from tilewright.runtime.hal.command_buffer import (
    BindingTable,
    BufferRef,
    CommandBuffer,
    ExecutionStage,
)
from tilewright.runtime.hal.deferred_command_buffer import (
    Barrier,
    Collective,
    Command,
    CommandOwner,
    Copy,
    DeferredCommandBuffer,
    Dispatch,
    Fill,
    Update,
)

NESTED: Final = 2
"""The bit of a command buffer's mode."""

_ANY_STAGE: Final = int(
    ExecutionStage.DISPATCH | ExecutionStage.TRANSFER | ExecutionStage.RETIRE
)
# The outer command buffer asks whose they are, when they are recorded into it.
_ANYBODYS: Final = CommandOwner(
    owns_buffer=lambda _: True,
    owns_executable=lambda _: True,
    owns_channel=lambda _: True,
)


def create_nested_commands(
    mode: int, categories: int, binding_capacity: int
) -> DeferredCommandBuffer:
    """A command buffer that only `execute_commands` takes: no device submits it."""
    return DeferredCommandBuffer(mode & ~NESTED, categories, binding_capacity, _ANYBODYS)


def execute_commands(
    outer: CommandBuffer, nested: CommandBuffer, table: BindingTable
) -> None:
    """Record the nested commands into the outer command buffer, entries of the table put in.

    Raises: DeviceError for one that is not nested, or whose slots the table lacks.
    """
    if not isinstance(nested, DeferredCommandBuffer) or nested is outer:
        raise failure(
            StatusCode.INVALID_ARGUMENT,
            "execute_commands takes command buffers that were made nested",
        )
    for command in nested.resolve(table):
        _record(outer, command)


def _record(outer: CommandBuffer, command: Command) -> None:
    match command:
        case Barrier():
            outer.execution_barrier(_ANY_STAGE, _ANY_STAGE)
        case Fill(target, pattern):
            outer.fill_buffer(target, pattern)
        case Update(target, data):
            outer.update_buffer(data, target)
        case Copy(source, target):
            outer.copy_buffer(source, target)
        case Dispatch(executable, function, grid, constants, bindings):
            if isinstance(grid, BufferRef):
                outer.dispatch_indirect(executable, function, grid, constants, bindings)
            else:
                outer.dispatch(executable, function, grid, constants, bindings)
        case Collective(channel, op, parameter, count, send, receive):
            absent = BufferRef(None)  # which the outer one does not look at
            outer.collective(
                channel, op, parameter, send or absent, receive or absent, count
            )
