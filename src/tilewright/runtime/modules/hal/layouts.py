"""Exports of the `hal` module that only programs of versions 2 to 4 import: those with layouts.

IREE's compilers of releases 20240410 to 20240724 declare sets of bindings, push operands into
command buffers and dispatch without any; from 20240828 on (version 5) a dispatch brings its operands.
Each row here has signatures of its own, so one module serves programs of both kinds.

Since: 20240410 (or before).  Until: 20240724; `command_buffer.execute.commands` until 20240621.

Source: IREE `modules/hal/module.c`, `hal/local/inline_command_buffer.c` of release 20240410.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

import tilewright.runtime.modules.hal.commands as newer
from tilewright.base.budget import CURRENT, OBJECT_BYTES
from tilewright.base.status import StatusCode, failure
from tilewright.runtime.hal.buffer import Buffer
from tilewright.runtime.hal.channel import Channel
from tilewright.runtime.hal.command_buffer import BufferBinding, BufferRef, CommandBuffer
from tilewright.runtime.hal.device import Device
from tilewright.runtime.hal.executable import Executable
from tilewright.runtime.hal.nested_commands import (
    NESTED,
    create_nested_commands,
    execute_commands,
)
from tilewright.runtime.hal.pipeline_layout import (
    DescriptorBinding,
    DescriptorSetLayout,
    PipelineLayout,
    PushedBinding,
    PushedOperands,
)
from tilewright.runtime.modules.hal.state import HalState
from tilewright.runtime.vm.buffer import VmBuffer
from tilewright.runtime.vm.native_module import NativeFunction

_ANY_QUEUE: Final = -1
_Item = TypeVar("_Item")

# --- layouts ----------------------------------------------------------------------------------------


def _create_set_layout(
    state: HalState, device: Device, flags: int, bindings: Sequence[tuple[int, int, int]]
) -> DescriptorSetLayout:
    del state, device
    layout = DescriptorSetLayout(flags, [DescriptorBinding(*entry) for entry in bindings])
    return _kept(layout, len(bindings))


def _create_layout(
    state: HalState,
    device: Device,
    constant_count: int,
    set_layouts: Sequence[DescriptorSetLayout],
) -> PipelineLayout:
    del state, device
    layout = PipelineLayout(constant_count, set_layouts)
    return _kept(layout, len(layout.places))


def _kept(item: _Item, entry_count: int = 0) -> _Item:
    """The object, charged to the budget of the call as long as it lives."""
    account = CURRENT.account
    if account is not None:
        account.budget.keep(item, OBJECT_BYTES * (1 + entry_count))
    return item


def _create_executable(
    state: HalState,
    device: Device,
    format_name: VmBuffer,
    data: VmBuffer,
    constants: VmBuffer | None,
    layouts: Sequence[PipelineLayout],
) -> Executable:
    executable = newer.create_executable(state, device, -1, format_name, data, constants)
    state.layouts[executable] = tuple(layouts)
    return executable


def _layout(state: HalState, executable: Executable, function: int) -> PipelineLayout:
    layouts = state.layouts.get(executable, ())
    if not 0 <= function < len(layouts):
        raise failure(
            StatusCode.FAILED_PRECONDITION,
            f"kernel {function} of the executable has no pipeline layout; it was made with "
            f"{len(layouts)} layouts",
        )
    return layouts[function]


# --- command buffers --------------------------------------------------------------------------------


def _create(
    state: HalState, device: Device, modes: int, categories: int, binding_capacity: int
) -> CommandBuffer:
    if not modes & NESTED:
        return newer.create_command_buffer(
            state, device, modes, categories, _ANY_QUEUE, binding_capacity
        )
    commands = _kept(create_nested_commands(modes, categories, binding_capacity))
    commands.begin()
    return commands


def _pushed(state: HalState, commands: CommandBuffer) -> PushedOperands:
    found = state.pushed.get(commands)
    if found is None:
        found = state.pushed[commands] = PushedOperands()
    return found


def _push_constants(
    state: HalState,
    commands: CommandBuffer,
    layout: PipelineLayout,
    offset: int,
    values: Sequence[int],
) -> None:
    del layout
    _pushed(state, commands).push_constants(offset, values)


def _push_descriptor_set(
    state: HalState,
    commands: CommandBuffer,
    layout: PipelineLayout,
    ordinal: int,
    bindings: Sequence[tuple[int, int, Buffer | None, int, int]],
) -> None:
    del layout
    _pushed(state, commands).push_descriptor_set(
        ordinal,
        [
            PushedBinding(number, BufferRef(buffer, offset, length, slot))
            for number, slot, buffer, offset, length in bindings
        ],
    )


def _dispatch(
    state: HalState,
    commands: CommandBuffer,
    executable: Executable,
    function: int,
    x: int,
    y: int,
    z: int,
) -> None:
    layout = _layout(state, executable, function)
    constants, bindings = _pushed(state, commands).operands(layout)
    commands.dispatch(executable, function, (x, y, z), constants, bindings)


def _dispatch_indirect(
    state: HalState,
    commands: CommandBuffer,
    executable: Executable,
    function: int,
    grid: Buffer,
    offset: int,
) -> None:
    layout = _layout(state, executable, function)
    constants, bindings = _pushed(state, commands).operands(layout)
    place = BufferRef(grid, offset, 12)
    commands.dispatch_indirect(executable, function, place, constants, bindings)


def _execute_commands(
    state: HalState,
    commands: CommandBuffer,
    nested: CommandBuffer,
    table: Sequence[tuple[Buffer | None, int, int]],
) -> None:
    del state
    execute_commands(commands, nested, [BufferBinding(*entry) for entry in table])


def _fill(
    state: HalState,
    commands: CommandBuffer,
    target: Buffer,
    offset: int,
    length: int,
    pattern: int,
    pattern_length: int,
) -> None:
    newer.fill(state, commands, target, offset, length, 0, pattern, pattern_length)


def _copy(
    state: HalState,
    commands: CommandBuffer,
    source: Buffer,
    source_offset: int,
    target: Buffer,
    target_offset: int,
    length: int,
) -> None:
    newer.copy(
        state, commands, 0, 0, source, source_offset, target, target_offset, length
    )  # fmt: skip


def _collective(
    state: HalState,
    commands: CommandBuffer,
    channel: Channel,
    op: int,
    parameter: int,
    send: Buffer | None,
    send_offset: int,
    send_length: int,
    receive: Buffer | None,
    receive_offset: int,
    receive_length: int,
    element_count: int,
) -> None:
    newer.collective(
        state, commands, channel, op, parameter, 0, 0, send, receive, send_offset, send_length,
        receive_offset, receive_length, element_count,
    )  # fmt: skip


ROWS: Final = (
    NativeFunction(
        "descriptor_set_layout.create", ("0riCiiiD_r",), _create_set_layout, "device"
    ),
    NativeFunction(
        "pipeline_layout.create", ("0riCrD_r",), _create_layout, "device set_layout"
    ),
    NativeFunction(
        "executable.create",
        ("0rrrrCrD_r",),
        _create_executable,
        "device bytes bytes bytes? layout",
    ),
    NativeFunction("command_buffer.create", ("0riii_r",), _create, "device"),
    NativeFunction(
        "command_buffer.push_constants", ("0rriCiD_v",), _push_constants, "commands layout"
    ),
    NativeFunction(
        "command_buffer.push_descriptor_set",
        ("0rriCiirIID_v",),
        _push_descriptor_set,
        "commands layout buffer?",
    ),
    NativeFunction(
        "command_buffer.dispatch", ("0rriiii_v",), _dispatch, "commands executable"
    ),
    NativeFunction(
        "command_buffer.dispatch.indirect",
        ("0rrirI_v",),
        _dispatch_indirect,
        "commands executable buffer",
    ),
    NativeFunction(
        "command_buffer.execute.commands",
        ("0rrCrIID_v",),
        _execute_commands,
        "commands commands buffer?",
    ),
    NativeFunction("command_buffer.fill_buffer", ("0rrIIii_v",), _fill, "commands buffer"),
    NativeFunction(
        "command_buffer.copy_buffer", ("0rrIrII_v",), _copy, "commands buffer buffer"
    ),
    NativeFunction(
        "command_buffer.collective",
        ("0rriirIIrIII_v",),
        _collective,
        "commands channel buffer? buffer?",
    ),
)
