"""Some hundred mutated plans that are called (`plan_mutations.py`)."""

from __future__ import annotations

from collections import Counter

import pytest

from fakes.native_kernel import needs_x86
from fuzz.harness import counts_of
from fuzz.plan_mutations import run, run_one, seeds


def check(seed: str, count: int, first: int = 0) -> Counter[str]:
    seeds()  # compiled once, which is no input's work
    return counts_of(run(seed, first, count))


@pytest.mark.slow
@needs_x86
def test_mutated_plans_are_refused_or_run() -> None:
    counts = check("default", 100)
    assert counts["refused"] > 30
    assert counts["ran"] > 3


@needs_x86
@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "count"), [(0, 1000), pytest.param(1000, 3000, marks=pytest.mark.nightly)]
)
def test_more_mutated_plans(first: int, count: int) -> None:
    assert check("slow", count, first)["went in circles"] == 0


@pytest.mark.slow
@needs_x86
def test_an_input_is_the_same_each_time() -> None:
    seeds()
    assert [run_one("again", n) for n in range(20)] == [
        run_one("again", n) for n in range(20)
    ]
