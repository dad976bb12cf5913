"""Some hundred lists of commands from chance (`command_mutations.py`)."""

from __future__ import annotations

import random

import pytest

from fuzz.command_mutations import drawn, run
from fuzz.harness import counts_of


def test_lists_are_refused_or_run_as_the_other_core_runs_them() -> None:
    counts = counts_of(run("default", 0, 60))
    assert counts["refused"] > 12
    assert counts["ran"] > 6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "count"), [(0, 500), pytest.param(500, 1000, marks=pytest.mark.nightly)]
)
def test_more_lists(first: int, count: int) -> None:
    assert counts_of(run("slow", first, count))["went in circles"] > 15


def test_an_input_is_the_same_each_time() -> None:
    for number in range(20):
        one, other = (drawn(random.Random(number)).packed() for _ in range(2))
        assert one == other
