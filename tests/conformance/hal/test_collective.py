"""Collectives between devices of one process: every operation, type and reduction, in any order."""

from __future__ import annotations

import itertools
import random
import threading

import numpy as np
import pytest

from tilewright.base.dtypes import DType
from tilewright.base.errors import DeviceError
from tilewright.base.status import StatusCode, failure
from tilewright.runtime.drivers import registry
from tilewright.runtime.hal.buffer import Buffer, BufferUsage, MemoryType
from tilewright.runtime.hal.channel import Channel
from tilewright.runtime.hal.collective import (
    ELEMENT_TYPES,
    REDUCING,
    CollectiveKind,
    CollectiveOp,
    Reduction,
)
from tilewright.runtime.hal.command_buffer import BufferBinding, BufferRef
from tilewright.runtime.hal.device import Device
from tilewright.runtime.hal.fence import Fence

KIND = CollectiveKind
SECONDS = 20_000_000_000
NOTHING = BufferRef(None)
NAMES = (f"test group {i}" for i in itertools.count())
SUM = CollectiveOp(KIND.ALL_REDUCE, ELEMENT_TYPES[9], Reduction.SUM)


class Group:
    """A channel per rank, each on a device of its own of the same kind."""

    def __init__(self, device: Device, uri: str, count: int) -> None:
        name = next(NAMES)
        self.devices = [device, *(registry.create_device(uri) for _ in range(count - 1))]
        self.channels = [
            d.create_channel(r, count, name) for r, d in enumerate(self.devices)
        ]

    def memory(self, arrays: list[np.ndarray]) -> list[Buffer]:
        buffers = []
        for device, array in zip(self.devices, arrays, strict=True):
            buffer = device.allocator.allocate(
                int(MemoryType.DEVICE_LOCAL), int(BufferUsage.DEFAULT), array.nbytes
            )
            buffer.write(array.tobytes())
            buffers.append(buffer)
        return buffers

    def submit(
        self,
        rank: int,
        op: CollectiveOp,
        parameter: int,
        send: BufferRef,
        receive: BufferRef,
        elements: int,
        wait: Fence | None = None,
    ) -> Fence:
        device = self.devices[rank]
        commands = device.create_command_buffer()
        commands.begin()
        commands.collective(self.channels[rank], op, parameter, send, receive, elements)
        commands.end()
        done = Fence.at(device.create_semaphore(), 1)
        device.queue_execute(wait, done, commands)
        return done

    def run(
        self,
        op: CollectiveOp,
        parameters: list[int],
        sends: list[np.ndarray],
        receives: list[np.ndarray],
        elements: int,
    ) -> list[np.ndarray]:
        given, taken = self.memory(sends), self.memory(receives)
        order = list(range(len(self.devices)))
        random.Random(elements).shuffle(order)
        fences = [
            self.submit(
                r, op, parameters[r], BufferRef(given[r]), BufferRef(taken[r]), elements
            )
            for r in order
        ]
        for fence in fences:
            fence.wait(SECONDS)
        return [np.frombuffer(b.read(), op.dtype.numpy) for b in taken]


@pytest.fixture
def group(device_name: str, device: Device, device_uri: str) -> Group:
    if device_name == "cuda-gpu":
        pytest.skip("NCCL takes a GPU once in a group, these have one GPU three times")
    return Group(device, device_uri, 3)


def values(dtype: DType, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    if dtype.numpy.kind in "iu":
        info = np.iinfo(dtype.numpy)
        return generator.integers(info.min, info.max, shape, dtype.numpy, endpoint=True)
    return generator.standard_normal(shape, np.float32).astype(dtype.numpy)


@pytest.mark.thinned(5)
@pytest.mark.parametrize("dtype", ELEMENT_TYPES, ids=lambda t: t.name)
def test_reductions_of_every_type(group: Group, dtype: DType) -> None:
    count, ranks = 37, 3
    sends = list(values(dtype, (ranks, count)))
    wide = (
        np.stack(sends).astype(np.float32)
        if dtype.bits == 16 and (dtype.numpy.kind not in "iu")
        else np.stack(sends)
    )
    zeros = [np.zeros(count, dtype.numpy)] * ranks
    with np.errstate(all="ignore"):
        total = wide[0] + wide[1] + wide[2]
        mean = (
            total / total.dtype.type(3)
            if total.dtype.kind == "f"
            else np.array(
                [int(abs(int(t)) // 3) * (1 if t >= 0 else -1) for t in total], dtype.numpy
            )
        )
        expected = {
            Reduction.SUM: total,
            Reduction.PRODUCT: wide[0] * wide[1] * wide[2],
            Reduction.MINIMUM: np.minimum(np.minimum(wide[0], wide[1]), wide[2]),
            Reduction.MAXIMUM: np.maximum(np.maximum(wide[0], wide[1]), wide[2]),
            Reduction.AVERAGE: mean,
        }
    for reduction, want in expected.items():
        op = CollectiveOp(KIND.ALL_REDUCE, dtype, reduction)
        assert CollectiveOp.unpack(op.packed) == op
        for got in group.run(op, [0] * ranks, sends, zeros, count):
            assert got.tobytes() == want.astype(dtype.numpy).tobytes(), op


def test_every_kind_moves_what_it_should(group: Group) -> None:
    f32, ranks, n = ELEMENT_TYPES[9], 3, 6
    sends = list(values(f32, (ranks, n)))
    long = list(values(f32, (ranks, n * ranks), seed=1))
    zeros, zeros_long = [np.zeros(n, np.float32)] * 3, [np.zeros(3 * n, np.float32)] * 3

    def run(kind, parameters, given, taken, reduction=Reduction.NONE):
        return group.run(CollectiveOp(kind, f32, reduction), parameters, given, taken, n)

    def same(got, want):
        for g, w in zip(got, want, strict=True):
            np.testing.assert_array_equal(g, w)

    same(run(KIND.ALL_GATHER, [0] * 3, sends, zeros_long), [np.concatenate(sends)] * 3)
    blocks = [np.split(x, 3) for x in sends]
    turned = [np.concatenate([blocks[i][j] for i in range(3)]) for j in range(3)]
    same(run(KIND.ALL_TO_ALL, [0] * 3, sends, zeros), turned)
    same(run(KIND.BROADCAST, [2] * 3, sends, zeros), [sends[2], sends[2], zeros[0]])
    total = sends[0] + sends[1] + sends[2]
    same(
        run(KIND.REDUCE, [1] * 3, sends, zeros, Reduction.SUM), [zeros[0], total, zeros[0]]
    )
    long_total = np.split(long[0] + long[1] + long[2], 3)
    same(run(KIND.REDUCE_SCATTER, [0] * 3, long, zeros, Reduction.SUM), long_total)
    ring = [(r + 1) % 3 | (r - 1) % 3 << 16 for r in range(3)]
    same(run(KIND.SEND_RECV, ring, sends, zeros), [sends[2], sends[0], sends[1]])
    line = [1 | 0xFFFF << 16, 2 | 0 << 16, 0xFFFF | 1 << 16]
    ones = [np.ones(n, np.float32)] * 3
    same(run(KIND.SEND_RECV, line, sends, ones), [zeros[0], sends[0], sends[1]])


def test_sends_and_receives_pair_up_in_order(group: Group) -> None:
    f32 = ELEMENT_TYPES[9]
    data = [values(f32, (4,), seed=i) for i in range(3)]
    sends = [group.memory([x] * 3)[0] for x in data]
    taken = [group.memory([np.zeros(4, np.float32)] * 3)[2] for _ in data]
    fences = [
        group.submit(0, CollectiveOp(KIND.SEND, f32), 2, BufferRef(b), NOTHING, 4)
        for b in sends[:2]
    ]
    fences += [
        group.submit(2, CollectiveOp(KIND.RECV, f32), 0, NOTHING, BufferRef(b), 4)
        for b in taken
    ]
    fences += [
        group.submit(0, CollectiveOp(KIND.SEND, f32), 2, BufferRef(sends[2]), NOTHING, 4)
    ]
    for fence in fences:
        fence.wait(SECONDS)
    for want, buffer in zip(data, taken, strict=True):
        assert buffer.read() == want.tobytes()


def test_commands_before_and_after_keep_their_order(group: Group) -> None:
    """In place, on ranges of a binding table, twice in one command buffer."""
    buffers = group.memory([np.full(8, r + 1.0, np.float32) for r in range(3)])
    fences = []
    for rank, device in enumerate(group.devices):
        commands = device.create_command_buffer(binding_capacity=1)
        commands.begin()
        ref = BufferRef(None, 8, 16, slot=0)
        one = np.full(4, rank * 10.0, np.float32).tobytes()
        commands.update_buffer(one, ref)
        for _ in range(2):
            commands.execution_barrier(16, 1)
            commands.collective(group.channels[rank], SUM, 0, ref, ref, 4)
        commands.execution_barrier(16, 1)
        commands.fill_buffer(BufferRef(None, 8, 4, slot=0), b"\x00")
        commands.end()
        fences.append(Fence.at(device.create_semaphore(), 1))
        device.queue_execute(None, fences[-1], commands, [BufferBinding(buffers[rank])])
    for fence in fences:
        fence.wait(SECONDS)
    for rank, buffer in enumerate(buffers):
        got = np.frombuffer(buffer.read(), np.float32)
        own = rank + 1.0
        np.testing.assert_array_equal(got, [own, own, 0, 90, 90, 90, own, own])


@pytest.mark.thinned(3)
def test_ranks_on_threads_meet_many_times(group: Group) -> None:
    wrong: list[tuple[int, int]] = []

    def work(rank: int) -> None:
        device = group.devices[rank]
        buffer = device.allocator.allocate(
            int(MemoryType.DEVICE_LOCAL), int(BufferUsage.DEFAULT), 4
        )
        for step in range(200):
            buffer.write(np.float32(rank + step).tobytes())
            ref = BufferRef(buffer)
            group.submit(rank, SUM, 0, ref, ref, 1).wait(SECONDS)
            if np.frombuffer(buffer.read(), np.float32)[0] != 3 * step + 3:
                wrong.append((rank, step))

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_rank_that_fails_fails_the_others(group: Group) -> None:
    buffers = group.memory([np.zeros(2, np.float32)] * 3)
    start = Fence.at(group.devices[0].create_semaphore(), 1)
    fences = [
        group.submit(
            r,
            SUM,
            0,
            BufferRef(buffers[r]),
            BufferRef(buffers[r]),
            2,
            start if r == 0 else None,
        )
        for r in range(3)
    ]
    start.fail(failure(StatusCode.DATA_LOSS, "the input is lost"))
    for fence in fences:
        with pytest.raises(DeviceError, match="the input is lost"):
            fence.wait(SECONDS)


def test_ranks_that_disagree_are_told(group: Group) -> None:
    buffers = group.memory([np.zeros(2, np.float32)] * 3)
    product = CollectiveOp(KIND.ALL_REDUCE, ELEMENT_TYPES[9], Reduction.PRODUCT)
    fences = [
        group.submit(r, op, 0, BufferRef(buffers[r]), BufferRef(buffers[r]), 2)
        for r, op in enumerate((SUM, SUM, product))
    ]
    for fence in fences:
        with pytest.raises(DeviceError, match="rank 2 wants all_reduce product of f32"):
            fence.wait(SECONDS)


def test_channels_split_by_color_and_key(group: Group) -> None:
    parts: list[Channel | None] = [None] * 3

    def split(rank: int) -> None:
        parts[rank] = group.channels[rank].split(0 if rank != 1 else -1, -rank)

    threads = [threading.Thread(target=split, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert parts[1] is None
    assert [(p.rank, p.count) for p in parts if p] == [(1, 2), (0, 2)]


def test_wrong_collectives_are_refused_when_recorded(group: Group) -> None:
    (buffer, *_) = group.memory([np.zeros(6, np.float32)] * 3)
    commands = group.devices[0].create_command_buffer()
    commands.begin()
    f32, ref = ELEMENT_TYPES[9], BufferRef(buffer)
    for kind, parameter, elements, message in (
        (KIND.ALL_GATHER, 0, 6, r"receive: 24 bytes, expected 72"),
        (KIND.BROADCAST, 3, 6, r"ranks \[3\] of 3"),
        (KIND.ALL_TO_ALL, 0, 4, r"4 elements, expected a multiple of 3 ranks"),
        (KIND.SEND_RECV, 1 | 7 << 16, 6, r"command 3 \(collective send_recv of f32\): .*7"),
    ):
        with pytest.raises(DeviceError, match=message):
            commands.collective(
                group.channels[0], CollectiveOp(kind, f32), parameter, ref, ref, elements
            )


def test_alone_a_collective_is_a_copy(device: Device) -> None:
    buffers = []
    for data in (b"\x01" * 8, b"\x00" * 8):
        buffer = device.allocator.allocate(
            int(MemoryType.DEVICE_LOCAL), int(BufferUsage.DEFAULT), 8
        )
        buffer.write(data)
        buffers.append(buffer)
    commands = device.create_command_buffer()
    commands.begin()
    channel = device.create_channel()
    commands.collective(channel, SUM, 0, BufferRef(buffers[0]), BufferRef(buffers[1]), 2)
    commands.end()
    done = Fence.at(device.create_semaphore(), 1)
    device.queue_execute(None, done, commands)
    done.wait(SECONDS)
    assert buffers[1].read() == b"\x01" * 8
    assert channel.split(0, 0) is not None
    assert channel.split(-1, 0) is None


def test_reductions_go_with_the_kinds_that_reduce() -> None:
    for kind in CollectiveKind:
        reduction = Reduction.NONE if kind in REDUCING else Reduction.SUM
        packed = kind | reduction << 8 | 9 << 16
        with pytest.raises(DeviceError, match="with the reduction"):
            CollectiveOp.unpack(packed)
    with pytest.raises(DeviceError, match="there is no collective 0x00FF0001"):
        CollectiveOp.unpack(0xFF0001)
