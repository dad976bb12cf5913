"""Locks that a forked child finds free."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

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
        free = all(lock.acquire(timeout=2) for lock in locks)
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
