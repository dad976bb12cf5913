"""Recording names the command that is wrong: its number, kind and debug groups, expected and got."""

from __future__ import annotations

import itertools

import pytest

from tilewright.base.errors import DeviceError
from tilewright.runtime.hal.buffer import Buffer, BufferUsage, MemoryAccess, MemoryType
from tilewright.runtime.hal.command_buffer import (
    BufferBinding,
    BufferRef,
    CommandBuffer,
    CommandBufferMode,
    ExecutionStage,
)
from tilewright.runtime.hal.device import Device
from tilewright.runtime.hal.executable import Executable
from tilewright.runtime.hal.fence import Fence

AFTER, BEFORE = int(ExecutionStage.RETIRE), int(ExecutionStage.ISSUE)
SCALE = 0


def whole(device: Device, size: int = 16) -> Buffer:
    return device.allocator.allocate(
        int(MemoryType.DEVICE_LOCAL), int(BufferUsage.DEFAULT), size
    )


def limited(buffer: Buffer, usage: BufferUsage, access: int = 3) -> Buffer:
    """The same memory for less: what an allocator of another device may hand out."""
    return Buffer(
        buffer.storage,
        buffer.byte_offset,
        buffer.byte_length,
        memory_type=buffer.memory_type,
        allowed_access=access,
        allowed_usage=int(usage),
    )


def recorded(device: Device, mode: int = 0, capacity: int = 0) -> CommandBuffer:
    commands = device.create_command_buffer(mode, binding_capacity=capacity)
    commands.begin()
    return commands


def run(device: Device, commands: CommandBuffer, *table: BufferBinding) -> None:
    done = Fence.at(device.create_semaphore(), 1)
    device.queue_execute(None, done, commands, table)
    done.wait(20_000_000_000)


def test_errors_name_the_command_and_its_groups(device: Device) -> None:
    buffer = whole(device)
    commands = recorded(device)
    commands.fill_buffer(BufferRef(buffer), b"\x00")
    commands.begin_debug_group("layer 1")
    commands.begin_debug_group("attention")
    commands.update_buffer(b"abcd", BufferRef(buffer, 0, 4))
    with pytest.raises(
        DeviceError,
        match=r"command 2 \(copy_buffer\) in 'layer 1/attention': target: 8 bytes at 12, "
        r"the buffer has 16",
    ):
        commands.copy_buffer(BufferRef(buffer, 0, 8), BufferRef(buffer, 12, 8))
    commands.end_debug_group()
    with pytest.raises(
        DeviceError, match=r"command 3 \(fill_buffer\) in 'layer 1': pattern"
    ):
        commands.fill_buffer(BufferRef(buffer), b"abc")


def test_buffers_are_used_for_what_they_were_allocated(
    device: Device, executable: Executable
) -> None:
    buffer = whole(device)
    source = limited(buffer, BufferUsage.TRANSFER_SOURCE)
    target = limited(buffer, BufferUsage.TRANSFER_TARGET)
    commands = recorded(device)
    for record, message in (
        (
            lambda: commands.fill_buffer(BufferRef(source), b"\x00"),
            r"target: the buffer is for transfer_source, expected transfer_target",
        ),
        (
            lambda: commands.update_buffer(b"ab", BufferRef(source, 0, 2)),
            r"\(update_buffer\): target: the buffer is for transfer_source",
        ),
        (
            lambda: commands.copy_buffer(BufferRef(target, 0, 4), BufferRef(target, 8, 4)),
            r"source: the buffer is for transfer_target, expected transfer_source",
        ),
        (
            lambda: commands.dispatch(
                executable, SCALE, (1, 1, 1), [1], [BufferRef(buffer), BufferRef(source)]
            ),
            (
                r"kernel 'scale': binding 1: the buffer is for transfer_source, expected "
                r"dispatch_uniform_read or dispatch_storage_read or dispatch_storage_write"
            ),
        ),
        (
            lambda: commands.dispatch_indirect(
                executable,
                SCALE,
                BufferRef(source),
                [1],
                [BufferRef(buffer), BufferRef(buffer)],
            ),
            r"workgroup count: .*expected dispatch_indirect_parameters",
        ),
        (
            lambda: commands.dispatch_indirect(
                executable,
                SCALE,
                BufferRef(buffer, 2),
                [1],
                [BufferRef(buffer), BufferRef(buffer)],
            ),
            r"workgroup count: at byte 2, expected a multiple of 4",
        ),
    ):
        with pytest.raises(DeviceError, match=message):
            record()


def test_memory_is_accessed_as_it_may_be(device: Device) -> None:
    buffer = whole(device)
    readable = limited(buffer, BufferUsage.TRANSFER, int(MemoryAccess.READ))
    writable = limited(buffer, BufferUsage.TRANSFER, int(MemoryAccess.WRITE))
    commands = recorded(device)
    with pytest.raises(
        DeviceError, match=r"target: the buffer allows read, expected write"
    ):
        commands.fill_buffer(BufferRef(readable), b"\x00")
    with pytest.raises(
        DeviceError, match=r"source: the buffer allows write, expected read"
    ):
        commands.copy_buffer(BufferRef(writable, 0, 4), BufferRef(buffer, 8, 4))


def test_unvalidated_recordings_check_ranges_only(device: Device) -> None:
    buffer = whole(device)
    source = limited(buffer, BufferUsage.TRANSFER_SOURCE)
    commands = recorded(device, int(CommandBufferMode.UNVALIDATED))
    with pytest.raises(DeviceError, match="OUT_OF_RANGE"):
        commands.fill_buffer(BufferRef(source, 8, 9), b"\x00")
    commands.fill_buffer(BufferRef(source), b"\x07")
    commands.end()
    run(device, commands)
    assert buffer.read() == b"\x07" * 16


def test_copies_do_not_overlap(device: Device) -> None:
    buffer = whole(device, 64)
    part = buffer.subspan(16, 32)
    commands = recorded(device)
    with pytest.raises(DeviceError, match=r"source and target overlap: 8 bytes, 4 apart"):
        commands.copy_buffer(BufferRef(buffer, 20, 8), BufferRef(part, 0, 8))
    commands.copy_buffer(BufferRef(buffer, 0, 16), BufferRef(part, 0, 16))


def test_what_a_table_binds_may_be_used_so(device: Device) -> None:
    buffer = whole(device)
    commands = recorded(device, capacity=2)
    commands.copy_buffer(BufferRef(None, 0, 4, slot=0), BufferRef(None, 0, 4, slot=1))
    commands.end()
    source = limited(buffer, BufferUsage.TRANSFER_SOURCE)
    with pytest.raises(
        DeviceError,
        match=r"slot 1 of the binding table: the buffer is for transfer_source, expected "
        r"transfer_target",
    ):
        run(device, commands, BufferBinding(source), BufferBinding(source))
    run(device, commands, BufferBinding(source), BufferBinding(whole(device)))


def test_events_are_signalled_before_they_are_waited_for(device: Device) -> None:
    commands = recorded(device)
    event = device.create_event()
    with pytest.raises(
        DeviceError,
        match=r"wait_events after 0 commands: waits for an event that no earlier",
    ):
        commands.wait_events([event], AFTER, BEFORE)
    commands.signal_event(event, AFTER)
    commands.wait_events([event], AFTER, BEFORE)
    commands.reset_event(event, AFTER)
    with pytest.raises(DeviceError, match="no earlier command signals"):
        commands.wait_events([event], AFTER, BEFORE)


def test_an_event_belongs_to_one_command_buffer(device: Device) -> None:
    event = device.create_event()
    recorded(device).signal_event(event, AFTER)
    other = recorded(device)
    with pytest.raises(DeviceError, match="an event of another command buffer"):
        other.signal_event(event, AFTER)


def test_events_order_long_chains_of_commands(device: Device) -> None:
    size = 1 << 20  # several units of work, so that workers would overlap them
    buffers = [whole(device, size) for _ in range(6)]
    commands = recorded(device)
    for i, (source, target) in enumerate(itertools.pairwise(buffers)):
        event = device.create_event()
        if i == 0:
            commands.fill_buffer(BufferRef(source), b"\x05")
        commands.signal_event(event, AFTER)
        commands.wait_events([event], AFTER, BEFORE)
        commands.copy_buffer(BufferRef(source), BufferRef(target))
    commands.end()
    for _ in range(5):
        for buffer in buffers:
            buffer.fill(b"\x00")
        run(device, commands)
        assert bytes(buffers[-1].read()) == b"\x05" * size
