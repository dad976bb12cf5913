"""Command buffers record transfers and check what they record."""

from __future__ import annotations

import pytest

from tilewright.base.errors import DeviceError
from tilewright.base.status import StatusCode
from tilewright.runtime.hal.buffer import Buffer, BufferUsage, MemoryType
from tilewright.runtime.hal.command_buffer import (
    BufferBinding,
    BufferRef,
    CommandBuffer,
    CommandBufferMode,
    CommandCategory,
    ExecutionStage,
)
from tilewright.runtime.hal.device import Device
from tilewright.runtime.hal.fence import Fence

AFTER, BEFORE = int(ExecutionStage.RETIRE), int(ExecutionStage.ISSUE)


def allocate(device: Device, size: int) -> Buffer:
    buffer = device.allocator.allocate(
        int(MemoryType.DEVICE_LOCAL), int(BufferUsage.DEFAULT), size
    )
    buffer.fill(b"\x00")
    return buffer


def recorded(device: Device, *, capacity: int = 0, mode: int = 0) -> CommandBuffer:
    commands = device.create_command_buffer(mode, binding_capacity=capacity)
    commands.begin()
    return commands


def execute(device: Device, commands: CommandBuffer, *bindings: BufferBinding) -> None:
    commands.end()
    run(device, commands, *bindings)


def run(device: Device, commands: CommandBuffer, *bindings: BufferBinding) -> None:
    done = Fence.at(device.create_semaphore(), 1)
    device.queue_execute(None, done, commands, bindings)
    done.wait()


def test_an_empty_command_buffer_runs(device: Device) -> None:
    commands, done = recorded(device), Fence.at(device.create_semaphore(), 1)
    commands.end()
    assert done.query() is StatusCode.DEFERRED
    device.queue_execute(None, done, commands)
    done.wait()
    assert done.query() is StatusCode.OK


@pytest.mark.parametrize(
    "pattern", [b"\xab", b"\x01\x02", b"\x01\x02\x03\x04", bytes(range(8))]
)
def test_fill_repeats_its_pattern(device: Device, pattern: bytes) -> None:
    buffer = allocate(device, 48)
    commands = recorded(device)
    commands.fill_buffer(BufferRef(buffer, 8, 32), pattern)
    execute(device, commands)
    assert buffer.read() == bytes(8) + pattern * (32 // len(pattern)) + bytes(8)


def test_update_writes_what_was_given_at_recording(device: Device) -> None:
    buffer = allocate(device, 8)
    commands = recorded(device)
    data = bytearray(b"abc")
    commands.update_buffer(bytes(data), BufferRef(buffer, 2, 3))
    data[:] = b"xyz"
    execute(device, commands)
    assert buffer.read() == b"\0\0abc\0\0\0"


def test_copies_in_order_of_barriers(device: Device) -> None:
    first, second, third = (allocate(device, 16) for _ in range(3))
    commands = recorded(device)
    commands.fill_buffer(BufferRef(first), b"\x07")
    commands.execution_barrier(AFTER, BEFORE)
    commands.copy_buffer(BufferRef(first, 0, 8), BufferRef(second, 4, 8))
    commands.execution_barrier(AFTER, BEFORE)
    commands.copy_buffer(BufferRef(second), BufferRef(third))
    execute(device, commands)
    assert third.read() == bytes(4) + b"\x07" * 8 + bytes(4)


def test_events_order_commands(device: Device) -> None:
    first, second = allocate(device, 16), allocate(device, 16)
    event = device.create_event()
    commands = recorded(device)
    commands.fill_buffer(BufferRef(first), b"\x09")
    commands.signal_event(event, AFTER)
    commands.wait_events([event], AFTER, BEFORE)
    commands.copy_buffer(BufferRef(first), BufferRef(second))
    commands.reset_event(event, AFTER)
    execute(device, commands)
    assert second.read() == b"\x09" * 16


def test_a_reusable_command_buffer_runs_many_times(device: Device) -> None:
    source, target = allocate(device, 4), allocate(device, 4)
    commands = recorded(device)
    commands.copy_buffer(BufferRef(source), BufferRef(target))
    commands.end()
    for value in range(3):
        source.fill(bytes((value,)))
        run(device, commands)
        assert target.read() == bytes((value,)) * 4


def test_a_one_shot_command_buffer_runs_once(device: Device) -> None:
    commands = recorded(device, mode=int(CommandBufferMode.ONE_SHOT))
    commands.end()
    run(device, commands)
    with pytest.raises(DeviceError, match="executed twice"):
        run(device, commands)


def test_binding_tables_replace_buffers(device: Device) -> None:
    buffers = [allocate(device, 16) for _ in range(3)]
    commands = recorded(device, capacity=2)
    commands.fill_buffer(BufferRef(None, 0, 8, slot=0), b"\x01")
    commands.execution_barrier(AFTER, BEFORE)
    commands.copy_buffer(BufferRef(None, 0, 8, slot=0), BufferRef(None, 4, 8, slot=1))
    commands.end()
    run(device, commands, BufferBinding(buffers[0]), BufferBinding(buffers[1]))
    run(device, commands, BufferBinding(buffers[1], 0, 8), BufferBinding(buffers[2], 2, 12))
    assert buffers[1].read() == b"\x01" * 12 + bytes(4)
    assert buffers[2].read() == bytes(6) + b"\x01" * 8 + bytes(2)


def test_a_range_up_to_the_end_of_a_binding_is_known_at_execution(device: Device) -> None:
    buffers = [allocate(device, 8), allocate(device, 12)]
    commands = recorded(device, capacity=1)
    commands.fill_buffer(BufferRef(None, 4, slot=0), b"\x02")
    commands.end()
    for buffer in buffers:
        run(device, commands, BufferBinding(buffer))
    assert [b.read() for b in buffers] == [bytes(4) + b"\x02" * 4, bytes(4) + b"\x02" * 8]


def test_a_table_that_does_not_fit_is_refused(device: Device) -> None:
    commands = recorded(device, capacity=2)
    commands.fill_buffer(BufferRef(None, 0, 8, slot=1), b"\x01")
    commands.end()
    small = allocate(device, 4)
    for table, message in (
        ((), "binding table with 0 entries"),
        ((BufferBinding(small), BufferBinding(small)), "has 4 bytes"),
        ((BufferBinding(small), BufferBinding(None)), "is empty"),
        ((BufferBinding(small), BufferBinding(small, 1, 9)), "slot 1 at byte 1"),
    ):
        with pytest.raises(DeviceError, match=message):
            run(device, commands, *table)


def test_wrong_recordings_are_refused_at_once(device: Device) -> None:
    buffer = allocate(device, 16)
    commands = recorded(device, capacity=1)
    ref = BufferRef
    for record, message in (
        (lambda: commands.fill_buffer(ref(buffer, 8, 9), b"\x01"), "OUT_OF_RANGE"),
        (lambda: commands.fill_buffer(ref(buffer, 0, 3), b"\x01\x02"), "INVALID_ARGUMENT"),
        (lambda: commands.fill_buffer(ref(buffer), b"\x01" * 3), "expected 1, 2, 4 or 8"),
        (lambda: commands.update_buffer(b"abc", ref(buffer, 0, 2)), "INVALID_ARGUMENT"),
        (lambda: commands.update_buffer(bytes(70000), ref(buffer)), "at most 65536"),
        (lambda: commands.copy_buffer(ref(buffer, 0, 4), ref(buffer, 8, 5)), "from 4 to 5"),
        (lambda: commands.fill_buffer(ref(None, 0, 4, slot=1), b"\x01"), "slot 1"),
        (lambda: commands.fill_buffer(ref(None, -4, 4), b"\x01"), "OUT_OF_RANGE"),
        (commands.end_debug_group, "no debug group"),
        (commands.begin, "recording"),
    ):
        with pytest.raises(DeviceError, match=message):
            record()


def test_nothing_is_recorded_after_the_end(device: Device) -> None:
    buffer = allocate(device, 4)
    commands = recorded(device)
    commands.end()
    with pytest.raises(DeviceError, match="FAILED_PRECONDITION"):
        commands.fill_buffer(BufferRef(buffer), b"\x01")
    with pytest.raises(DeviceError, match="FAILED_PRECONDITION"):
        commands.end()


def test_what_was_not_ended_does_not_run(device: Device) -> None:
    with pytest.raises(DeviceError, match="FAILED_PRECONDITION"):
        run(device, recorded(device))


def test_debug_groups_nest_and_must_be_closed(device: Device) -> None:
    commands = recorded(device)
    commands.begin_debug_group("outer")
    commands.begin_debug_group("inner")
    commands.end_debug_group()
    with pytest.raises(DeviceError, match="1 debug groups are open"):
        commands.end()
    commands.end_debug_group()
    execute(device, commands)


def test_categories_limit_what_is_recorded(device: Device) -> None:
    commands = device.create_command_buffer(0, int(CommandCategory.DISPATCH))
    commands.begin()
    with pytest.raises(DeviceError, match="the command buffer takes"):
        commands.fill_buffer(BufferRef(allocate(device, 4)), b"\x01")


def test_one_shot_commands_may_have_a_binding_table(device: Device) -> None:
    # As IREE's compiler writes them with --iree-hal-memoization=false.
    target = allocate(device, 4)
    commands = recorded(device, capacity=1, mode=int(CommandBufferMode.ONE_SHOT))
    commands.fill_buffer(BufferRef(None, 0, 4, slot=0), b"\x05")
    execute(device, commands, BufferBinding(target))
    assert target.read() == b"\x05" * 4
    with pytest.raises(DeviceError, match="executed twice"):
        run(device, commands, BufferBinding(target))


def test_advice_is_taken_without_complaint(device: Device) -> None:
    buffer, commands = filled(device, b"\x07"), recorded(device)
    commands.advise_buffer(BufferRef(buffer), 0, 0, 0)
    execute(device, commands)
    assert buffer.read() == b"\x07" * 4096


def test_recorded_commands_keep_their_buffers(device: Device) -> None:
    target = allocate(device, 4096)
    commands = recorded(device)
    commands.copy_buffer(BufferRef(filled(device, b"\x33")), BufferRef(target))
    commands.end()
    churn = [filled(device, b"\x44") for _ in range(4)]
    run(device, commands)
    assert target.read() == b"\x33" * 4096
    assert len(churn) == 4


def filled(device: Device, pattern: bytes) -> Buffer:
    buffer = allocate(device, 4096)
    buffer.fill(pattern)
    return buffer
