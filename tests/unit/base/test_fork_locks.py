"""Locks that a forked child finds free."""

from __future__ import annotations

import ast
import gc
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tilewright.base import fork_locks
from tilewright.base.fork_locks import Rank, fork_lock, lock_count

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")

BUSY = """
import os, threading, time
from tilewright.base.fork_locks import Rank, fork_lock

locks = [fork_lock(Rank.QUEUE), fork_lock(Rank.SEMAPHORE), fork_lock(Rank.ALLOCATOR)]
pairs = [[0] * len(locks), [0] * len(locks)]
stop = False

def work(index):
    while not stop:
        with locks[index]:
            pairs[0][index] += 1
            time.sleep(0.0005)  # most of the time somebody is inside
            pairs[1][index] += 1

threads = [threading.Thread(target=work, args=(i,)) for i in range(len(locks))]
for thread in threads:
    thread.start()
for _ in range(20):
    child = os.fork()
    if child == 0:
        free = all(lock.acquire(timeout=20) for lock in locks)
        os._exit(0 if free and pairs[0] == pairs[1] else 1)
    assert os.waitpid(child, 0)[1] == 0
stop = True
for thread in threads:
    thread.join()
assert pairs[0] == pairs[1]
"""


def test_a_child_finds_them_free_and_their_data_whole() -> None:
    subprocess.run([sys.executable, "-c", BUSY], check=True, timeout=120)


def test_locks_go_with_their_owners() -> None:
    gc.collect()  # what earlier tests left
    before = [lock_count(rank) for rank in Rank]
    locks = [fork_lock(Rank.QUEUE), fork_lock(Rank.QUEUE)]
    assert lock_count(Rank.QUEUE) == before[Rank.QUEUE] + 2
    locks.clear()
    gc.collect()
    assert [lock_count(rank) for rank in Rank] == before


IMPORTING = """
import importlib, os, sys, threading, time
from pathlib import Path
from tilewright.base.fork_locks import LATE_IMPORTS

Path(sys.argv[1], "slow_module.py").write_text("import time; time.sleep(0.3); value = 7")
sys.path.insert(0, sys.argv[1])

def first():
    with LATE_IMPORTS:
        importlib.import_module("slow_module")

thread = threading.Thread(target=first)
thread.start()
while "slow_module" not in sys.modules:
    time.sleep(0.001)
child = os.fork()
if child == 0:
    with LATE_IMPORTS:
        os._exit(importlib.import_module("slow_module").value)
thread.join()
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""


@pytest.mark.slow
def test_a_fork_waits_for_an_import_of_another_thread(tmp_path: Path) -> None:
    """Else the child finds Python's lock of that module locked for ever."""
    subprocess.run([sys.executable, "-c", IMPORTING, tmp_path], check=True, timeout=60)


def test_one_that_the_forking_thread_holds_itself_may_be_reentered() -> None:
    script = (
        "import os\n"
        "from tilewright.base.fork_locks import Rank, fork_lock\n"
        "lock = fork_lock(Rank.ALLOCATOR)\n"
        "with lock:\n"
        "    child = os.fork()\n"
        "    if child == 0: os._exit(0)\n"
        "    assert os.waitpid(child, 0)[1] == 0\n"
        "assert lock.acquire(blocking=False)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


# A thread is inside of a section while the main thread forks; `inside` is set by it, `forking` says when the fork began.
MEANWHILE = """
import faulthandler, os, signal, sys, threading, time
faulthandler.dump_traceback_later(100, exit=True)  # it hangs: after every limit below, and before that of the process
from tilewright.base.fork_locks import LATE_IMPORTS, Rank, fork_lock
import logging

inside = threading.Event()
section = None

def beside_a_fork(work):
    global section
    def run():
        work()
        inside.set()
    section = threading.Thread(target=run)
    section.start()
    assert inside.wait(30)

def in_a_child(check):
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # ends it where it hangs
        os._exit(0 if check() else 1)
    section.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

def is_free(lock):
    return lock.acquire(timeout=20)

def is_free_elsewhere(lock):
    found = []
    thread = threading.Thread(target=lambda: found.append(is_free(lock)))
    thread.start()
    thread.join()
    return found == [True]
"""


def run_beside_a_fork(script: str, *arguments: object, first: str = "") -> str:
    # From Python 3.12 on a fork beside other threads is warned of; that it is safe is what these tests are about.
    quiet = ("-W", "ignore:This process:DeprecationWarning")
    done = subprocess.run(
        [sys.executable, *quiet, "-c", first + MEANWHILE + script, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.slow
def test_a_section_may_wait_for_the_lock_of_logging_while_another_thread_forks() -> None:
    """Its hook takes that lock before every fork: had it run before ours, nobody would go on."""
    script = """
def work():
    with LATE_IMPORTS:
        inside.set()
        time.sleep(0.3)  # the fork waits by now
        logging.getLogger("as modules do that are imported")

beside_a_fork(work)
in_a_child(lambda: is_free(LATE_IMPORTS) and logging.getLogger("of the child"))
"""
    assert run_beside_a_fork(script) == ""


@pytest.mark.slow
def test_a_section_that_waits_for_an_earlier_lock_gets_it_from_a_thread_that_forks() -> (
    None
):
    """As a handler of a signal may do, which runs in the middle of any section."""
    script = """
late = fork_lock(Rank.SEMAPHORE)

def work():
    with late:
        inside.set()
        time.sleep(0.3)
        with LATE_IMPORTS:
            pass

beside_a_fork(work)
in_a_child(lambda: is_free(late) and is_free(LATE_IMPORTS))
"""
    assert run_beside_a_fork(script) == ""


@pytest.mark.slow
def test_a_lock_that_is_made_while_a_fork_waits_is_free_in_the_child() -> None:
    script = """
late, made = fork_lock(Rank.SEMAPHORE), []

def work():
    with late:
        inside.set()
        time.sleep(0.3)
        made.append(fork_lock(Rank.QUEUE))
        made[0].acquire()
    time.sleep(0.3)
    made[0].release()

beside_a_fork(work)
in_a_child(lambda: is_free(made[0]))
"""
    assert run_beside_a_fork(script) == ""


@pytest.mark.slow
def test_two_threads_that_fork_at_once_take_no_locks_from_each_other() -> None:
    """The one that lets go wakes the other, which has taken locks before the first is through."""
    script = """
from tilewright.base import fork_locks

class Slow:  # the first of all: whoever lets it go looks around when the other has it
    def __init__(self):
        self.lock = threading.RLock()
        self.taken = 0

    def acquire(self, blocking=True, timeout=-1):
        got = self.lock.acquire(blocking, timeout)
        self.taken += got
        return got

    def release(self):
        before = self.taken
        self.lock.release()
        end = time.monotonic() + 0.5
        while self.taken == before and time.monotonic() < end:
            time.sleep(0.001)
        time.sleep(0.05)  # the other one notes it

slow = Slow()
fork_locks._LOCKS[0].insert(0, fork_locks.weakref.ref(slow))
gate = threading.Barrier(2)
wrong = []

def fork():
    gate.wait()
    child = os.fork()
    if child == 0:
        os._exit(0)
    wrong.append(os.waitpid(child, 0)[1])

threads = [threading.Thread(target=fork) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert wrong == [0, 0], wrong
assert is_free(slow) and is_free(LATE_IMPORTS)
"""
    # After our hook: the second one is still within its fork when the first is through.
    first = (
        "import logging, os, time\nos.register_at_fork(before=lambda: time.sleep(0.3))\n"
    )
    assert run_beside_a_fork(script, first=first) == ""


# A signal that came during the fork: noted in C, and handled where the next hook begins, which is the first of ours.
SIGNAL_IN_A_FORK = """
import _thread, functools, logging, os, signal
os.register_at_fork(after_in_parent=functools.partial(_thread.interrupt_main, signal.SIGUSR1))
"""


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_handler_that_raises_while_the_hooks_run_leaves_no_lock_taken(when: str) -> None:
    script = """
class Raised(Exception):
    pass

def handle(*_):
    raise Raised

signal.signal(signal.SIGUSR1, handle)
late, caught = fork_lock(Rank.SEMAPHORE), []
sys.unraisablehook = lambda unraisable: caught.append(unraisable.exc_type)

def work():
    with late:
        inside.set()
        time.sleep(0.3)
        if sys.argv[1] == "before":  # the main thread waits for the lock
            os.kill(os.getpid(), signal.SIGUSR1)
            time.sleep(0.3)

beside_a_fork(work)
in_a_child(lambda: is_free(late) and is_free_elsewhere(LATE_IMPORTS))
assert is_free_elsewhere(late) and is_free_elsewhere(LATE_IMPORTS)
assert caught == [Raised], caught
"""
    first = SIGNAL_IN_A_FORK if when == "after" else ""
    run_beside_a_fork(script, when, first=first)


# --- the code of what is shared by threads --------------------------------------------------------

SOURCES = Path(fork_locks.__file__).resolve().parents[1]
FILES = sorted(
    p for room in ("base", "formats", "runtime") for p in (SOURCES / room).rglob("*.py")
)
OTHER_LOCKS = {
    "base/fork_locks.py": "makes them",
    "runtime/loaders/vmvx_executable.py": "of one call",
    "runtime/drivers/cuda/nccl_channel.py": "of devices, which a child cannot use",
}


def trees_with(pattern: str) -> Iterator[tuple[str, ast.Module]]:
    """The files with such a line: parsing all takes seconds."""
    for path in FILES:
        text = path.read_text("utf-8")
        if re.search(pattern, text, re.MULTILINE):
            yield str(path.relative_to(SOURCES)), ast.parse(text)


def late_imports(node: ast.AST, *, inside: bool, guarded: bool) -> Iterator[int]:
    """The lines of imports within functions that no `LATE_IMPORTS` stands around."""
    for child in ast.iter_child_nodes(node):
        function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        guards = isinstance(child, ast.With) and any(
            isinstance(item.context_expr, ast.Name)
            and item.context_expr.id == "LATE_IMPORTS"
            for item in child.items
        )
        if isinstance(child, ast.Import | ast.ImportFrom) and inside and not guarded:
            yield child.lineno
        yield from late_imports(child, inside=inside or function, guarded=guarded or guards)


def test_imports_at_first_use_keep_forks_waiting() -> None:
    """Else a child that is forked meanwhile finds Python's lock of the module locked for ever."""
    found = {
        path: lines
        for path, tree in trees_with(r"(?:^[ \t]+|[:;] *)(?:import|from) ")
        if (lines := list(late_imports(tree, inside=False, guarded=False)))
    }
    assert not found, "imports within functions without LATE_IMPORTS"


def test_locks_of_what_threads_share_are_free_in_a_child() -> None:
    found = {
        path
        for path, tree in trees_with(r"\bR?Lock\b")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("threading.Lock", "threading.RLock", "Lock", "RLock")
    }
    assert found == set(OTHER_LOCKS)


@pytest.mark.slow
def test_a_fork_goes_on_beside_two_sections_that_are_longer_than_it_waits_at_first() -> (
    None
):
    """They are hardly ever free at once: who lets go of one whenever the other is taken never has both."""
    script = """
locks = [fork_lock(Rank.MODULE), fork_lock(Rank.BINDING)]
stop = False

def hold(lock, seconds):
    while not stop:
        with lock:
            time.sleep(seconds)
        time.sleep(0.001)

threads = [threading.Thread(target=hold, args=each) for each in zip(locks, (0.2, 0.31))]
for thread in threads:
    thread.start()
time.sleep(0.05)
child = os.fork()
if child == 0:
    signal.alarm(20)
    os._exit(0 if all(map(is_free, locks)) else 1)
stop = True
for thread in threads:
    thread.join()
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    assert run_beside_a_fork(script) == ""


@pytest.mark.slow
def test_a_section_may_give_work_to_threads_while_another_thread_forks() -> None:
    """The hook of `concurrent.futures.thread` takes a lock that every `submit` takes."""
    script = """
def work():
    with LATE_IMPORTS:
        from concurrent.futures import ThreadPoolExecutor
        pool = ThreadPoolExecutor(1)
        inside.set()
        time.sleep(0.3)  # the fork waits by now
        assert pool.submit(int, "5").result(20) == 5

beside_a_fork(work)
in_a_child(lambda: is_free(LATE_IMPORTS))
"""
    assert run_beside_a_fork(script) == ""
