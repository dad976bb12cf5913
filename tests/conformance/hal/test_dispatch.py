"""Kernels run over grids, with constants and bindings, directly or by binding table."""

from __future__ import annotations

import itertools
import struct

import numpy as np
import pytest

from tilewright.base.errors import DeviceError
from tilewright.runtime.hal.buffer import Buffer, BufferUsage, MemoryType
from tilewright.runtime.hal.command_buffer import (
    BufferBinding,
    BufferRef,
    CommandBuffer,
    CommandCategory,
)
from tilewright.runtime.hal.device import Device
from tilewright.runtime.hal.executable import Executable
from tilewright.runtime.hal.fence import Fence

SCALE, TOTAL, GRID, FAIL, LENGTHS = range(5)


def integers(device: Device, values: list[int]) -> Buffer:
    buffer = device.allocator.allocate(
        int(MemoryType.DEVICE_LOCAL), int(BufferUsage.DEFAULT), 4 * len(values)
    )
    buffer.write(np.array(values, np.int32).tobytes())
    return buffer


def numbers(buffer: Buffer) -> list[int]:
    return np.frombuffer(buffer.read(), np.int32).tolist()


def run(device: Device, commands: CommandBuffer, *bindings: BufferBinding) -> None:
    done = Fence.at(device.create_semaphore(), 1)
    device.queue_execute(None, done, commands, bindings)
    done.wait()


def begun(device: Device, capacity: int = 0) -> CommandBuffer:
    commands = device.create_command_buffer(binding_capacity=capacity)
    commands.begin()
    return commands


@pytest.mark.parametrize("count", [1, 3, 1000])
def test_every_workgroup_runs_once(
    device: Device, executable: Executable, count: int
) -> None:
    source, target = integers(device, list(range(count))), integers(device, [0] * count)
    commands = begun(device)
    commands.dispatch(
        executable, SCALE, (count, 1, 1), [3], [BufferRef(source), BufferRef(target)]
    )
    commands.end()
    run(device, commands)
    assert numbers(target) == [3 * i for i in range(count)]


def test_an_empty_grid_runs_nothing(device: Device, executable: Executable) -> None:
    target = integers(device, [5])
    commands = begun(device)
    commands.dispatch(
        executable, SCALE, (0, 1, 1), [3], [BufferRef(target), BufferRef(target)]
    )
    commands.end()
    run(device, commands)
    assert numbers(target) == [5]


def test_a_grid_has_three_dimensions(device: Device, executable: Executable) -> None:
    target = integers(device, [0] * 30)
    commands = begun(device)
    commands.dispatch(executable, GRID, (2, 3, 5), [], [BufferRef(target)])
    commands.end()
    run(device, commands)
    wanted = [
        1 + x + 10 * y + 100 * z for z in range(5) for y in range(3) for x in range(2)
    ]
    assert numbers(target) == wanted


def test_a_barrier_lets_one_kernel_see_the_other(
    device: Device, executable: Executable
) -> None:
    count = 500
    source, middle = integers(device, list(range(count))), integers(device, [0] * count)
    total = integers(device, [0])
    commands = begun(device)
    commands.dispatch(
        executable, SCALE, (count, 1, 1), [2], [BufferRef(source), BufferRef(middle)]
    )
    commands.execution_barrier(4, 4)
    commands.dispatch(
        executable, TOTAL, (1, 1, 1), [count], [BufferRef(middle), BufferRef(total)]
    )
    commands.end()
    for _ in range(20):
        run(device, commands)
        assert numbers(total) == [count * (count - 1)]


def test_bindings_may_be_parts_of_buffers(device: Device, executable: Executable) -> None:
    buffer = integers(device, [1, 2, 3, 4, 0, 0, 0, 0])
    commands = begun(device)
    commands.dispatch(
        executable,
        SCALE,
        (2, 1, 1),
        [10],
        [BufferRef(buffer, 8, 8), BufferRef(buffer.subspan(16), 4, 8)],
    )
    commands.end()
    run(device, commands)
    assert numbers(buffer) == [1, 2, 3, 4, 0, 30, 40, 0]


def test_kernels_see_lengths_and_all_constants(
    device: Device, executable: Executable
) -> None:
    target, other = integers(device, [0, 0]), integers(device, [0] * 7)
    commands = begun(device)
    commands.dispatch(
        executable,
        LENGTHS,
        (1, 1, 1),
        [0xFFFFFFFF, 44],
        [BufferRef(target), BufferRef(other, 4, 20)],
    )
    commands.end()
    run(device, commands)
    assert numbers(target) == [20, 43]


def test_one_recording_serves_many_bindings(device: Device, executable: Executable) -> None:
    commands = begun(device, capacity=2)
    commands.dispatch(
        executable,
        SCALE,
        (2, 1, 1),
        [2],
        [BufferRef(None, 0, 8, 0), BufferRef(None, 0, 8, 1)],
    )
    commands.end()
    buffers = [integers(device, [i, i + 1]) for i in range(4)]
    for source, target in itertools.pairwise(buffers):
        run(device, commands, BufferBinding(source), BufferBinding(target))
    assert [numbers(b) for b in buffers] == [[0, 1], [0, 2], [0, 4], [0, 8]]


def test_the_grid_may_lie_in_a_buffer(device: Device, executable: Executable) -> None:
    target = integers(device, [0] * 8)
    source = integers(device, list(range(8)))
    grid = integers(device, [0, 3, 1, 1])
    commands = begun(device)
    commands.fill_buffer(BufferRef(target), b"\x00")
    commands.execution_barrier(8, 4)
    commands.dispatch_indirect(
        executable, SCALE, BufferRef(grid, 4), [5], [BufferRef(source), BufferRef(target)]
    )
    commands.execution_barrier(4, 8)
    commands.update_buffer(struct.pack("<i", 9), BufferRef(target, 28, 4))
    commands.end()
    run(device, commands)
    assert numbers(target) == [0, 5, 10, 0, 0, 0, 0, 9]
    grid.write(struct.pack("<i", 5), 4)
    run(device, commands)
    assert numbers(target) == [0, 5, 10, 15, 20, 0, 0, 9]


def test_a_failing_kernel_fails_the_fence(device: Device, executable: Executable) -> None:
    commands = begun(device)
    commands.dispatch(executable, FAIL, (1, 1, 1), [], [])
    commands.end()
    with pytest.raises(DeviceError, match="ABORTED"):
        run(device, commands)


def test_a_queue_takes_single_dispatches(device: Device, executable: Executable) -> None:
    buffer = integers(device, [1, 2])
    done = Fence.at(device.create_semaphore(), 1)
    refs = [BufferRef(buffer), BufferRef(buffer)]
    device.queue_dispatch(None, done, executable, SCALE, (2, 1, 1), [7], refs)
    done.wait()
    assert numbers(buffer) == [7, 14]


def test_wrong_dispatches_are_refused_at_once(
    device: Device, executable: Executable
) -> None:
    buffer = integers(device, [1, 2])
    ref = BufferRef(buffer)
    commands = begun(device)
    with pytest.raises(
        DeviceError, match=r"kernel 'scale': got 0 constants and 2 bindings"
    ):
        commands.dispatch(executable, SCALE, (1, 1, 1), [], [ref, ref])
    with pytest.raises(
        DeviceError, match="got 1 constants and 1 bindings, expected 1 and 2"
    ):
        commands.dispatch(executable, SCALE, (1, 1, 1), [1], [ref])
    count = len(executable.functions)
    with pytest.raises(
        DeviceError, match=f"function {count} of an executable with {count}"
    ):
        commands.dispatch(executable, count, (1, 1, 1), [], [])
    with pytest.raises(DeviceError, match="kernel 'scale': binding 1"):
        commands.dispatch(executable, SCALE, (1, 1, 1), [1], [ref, BufferRef(buffer, 4, 8)])


def test_transfer_command_buffers_take_no_dispatch(
    device: Device, executable: Executable
) -> None:
    commands = device.create_command_buffer(0, int(CommandCategory.TRANSFER))
    commands.begin()
    with pytest.raises(DeviceError, match="the command buffer takes"):
        commands.dispatch(executable, FAIL, (1, 1, 1), [], [])


def test_profiling_times_every_command(device: Device, executable: Executable) -> None:
    buffer = integers(device, [1, 2])
    commands = begun(device)
    commands.dispatch(
        executable, SCALE, (2, 1, 1), [7], [BufferRef(buffer), BufferRef(buffer)]
    )
    commands.fill_buffer(BufferRef(buffer, 4, 4), b"\x00")
    commands.end()
    device.profiling_begin()
    run(device, commands)
    times = device.profiling_end()
    assert [t.name for t in times] == ["scale", "fill"]
    assert times[0].workgroup_count == (2, 1, 1)
    assert all(t.duration_ns >= 0 for t in times)
    run(device, commands)
    assert device.profiling_flush() == ()
