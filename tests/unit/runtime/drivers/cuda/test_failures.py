"""Every call to the driver library may fail: a clean error, nothing left behind, no hang."""

from __future__ import annotations

import contextlib
import functools
import gc
import mmap
import weakref
from collections.abc import Callable

import numpy as np
import pytest

from fakes.complaints import complaint_of
from fakes.cuda_kernels import cuda_image
from fakes.cuda_standin import LAUNCH_FAILED, OUT_OF_MEMORY, StandIn
from tilewright.base.errors import DeviceError, TilewrightError
from tilewright.runtime.drivers.cuda.device import CudaDevice
from tilewright.runtime.drivers.cuda.driver import CudaDriver
from tilewright.runtime.drivers.cuda.symbols import SYMBOLS
from tilewright.runtime.hal.buffer import Buffer, BufferUsage, MemoryType
from tilewright.runtime.hal.command_buffer import BufferBinding, BufferRef
from tilewright.runtime.hal.executable import ExecutableParams
from tilewright.runtime.hal.fence import Fence
from unit.runtime.drivers.cuda.conftest import MakeDevice, load_kernels

TYPE, USAGE = int(MemoryType.DEVICE_LOCAL), int(BufferUsage.DEFAULT)
HOST_TYPE = int(MemoryType.HOST_LOCAL | MemoryType.DEVICE_VISIBLE)
SECONDS = 20_000_000_000
GIVING_BACK = ("Destroy", "Free", "Unload", "Release", "Unregister", "PopCurrent")


def work(options: dict[str, str]) -> None:
    """Find a device, make it, load, allocate, record, run twice with other buffers, profile."""
    driver = CudaDriver()
    driver.dump_device_info(0)
    device = driver.create_device_by_id(0, options)
    assert isinstance(device, CudaDevice)
    with contextlib.closing(device):
        run_everything(device)


def run_everything(device: CudaDevice) -> None:
    executable = load_kernels(device)
    shared = device.allocator.allocate(HOST_TYPE, USAGE | int(BufferUsage.MAPPING), 64)
    shared.fill(b"\x01")
    both = device.allocator.allocate(
        TYPE | int(MemoryType.HOST_VISIBLE), USAGE | int(BufferUsage.MAPPING), 64
    )
    both.fill(b"\x02")
    imported = device.allocator.import_host(HOST_TYPE, USAGE, mmap.mmap(-1, 4096))
    buffers = [device.allocator.allocate(TYPE, USAGE, 64) for _ in range(2)]
    for buffer in buffers:
        buffer.write(np.arange(16, dtype=np.int32).tobytes())
    commands = device.create_command_buffer(binding_capacity=1)
    commands.begin()
    target = BufferRef(None, 0, 64, 0)
    commands.dispatch(executable, 0, (16, 1, 1), [3], [target, target])
    commands.execution_barrier(4, 4)
    commands.fill_buffer(BufferRef(None, 0, 4, 0), b"\x07")
    commands.fill_buffer(BufferRef(None, 6, 2, 0), b"\x07\x08")
    commands.fill_buffer(BufferRef(None, 9, 8, 0), b"\x07\x08\x09\x0a")
    commands.update_buffer(b"abcd", BufferRef(None, 60, 4, 0))
    commands.execution_barrier(4, 4)
    commands.copy_buffer(BufferRef(None, 0, 4, 0), BufferRef(shared, 0, 4))
    commands.copy_buffer(BufferRef(None, 8, 4, 0), BufferRef(both, 0, 4))
    commands.end()
    ready = Fence.at(device.create_semaphore(), 1)
    transient = device.queue_alloca(None, ready, TYPE, USAGE, 64)
    wait = ready
    for buffer in (*buffers, transient):
        done = Fence.at(device.create_semaphore(), 1)
        device.queue_execute(wait, done, commands, [BufferBinding(buffer)])
        wait = done
    gone = Fence.at(device.create_semaphore(), 1)
    device.queue_dealloca(wait, gone, transient)
    gone.wait(SECONDS)
    device.profiling_begin()
    done = Fence.at(device.create_semaphore(), 1)
    device.queue_execute(None, done, commands, [BufferBinding(buffers[0])])
    done.wait(SECONDS)
    assert len(device.profiling_end()) == 7
    data = buffers[1].read()
    assert data[:4] == b"\x07" * 4
    assert data[6:8] == b"\x07\x08"
    assert data[9:17] == b"\x07\x08\x09\x0a" * 2
    assert data[60:] == b"abcd"
    assert bytes(shared.read(0, 4)) == b"\x07" * 4
    assert imported is None or imported.byte_length == 4096
    assert device.allocator.query_statistics().live_bytes >= 256
    device.trim()


OPTIONS = ({}, {"graphs": "0"}, {"pool": "0"})


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_without_failures_everything_works(
    standin: StandIn, options: dict[str, str]
) -> None:
    work(options)


def nth_calls(total: int) -> list[int]:
    return [n for n in sorted({1, 2, 3, total // 2, total - 1, total}) if 0 < n <= total]


@functools.cache
def calls_of_work(*options: tuple[str, str]) -> dict[str, int]:
    """How often each function is called when nothing fails."""
    again = StandIn()
    work(dict(options))
    return {name: again.calls(name) for name in NAMES}


UNNOTICED = (
    "cuDriverGetVersion",  # only told to users
    "cuGetErrorName",
    "cuGetErrorString",
    "cuMemHostRegister",  # memory that cannot be used in place is copied
    "cuCtxSetCurrent",  # the completion thread pushes the context anyway
)
NAMES = [symbol.name for symbol in SYMBOLS]


def gives_back(name: str) -> bool:
    return any(word in name for word in GIVING_BACK)


@pytest.mark.thinned(8)
@pytest.mark.parametrize(
    "options",
    [
        pytest.param(o, marks=[] if o == OPTIONS[0] else [pytest.mark.slow], id=str(o))
        for o in OPTIONS
    ],
)
@pytest.mark.parametrize("name", [name for name in NAMES if not gives_back(name)])
def test_every_call_may_fail(standin: StandIn, name: str, options: dict[str, str]) -> None:
    total = calls_of_work(*options.items())[name]
    if total == 0:
        pytest.skip("not called with these options")
    calls = nth_calls(total)
    if name == "cuCtxPushCurrent":
        del calls[3:]  # later ones are those of destructors
    if len(calls) > 2 and options == OPTIONS[0]:
        calls = [calls[0], calls[-1]]  # the others in the slow runs
    for nth in calls:
        again = StandIn()
        again.fail(name, nth)
        try:
            work(options)
        except TilewrightError as error:
            text = str(error)
        else:
            text = "unnoticed"
        # How many events it takes is a matter of time: the call may not have come.
        if again.calls(name) >= nth and name not in UNNOTICED:
            assert "CUDA_ERROR_UNKNOWN" in text, f"call {nth}: {text}"
        assert again.wait_until_all_is_back() == {}, f"call {nth}"
        assert again.complaints == [], f"call {nth}"


@pytest.mark.thinned(4)
@pytest.mark.parametrize("name", [name for name in NAMES if gives_back(name)])
def test_what_cannot_be_given_back_disturbs_nobody(standin: StandIn, name: str) -> None:
    for options in OPTIONS:
        again = StandIn()
        work(options)
        for nth in nth_calls(again.calls(name)):
            again.fail(name, nth)
            # A context that cannot be popped is told; the rest happens in destructors.
            told = complaint_of(work, options)
            assert told == "" or "CUDA_ERROR_UNKNOWN" in told, f"call {nth}"
            again.wait_until_all_is_back(0.05)
            again.abandon()
            assert complaint_of(work, options) == "", f"after call {nth}"


@pytest.mark.parametrize("options", OPTIONS[:2], ids=str)
@pytest.mark.parametrize("subject", ["kernel", "copy", "fill"])
@pytest.mark.parametrize("nth", [1, 2])
def test_work_may_fail_on_the_gpu(
    standin: StandIn, options: dict[str, str], subject: str, nth: int
) -> None:
    standin.fail_operation(subject, nth, LAUNCH_FAILED)
    with pytest.raises(DeviceError, match="CUDA_ERROR_LAUNCH_FAILED"):
        work(options)


def test_host_memory_may_be_imported_again_when_a_context_has_failed(
    standin: StandIn, make_device: MakeDevice
) -> None:
    memory = mmap.mmap(-1, 4096)
    for _ in range(2):
        device = make_device()
        imported = device.allocator.import_host(HOST_TYPE, USAGE, memory)
        assert imported is not None
        standin.fail_operation("fill", 1, LAUNCH_FAILED)
        with pytest.raises(DeviceError, match="CUDA_ERROR_LAUNCH_FAILED"):
            device.allocator.allocate(TYPE, USAGE, 64).fill(b"\x01")
        del device, imported
        assert standin.wait_until_all_is_back() == {}


def test_memory_that_a_copy_may_still_use_stays_until_the_context_has_ended(
    standin: StandIn, make_device: MakeDevice
) -> None:
    standin.configure(jitter_us=20_000)
    device = make_device()
    buffer = device.allocator.allocate(TYPE, USAGE, 64)
    buffer.write(b"\x07" * 64)
    places = [np.zeros(64, np.uint8) for _ in range(2)]
    alive = [weakref.ref(place) for place in places]

    def fail(transfer: Callable[[memoryview], object], place: np.ndarray) -> None:
        standin.fail("cuStreamSynchronize")
        with pytest.raises(DeviceError, match="CUDA_ERROR_UNKNOWN"):
            transfer(memoryview(place))

    fail(buffer.read_into, places[0])
    fail(buffer.write, places[1])
    del places
    gc.collect()
    assert [ref() is not None for ref in alive] == [True, True]
    del device, buffer
    assert standin.wait_until_all_is_back() == {}
    assert [ref() for ref in alive] == [None, None]


@pytest.mark.parametrize(
    "transfer",
    [Buffer.read, lambda b: b.write(b"\x07" * 64), lambda b: b.fill(b"\x07")],
    ids=["read", "write", "fill"],
)
def test_memory_of_the_gpu_goes_when_what_may_still_use_it_has_ended(
    standin: StandIn, make_device: MakeDevice, transfer: Callable[[Buffer], object]
) -> None:
    standin.configure(jitter_us=20_000)
    buffer = make_device().allocator.allocate(TYPE, USAGE, 64)
    standin.fail("cuStreamSynchronize")
    with pytest.raises(DeviceError, match="CUDA_ERROR_UNKNOWN"):
        transfer(buffer)
    del buffer
    assert standin.wait_until_all_is_back() == {}
    assert standin.complaints == []


def test_memory_kept_for_reuse_is_given_up_before_an_allocation_fails(
    standin: StandIn, make_device: MakeDevice
) -> None:
    device = make_device()
    standin.fail("cuMemAllocFromPoolAsync", 1, OUT_OF_MEMORY)
    trims = standin.calls("cuMemPoolTrimTo")
    assert device.allocator.allocate(TYPE, USAGE, 64).byte_length == 64
    assert standin.calls("cuMemPoolTrimTo") == trims + 1
    with pytest.raises(DeviceError, match="RESOURCE_EXHAUSTED"):
        device.allocator.allocate(TYPE, USAGE, 1 << 40)


def test_a_gpu_without_pools_or_shared_memory_works(
    standin: StandIn, make_device: MakeDevice
) -> None:
    standin.configure(managed=False, pools=False)
    device = make_device()
    assert len(device.allocator.query_memory_heaps()) == 2
    run_everything(device)
    device.close()


def test_the_compilers_log_is_shown(standin: StandIn, make_device: MakeDevice) -> None:
    device = make_device()
    loaders = device.executable_loaders
    for old, new, message in (
        (b".version 6.0", b"//ersion 6.0", "Missing .version directive"),
        (b".target sm_52", b".target sm_90", "SM version of the input is newer"),
    ):
        data = cuda_image().replace(old, new)
        with pytest.raises(DeviceError, match="INCOMPATIBLE") as caught:
            loaders.prepare_executable(ExecutableParams(format="cuda-nvptx-fb", data=data))
        assert message in "".join(caught.value.__notes__)
        assert "module 0 of the executable" in "".join(caught.value.__notes__)
