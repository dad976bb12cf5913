"""Locks that a forked child finds free."""

from __future__ import annotations

import gc
import os
import subprocess
import sys

import pytest

from tilewright.base.fork_locks import Rank, fork_lock, lock_count, reentrant_fork_lock

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")

BUSY = """
import os, threading, time
from tilewright.base.fork_locks import Rank, fork_lock, reentrant_fork_lock

locks = [fork_lock(Rank.QUEUE), fork_lock(Rank.SEMAPHORE), reentrant_fork_lock(Rank.ALLOCATOR)]
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
    before = [lock_count(rank) for rank in Rank]
    locks = [fork_lock(Rank.QUEUE), reentrant_fork_lock(Rank.QUEUE)]
    assert lock_count(Rank.QUEUE) == before[Rank.QUEUE] + 2
    locks.clear()
    gc.collect()
    assert [lock_count(rank) for rank in Rank] == before


def test_one_that_the_forking_thread_holds_itself_may_be_reentered() -> None:
    script = (
        "import os\n"
        "from tilewright.base.fork_locks import Rank, reentrant_fork_lock\n"
        "lock = reentrant_fork_lock(Rank.ALLOCATOR)\n"
        "with lock:\n"
        "    child = os.fork()\n"
        "    if child == 0: os._exit(0)\n"
        "    assert os.waitpid(child, 0)[1] == 0\n"
        "assert lock.acquire(blocking=False)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
