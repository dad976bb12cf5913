"""How many workers a pool gets."""

from __future__ import annotations

import pytest

from tilewright.base import knobs
from tilewright.runtime.drivers.local_task import workers
from tilewright.runtime.drivers.local_task.workers import create_pool


def test_one_thread_needs_no_pool() -> None:
    assert create_pool(1) is None


def test_the_number_asked_for_beats_the_knob_beats_the_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def threads(count: int) -> int:
        pool = create_pool(count)
        return 1 if pool is None else pool.thread_count

    monkeypatch.setattr(workers, "usable_cores", lambda: 3)
    assert threads(0) == 3
    with knobs.override(threads=4):
        assert threads(0) == 4
        assert threads(2) == 2


def test_any_time_to_spin_is_taken() -> None:
    with knobs.override(spin_us=10**12):
        pool = create_pool(2)
    assert pool is not None
    assert pool.thread_count == 2
