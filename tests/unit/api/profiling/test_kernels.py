"""Kernels beside the limit they run into."""

from __future__ import annotations

import pytest

from fakes.plans import dynamic_plan, static_plan
from tilewright.api.profiling import KernelRow, bytes_moved
from tilewright.api.profiling.roofline import Roofline

LIMITS = Roofline(1, 100e9, 10e9, (("L3", 25e9), ("L2", 50e9), ("L1", 100e9)))


@pytest.mark.parametrize(
    ("row", "limit", "share"),
    [
        (KernelRow("matmul", 1, 90_000_000, 1000, 1_000_000), "compute", 0.9),
        (KernelRow("copy", 1, 0, 5_000_000, 1_000_000), "memory", 0.5),
        (KernelRow("far", 1, 0, 20_000_000, 1_000_000), "L3", 0.8),
        (KernelRow("warm", 1, 0, 30_000_000, 1_000_000), "L2", 0.6),
        (KernelRow("hot", 1, 0, 500_000_000, 1_000_000), "L1", 1.0),
        (KernelRow("slow", 1, 1000, 1000, 1_000_000), "memory", 0.0001),
        (KernelRow("tiny", 2, 100, 100, 3_000), "start", 0.00333),
        (KernelRow("short", 1, 90_000, 100, 1_000), "compute", 0.9),
        (KernelRow("nothing", 1, 0, 0, 0), "start", 0.0),
    ],
    ids=lambda v: v.name if isinstance(v, KernelRow) else "",
)
def test_the_limit_is_the_one_that_is_closest(
    row: KernelRow, limit: str, share: float
) -> None:
    name, found = row.limit(LIMITS)
    assert name == limit
    assert found == pytest.approx(share, rel=1e-2)


def test_bytes_are_those_of_operands_and_results_once_each() -> None:
    plan = static_plan()
    add, widen, copy = plan.steps
    assert bytes_moved(plan, add, {}) == 3 * 16
    assert bytes_moved(plan, widen, {}) == 16 + 32
    assert bytes_moved(plan, copy, {}) == 2 * 16


def test_scratch_memory_is_not_counted_and_sizes_follow_the_call() -> None:
    plan = dynamic_plan()
    double, resize = plan.steps
    assert bytes_moved(plan, double, {"N": 5}) == 2 * 60
    assert bytes_moved(plan, resize, {"N": 5}) == 60 + 4 + 30
