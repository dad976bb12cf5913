"""Exports of the `hal` module about devices, their queues, and channels.

Signatures before 3.4 lack flags and execute lists of command buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tilewright.runtime.hal.allocator import Allocator, held
from tilewright.runtime.hal.buffer import Buffer
from tilewright.runtime.hal.channel import Channel
from tilewright.runtime.hal.command_buffer import BufferBinding, BufferRef, CommandBuffer
from tilewright.runtime.hal.device import Device
from tilewright.runtime.hal.fence import Fence
from tilewright.runtime.modules.executable_policy import FORMAT_CATEGORY
from tilewright.runtime.modules.hal.buffers import pattern_bytes
from tilewright.runtime.modules.hal.state import HalState
from tilewright.runtime.vm.buffer import VmBuffer
from tilewright.runtime.vm.native_module import NativeFunction

Table = Sequence[tuple["Buffer | None", int, int]]


def _count(state: HalState) -> int:
    return len(state.devices)


def _get(state: HalState, index: int) -> Device | None:
    return state.devices[index] if 0 <= index < len(state.devices) else None


def _allocator(state: HalState, device: Device) -> Allocator:
    del state
    return device.allocator


def _query(
    state: HalState, device: Device, category: VmBuffer, key: VmBuffer
) -> tuple[int, int]:
    value = device.query_i64(category.text, key.text)
    if value and category.text == FORMAT_CATEGORY and not state.policy.allows(key.text):
        return 1, 0
    return (0, 0) if value is None else (1, value)


# --- queues -----------------------------------------------------------------------------------------


def _alloca(
    state: HalState,
    device: Device,
    affinity: int,
    wait: Fence | None,
    signal: Fence | None,
    pool: int,
    memory_types: int,
    usage: int,
    size: int,
    flags: int = 0,
) -> Buffer:
    del state, flags
    return held(
        size,
        lambda: device.queue_alloca(
            wait, signal, memory_types, usage, size, pool=pool, affinity=affinity
        ),
    )


def _dealloca(
    state: HalState,
    device: Device,
    affinity: int,
    wait: Fence | None,
    signal: Fence | None,
    buffer: Buffer,
    flags: int = 0,
) -> None:
    del state, flags
    device.queue_dealloca(wait, signal, buffer, affinity=affinity)


def _fill(
    state: HalState,
    device: Device,
    affinity: int,
    wait: Fence | None,
    signal: Fence | None,
    target: Buffer,
    offset: int,
    length: int,
    pattern: int,
    pattern_length: int,
    flags: int = 0,
) -> None:
    del state, flags
    place = BufferRef(target, offset, length)
    data = pattern_bytes(pattern, pattern_length)
    device.queue_fill(wait, signal, place, data, affinity=affinity)


def _update(
    state: HalState,
    device: Device,
    affinity: int,
    wait: Fence | None,
    signal: Fence | None,
    source: VmBuffer,
    source_offset: int,
    target: Buffer,
    target_offset: int,
    length: int,
    flags: int = 0,
) -> None:
    del state, flags
    data = bytes(source.range(source_offset, length))
    place = BufferRef(target, target_offset, length)
    device.queue_update(wait, signal, data, place, affinity=affinity)


def _copy(
    state: HalState,
    device: Device,
    affinity: int,
    wait: Fence | None,
    signal: Fence | None,
    source: Buffer,
    source_offset: int,
    target: Buffer,
    target_offset: int,
    length: int,
    flags: int = 0,
) -> None:
    del state, flags
    origin = BufferRef(source, source_offset, length)
    place = BufferRef(target, target_offset, length)
    device.queue_copy(wait, signal, origin, place, affinity=affinity)


def _transfer(
    method: Callable[[Device], Callable[..., None]],
) -> Callable[..., None]:
    """Reads and writes of files differ in the method only."""

    def transfer(
        state: HalState,
        device: Device,
        affinity: int,
        wait: Fence | None,
        signal: Fence | None,
        *transfer: object,
    ) -> None:
        del state
        source, source_offset, target, target_offset, length = transfer[:5]  # then flags
        method(device)(
            wait,
            signal,
            source,
            source_offset,
            target,
            target_offset,
            length,
            affinity=affinity,
        )

    return transfer


def _barrier(
    state: HalState,
    device: Device,
    affinity: int,
    wait: Fence | None,
    signal: Fence | None,
    flags: int = 0,
) -> None:
    del state, flags
    device.queue_barrier(wait, signal, affinity=affinity)


def _execute(
    state: HalState,
    device: Device,
    affinity: int,
    wait: Fence | None,
    signal: Fence | None,
    commands: CommandBuffer | None,
    flags: int = 0,
) -> None:
    del state, flags
    device.queue_execute(wait, signal, commands, affinity=affinity)


def _execute_3_0(
    state: HalState,
    device: Device,
    affinity: int,
    wait: Fence | None,
    signal: Fence | None,
    commands: Sequence[CommandBuffer | None],
) -> None:
    """One after the other; none is a barrier."""
    del state
    for index, item in enumerate(commands):
        last = index == len(commands) - 1
        done = signal if last else Fence.at(device.create_semaphore(), 1)
        device.queue_execute(wait, done, item, affinity=affinity)
        wait = done
    if not commands:
        device.queue_barrier(wait, signal, affinity=affinity)


def _execute_indirect(
    state: HalState,
    device: Device,
    affinity: int,
    wait: Fence | None,
    signal: Fence | None,
    commands: CommandBuffer,
    flags: int,
    table: Table,
) -> None:
    del state, flags
    bindings = [BufferBinding(*entry) for entry in table]
    device.queue_execute(wait, signal, commands, bindings, affinity=affinity)


def _execute_indirect_3_0(
    state: HalState,
    device: Device,
    affinity: int,
    wait: Fence | None,
    signal: Fence | None,
    commands: CommandBuffer,
    table: Table,
) -> None:
    _execute_indirect(state, device, affinity, wait, signal, commands, 0, table)


def _flush(state: HalState, device: Device, affinity: int) -> None:
    del state
    device.queue_flush(affinity)


# --- channels ---------------------------------------------------------------------------------------


def _channel_create(
    state: HalState,
    device: Device,
    affinity: int,
    flags: int,
    identifier: VmBuffer | None,
    group: VmBuffer | None,
    rank: int,
    count: int,
) -> Channel:
    del affinity, flags
    names = [item.text for item in (identifier, group) if item is not None]
    state.policy.check_provider(device)
    return device.create_channel(rank, count, "/".join([*state.policy.group, *names]))


def _channel_split(
    state: HalState, channel: Channel, color: int, key: int, flags: int
) -> Channel | None:
    del state, flags
    return channel.split(color, key)


def _channel_rank_and_count(state: HalState, channel: Channel) -> tuple[int, int]:
    del state
    return channel.rank, channel.count


_QUEUE: Final = "device fence? fence?"
_FILE_TO_BUFFER: Final = f"{_QUEUE} file buffer"
_BUFFER_TO_FILE: Final = f"{_QUEUE} buffer file"

ROWS: Final = (
    NativeFunction("devices.count", ("0v_i",), _count),
    NativeFunction("devices.get", ("0i_r",), _get),
    NativeFunction("device.allocator", ("0r_r",), _allocator, "device"),
    NativeFunction("device.query.i64", ("0rrr_iI",), _query, "device bytes bytes"),
    NativeFunction("device.queue.alloca", ("0rIrrIiiII_r", "0rIrriiiI_r"), _alloca, _QUEUE),
    NativeFunction(
        "device.queue.dealloca", ("0rIrrrI_v", "0rIrrr_v"), _dealloca, f"{_QUEUE} buffer"
    ),
    NativeFunction("device.queue.fill", ("0rIrrrIIIiI_v",), _fill, f"{_QUEUE} buffer"),
    NativeFunction(
        "device.queue.update", ("0rIrrrIrIII_v",), _update, f"{_QUEUE} bytes buffer"
    ),
    NativeFunction(
        "device.queue.copy", ("0rIrrrIrIII_v",), _copy, f"{_QUEUE} buffer buffer"
    ),
    NativeFunction(
        "device.queue.read",
        ("0rIrrrIrIII_v", "0rIrrrIrIIi_v"),
        _transfer(lambda d: d.queue_read),
        _FILE_TO_BUFFER,
    ),
    NativeFunction(
        "device.queue.write",
        ("0rIrrrIrIII_v", "0rIrrrIrIIi_v"),
        _transfer(lambda d: d.queue_write),
        _BUFFER_TO_FILE,
    ),
    NativeFunction("device.queue.barrier", ("0rIrrI_v",), _barrier, _QUEUE),
    NativeFunction("device.queue.execute", ("0rIrrrI_v",), _execute, f"{_QUEUE} commands?"),
    NativeFunction(
        "device.queue.execute", ("0rIrrCrD_v",), _execute_3_0, f"{_QUEUE} commands"
    ),
    NativeFunction(
        "device.queue.execute.indirect",
        ("0rIrrrICrIID_v",),
        _execute_indirect,
        f"{_QUEUE} commands buffer?",
    ),
    NativeFunction(
        "device.queue.execute.indirect",
        ("0rIrrrCrIID_v",),
        _execute_indirect_3_0,
        f"{_QUEUE} commands buffer?",
    ),
    NativeFunction("device.queue.flush", ("0rI_v",), _flush, "device"),
    NativeFunction(
        "channel.create",
        ("0rIIrrii_r", "0rIirrii_r"),
        _channel_create,
        "device bytes? bytes?",
    ),
    NativeFunction("channel.split", ("0riiI_r", "0riii_r"), _channel_split, "channel"),
    NativeFunction(
        "channel.rank_and_count", ("0r_ii",), _channel_rank_and_count, "channel"
    ),
)
