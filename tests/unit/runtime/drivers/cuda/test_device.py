from __future__ import annotations

import random
import subprocess
import sys
import threading

import numpy as np
import pytest

from fakes.cuda_standin import StandIn
from tilewright.base.errors import DeviceError, UserError
from tilewright.runtime.drivers.cuda.command_buffer import CudaCommandBuffer
from tilewright.runtime.drivers.cuda.device import CudaDevice
from tilewright.runtime.drivers.cuda.driver import CudaDriver
from tilewright.runtime.hal.buffer import Buffer, BufferUsage, MemoryType
from tilewright.runtime.hal.command_buffer import BufferBinding, BufferRef, CommandBuffer
from tilewright.runtime.hal.device import ProfilingFamily
from tilewright.runtime.hal.fence import Fence
from unit.runtime.drivers.cuda.conftest import MakeDevice, load_kernels

TYPE, USAGE = int(MemoryType.DEVICE_LOCAL), int(BufferUsage.DEFAULT)
SECONDS = 20_000_000_000
SCALE, ADD, MUL, MATMUL = 0, 4, 5, 6
Ref = BufferRef


def buffer_of(device: CudaDevice, array: np.ndarray) -> Buffer:
    buffer = device.allocator.allocate(TYPE, USAGE, array.nbytes)
    buffer.write(array.tobytes())
    return buffer


def begun(device: CudaDevice, capacity: int = 0) -> CommandBuffer:
    commands = device.create_command_buffer(binding_capacity=capacity)
    commands.begin()
    return commands


def run(device: CudaDevice, commands: CommandBuffer, *table: Buffer) -> None:
    done = Fence.at(device.create_semaphore(), 1)
    device.queue_execute(None, done, commands, [BufferBinding(b) for b in table])
    done.wait(SECONDS)


@pytest.mark.parametrize("graphs", ["1", "0"])
def test_kernels_compute(make_device: MakeDevice, graphs: str) -> None:
    device = make_device(graphs=graphs)
    kernels = load_kernels(device)
    generator = np.random.default_rng(0)
    m, k, n = 7, 13, 5
    a, b = generator.random((m, k), np.float32), generator.random((k, n), np.float32)
    x, y = buffer_of(device, a), buffer_of(device, b)
    products = [buffer_of(device, np.zeros((m, n), np.float32)) for _ in range(3)]
    commands = begun(device)
    commands.dispatch(
        kernels, MATMUL, (m * n, 1, 1), [m, n, k], [Ref(x), Ref(y), Ref(products[0])]
    )
    commands.execution_barrier(4, 4)
    p0, p1, p2 = (Ref(p) for p in products)
    commands.dispatch(kernels, ADD, (m * n, 1, 1), [m * n], [p0, p0, p1])
    commands.execution_barrier(4, 4)
    commands.dispatch(kernels, MUL, (m * n, 1, 1), [m * n], [p0, p1, p2])
    commands.end()
    run(device, commands)
    found = np.frombuffer(products[2].read(), np.float32).reshape(m, n)
    np.testing.assert_allclose(found, 2 * (a @ b) ** 2, rtol=1e-5)


def test_launches_have_the_geometry_and_parameters_that_were_recorded(
    standin: StandIn, device: CudaDevice
) -> None:
    kernels = load_kernels(device)
    buffer = buffer_of(device, np.zeros(64, np.int32))
    commands = device.create_command_buffer(1)
    commands.begin()
    refs = [Ref(buffer, 16, 64), Ref(buffer.subspan(128), 0, 64)]
    commands.dispatch(kernels, SCALE, (16, 1, 1), [0xFFFFFFFE], refs)
    commands.end()
    run(device, commands)
    (launch,) = standin.launches
    assert (launch.name, launch.grid, launch.block) == ("scale", (16, 1, 1), (1, 1, 1))
    first, second = np.frombuffer(launch.parameters[:16], np.uint64).tolist()
    assert second - first == 112
    assert launch.parameters[16:] == b"\xfe\xff\xff\xff"
    assert not launch.in_graph


@pytest.mark.parametrize("seed", range(6))
def test_barriers_are_the_edges_of_graphs(
    standin: StandIn, device: CudaDevice, seed: int
) -> None:
    """The stand-in runs nodes in a random order that the edges allow."""
    standin.configure(seed=seed)
    kernels = load_kernels(device)
    count = 8
    buffers = [buffer_of(device, np.arange(count, dtype=np.int32)) for _ in range(4)]
    commands = begun(device)
    for step in range(5):
        for buffer in buffers:
            commands.dispatch(
                kernels, SCALE, (count, 1, 1), [step + 2], [Ref(buffer), Ref(buffer)]
            )
        commands.execution_barrier(4, 4)
        commands.copy_buffer(Ref(buffers[step % 4]), Ref(buffers[(step + 1) % 4]))
        commands.execution_barrier(4, 4)
    commands.end()
    expected = [np.arange(count, dtype=np.int32) for _ in range(4)]
    for _ in range(2):
        run(device, commands)
        for step in range(5):
            expected = [e * (step + 2) for e in expected]
            expected[(step + 1) % 4] = expected[step % 4]
    found = [np.frombuffer(b.read(), np.int32) for b in buffers]
    np.testing.assert_array_equal(found, expected)
    assert all(launch.in_graph for launch in standin.launches)
    assert standin.calls("cuGraphLaunch") == 2
    assert standin.calls("cuGraphInstantiate") == 1


def test_a_graph_is_updated_where_addresses_change(
    standin: StandIn, device: CudaDevice
) -> None:
    kernels = load_kernels(device)
    commands = begun(device, capacity=2)
    commands.dispatch(
        kernels, SCALE, (4, 1, 1), [3], [Ref(None, 0, 16, 0), Ref(None, 0, 16, 0)]
    )
    commands.fill_buffer(Ref(None, 0, 4, 1), b"\x05")
    commands.execution_barrier(4, 4)
    commands.copy_buffer(Ref(None, 0, 8, 0), Ref(None, 8, 8, 1))
    commands.update_buffer(b"wxyz", Ref(None, 4, 4, 1))
    commands.end()
    ones = np.ones(4, np.int32)
    tables = [(buffer_of(device, ones), buffer_of(device, 0 * ones)) for _ in range(3)]
    for table in (*tables, tables[2]):
        run(device, commands, *table)
    expected = b"\x05" * 4 + b"wxyz" + np.array([3, 3], np.int32).tobytes()
    assert [t[1].read() for t in tables[:2]] == [expected] * 2
    assert np.frombuffer(tables[2][0].read(), np.int32).tolist() == [9] * 4
    assert standin.calls("cuGraphInstantiate") == 1
    assert standin.calls("cuGraphLaunch") == 4
    assert standin.calls("cuGraphExecKernelNodeSetParams") == 2
    assert standin.calls("cuGraphExecMemcpyNodeSetParams") == 4
    assert standin.calls("cuGraphExecMemsetNodeSetParams") == 2


def test_a_graph_is_built_anew_where_an_update_is_not_enough(
    standin: StandIn, device: CudaDevice
) -> None:
    commands = begun(device, capacity=1)
    commands.fill_buffer(Ref(None, 0, slot=0), b"\x01\x02")
    commands.end()
    buffers = [device.allocator.allocate(TYPE, USAGE, 16) for _ in range(2)]
    for buffer in buffers:
        buffer.fill(b"\x00")
    done = Fence.at(device.create_semaphore(), 1)
    device.queue_execute(None, done, commands, [BufferBinding(buffers[0], 0, 8)])
    done.wait(SECONDS)
    for offset in (1, 3):  # fills at odd addresses take other operations
        done = Fence.at(device.create_semaphore(), 1)
        device.queue_execute(None, done, commands, [BufferBinding(buffers[1], offset, 6)])
        done.wait(SECONDS)
    assert buffers[0].read() == b"\x01\x02" * 4 + bytes(8)
    assert buffers[1].read() == b"\0" + b"\x01\x02" * 4 + bytes(7)
    assert standin.calls("cuGraphInstantiate") == 3
    assert isinstance(commands, CudaCommandBuffer)
    assert commands.graph is not None


def test_empty_commands_make_an_empty_graph(device: CudaDevice) -> None:
    kernels = load_kernels(device)
    buffer = buffer_of(device, np.ones(2, np.int32))
    commands = begun(device)
    commands.dispatch(kernels, SCALE, (0, 1, 1), [3], [Ref(buffer), Ref(buffer)])
    commands.execution_barrier(4, 4)
    commands.fill_buffer(Ref(buffer, 4, 0), b"\x01")
    commands.copy_buffer(Ref(buffer, 0, 0), Ref(buffer, 4, 0))
    commands.end()
    run(device, commands)
    assert np.frombuffer(buffer.read(), np.int32).tolist() == [1, 1]


def test_grids_beyond_the_gpus_are_named(device: CudaDevice) -> None:
    kernels = load_kernels(device)
    buffer = buffer_of(device, np.ones(2, np.int32))
    commands = begun(device)
    commands.dispatch(kernels, SCALE, (1, 70000, 1), [3], [Ref(buffer), Ref(buffer)])
    commands.end()
    with pytest.raises(DeviceError, match=r"kernel 'scale': a grid of \(1, 70000, 1\)"):
        run(device, commands)


def test_transient_memory_is_there_between_its_operations_only(device: CudaDevice) -> None:
    first = Fence.at(device.create_semaphore(), 1)
    ready, filled, gone = (Fence.at(device.create_semaphore(), 1) for _ in range(3))
    buffer = device.queue_alloca(first, ready, TYPE, USAGE, 64)
    with pytest.raises(DeviceError, match="64 bytes is not allocated yet"):
        buffer.read()
    device.queue_fill(ready, filled, Ref(buffer), b"\x06")
    first.signal()
    filled.wait(SECONDS)
    assert buffer.read() == b"\x06" * 64
    device.queue_dealloca(filled, gone, buffer)
    gone.wait(SECONDS)
    with pytest.raises(DeviceError, match="64 bytes was deallocated"):
        buffer.write(b"late")
    late = Fence.at(device.create_semaphore(), 1)
    device.queue_fill(gone, late, Ref(buffer), b"\x01")
    with pytest.raises(DeviceError, match="was deallocated"):
        late.wait(SECONDS)


def test_preserved_memory_outlives_a_deallocation(device: CudaDevice) -> None:
    ready, gone = (Fence.at(device.create_semaphore(), 1) for _ in range(2))
    buffer = device.queue_alloca(None, ready, TYPE, USAGE, 4)
    buffer.preserve()
    device.queue_dealloca(ready, gone, buffer)
    gone.wait(SECONDS)
    buffer.write(b"kept")
    assert buffer.read() == b"kept"


def test_dependent_operations_keep_their_order_however_long_they_take(
    standin: StandIn, device: CudaDevice
) -> None:
    buffer = buffer_of(device, np.zeros(16, np.int32))
    standin.configure(jitter_us=5000)
    fences = [Fence.at(device.create_semaphore(), 1) for _ in range(20)]
    before = None
    for index, after in enumerate(fences):
        device.queue_fill(before, after, Ref(buffer), bytes((index,)))
        before = after
    fences[-1].wait(SECONDS)
    assert buffer.read() == bytes((19,)) * 64


def test_devices_of_two_gpus_work_together(make_device: MakeDevice) -> None:
    first, second = make_device(0), make_device(1)
    left, right = (buffer_of(d, np.zeros(4, np.int32)) for d in (first, second))
    middle = Fence.at(first.create_semaphore(), 1)
    end = Fence.at(second.create_semaphore(), 1)
    second.queue_fill(middle, end, Ref(right), b"\x02")
    first.queue_fill(None, middle, Ref(left), b"\x01")
    end.wait(SECONDS)
    assert (left.read(), right.read()) == (b"\x01" * 16, b"\x02" * 16)
    commands = begun(first)
    with pytest.raises(DeviceError, match="a buffer of another device"):
        commands.fill_buffer(Ref(right), b"\x01")
    kernels = load_kernels(second)
    with pytest.raises(DeviceError, match="an executable of another device"):
        commands.dispatch(kernels, SCALE, (1, 1, 1), [1], [Ref(left), Ref(left)])


def test_queue_operations_are_timed(standin: StandIn, device: CudaDevice) -> None:
    buffer = buffer_of(device, np.zeros(4, np.int32))
    commands = begun(device)
    commands.fill_buffer(Ref(buffer), b"\x01")
    commands.end()
    device.profiling_begin(ProfilingFamily.QUEUE_OPERATIONS)
    run(device, commands)
    device.queue_barrier(None, None)
    times = device.profiling_end()
    assert [t.name for t in times] == ["execute", "barrier"]
    assert {t.family for t in times} == {ProfilingFamily.QUEUE_OPERATIONS}
    assert standin.calls("cuGraphLaunch") == 1


def test_work_in_flight_ends_before_the_device(
    standin: StandIn, make_device: MakeDevice
) -> None:
    standin.configure(jitter_us=20000)
    device = make_device()
    never = Fence.at(device.create_semaphore(), 1)
    done, waiting = (Fence.at(device.create_semaphore(), 1) for _ in range(2))
    buffer = device.allocator.allocate(TYPE, USAGE, 64)
    device.queue_fill(None, done, Ref(buffer), b"\x01")
    device.queue_fill(never, waiting, Ref(buffer), b"\x02")
    device.close()
    done.wait(0)
    with pytest.raises(DeviceError, match="CANCELLED"):
        waiting.wait(0)
    with pytest.raises(DeviceError, match="UNAVAILABLE"):
        device.queue_barrier(None, None)
    assert buffer.read() == b"\x01" * 64


def test_a_device_may_go_before_what_it_made(make_device: MakeDevice) -> None:
    device = make_device()
    kernels = load_kernels(device)
    buffer = buffer_of(device, np.arange(4, dtype=np.int32))
    commands = begun(device)
    commands.dispatch(kernels, SCALE, (4, 1, 1), [2], [Ref(buffer), Ref(buffer)])
    commands.end()
    run(device, commands)
    del device, kernels, commands
    assert np.frombuffer(buffer.read(), np.int32).tolist() == [0, 2, 4, 6]


@pytest.mark.thinned(2)
@pytest.mark.parametrize("ending", ["", "import os; os._exit(0)", "raise SystemExit(0)"])
def test_a_process_ends_with_work_in_flight(standin: StandIn, ending: str) -> None:
    code = (
        "from tilewright.runtime.drivers import registry\n"
        "from tilewright.runtime.hal.command_buffer import BufferRef\n"
        "from tilewright.runtime.hal.fence import Fence\n"
        "device = registry.create_device('cuda')\n"
        "buffer = device.allocator.allocate(48, 3075, 1 << 20)\n"
        "never, done, after = (Fence.at(device.create_semaphore(), 1) for _ in range(3))\n"
        "for wait in (None, never):\n"
        "    device.queue_fill(wait, Fence.at(device.create_semaphore(), 1), "
        "BufferRef(buffer), b'1')\n"
        "device.queue_host_call(never, after, print)\n"
        f"{ending}\n"
    )
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", code],
        env={"TILEWRIGHT_CUDA_LIBRARY": standin.path, "PYTHONPATH": "src"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_options_are_checked(standin: StandIn) -> None:
    with pytest.raises(UserError, match="device option 'graphs': got '2', expected 0 or 1"):
        CudaDriver().create_device_by_path("0", {"graphs": "2"})


def test_details_of_a_gpu(standin: StandIn) -> None:
    driver = CudaDriver()
    (first, _) = driver.query_available_devices()
    assert first.path == "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert first.summary == "sm_80, 1.0 GiB"
    text = driver.dump_device_info(0)
    assert "driver 12.4" in text
    assert "multiprocessors: 108" in text


@pytest.mark.thinned(5)
@pytest.mark.parametrize("graphs", ["1", "0"])
@pytest.mark.parametrize("seed", range(3))
def test_random_graphs_of_operations_from_many_threads(
    standin: StandIn, make_device: MakeDevice, seed: int, graphs: str
) -> None:
    """Steps scale slices of one buffer, read before write, submitted in any order."""
    dice = random.Random(seed)
    standin.configure(jitter_us=300, seed=seed + 1)
    devices = [make_device(0, graphs=graphs), make_device(0, graphs=graphs)]
    kernels = [load_kernels(d) for d in devices]
    cells, steps = 6, 60
    data = [[buffer_of(d, np.ones(9, np.int32)) for _ in range(cells)] for d in devices]
    last_use: dict[tuple[int, int], list[int]] = {}
    plan: list[tuple[int, int, int, int, list[int]]] = []
    for step in range(steps):
        owner, source, target = dice.randrange(2), dice.randrange(cells), 0
        while (target := dice.randrange(cells)) == source:
            pass
        before = last_use.get((owner, source), []) + last_use.get((owner, target), [])
        plan.append((owner, source, target, dice.randrange(2, 5), sorted(set(before))))
        for cell in (source, target):
            last_use[owner, cell] = [step]
    fences = [Fence.at(devices[p[0]].create_semaphore(), 1) for p in plan]

    def submit(mine: list[int]) -> None:
        for step in mine:
            owner, source, target, factor, before = plan[step]
            device = devices[owner]
            commands = begun(device, capacity=2)
            whole = [Ref(None, 0, 36, 0), Ref(None, 0, 36, 1)]
            commands.dispatch(kernels[owner], SCALE, (9, 1, 1), [factor], whole)
            commands.end()
            table = [BufferBinding(data[owner][c]) for c in (source, target)]
            wait = Fence.join([fences[b] for b in before])
            device.queue_execute(wait, fences[step], commands, table)

    order = list(range(steps))
    dice.shuffle(order)
    threads = [threading.Thread(target=submit, args=(order[i::4],)) for i in range(4)]
    for thread in threads:
        thread.start()
    for fence in fences:
        fence.wait(SECONDS)
    for thread in threads:
        thread.join()
    expected = np.ones((2, cells, 9), np.int64)
    for owner, source, target, factor, _ in plan:
        expected[owner, target] = expected[owner, source] * factor
    found = [[np.frombuffer(b.read(), np.int32) for b in row] for row in data]
    np.testing.assert_array_equal(found, expected.astype(np.uint32).astype(np.int32))
    for device in devices:
        device.close()
