"""The heap: bounds, reuse, statistics."""

from __future__ import annotations

import gc

import pytest

from tilewright.base.errors import DeviceError
from tilewright.runtime.hal.buffer import Buffer
from tilewright.runtime.hal.local.heap_allocator import HeapAllocator


def take(heap: HeapAllocator, size: int) -> Buffer:
    return heap.allocate(0, 0, size)


def test_the_bound_is_held_and_the_error_says_what_is_in_use() -> None:
    heap = HeapAllocator(capacity_bytes=10_200)
    held = [take(heap, 4096), take(heap, 1024), take(heap, 1024), take(heap, 64)]
    with pytest.raises(
        DeviceError,
        match=r"no room for 4032 bytes: 6208 of 10200 are in use, 1 x 4096 bytes, "
        r"2 x 1024 bytes, 1 x 64 bytes \(RESOURCE_EXHAUSTED\)\n.*\?memory=",
    ):
        take(heap, 4000)
    held.pop(0)
    assert take(heap, 4000).byte_length == 4000
    assert heap.query_memory_heaps()[0].max_allocation_size_bytes == 10_200


def test_what_is_kept_for_reuse_gives_way() -> None:
    heap = HeapAllocator(capacity_bytes=8192)
    del [take(heap, 4096), take(heap, 2048)][:]
    gc.collect()
    assert heap.query_statistics().pooled_bytes == 6144
    whole = take(heap, 8192)
    statistics = heap.query_statistics()
    assert (statistics.pooled_bytes, statistics.live_bytes) == (0, 8192)
    assert whole.byte_length == 8192


def test_a_small_error_list_names_the_largest_first() -> None:
    heap = HeapAllocator(capacity_bytes=4096)
    held = [take(heap, 64 * i) for i in range(1, 8)]
    with pytest.raises(DeviceError, match=r"1 x 448 bytes, .* 1 x 256 bytes, 3 smaller"):
        take(heap, 4096)
    assert len(held) == 7


def test_only_so_much_is_kept_for_reuse() -> None:
    heap = HeapAllocator(limit_bytes=4096)
    del [take(heap, 4096), take(heap, 4096)][:]
    gc.collect()
    assert heap.query_statistics().pooled_bytes == 4096
    heap.trim()
    assert heap.query_statistics().pooled_bytes == 0


def test_statistics_count_blocks() -> None:
    heap = HeapAllocator()
    first = take(heap, 100)
    del first
    gc.collect()
    second = take(heap, 100)
    statistics = heap.query_statistics()
    assert (statistics.allocation_count, statistics.live_count) == (2, 1)
    assert statistics.reuse_count == 1
    assert statistics.live_bytes == statistics.peak_bytes == 128
    assert second.byte_length == 100
