"""What heaps hold, bound and say: the C core's and its Python twin's."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from types import ModuleType

import pytest

from tilewright.base.errors import DeviceError
from tilewright.runtime.native import MemoryReport, MemoryUse


def test_a_report_names_what_memory_is_for(core: ModuleType) -> None:
    heap = core.Heap(1 << 20)
    held = [heap.lease(1024, use) for use in MemoryUse]
    held.append(heap.lease(64))
    report = MemoryReport.of(heap)
    assert (report.arenas_bytes, report.transients_bytes, report.scratch_bytes) == (
        1024,
        1088,
        1024,
    )
    assert report.in_use_bytes == report.peak_bytes == 3136
    assert report.live_count == report.lease_count == 4
    assert repr(report) == (
        "<memory: arenas 1.0 KiB, transients 1.1 KiB, scratch 1.0 KiB, kept for reuse 0 B, "
        "peak 3.1 KiB, cap 1.0 MiB>"
    )
    held.clear()
    gc.collect()
    report = MemoryReport.of(heap)
    assert (report.in_use_bytes, report.live_count, report.peak_bytes) == (0, 0, 3136)
    heap.trim()
    assert MemoryReport.of(heap).total_bytes == 0
    assert "no cap" in repr(MemoryReport.of(core.Heap()))


def test_a_refusal_names_the_cap_and_who_holds_what(core: ModuleType) -> None:
    heap = core.Heap(capacity_bytes=4096)
    held = [heap.lease(1024), heap.lease(1024), heap.lease(64)]
    with pytest.raises(
        DeviceError,
        match=r"no room for 2048 bytes for intermediate tensors: 2112 of 4096 are in use, "
        r"2 x 1024 bytes, 1 x 64 bytes \(RESOURCE_EXHAUSTED\)\nhint: .*\?memory=",
    ):
        heap.lease(2048, MemoryUse.ARENA)
    del held[0]
    assert len(heap.lease(2048)) == 2048


def test_more_than_the_system_has_is_an_error(core: ModuleType) -> None:
    for size in (1 << 45, (1 << 63) - 1, 1 << 63, 1 << 64, 3 << 90):
        with pytest.raises(DeviceError, match=r"no memory for \d+ bytes: the system"):
            core.Heap().lease(size)
        with pytest.raises(
            DeviceError, match=r"no room for \d+ bytes: 0 of 4096 are in use"
        ):
            core.Heap(4096).lease(size)


def test_nonsense_is_refused(core: ModuleType) -> None:
    with pytest.raises(ValueError, match="capacity_bytes: expected a number of bytes"):
        core.Heap(-1)
    with pytest.raises(ValueError, match="size_bytes is -1"):
        core.Heap().lease(-1)
    with pytest.raises(ValueError, match=f"size_bytes is {-(1 << 80)}"):
        core.Heap().lease(-(1 << 80))
    with pytest.raises(ValueError, match="use is 3"):
        core.Heap().lease(1, 3)


def test_a_block_outlives_the_name_of_its_heap(core: ModuleType) -> None:
    memory = core.Heap().lease(1 << 20)
    gc.collect()
    memoryview(memory)[-1] = 7
    assert memoryview(memory)[-1] == 7


def test_threads_do_not_lose_count(core: ModuleType) -> None:
    heap = core.Heap(1 << 24)

    def work() -> None:
        for i in range(300):
            memoryview(heap.lease(1 + 977 * i, i % 3))[0] = 1
            if i % 50 == 0:
                heap.trim()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    report = MemoryReport.of(heap)
    assert (report.in_use_bytes, report.live_count, report.lease_count) == (0, 0, 1200)


FORKING = """
import importlib, os, signal, sys, threading

heap = importlib.import_module(sys.argv[1]).Heap()
stop = False
sys.setswitchinterval(1e-5)

def work():
    while not stop:
        heap.lease(64)

thread = threading.Thread(target=work)
thread.start()
for _ in range(50):
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        heap.lease(64)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        os._exit(1)
stop = True
thread.join()
"""


@pytest.mark.thinned(2)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_finds_the_heap_free(core: ModuleType) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKING, core.__name__]
    subprocess.run(command, check=True, timeout=100)


def test_blocks_that_come_back_are_leased_again(core: ModuleType) -> None:
    if core.__name__.endswith("fallback"):
        pytest.skip("the fallback keeps nothing")
    heap = core.Heap()
    address = heap.lease(5 << 20, MemoryUse.ARENA).address
    assert address % (2 << 20) == 0
    assert MemoryReport.of(heap).kept_bytes == 5 << 20
    assert heap.lease(4 << 20, MemoryUse.ARENA).address == address
    assert MemoryReport.of(heap).reuse_count == 1
    view = memoryview(heap.lease(3 << 20, MemoryUse.ARENA))
    heap.close()  # what is in use stays, and is not kept afterwards
    view[0] = 1
    assert MemoryReport.of(heap).kept_bytes == 0
    del view
    assert MemoryReport.of(heap).total_bytes == 0
