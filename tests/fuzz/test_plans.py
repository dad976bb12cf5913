"""Some hundred mutated plans that are called (`plan_mutations.py`)."""

from __future__ import annotations

from collections import Counter

import pytest

from fakes.native_kernel import needs_x86
from fuzz.harness import counts_of
from fuzz.plan_mutations import run, run_one, seeds


def check(seed: str, count: int) -> Counter[str]:
    seeds()  # compiled once, which is no input's work
    return counts_of(run(seed, 0, count))


@needs_x86
def test_mutated_plans_are_refused_or_run() -> None:
    counts = check("default", 100)
    assert counts["refused"] > 30
    assert counts["ran"] > 3


@needs_x86
@pytest.mark.slow
def test_more_mutated_plans() -> None:
    assert check("slow", 4000)["went in circles"] > 5


@needs_x86
def test_an_input_is_the_same_each_time() -> None:
    seeds()
    assert [run_one("again", n) for n in range(20)] == [
        run_one("again", n) for n in range(20)
    ]
