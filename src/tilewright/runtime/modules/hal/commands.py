"""Exports of the `hal` module about command buffers and executables.

Signatures before 3.4 lack flags, those before 3.12 name kernels by an i32; both mean the same.
Those before version 5, which bring no operands, are rows of `layouts`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from tilewright.base.budget import CURRENT, OBJECT_BYTES
from tilewright.runtime.hal.buffer import Buffer
from tilewright.runtime.hal.channel import Channel
from tilewright.runtime.hal.collective import CollectiveKind, CollectiveOp
from tilewright.runtime.hal.command_buffer import BufferRef, CommandBuffer
from tilewright.runtime.hal.device import Device
from tilewright.runtime.hal.executable import Executable
from tilewright.runtime.modules.hal.buffers import pattern_bytes
from tilewright.runtime.modules.hal.state import HalState
from tilewright.runtime.vm.buffer import VmBuffer
from tilewright.runtime.vm.native_module import NativeFunction

_CONSTANTS_BYTES: Final = 1 << 16
Binding = tuple[
    int, int, "Buffer | None", int, int
]  # reserved, slot, buffer, offset, length


def _refs(bindings: Sequence[Binding]) -> list[BufferRef]:
    return [
        BufferRef(buffer, offset, length, slot)
        for _, slot, buffer, offset, length in bindings
    ]


# --- command buffers --------------------------------------------------------------------------------


def create_command_buffer(
    state: HalState,
    device: Device,
    modes: int,
    categories: int,
    queue_affinity: int,
    binding_capacity: int,
) -> CommandBuffer:
    """A command buffer that is being recorded."""
    del state
    commands = device.create_command_buffer(
        modes, categories, queue_affinity, binding_capacity
    )
    account = CURRENT.account
    if account is not None:
        account.budget.keep(commands, OBJECT_BYTES)
    commands.begin()
    return commands


def _finalize(state: HalState, commands: CommandBuffer) -> None:
    del state
    commands.end()


def _begin_group(state: HalState, commands: CommandBuffer, label: VmBuffer) -> None:
    del state
    commands.begin_debug_group(label.text)


def _end_group(state: HalState, commands: CommandBuffer) -> None:
    del state
    commands.end_debug_group()


def _barrier(
    state: HalState, commands: CommandBuffer, source: int, target: int, flags: int
) -> None:
    del state
    commands.execution_barrier(source, target, flags)


def _advise(
    state: HalState,
    commands: CommandBuffer,
    buffer: Buffer | None,
    flags: int,
    arg0: int,
    arg1: int,
    slot: int,
) -> None:
    del state
    commands.advise_buffer(BufferRef(buffer, slot=slot), flags, arg0, arg1)


def _make_visible(
    state: HalState,
    commands: CommandBuffer,
    slot: int,
    buffer: Buffer | None,
    offset: int,
    length: int,
) -> None:
    """Flush or invalidate a range: barriers do that on every device there is so far."""
    del state
    commands.check_reference(BufferRef(buffer, offset, length, slot), "range")


def fill(
    state: HalState,
    commands: CommandBuffer,
    target: Buffer | None,
    offset: int,
    length: int,
    slot: int,
    pattern: int,
    pattern_length: int,
    flags: int = 0,
) -> None:
    """Record a fill."""
    del state
    place = BufferRef(target, offset, length, slot)
    commands.fill_buffer(place, pattern_bytes(pattern, pattern_length), flags)


def _update(
    state: HalState,
    commands: CommandBuffer,
    source: VmBuffer,
    source_offset: int,
    target: Buffer | None,
    target_offset: int,
    length: int,
    slot: int,
    flags: int = 0,
) -> None:
    del state
    account = CURRENT.account
    if account is not None:
        account.budget.keep(commands, max(0, length))
    data = bytes(source.range(source_offset, length))
    commands.update_buffer(data, BufferRef(target, target_offset, length, slot), flags)


def copy(
    state: HalState,
    commands: CommandBuffer,
    source_slot: int,
    target_slot: int,
    source: Buffer | None,
    source_offset: int,
    target: Buffer | None,
    target_offset: int,
    length: int,
    flags: int = 0,
) -> None:
    """Record a copy."""
    del state
    commands.copy_buffer(
        BufferRef(source, source_offset, length, source_slot),
        BufferRef(target, target_offset, length, target_slot),
        flags,
    )


def collective(
    state: HalState,
    commands: CommandBuffer,
    channel: Channel,
    op: int,
    parameter: int,
    send_slot: int,
    receive_slot: int,
    send: Buffer | None,
    receive: Buffer | None,
    send_offset: int,
    send_length: int,
    receive_offset: int,
    receive_length: int,
    element_count: int,
) -> None:
    """Record a collective operation."""
    del state
    collective = CollectiveOp.unpack(op & 0xFFFF_FFFF)
    if collective.kind is CollectiveKind.ALL_GATHER:
        # IREE's compilers count what comes out, its runtime what each rank brings: lengths tell.
        total = element_count * collective.dtype.bits // 8
        if send_length * channel.count == receive_length == total:
            element_count //= channel.count
    commands.collective(
        channel,
        collective,
        parameter & 0xFFFF_FFFF,
        BufferRef(send, send_offset, send_length, send_slot),
        BufferRef(receive, receive_offset, receive_length, receive_slot),
        element_count,
    )


def _dispatch(
    state: HalState,
    commands: CommandBuffer,
    executable: Executable,
    function: int,
    x: int,
    y: int,
    z: int,
    flags: int,
    constants: Sequence[int],
    bindings: Sequence[Binding],
) -> None:
    del state
    refs = _refs(bindings)
    commands.dispatch(executable, function, (x, y, z), constants, refs, flags)


def _dispatch_indirect(
    state: HalState,
    commands: CommandBuffer,
    executable: Executable,
    function: int,
    slot: int,
    buffer: Buffer | None,
    offset: int,
    flags: int,
    constants: Sequence[int],
    bindings: Sequence[Binding],
) -> None:
    del state
    grid = BufferRef(buffer, offset, 12, slot)
    commands.dispatch_indirect(
        executable, function, grid, constants, _refs(bindings), flags
    )


# --- executables ------------------------------------------------------------------------------------


def create_executable(
    state: HalState,
    device: Device,
    queue_affinity: int,
    format_name: VmBuffer,
    data: VmBuffer,
    constants: VmBuffer | None,
) -> Executable:
    """Prepare an executable for a device; constants are u32."""
    del queue_affinity
    words = b"" if constants is None else bytes(constants.data[:_CONSTANTS_BYTES])
    values = struct.unpack(f"<{len(words) // 4}I", words[: len(words) // 4 * 4])
    return device.executable_loaders.prepare_executable(
        state.policy.params(format_name.text, data.data, values)
    )


def _executable_create_3_0(
    state: HalState,
    device: Device,
    format_name: VmBuffer,
    data: VmBuffer,
    constants: VmBuffer | None,
) -> Executable:
    return create_executable(state, device, -1, format_name, data, constants)


def _executable_lookup(state: HalState, executable: Executable, name: VmBuffer) -> int:
    del state
    return executable.lookup_function_by_name(name.text)


ROWS: Final = (
    NativeFunction("command_buffer.create", ("0riiIi_r",), create_command_buffer, "device"),
    NativeFunction("command_buffer.finalize", ("0r_v",), _finalize, "commands"),
    NativeFunction(
        "command_buffer.begin_debug_group", ("0rr_v",), _begin_group, "commands bytes"
    ),
    NativeFunction("command_buffer.end_debug_group", ("0r_v",), _end_group, "commands"),
    NativeFunction(
        "command_buffer.execution_barrier", ("0riiI_v", "0riii_v"), _barrier, "commands"
    ),
    NativeFunction(
        "command_buffer.advise_buffer", ("0rrIIIi_v",), _advise, "commands buffer?"
    ),
    NativeFunction(
        "command_buffer.flush_buffer", ("0rirII_v",), _make_visible, "commands buffer?"
    ),
    NativeFunction(
        "command_buffer.invalidate_buffer", ("0rirII_v",), _make_visible, "commands buffer?"
    ),
    NativeFunction(
        "command_buffer.fill_buffer",
        ("0rrIIiIiI_v", "0rrIIiii_v"),
        fill,
        "commands buffer?",
    ),
    NativeFunction(
        "command_buffer.update_buffer",
        ("0rrIrIIiI_v", "0rrIrIIi_v"),
        _update,
        "commands bytes buffer?",
    ),
    NativeFunction(
        "command_buffer.copy_buffer",
        ("0riirIrIII_v", "0riirIrII_v"),
        copy,
        "commands buffer? buffer?",
    ),
    NativeFunction(
        "command_buffer.collective",
        ("0rriiiirrIIIII_v",),
        collective,
        "commands channel buffer? buffer?",
    ),
    NativeFunction(
        "command_buffer.dispatch",
        ("0rrIiiiICiDCiirIID_v", "0rriiiiICiDCiirIID_v"),
        _dispatch,
        "commands executable buffer?",
    ),
    NativeFunction(
        "command_buffer.dispatch.indirect",
        ("0rrIirIICiDCiirIID_v", "0rriirIICiDCiirIID_v"),
        _dispatch_indirect,
        "commands executable buffer? buffer?",
    ),
    NativeFunction(
        "executable.create", ("0rIrrr_r",), create_executable, "device bytes bytes bytes?"
    ),
    NativeFunction(
        "executable.create",
        ("0rrrr_r",),
        _executable_create_3_0,
        "device bytes bytes bytes?",
    ),
    NativeFunction(
        "executable.lookup.function", ("0rr_I",), _executable_lookup, "executable bytes"
    ),
)
