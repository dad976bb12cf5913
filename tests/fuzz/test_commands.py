"""Some hundred lists of commands from chance (`command_mutations.py`)."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from fuzz.command_mutations import drawn, run


def check(seed: str, count: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    findings = []
    for outcome, finding in run(seed, 0, count):
        counts[outcome] += 1
        if finding is not None:
            findings.append(f"input {finding.number}: {finding.outcome}")
    assert not findings
    return counts


def test_lists_are_refused_or_run_as_the_other_core_runs_them() -> None:
    counts = check("default", 150)
    assert counts["refused"] > 30
    assert counts["ran"] > 15


@pytest.mark.slow
def test_more_lists() -> None:
    assert check("slow", 1500)["went in circles"] > 50


def test_an_input_is_the_same_each_time() -> None:
    for number in range(20):
        one, other = (drawn(random.Random(number)).packed() for _ in range(2))
        assert one == other
