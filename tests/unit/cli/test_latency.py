"""Durations summed up and drawn."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.cli.latency import Latency, measure

times = st.lists(st.integers(1, 10**9), min_size=1, max_size=300)


@given(times, st.integers(1, 12))
def test_every_call_is_in_one_bin(durations: list[int], bins: int) -> None:
    found = Latency(tuple(durations)).histogram(bins)
    assert sum(b.count for b in found) == len(durations)
    assert len(found) <= bins + 1
    assert found[0].low_ns == min(durations)
    assert found[-1].high_ns == pytest.approx(max(durations)) or found[-1].high_ns <= max(
        durations
    )
    for left, right in itertools.pairwise(found):
        assert left.high_ns == right.low_ns
        assert left.low_ns < left.high_ns


@given(times, st.integers(1, 12))
def test_bins_count_what_lies_between_their_ends(durations: list[int], bins: int) -> None:
    found = Latency(tuple(durations)).histogram(bins)
    for b in found[1:-1]:
        slack = 1e-6 * max(durations)
        inside = sum(b.low_ns + slack < t < b.high_ns - slack for t in durations)
        around = sum(b.low_ns - slack <= t <= b.high_ns + slack for t in durations)
        assert inside <= b.count <= around


def test_outliers_do_not_flatten_the_histogram() -> None:
    latency = Latency((*range(100, 200), *range(100, 200), 10**9))
    found = latency.histogram(10)
    assert found[-1].count >= 1
    assert found[-1].high_ns == 10**9
    assert max(b.count for b in found[:-1]) < 60


def test_equal_durations_are_one_bin() -> None:
    (only,) = Latency((5, 5, 5)).histogram()
    assert (only.low_ns, only.high_ns, only.count) == (5, 5, 3)


def test_quantiles_and_noise() -> None:
    calm = Latency(tuple(range(100, 200)))
    assert calm.quantiles["min"] == 100
    assert calm.quantiles["max"] == 199
    assert calm.median_ns == 149.5
    assert not calm.is_noisy
    assert Latency((10, 10, 10, 10, 10, 10, 10, 10, 30, 30)).is_noisy


class Clock:
    """One millisecond passes with every look."""

    def __init__(self) -> None:
        self.now = 0
        self.calls = 0

    def __call__(self) -> int:
        self.now += 1_000_000
        return self.now

    def work(self) -> None:
        self.calls += 1


def test_calls_are_repeated_for_a_time_or_a_number_of_times() -> None:
    clock = Clock()
    assert len(measure(clock.work, seconds=0.03, warmup=2, clock=clock).times_ns) == 10
    assert clock.calls == 12
    assert len(measure(clock.work, seconds=0, warmup=0, clock=clock).times_ns) == 3
    assert (
        len(measure(clock.work, seconds=9, warmup=0, repeat=2, clock=clock).times_ns) == 2
    )
    assert set(measure(clock.work, seconds=0, warmup=0, clock=clock).times_ns) == {
        1_000_000
    }


def test_ctrl_c_keeps_what_was_measured() -> None:
    calls: list[int] = []

    def call() -> None:
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt

    kept = measure(call, seconds=60, warmup=0)
    assert (len(kept.times_ns), kept.is_interrupted) == (4, True)
    calls[:] = [1] * 4  # before the first call has ended, there is nothing to keep
    with pytest.raises(KeyboardInterrupt):
        measure(call, seconds=60, warmup=0)
