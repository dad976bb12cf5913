"""The worker pool: threads, fork, several callers, interruption. Only the C core has workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import ModuleType

import numpy as np
import pytest

from tilewright.runtime import native
from tilewright.runtime.recorder import Recorder

Start = Callable[[str], "subprocess.Popen[str]"]
Kernels = Mapping[str, int]
DEADLINE_S = 60
PATIENCE_MS = 30_000


def marking_commands(
    core: ModuleType, kernels: Kernels, count: int, commands: int = 1
) -> native.CommandList:
    recorder = Recorder()
    slot = recorder.slot(4 * count, writable=True)
    for _ in range(commands):
        recorder.dispatch(kernels["mark"], [(slot, 0, 4 * count)], (count, 1, 1))
    return recorder.build(core.CommandList)


def finish(process: subprocess.Popen[str]) -> str:
    """The program's output; its failure is the test's."""
    try:
        out, errors = process.communicate(timeout=DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert process.returncode == 0, errors
    return out


@pytest.mark.thinned(5)
@pytest.mark.parametrize("threads", range(1, 9))
@pytest.mark.parametrize("spin_us", [0, 100])
def test_every_workgroup_runs_once_whatever_the_pool(
    core: ModuleType, kernels: Kernels, threads: int, spin_us: int
) -> None:
    with core.Pool(threads, spin_us=spin_us) as pool:
        for count in (1, 2, 3, 31, 257):
            cells = np.zeros(count, np.uint32)
            commands = marking_commands(core, kernels, count, 5)
            for _ in range(3):
                commands.run(pool, [cells])
            assert (cells == 15).all()


def test_independent_commands_share_the_workers(
    extension: ModuleType, kernels: Kernels
) -> None:
    def meet(pool: native.Pool, patience_ms: int, *, barrier: bool) -> None:
        recorder = Recorder()
        slot = recorder.slot(4, writable=True)
        for _ in range(4):
            recorder.dispatch(
                kernels["meet"],
                [(slot, 0, 4)],
                (1, 1, 1),
                constants=[4, patience_ms],
                barrier=barrier,
            )
        recorder.build(extension.CommandList).run(pool, [np.zeros(1, np.uint32)])

    with extension.Pool(4) as pool:
        meet(pool, PATIENCE_MS, barrier=False)
        with pytest.raises(RuntimeError, match="command 0: the kernel returned 1"):
            meet(pool, 10, barrier=True)


def test_workers_wake_again_after_sleeping(extension: ModuleType, kernels: Kernels) -> None:
    recorder = Recorder()
    slot = recorder.slot(4, writable=True)
    recorder.dispatch(
        kernels["meet"], [(slot, 0, 4)], (4, 1, 1), constants=[4, PATIENCE_MS]
    )
    commands = recorder.build(extension.CommandList)
    with extension.Pool(4, spin_us=50) as pool:
        for _ in range(5):
            commands.run(pool, [np.zeros(1, np.uint32)])
            time.sleep(0.01)


def test_an_idle_pool_uses_no_time(extension: ModuleType, kernels: Kernels) -> None:
    with extension.Pool(4) as pool:
        marking_commands(extension, kernels, 64).run(pool, [np.zeros(64, np.uint32)])
        time.sleep(0.05)
        # The least of several: one may be the work of a garbage collection, or of a machine that stood still.
        assert min(idle_seconds() for _ in range(4)) < 0.05


def idle_seconds() -> float:
    """Processor time of all threads while this one sleeps for 0.2 s."""
    before = time.process_time()
    time.sleep(0.2)
    return time.process_time() - before


def test_python_threads_share_one_pool_and_one_list(
    extension: ModuleType, kernels: Kernels
) -> None:
    commands = marking_commands(extension, kernels, 17, 10)
    results = [np.zeros(17, np.uint32) for _ in range(12)]
    with extension.Pool(3) as pool:

        def submit(cells: np.ndarray) -> None:
            for _ in range(50):
                commands.run(pool, [cells])

        threads = [threading.Thread(target=submit, args=(cells,)) for cells in results]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)
            assert not thread.is_alive()
    assert all((cells == 500).all() for cells in results)


def test_other_python_threads_run_meanwhile(
    extension: ModuleType, kernels: Kernels
) -> None:
    recorder = Recorder()
    recorder.dispatch(kernels["linger"], [], (1, 1, 1), constants=[500])
    commands = recorder.build(extension.CommandList)
    thread = threading.Thread(target=commands.run, args=(None, []))
    thread.start()
    time.sleep(0.05)
    assert thread.is_alive()  # it sleeps in the kernel, and we got here
    thread.join()


def test_a_host_call_may_run_another_list_on_the_pool(
    core: ModuleType, kernels: Kernels
) -> None:
    inner = marking_commands(core, kernels, 50)
    cells = np.zeros(50, np.uint32)
    with core.Pool(3) as pool:
        recorder = Recorder()
        slot = recorder.slot(200, writable=True)
        recorder.dispatch(kernels["mark"], [(slot, 0, 200)], (50, 1, 1))
        recorder.host_call(lambda: inner.run(pool, [cells]), [])
        recorder.dispatch(kernels["mark"], [(slot, 0, 200)], (50, 1, 1))
        recorder.build(core.CommandList).run(pool, [cells])
    assert (cells == 3).all()


def test_a_closed_pool_refuses_work(core: ModuleType, kernels: Kernels) -> None:
    commands = marking_commands(core, kernels, 4)
    pool = core.Pool(2)
    commands.run(pool, [np.zeros(4, np.uint32)])
    pool.close()
    pool.close()
    assert pool.closed
    with pytest.raises(ValueError, match="the pool is closed"):
        commands.run(pool, [np.zeros(4, np.uint32)])


def test_closing_joins_the_workers(run_script: Start) -> None:
    script = """
def tasks():
    return len(os.listdir("/proc/self/task"))
def is_alone():
    # A joined thread may be listed for a moment longer: the kernel wakes its joiner first.
    for _ in range(1000):
        if tasks() == before:
            return True
        time.sleep(0.001)
    return False
before = tasks()
pool = native.Pool(5)
recorder = Recorder()
recorder.dispatch(address("linger"), [], (8, 1, 1), constants=[1])
commands = recorder.build()
assert tasks() == before, "workers start at first use"
commands.run(pool, [])
assert tasks() == before + 4, tasks()
pool.close()
assert is_alone(), tasks()
pool = native.Pool(3)
commands.run(pool, [])
del pool
assert is_alone(), tasks()
"""
    if not native.IS_NATIVE:
        pytest.skip("the C core is not built")
    finish(run_script(script))


def test_pools_are_checked_when_made(core: ModuleType) -> None:
    with pytest.raises(ValueError, match="thread_count is 0, expected 1 to 4096"):
        core.Pool(0)
    with pytest.raises(ValueError, match="spin_us is -1, expected at least 0"):
        core.Pool(1, spin_us=-1)
    with pytest.raises(
        ValueError, match=r"cpu_ids has 1 entries, expected one per thread \(2\)"
    ):
        core.Pool(2, [0])
    assert core.Pool(3).thread_count == 3


def test_workers_are_pinned_where_asked(run_script: Start) -> None:
    script = """
cpu = min(os.sched_getaffinity(0))
pool = native.Pool(3, [cpu, cpu, cpu])
recorder = Recorder()
recorder.dispatch(address("linger"), [], (8, 1, 1), constants=[1])
recorder.build().run(pool, [])
# A worker that had nothing to do may not have begun yet.
for _ in range(1000):
    masks = [os.sched_getaffinity(int(task)) for task in os.listdir("/proc/self/task")]
    if sum(mask == {cpu} for mask in masks) >= 2:
        break
    time.sleep(0.01)
else:
    raise AssertionError(masks)
try:
    native.Pool(2, [0, 1 << 40])
except ValueError as error:
    assert "out of range" in str(error)
else:
    raise AssertionError
"""
    if not native.IS_NATIVE:
        pytest.skip("the C core is not built")
    finish(run_script(script))


def test_workers_keep_off_the_callers_processor(run_script: Start) -> None:
    script = """
allowed = os.sched_getaffinity(0)
recorder = Recorder()
recorder.dispatch(address("linger"), [], (8, 1, 1), constants=[1])
pool = native.Pool(3)
recorder.build().run(pool, [])
# A worker that had nothing to do may not have begun yet.
for _ in range(1000):
    masks = [os.sched_getaffinity(int(task)) for task in os.listdir("/proc/self/task")]
    if sum(mask == allowed for mask in masks) == 1:
        break
    time.sleep(0.01)
else:
    raise AssertionError(masks)
free = [allowed - mask for mask in masks if mask != allowed]
assert len(free) == 2 and free[0] == free[1] and len(free[0]) == 1, masks
os.sched_setaffinity(0, free[0])
recorder.build().run(native.Pool(3), [])  # on one processor nothing can be kept off
"""
    if not native.IS_NATIVE or len(os.sched_getaffinity(0)) < 2:
        pytest.skip("the C core is not built, or there is one processor only")
    finish(run_script(script))


FORK = """
def tasks():
    return len(os.listdir("/proc/self/task"))
recorder = Recorder()
slot = recorder.slot(400, True)
for _ in range(20):
    recorder.dispatch(address("mark"), [(slot, 0, 400)], (100, 1, 1))
commands = recorder.build()
pool = native.Pool(3)
cells = np.zeros(100, np.uint32)
commands.run(pool, [cells])
child = os.fork()
for _ in range(10):
    commands.run(pool, [cells])
assert (cells == 220).all(), cells
assert not native.IS_NATIVE or tasks() == 3, tasks()
if child == 0:
    grandchild = os.fork()
    commands.run(pool, [cells])
    assert (cells == 240).all()
    if grandchild == 0:
        os._exit(0)
    assert os.waitpid(grandchild, 0)[1] == 0
    pool.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


def test_a_forked_child_starts_its_own_workers(run_script: Start) -> None:
    finish(run_script(FORK))


@pytest.mark.slow
def test_forking_while_other_threads_run_leaves_the_child_able_to_run(
    run_script: Start,
) -> None:
    script = """
recorder = Recorder()
slot = recorder.slot(400, True)
for _ in range(20):
    recorder.dispatch(address("mark"), [(slot, 0, 400)], (100, 1, 1))
commands = recorder.build()
pool = native.Pool(3)
stop = False
def load():
    cells = np.zeros(100, np.uint32)
    while not stop:
        commands.run(pool, [cells])
threads = [threading.Thread(target=load) for _ in range(3)]
for thread in threads:
    thread.start()
for _ in range(10):
    child = os.fork()
    if child == 0:
        cells = np.zeros(100, np.uint32)
        commands.run(pool, [cells])
        os._exit(0 if (cells == 20).all() else 1)
    assert os.waitpid(child, 0)[1] == 0
stop = True
for thread in threads:
    thread.join()
"""
    finish(run_script(script))


def test_forking_inside_a_host_call_continues_the_run_in_both(run_script: Start) -> None:
    script = """
children = []
def fork():
    children.append(os.fork())
recorder = Recorder()
slot = recorder.slot(400, True)
recorder.dispatch(address("mark"), [(slot, 0, 400)], (100, 1, 1))
recorder.host_call(fork, [])
recorder.dispatch(address("mark"), [(slot, 0, 400)], (100, 1, 1))
cells = np.zeros(100, np.uint32)
recorder.build().run(native.Pool(3), [cells])
assert (cells == 2).all(), cells
if children[0] == 0:
    os._exit(0)
assert os.waitpid(children[0], 0)[1] == 0
"""
    finish(run_script(script))


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    ("module", "pool"),
    [("native", "None"), ("native", "native.Pool(2)"), ("fallback", "None")],
)
def test_ctrl_c_ends_a_long_run(run_script: Start, module: str, pool: str) -> None:
    if module == "native" and not native.IS_NATIVE:
        pytest.skip("the C core is not built")
    script = f"""
recorder = Recorder()
for _ in range(2000):
    recorder.dispatch(address("linger"), [], (1, 1, 1), constants=[10])
commands = recorder.build({module}.CommandList)
try:
    print("running", flush=True)
    commands.run({pool}, [])
except KeyboardInterrupt:
    print("interrupted")
else:
    print("finished")
small = Recorder().build({module}.CommandList)
small.run(None, [])
"""
    process = run_script(script)
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    assert finish(process) == "interrupted\n"  # a run that is not cut says "finished"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "pool"),
    [("native", "None"), ("native", "native.Pool(2)"), ("fallback", "None")],
)
def test_ctrl_c_ends_a_run_inside_one_long_dispatch(
    run_script: Start, module: str, pool: str
) -> None:
    if module == "native" and not native.IS_NATIVE:
        pytest.skip("the C core is not built")
    script = f"""
recorder = Recorder()
recorder.dispatch(address("linger"), [], (10_000, 1, 1), constants=[10])
commands = recorder.build({module}.CommandList)
small = Recorder()
slot = small.slot(4000, True)
small.dispatch(address("mark"), [(slot, 0, 4000)], (1000, 1, 1))
small = small.build({module}.CommandList)
pool, cells = {pool}, np.zeros(1000, np.uint32)
small.run(pool, [cells])
for _ in range(2):
    try:
        print("running", flush=True)
        commands.run(pool, [])
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    else:
        print("finished")
    small.run(pool, [cells])
assert (cells == 3).all(), cells
"""
    process = run_script(script)
    assert process.stdout is not None
    for _ in range(2):
        assert process.stdout.readline() == "running\n"
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
    finish(process)


@pytest.mark.slow
def test_ctrl_c_is_noticed_while_the_workers_have_the_rest(run_script: Start) -> None:
    if not native.IS_NATIVE or sys.platform != "linux":
        pytest.skip("needs the C core, and a thread id that kernels can ask for")
    # Only the units of workers take long: the caller has nothing left to do but wait.
    script = """
import threading
caller = threading.get_native_id()
recorder = Recorder()
recorder.dispatch(address("linger_elsewhere"), [], (40_000, 1, 1), constants=[20, caller])
try:
    print("running", flush=True)
    recorder.build().run(native.Pool(2), [])
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    process = run_script(script)
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "interrupted\n"
    finish(process)


@pytest.mark.slow
def test_a_signal_handler_that_forks_inside_a_dispatch_cuts_the_child_only(
    run_script: Start,
) -> None:
    if not native.IS_NATIVE:
        pytest.skip("the C core is not built")
    script = """
children = []
signal.signal(signal.SIGALRM, lambda *_: children.append(os.fork()))
recorder = Recorder()
slot = recorder.slot(800, True)
recorder.dispatch(address("linger"), [(slot, 0, 800)], (300, 1, 1), constants=[5])
recorder.dispatch(address("mark"), [(slot, 0, 800)], (200, 1, 1))
commands, pool, cells = recorder.build(), native.Pool(3), np.zeros(200, np.uint32)
signal.setitimer(signal.ITIMER_REAL, 0.08)
try:
    commands.run(pool, [cells])
    cut = False
except RuntimeError as error:
    cut = "cut by a fork" in str(error)
assert len(children) == 1
if children[0] == 0:
    assert cut and (cells == 0).all()
    commands.run(pool, [cells])
    os._exit(0 if (cells == 1).all() else 1)
assert not cut and (cells == 1).all(), cells
assert os.waitpid(children[0], 0)[1] == 0
"""
    finish(run_script(script))


def test_a_crowd_on_few_cores_finishes(run_script: Start) -> None:
    script = """
recorder = Recorder()
slot = recorder.slot(256, True)
for _ in range(200):
    recorder.dispatch(address("mark"), [(slot, 0, 256)], (64, 1, 1))
commands = recorder.build()
pools = [native.Pool(16) for _ in range(4)]
cells = [np.zeros(64, np.uint32) for _ in pools]
def load(pool, cell):
    for _ in range(20):
        commands.run(pool, [cell])
threads = [threading.Thread(target=load, args=pair) for pair in zip(pools, cells)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert all((cell == 4000).all() for cell in cells)
"""
    finish(run_script(script))


@pytest.mark.slow
def test_threads_in_the_middle_of_a_run_do_not_crash_the_end_of_the_process(
    run_script: Start,
) -> None:
    # The callers look around between two of their units; the workers come back for more of theirs while
    # the interpreter is at its end, which the object in `sys` stretches.  Stacks of that size are not kept
    # for other threads.
    script = """
class Slow:
    def __del__(self, sleep=time.sleep):
        sleep(0.5)
sys.slow = Slow()
def call():
    recorder = Recorder()
    recorder.dispatch(address("linger"), [], (64, 1, 1), constants=[20])
    recorder.build().run(native.Pool(2), [])
threading.stack_size(64 << 20)
for _ in range(3):
    threading.Thread(target=call, daemon=True).start()
time.sleep(0.15)
print("end", flush=True)
"""
    assert finish(run_script(script)) == "end\n"


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", ["SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT"])
def test_a_crash_of_a_kernel_on_a_worker_reaches_the_faulthandler(
    run_script: Start, name: str
) -> None:
    if not native.IS_NATIVE:
        pytest.skip("the C core is not built")
    script = f"""
import faulthandler
faulthandler.enable()
number = int(signal.{name})
recorder = Recorder()
recorder.dispatch(address("crash_on_worker"), [], (1000, 1, 1), constants=[number])
recorder.build().run(native.Pool(2), [])
"""
    process = run_script(script)
    _, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == -getattr(signal, name)
    assert errors.startswith("Fatal Python error: "), errors
    assert "in <module>" in errors  # the stack of the thread that called


def test_workers_leave_signals_from_outside_to_python(run_script: Start) -> None:
    if not native.IS_NATIVE or sys.platform != "linux":
        pytest.skip("needs the C core, and /proc")
    script = """
recorder = Recorder()
recorder.dispatch(address("linger"), [], (8, 1, 1), constants=[1])
recorder.build().run(native.Pool(3), [])
faults = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP}
def blocked(task):
    with open(f"/proc/self/task/{task}/status") as file:
        mask = next(int(row.split()[1], 16) for row in file if row.startswith("SigBlk"))
    return {s for s in signal.valid_signals() if mask >> (s - 1) & 1}
for task in os.listdir("/proc/self/task"):
    if int(task) == os.getpid():
        continue
    # The C library blocks everything for the moment in which it starts a thread.
    for _ in range(200):
        if not blocked(task) & faults:
            break
        time.sleep(0.05)
    assert not blocked(task) & faults
    assert {signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGCHLD} <= blocked(task)
"""
    finish(run_script(script))


@pytest.mark.thinned(3)
@pytest.mark.parametrize("module", ["native", "fallback"])
@pytest.mark.parametrize("method", ["run", "run_timed"])
def test_workgroup_memory_that_is_not_to_be_had_is_said_with_the_kernels_name(
    run_script: Start, module: str, method: str
) -> None:
    if module == "native" and not native.IS_NATIVE:
        pytest.skip("the C core is not built")
    script = f"""
import resource
recorder = Recorder()
recorder.dispatch(address("linger"), [], (1, 1, 1), constants=[0], name="small")
recorder.dispatch(address("linger"), [], (8, 1, 1), constants=[0], local_memory_bytes=3 << 30, name="big")
commands, pool = recorder.build({module}.CommandList), {module}.Pool(2)
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, resource.RLIM_INFINITY))
try:
    commands.{method}(pool, [])
except native.KernelError as error:
    assert (error.command, error.name, error.scratch_bytes) == (1, "big", 3 << 30)
    text = str(error.for_user)
    assert text.startswith("kernel 'big': no memory for 3221225472 bytes of workgroup memory ("), text
    assert "RESOURCE_EXHAUSTED" in text and "hint: every thread" in text, text
else:
    raise AssertionError
"""
    finish(run_script(script))
