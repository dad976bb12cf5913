"""Sessions under load: many threads, forks in the middle, Ctrl-C, killed workers, memory that stays flat.

Every run happens in a process of its own with a deadline: a hang is a failure, not a stuck suite.  The
short versions run always; the full ones (8 threads of 20 000 calls each) are slow.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import tilewright as tw
from fakes.small_models import mlp

pytestmark = pytest.mark.skipif(
    not hasattr(os, "fork"), reason="processes of POSIX systems"
)

HERE = Path(__file__).resolve().parent
ENGINES = ("plan", "vm")
PREAMBLE = """
import os; os.environ["OPENBLAS_NUM_THREADS"] = "1"
import gc, signal, sys, threading, time
import numpy as np
import tilewright as tw

path, engine = sys.argv[1], sys.argv[2]

def open_session(threads=2):
    return tw.load(path, engine=engine, threads=threads)

def rss_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

random = np.random.default_rng(0)
inputs = [random.standard_normal((5, 20), np.float32) for _ in range(16)]
"""

CALLS = (
    PREAMBLE
    + """
thread_count, call_count, shared = int(sys.argv[3]), int(sys.argv[4]), sys.argv[5] == "shared"
first = open_session()
expected = [first(x) for x in inputs]
sessions = [first] * thread_count if shared else [open_session() for _ in range(thread_count)]
wrong = []

def work(session, index, count):
    for i in range(count):
        which = (i + index) % len(inputs)
        if not np.array_equal(session(inputs[which]), expected[which]):
            wrong.append((index, i))

def crowd(count):
    threads = [
        threading.Thread(target=work, args=(session, i, count))
        for i, session in enumerate(sessions)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    return rss_bytes()

crowd(max(call_count // 10, 50))
before = crowd(max(call_count // 10, 50))
after = crowd(call_count)
assert not wrong, wrong[:5]
print(f"{thread_count} threads, {call_count} calls each: memory grew by {(after - before) >> 10} KiB")
assert after - before < (4 << 20), (before, after)
"""
)

FORKS = (
    PREAMBLE
    + """
session = open_session()
expected = [session(x) for x in inputs]
stop = False
wrong = []

def check(target):
    return all(np.array_equal(target(x), e) for x, e in zip(inputs, expected))

def load():
    while not stop:
        if not check(session):
            wrong.append("thread")

def load_begun():
    while not stop:
        if not all(np.array_equal(c.result(60), e) for c, e in
                   zip([session.begin(x) for x in inputs], expected)):
            wrong.append("begun")

threads = [threading.Thread(target=load) for _ in range(3)]
threads.append(threading.Thread(target=load_begun))
for thread in threads:
    thread.start()
for _ in range(int(sys.argv[3])):
    time.sleep(0.005)
    child = os.fork()
    if child == 0:
        fine = check(session) and check(open_session())
        fine = fine and np.array_equal(session.begin(inputs[0]).result(30), expected[0])
        results = []
        inner = [threading.Thread(target=lambda: results.append(check(session))) for _ in range(2)]
        for thread in inner: thread.start()
        for thread in inner: thread.join()
        os._exit(0 if fine and results == [True, True] else 1)
    if os.waitpid(child, 0)[1] != 0:
        wrong.append("child")
    if not check(session):
        wrong.append("parent")
stop = True
for thread in threads:
    thread.join()
assert not wrong, wrong[:5]
"""
)

CTRL_C = (
    PREAMBLE
    + """
signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs inherit "ignored"
session = open_session()
small = np.full((64, 512), 0.5, np.float32)
expected = session(small)
for _ in range(int(sys.argv[3])):
    print("running", flush=True)
    try:
        while True:
            session(np.ones((4096, 512), np.float32))
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    assert np.array_equal(session(small), expected)
call = session.begin(small)  # threads of the session know nothing of it
assert np.array_equal(call.result(60), expected)
"""
)

HANDLER = (
    PREAMBLE
    + """
from tilewright.base import fork_locks
session = open_session()
expected = [session(x) for x in inputs]
heard = []
def hear(*_):
    heard.append(all(np.array_equal(session(x), e) for x, e in zip(inputs, expected)))
    heard.append(session(np.ones((5 + len(heard), 20), np.float32)).shape[0] > 4)
signal.signal(signal.SIGALRM, hear)
locks = [row() for rows in fork_locks._LOCKS for row in rows]
assert len(locks) > 1, locks
for lock in locks:  # wherever the main thread is when the signal comes
    with lock:
        signal.raise_signal(signal.SIGALRM)
assert len(heard) == 2 * len(locks) and all(heard)
"""
)

CHURN = (
    PREAMBLE
    + """
import asyncio
session = open_session()
expected = session(inputs[0])

async def calls(count):
    for _ in range(count):
        for y in await asyncio.gather(*(session.async_call(inputs[0]) for _ in range(8))):
            assert np.array_equal(y, expected)
        try:
            await asyncio.wait_for(session.async_call(inputs[0]), 0)
        except TimeoutError:
            pass

def sessions(count):
    for i in range(count // 2):
        other = open_session(1 + i % 3)
        assert np.array_equal(other.begin(inputs[0]).result(60), expected)
        try:
            other.begin(inputs[0][:, :3]).result(60)
        except (tw.UserError, tw.DeviceError):
            pass

def once(count):
    asyncio.run(calls(count))
    sessions(count)
    gc.collect()
    return rss_bytes()

count = int(sys.argv[3])
once(count), once(count)
before = once(count)
for _ in range(3):
    after = once(count)
print(f"memory grew by {(after - before) >> 10} KiB, {threading.active_count()} threads")
assert after - before < (6 << 20), (before, after)
assert threading.active_count() < 20, "sessions leave threads behind"
"""
)

COMPILE = """
import os, signal, sys, threading, time
from pathlib import Path
import numpy as np
import tilewright as tw

from tilewright.compiler.backends.cpu import compile as code_generator
code_generator.INLINE_SECONDS = 0.0  # small kernels, too, go to the worker processes

def workers():
    found = []
    for task in Path("/proc/self/task").iterdir():
        try:
            found += (task / "children").read_text().split()
        except OSError:
            pass
    return [int(pid) for pid in found]

path, often = sys.argv[1], sys.argv[2] == "often"
stop, killed = False, []

def killer():
    while not stop and (often or not killed):
        for pid in workers():
            try:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
            except OSError:
                pass
            if not often:
                return
        time.sleep(0.002)

thread = threading.Thread(target=killer)
thread.start()
try:
    model = tw.compile(path, jobs=2, cache=False)
    print("compiled", model(np.zeros((5, 20), np.float32)).shape)
except tw.InternalError as error:
    print("refused", error)
stop = True
thread.join()
assert killed
model = tw.compile(path, jobs=2, cache=False)  # the pool has recovered
print("again", model(np.zeros((5, 20), np.float32)).shape)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model, compiled and as ONNX, and a large one that a call spends a while on."""
    target = tmp_path_factory.mktemp("stress")
    onnx.save(mlp(5), target / "small.onnx")
    tw.compile(mlp(5), threads=2, jobs=1).save(target / "small.vmfb")
    weights = np.random.default_rng(1).standard_normal((512, 512), np.float32) / 32
    node = onnx.helper.make_node
    large = onnx.helper.make_model(
        onnx.helper.make_graph(
            [node("MatMul", [f"h{i}", "w"], [f"h{i + 1}"]) for i in range(12)],
            "large",
            [onnx.helper.make_tensor_value_info("h0", 1, ["n", 512])],
            [onnx.helper.make_tensor_value_info("h12", 1, ["n", 512])],
            [onnx.numpy_helper.from_array(weights, "w")],
        ),
        opset_imports=[onnx.helper.make_opsetid("", 21)],
        ir_version=10,
    )
    tw.compile(large, threads=2, jobs=1).save(target / "large.vmfb")
    return target


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # its forked children go with it
    )


def finish(process: subprocess.Popen[str], seconds: int = 120) -> str:
    try:
        output, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, errors = process.communicate()
        pytest.fail(f"it hangs\n{output}\n{errors}")
    assert process.returncode == 0, errors
    return output


CALL_COUNTS = [
    pytest.param(8, 200, 120, id="short"),
    pytest.param(8, 6000, 1000, marks=pytest.mark.slow, id="full"),
    pytest.param(8, 20_000, 3000, marks=pytest.mark.nightly, id="long"),
]


@pytest.mark.thinned(9)
@pytest.mark.parametrize(("threads", "calls", "seconds"), CALL_COUNTS)
@pytest.mark.parametrize("sharing", ["shared", "separate"])
@pytest.mark.parametrize("engine", ENGINES)
def test_many_threads_get_their_own_results_in_flat_memory(
    folder: Path,
    record_property: Callable[[str, object], None],
    engine: str,
    sharing: str,
    threads: int,
    calls: int,
    seconds: int,
) -> None:
    process = start(CALLS, folder / "small.vmfb", engine, threads, calls, sharing)
    record_property("seen", finish(process, seconds))


@pytest.mark.thinned(4)
@pytest.mark.parametrize(
    "forks", [2, pytest.param(200, marks=pytest.mark.nightly)], ids=["short", "full"]
)
@pytest.mark.parametrize("engine", ENGINES)
def test_forks_in_the_middle_leave_parent_and_child_at_work(
    folder: Path, engine: str, forks: int
) -> None:
    finish(start(FORKS, folder / "small.vmfb", engine, forks), 120 + 5 * forks)


@pytest.mark.thinned(6)
@pytest.mark.parametrize(
    "times",
    [
        pytest.param(2, id="short"),
        pytest.param(15, marks=pytest.mark.slow, id="full"),
        pytest.param(50, marks=pytest.mark.nightly, id="long"),
    ],
)
@pytest.mark.parametrize("engine", ENGINES)
def test_ctrl_c_ends_a_call_and_the_session_goes_on(
    folder: Path, engine: str, times: int
) -> None:
    process = start(CTRL_C, folder / "large.vmfb", engine, times)
    assert process.stdout is not None
    for i in range(times):
        assert process.stdout.readline() == "running\n", finish(process)
        time.sleep(0.1 + 0.01 * (i % 7))
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n", finish(process)
    finish(process)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_a_signal_handler_may_call_a_session_whatever_it_interrupts(
    tmp_path: Path, engine: str
) -> None:
    tw.compile(mlp("n"), threads=2, jobs=1).save(tmp_path / "dynamic.vmfb")
    finish(start(HANDLER, tmp_path / "dynamic.vmfb", engine), 60)


@pytest.mark.thinned(6)
@pytest.mark.parametrize(
    "count",
    [
        pytest.param(8, id="short"),
        pytest.param(60, marks=pytest.mark.slow, id="full"),
        pytest.param(200, marks=pytest.mark.nightly, id="long"),
    ],
)
@pytest.mark.parametrize("engine", ENGINES)
def test_calls_and_sessions_come_and_go_in_flat_memory(
    folder: Path, record_property: Callable[[str, object], None], engine: str, count: int
) -> None:
    process = start(CHURN, folder / "small.vmfb", engine, count)
    record_property("seen", finish(process, 120 + count))


@pytest.mark.slow
def test_a_killed_code_generator_is_replaced(folder: Path) -> None:
    output = finish(start(COMPILE, folder / "small.onnx", "once"))
    assert output.splitlines() == ["compiled (5, 7)", "again (5, 7)"]


@pytest.mark.slow
def test_code_generators_that_keep_dying_are_an_error_not_a_hang(folder: Path) -> None:
    output = finish(start(COMPILE, folder / "small.onnx", "often"))
    assert output.startswith("refused kernel '")
    assert "the process that generates code for '" in output
    assert "died twice" in output
    assert output.endswith("again (5, 7)\n")


@pytest.mark.parametrize(
    "count", [7, pytest.param(140, marks=pytest.mark.nightly)], ids=["short", "full"]
)
@pytest.mark.slow
def test_processes_end_as_they_should_with_calls_under_way(count: int) -> None:
    done = subprocess.run(
        [sys.executable, str(HERE / "process_ends.py"), "--count", str(count)],
        capture_output=True,
        text=True,
        timeout=300 + 60 * count,  # a hang; the ways have deadlines of their own
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{count} processes, 0 wrong ends" in done.stdout
    combinations = len(done.stdout.splitlines()) - 1
    assert combinations == min(count, 14), "seven ways to end on two engines"
