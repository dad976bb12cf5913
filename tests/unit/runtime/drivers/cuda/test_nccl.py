"""Channels of GPUs on the stand-ins: how NCCL is found, what fails, what is given back."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from fakes.cuda_standin import StandIn
from fakes.nccl_standin import REMOTE_ERROR, NcclStandIn
from tilewright.base import dtypes, knobs
from tilewright.base.errors import DeviceError
from tilewright.base.status import StatusCode
from tilewright.runtime.collectives.nccl_library import SYMBOLS, NcclLibrary
from tilewright.runtime.collectives.process_channels import PROCESS_CHANNELS, ProcessGroup
from tilewright.runtime.drivers.cuda.command_buffer import CudaCommandBuffer
from tilewright.runtime.drivers.cuda.device import CudaDevice
from tilewright.runtime.drivers.cuda.nccl_channel import NcclChannel
from tilewright.runtime.hal.buffer import Buffer, BufferUsage, MemoryType
from tilewright.runtime.hal.channel import Channel, ChannelProvider, HostGroup, Watcher
from tilewright.runtime.hal.collective import CollectiveKind, CollectiveOp, Reduction
from tilewright.runtime.hal.command_buffer import BufferBinding, BufferRef, CommandBuffer
from tilewright.runtime.hal.fence import Fence
from unit.runtime.drivers.cuda.conftest import MakeDevice, load_kernels

SECONDS = 20_000_000_000
KIND = CollectiveKind
SUM = CollectiveOp(KIND.ALL_REDUCE, dtypes.f32, Reduction.SUM)
NAMES = (f"nccl {number}" for number in itertools.count())


@pytest.fixture
def nccl(standin: StandIn) -> Iterator[NcclStandIn]:
    made = NcclStandIn()
    with knobs.override(nccl_library=made.path):
        yield made


@pytest.fixture
def devices(nccl: NcclStandIn, make_device: MakeDevice) -> list[CudaDevice]:
    return [make_device(0), make_device(1)]


def pair(devices: list[CudaDevice]) -> list[Channel]:
    name = next(NAMES)
    return [device.create_channel(rank, 2, name) for rank, device in enumerate(devices)]


def memory(device: CudaDevice, *values: float) -> Buffer:
    array = np.array(values, np.float32)
    buffer = device.allocator.allocate(
        int(MemoryType.DEVICE_LOCAL), int(BufferUsage.DEFAULT), array.nbytes
    )
    buffer.write(array.tobytes())
    return buffer


def numbers(buffer: Buffer) -> list[float]:
    return np.frombuffer(buffer.read(), np.float32).tolist()


def record(device: CudaDevice, channel: Channel, op: CollectiveOp = SUM) -> CommandBuffer:
    """A sum of three numbers, in place on an entry of the binding table."""
    commands = device.create_command_buffer(binding_capacity=1)
    commands.begin()
    ref = BufferRef(None, 0, 12, 0)
    commands.collective(channel, op, 0, ref, ref, 3)
    commands.end()
    return commands


def submit(
    device: CudaDevice, commands: CommandBuffer, buffer: Buffer, wait: Fence | None = None
) -> Fence:
    done = Fence.at(device.create_semaphore(), 1)
    device.queue_execute(wait, done, commands, [BufferBinding(buffer)])
    return done


def sum_all(devices: list[CudaDevice], channels: list[Channel]) -> list[Fence]:
    return [
        submit(device, record(device, channel), memory(device, 1, 2, 3))
        for device, channel in zip(devices, channels, strict=True)
    ]


def errors(fences: list[Fence]) -> list[str]:
    found = []
    for fence in fences:
        try:
            fence.wait(SECONDS)
        except DeviceError as error:
            found.append(str(error))
        else:
            found.append("")
    return found


# --- the library ------------------------------------------------------------------------------------


def test_a_missing_library_is_said_with_the_remedy(make_device: MakeDevice) -> None:
    device = make_device()
    with (
        knobs.override(nccl_library="/no/libnccl.so.2"),
        pytest.raises(DeviceError) as caught,
    ):
        device.create_channel(0, 2, "group")
    assert caught.value.code == StatusCode.UNAVAILABLE
    text = str(caught.value)
    assert "collectives between GPUs need NCCL: /no/libnccl.so.2: cannot open" in text
    assert "pip install nvidia-nccl-cu12" in text
    assert "TILEWRIGHT_NCCL_LIBRARY" in text


def test_alone_no_library_is_needed(make_device: MakeDevice) -> None:
    device = make_device()
    with knobs.override(nccl_library="/no/libnccl.so.2"):
        buffer = memory(device, 1, 2, 3)
        submit(device, record(device, device.create_channel()), buffer).wait(SECONDS)
    assert numbers(buffer) == [1, 2, 3]


def test_another_library_lacks_a_function(standin: StandIn) -> None:
    with pytest.raises(
        DeviceError, match=r"has no function 'ncclGetVersion', expected NCCL 2\.14"
    ):
        NcclLibrary(standin.path)


def test_an_old_library_is_refused(nccl: NcclStandIn) -> None:
    old = NcclStandIn(version=21212)
    with pytest.raises(DeviceError, match=r"is NCCL 2\.12, expected 2\.14 or newer"):
        NcclLibrary(old.path)


# --- work -------------------------------------------------------------------------------------------


def test_what_was_recorded_runs_many_times_beside_kernels(
    devices: list[CudaDevice],
) -> None:
    channels = pair(devices)
    buffers = [memory(device, 1, 2, 3) for device in devices]
    recorded = []
    for device, channel in zip(devices, channels, strict=True):
        kernels = load_kernels(device)
        commands = device.create_command_buffer(binding_capacity=1)
        commands.begin()
        ref = BufferRef(None, 0, 12, 0)
        commands.collective(channel, SUM, 0, ref, ref, 3)
        commands.execution_barrier(4, 4)
        commands.dispatch(kernels, 0, (3, 1, 1), [0], [ref, ref])
        commands.execution_barrier(4, 4)
        commands.update_buffer(np.float32(1).tobytes(), BufferRef(None, 8, 4, 0))
        commands.end()
        assert isinstance(commands, CudaCommandBuffer)
        assert not commands.uses_graph
        recorded.append(commands)
    ends: list[Fence | None] = [None, None]
    for _ in range(4):
        rows = zip(devices, recorded, buffers, ends, strict=True)
        ends = [submit(*row) for row in rows]
    for end in ends:
        assert end is not None
        end.wait(SECONDS)
    assert numbers(buffers[0]) == numbers(buffers[1])
    assert numbers(buffers[0])[2] == 1


def test_parts_of_a_group_have_communicators_of_their_own(
    nccl: NcclStandIn, make_device: MakeDevice
) -> None:
    devices = [make_device(rank % 2) for rank in range(3)]
    name = next(NAMES)
    channels = [d.create_channel(rank, 3, name) for rank, d in enumerate(devices)]
    parts: list[Channel | None] = [None] * 3

    def split(rank: int) -> None:
        parts[rank] = channels[rank].split(rank // 2, -rank)

    run_on_threads(split, 3)
    assert [(p.rank, p.count) for p in parts if p] == [(1, 2), (0, 2), (0, 1)]
    assert not isinstance(parts[2], NcclChannel)
    fences = sum_all(devices[:2], [p for p in parts[:2] if p is not None])
    assert errors(fences) == ["", ""]


def run_on_threads(work, count: int) -> None:
    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Pair(ChannelProvider):
    """One end of a default group of two."""

    def __init__(self, group: ProcessGroup, rank: int) -> None:
        self.group = group
        self.rank = rank

    @property
    def spans_processes(self) -> bool:
        return False

    def query_default_rank_and_count(self) -> tuple[int, int]:
        return self.rank, 2

    def open_group(self, name: str, rank: int, count: int) -> HostGroup:
        return PROCESS_CHANNELS.open_group(name, rank, count) if name else self.group


def test_the_default_channel_is_made_once(
    nccl: NcclStandIn, devices: list[CudaDevice]
) -> None:
    """Programs create it in every call."""
    group = ProcessGroup("default", 2)
    for rank, device in enumerate(devices):
        device.replace_channel_provider(Pair(group, rank))
    before = nccl.calls("ncclCommInitRankConfig")
    for _ in range(3):
        channels = [device.create_channel() for device in devices]
        assert [channel.rank for channel in channels] == [0, 1]
        assert errors(sum_all(devices, channels)) == ["", ""]
    assert nccl.calls("ncclCommInitRankConfig") - before == 2
    named = next(NAMES)
    assert devices[0].create_channel(0, 2, named) is not channels[0]


def test_what_comes_from_nobody_is_zero(devices: list[CudaDevice]) -> None:
    channels = pair(devices)
    op = CollectiveOp(KIND.SEND_RECV, dtypes.f32)
    fences, targets = [], []
    for rank, (device, channel) in enumerate(zip(devices, channels, strict=True)):
        commands = device.create_command_buffer()
        commands.begin()
        source, target = memory(device, 1, 2), memory(device, 7, 7)
        parameter = 1 | 0xFFFF << 16 if rank == 0 else 0xFFFF | 0 << 16
        commands.collective(channel, op, parameter, BufferRef(source), BufferRef(target), 2)
        commands.end()
        fences.append(submit(device, commands, source))
        targets.append(target)
    assert errors(fences) == ["", ""]
    assert [numbers(target) for target in targets] == [[0, 0], [1, 2]]


def test_what_nccl_cannot_do_is_refused_when_recorded(devices: list[CudaDevice]) -> None:
    channels = pair(devices)
    device = devices[0]
    buffer = memory(device, 1, 2)
    narrow = CollectiveOp(KIND.ALL_REDUCE, dtypes.i16, Reduction.SUM)
    send = CollectiveOp(KIND.SEND, dtypes.f32)
    commands = device.create_command_buffer()
    commands.begin()
    ref = BufferRef(buffer)
    for channel, op, message in (
        (channels[0], narrow, "NCCL has no all_reduce sum of i16"),
        (device.create_channel(), send, "send needs another participant"),
        (channels[1], SUM, "a channel of another device"),
    ):
        with pytest.raises(DeviceError, match=message):
            commands.collective(channel, op, 0, ref, ref, 1)


def test_profiles_name_collectives(devices: list[CudaDevice]) -> None:
    channels = pair(devices)
    devices[0].profiling_begin()
    assert errors(sum_all(devices, channels)) == ["", ""]
    assert [time.name for time in devices[0].profiling_end()] == ["all_reduce sum of f32"]


# --- failures ---------------------------------------------------------------------------------------


def test_the_same_gpu_twice_is_refused_in_the_words_of_nccl(
    standin: StandIn, make_device: MakeDevice
) -> None:
    nccl = NcclStandIn(refuses_duplicates=True)
    with knobs.override(nccl_library=nccl.path):
        devices = [make_device(0), make_device(0)]
        name = next(NAMES)
        first = devices[0].create_channel(0, 2, name)
        with pytest.raises(
            DeviceError, match="NCCL: invalid usage: the stand-in was asked"
        ):
            devices[1].create_channel(1, 2, name)
        fence = submit(devices[0], record(devices[0], first), memory(devices[0], 1, 2, 3))
        assert "another participant failed: ncclCommInitRankConfig" in errors([fence])[0]


CALLED = sorted(set(SYMBOLS) - {"ncclGetVersion"})


@pytest.mark.thinned(4)
@pytest.mark.parametrize("function", CALLED)
@pytest.mark.parametrize("nth", [1, 2])
def test_every_call_may_fail(
    nccl: NcclStandIn, devices: list[CudaDevice], function: str, nth: int
) -> None:
    """All ranks are told, nothing is left behind, nobody hangs."""
    kinds = {"ncclAllGather": KIND.ALL_GATHER, "ncclBroadcast": KIND.BROADCAST}
    kinds |= {"ncclReduce": KIND.REDUCE, "ncclReduceScatter": KIND.REDUCE_SCATTER}
    kinds |= {"ncclSend": KIND.ALL_TO_ALL, "ncclRecv": KIND.ALL_TO_ALL}
    kind = kinds.get(function, KIND.ALL_REDUCE)
    reduces = kind in (KIND.ALL_REDUCE, KIND.REDUCE, KIND.REDUCE_SCATTER)
    op = CollectiveOp(kind, dtypes.f32, Reduction.SUM if reduces else Reduction.NONE)
    calls = nccl.calls(function)
    nccl.fail(function, nth)
    texts: list[str] = []
    fences = []
    try:
        channels = pair(devices)
        for device, channel in zip(devices, channels, strict=True):
            commands = device.create_command_buffer(binding_capacity=1)
            commands.begin()
            size = 8 if kind in (KIND.ALL_GATHER, KIND.REDUCE_SCATTER) else 4
            place = BufferRef(None, 0, 4 * size, 0)
            other = BufferRef(memory(device, *[0.0] * 8))
            commands.collective(channel, op, 0, place, other, 4)
            commands.end()
            fences.append(submit(device, commands, memory(device, *range(8))))
    except DeviceError as error:
        texts.append(str(error))
    texts += errors(fences)
    assert nccl.calls(function) - calls >= (0 if function == "ncclCommAbort" else 1)
    is_called = nccl.calls(function) - calls >= nth
    # Who looks after the others may look once more when the work is done.
    is_late = function == "ncclCommGetAsyncError" and texts == ["", ""]
    if function != "ncclCommAbort" and is_called and not is_late:
        assert any(
            "NCCL: unhandled system error: the stand-in was asked" in t for t in texts
        )
        assert all("another participant failed" in t or "asked to fail" in t for t in texts)


def test_a_rank_that_is_gone_ends_what_the_gpu_waits_for(
    nccl: NcclStandIn, devices: list[CudaDevice]
) -> None:
    channels = pair(devices)
    assert errors(sum_all(devices, channels)) == ["", ""]
    fence = submit(devices[0], record(devices[0], channels[0]), memory(devices[0], 1, 2, 3))
    nccl.set_async_error(REMOTE_ERROR)
    assert "NCCL: remote process exited" in errors([fence])[0]
    again = errors(sum_all(devices, channels))
    assert all("remote process exited" in text for text in again)


def test_a_gpu_that_fails_fails_the_others(
    standin: StandIn, nccl: NcclStandIn, devices: list[CudaDevice]
) -> None:
    channels = pair(devices)
    assert errors(sum_all(devices, channels)) == ["", ""]
    waiting = submit(
        devices[0], record(devices[0], channels[0]), memory(devices[0], 1, 2, 3)
    )
    standin.fail_operation("fill")
    device = devices[1]
    commands = device.create_command_buffer()
    commands.begin()
    ref = BufferRef(memory(device, 1, 2, 3))
    commands.fill_buffer(ref, b"\1")
    commands.execution_barrier(4, 4)
    commands.collective(channels[1], SUM, 0, ref, ref, 3)
    commands.end()
    failed = Fence.at(device.create_semaphore(), 1)
    device.queue_execute(None, failed, commands)
    texts = errors([waiting, failed])
    assert "another participant failed" in texts[0]
    assert "CUDA_ERROR_LAUNCH_FAILED" in texts[1]


def test_a_rank_that_says_so_ends_what_others_wait_for(devices: list[CudaDevice]) -> None:
    channels = pair(devices)
    fence = submit(devices[0], record(devices[0], channels[0]), memory(devices[0], 1, 2, 3))
    channels[1].fail(ValueError("no more data"))
    assert "another participant failed: no more data" in errors([fence])[0]


def test_what_is_not_used_is_given_back(
    nccl: NcclStandIn, devices: list[CudaDevice]
) -> None:
    for used in (False, True):
        channels = pair(devices)
        if used:
            assert errors(sum_all(devices, channels)) == ["", ""]
        del channels
        for device in devices:
            device.queue_execute(None, None, None)
        assert nccl.wait_until_all_is_back() == 0


def test_nobody_comes_by_a_communicator_while_it_is_given_back(
    nccl: NcclStandIn, devices: list[CudaDevice], monkeypatch: pytest.MonkeyPatch
) -> None:
    watchers: list[Watcher] = []
    met: list[object] = []
    watch, call = ProcessGroup.watch, NcclLibrary.call

    def spied_watch(group: ProcessGroup, failed: Watcher) -> None:
        watchers.append(failed)
        watch(group, failed)

    def spied_call(
        library: NcclLibrary, name: str, *arguments: object, **options: int
    ) -> None:
        if name == "ncclCommAbort":
            met.extend(watcher() for watcher in watchers)
        call(library, name, *arguments, **options)

    monkeypatch.setattr(ProcessGroup, "watch", spied_watch)
    monkeypatch.setattr(NcclLibrary, "call", spied_call)
    channels = pair(devices[:1] * 2)
    del channels[0]
    assert len(met) == 2
    assert met[0] is None
    del channels[0], met[:]
    assert nccl.wait_until_all_is_back() == 0
    assert met == [None, None]


@pytest.mark.thinned(3)
@pytest.mark.parametrize("seed", range(8))
def test_ranks_that_come_in_any_order_meet_or_fail_together(
    standin: StandIn, nccl: NcclStandIn, make_device: MakeDevice, seed: int
) -> None:
    standin.configure(jitter_us=2000, seed=seed)
    devices = [make_device(rank % 2) for rank in range(3)]
    name = next(NAMES)
    channels = [d.create_channel(rank, 3, name) for rank, d in enumerate(devices)]
    generator = random.Random(seed)
    fences = []
    for _ in range(6):
        for rank in generator.sample(range(3), 3):
            device = devices[rank]
            commands = record(device, channels[rank])
            fences.append(submit(device, commands, memory(device, 1, 2, 3)))
    if seed % 2:
        channels[generator.randrange(3)].fail(ValueError("enough"))
    found = set(errors(fences))
    assert found == {""} or (seed % 2 and all("enough" in text for text in found - {""}))
