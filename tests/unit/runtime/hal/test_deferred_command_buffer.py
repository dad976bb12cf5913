from __future__ import annotations

import mmap

import pytest

from tilewright.base import dtypes
from tilewright.base.errors import DeviceError
from tilewright.runtime.collectives.process_channels import ProcessGroup
from tilewright.runtime.hal.buffer import Buffer, BufferUsage, MemoryType
from tilewright.runtime.hal.channel import HostChannel
from tilewright.runtime.hal.collective import CollectiveKind, CollectiveOp
from tilewright.runtime.hal.command_buffer import (
    BufferBinding,
    BufferRef,
    CommandBufferMode,
    CommandCategory,
)
from tilewright.runtime.hal.deferred_command_buffer import (
    Barrier,
    Collective,
    CommandOwner,
    Copy,
    DeferredCommandBuffer,
    Dispatch,
    Fill,
    Update,
)
from tilewright.runtime.hal.executable import Executable, FunctionInfo
from tilewright.runtime.hal.local.heap_allocator import HeapAllocator

ALLOCATOR = HeapAllocator()
Ref = BufferRef


class Kernels(Executable):
    __slots__ = ()

    @property
    def functions(self) -> tuple[FunctionInfo, ...]:
        return (
            FunctionInfo(
                name="f", constant_count=1, binding_count=2, workgroup_size=(1, 1, 1)
            ),
        )


KERNELS = Kernels()
FOREIGN: list[Buffer] = []
OWNER = CommandOwner(
    owns_buffer=lambda buffer: all(buffer is not other for other in FOREIGN),
    owns_executable=lambda executable: executable is KERNELS,
    owns_channel=lambda channel: channel.count > 1,
)


def buffer(size: int) -> Buffer:
    usage = BufferUsage.DEFAULT | BufferUsage.DISPATCH_INDIRECT_PARAMETERS
    return ALLOCATOR.allocate(int(MemoryType.DEVICE_LOCAL), int(usage), size)


def begun(capacity: int = 0, mode: int = 0) -> DeferredCommandBuffer:
    commands = DeferredCommandBuffer(mode, int(CommandCategory.ANY), capacity, OWNER)
    commands.begin()
    return commands


def test_commands_are_data_with_their_lengths_known() -> None:
    first, second = buffer(64), buffer(64)
    commands = begun()
    commands.execution_barrier(1, 1)
    commands.fill_buffer(Ref(first, 8), b"\x01\x02")
    commands.execution_barrier(1, 1)
    commands.execution_barrier(1, 1)
    commands.update_buffer(b"abc", Ref(first, 1, 3))
    commands.copy_buffer(Ref(first, 0, 4), Ref(second, 60))
    commands.dispatch(KERNELS, 0, (-1, 2, 3), [-2], [Ref(first), Ref(second, 4)])
    commands.dispatch_indirect(KERNELS, 0, Ref(first, 4), [7], [Ref(first), Ref(second)])
    commands.end()
    places = (Ref(first, 0, 64), Ref(second, 0, 64))
    assert commands.resolve() == [
        Fill(Ref(first, 8, 56), b"\x01\x02"),
        Barrier(),
        Update(Ref(first, 1, 3), b"abc"),
        Copy(Ref(first, 0, 4), Ref(second, 60, 4)),
        Dispatch(
            KERNELS,
            0,
            (0xFFFFFFFF, 2, 3),
            (0xFFFFFFFE,),
            (places[0], Ref(second, 4, 60)),
        ),
        Dispatch(KERNELS, 0, Ref(first, 4, 12), (7,), places),
    ]
    assert commands.resolve() is commands.commands


def test_a_table_is_put_in_at_each_execution() -> None:
    commands = begun(capacity=3)
    commands.fill_buffer(Ref(None, 4, slot=2), b"\x01\x02")
    commands.copy_buffer(Ref(None, 0, 4, 0), Ref(None, 8, 4, 2))
    commands.dispatch_indirect(
        KERNELS, 0, Ref(None, 4, slot=0), [7], [Ref(None, slot=0), Ref(None, 1, 2, 2)]
    )
    commands.end()
    recorded = list(commands.commands)
    a, b = buffer(32), buffer(100)
    for binding, length in ((BufferBinding(b), 96), (BufferBinding(b, 10, 20), 16)):
        table = [BufferBinding(a), BufferBinding(None), binding]
        start = binding.offset
        assert commands.resolve(table) == [
            Fill(Ref(b, start + 4, length), b"\x01\x02"),
            Copy(Ref(a, 0, 4), Ref(b, start + 8, 4)),
            Dispatch(
                KERNELS, 0, Ref(a, 4, 12), (7,), (Ref(a, 0, 32), Ref(b, start + 1, 2))
            ),
        ]
    assert commands.commands == recorded


def test_tables_that_do_not_fit_are_refused() -> None:
    commands = begun(capacity=1)
    commands.fill_buffer(Ref(None, 4, slot=0), b"\x01\x02")
    commands.end()
    foreign = buffer(8)
    FOREIGN.append(foreign)
    for table, message in (
        ([], "slot 0 of a binding table with 0 entries"),
        ([BufferBinding(None)], "slot 0 of the binding table is empty"),
        ([BufferBinding(buffer(8), 4, 5)], "slot 0 at byte 4"),
        ([BufferBinding(buffer(2))], "has 2 bytes, the commands need 4"),
        ([BufferBinding(buffer(7))], "fill_buffer: 3 bytes with a pattern of 2"),
        ([BufferBinding(foreign)], "slot 0 of the binding table has a buffer of another"),
    ):
        with pytest.raises(DeviceError, match=message):
            commands.resolve(table)
    FOREIGN.clear()


def test_lengths_that_only_the_table_tells_must_agree() -> None:
    commands = begun(capacity=2)
    commands.copy_buffer(Ref(None, 0, slot=0), Ref(None, 0, slot=1))
    commands.update_buffer(b"abcd", Ref(None, 0, slot=0))
    commands.end()
    with pytest.raises(DeviceError, match="copy_buffer: from 4 to 5 bytes"):
        commands.resolve([BufferBinding(buffer(4)), BufferBinding(buffer(5))])
    with pytest.raises(DeviceError, match="update_buffer: 4 bytes for a range of 6"):
        commands.resolve([BufferBinding(buffer(6)), BufferBinding(buffer(6))])


def test_what_belongs_to_another_device_is_refused_with_the_command() -> None:
    foreign = buffer(8)
    FOREIGN.append(foreign)
    commands = begun()
    with pytest.raises(
        DeviceError, match=r"command 0 \(fill_buffer\): a buffer of another device"
    ):
        commands.fill_buffer(Ref(foreign), b"\x01")
    mine = buffer(8)
    with pytest.raises(DeviceError, match="an executable of another device"):
        commands.dispatch(Kernels(), 0, (1, 1, 1), [1], [Ref(mine), Ref(mine)])
    FOREIGN.clear()


def test_commands_for_one_execution_execute_once() -> None:
    commands = begun(mode=int(CommandBufferMode.ONE_SHOT))
    with pytest.raises(DeviceError, match="FAILED_PRECONDITION"):
        commands.resolve()
    commands.end()
    assert commands.resolve() == []
    with pytest.raises(DeviceError, match="executed twice"):
        commands.resolve()


def test_nothing_writes_to_read_only_memory_even_unvalidated() -> None:
    memory = memoryview(mmap.mmap(-1, 4096)).toreadonly()
    imported = ALLOCATOR.import_host(0, 0, memory)
    assert imported is not None
    commands = begun(mode=int(CommandBufferMode.UNVALIDATED))
    with pytest.raises(DeviceError, match="the memory is read-only"):
        commands.fill_buffer(Ref(imported, 0, 4), b"\x01")


def test_collectives_take_their_ranges_from_the_table() -> None:
    group = ProcessGroup("deferred", 2)
    channel = HostChannel(0, 2, group)
    gather = CollectiveOp(CollectiveKind.ALL_GATHER, dtypes.f32)
    broadcast = CollectiveOp(CollectiveKind.BROADCAST, dtypes.f32)
    commands = begun(capacity=2)
    both = Ref(None, 4, -1, 0), Ref(None, 0, -1, 1)
    commands.collective(channel, gather, 0, *both, 3)
    commands.collective(channel, broadcast, 0, *both, 3)
    commands.end()
    send, receive = buffer(16), buffer(24)
    table = [BufferBinding(send), BufferBinding(receive)]
    here, there = Ref(send, 4, 12), Ref(receive, 0, 24)
    assert commands.resolve(table) == [
        Collective(channel, gather, 0, 3, here, there),
        Collective(channel, broadcast, 0, 3, here, None),
    ]
    with pytest.raises(DeviceError, match="slot 1 of the binding table has 20 bytes"):
        commands.resolve([table[0], BufferBinding(buffer(20))])


def test_channels_of_other_devices_are_refused() -> None:
    commands = begun()
    ref = Ref(buffer(4))
    op = CollectiveOp(CollectiveKind.ALL_GATHER, dtypes.f32)
    with pytest.raises(
        DeviceError, match=r"all_gather of f32\): a channel of another device"
    ):
        commands.collective(HostChannel(0, 1, ProcessGroup("", 1)), op, 0, ref, ref, 1)
