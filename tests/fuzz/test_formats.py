"""Some thousand mutated files per format (`format_mutations.py`), and what it found before."""

from __future__ import annotations

from collections import Counter

import pytest

from fuzz.format_mutations import FORMATS, run, run_one


@pytest.mark.parametrize("name", FORMATS)
def test_mutated_files_are_refused_or_read(name: str) -> None:
    counts: Counter[str] = Counter()
    findings = []
    for subject, finding in run(name, "default", 0, 1000):
        counts[subject] += 1
        if finding is not None:
            findings.append(f"input {finding.number}: {finding.outcome}")
    assert not findings
    assert counts["refused"] > 50
    assert counts["read"] > 5


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_more_mutated_files(name: str) -> None:
    assert all(finding is None for _, finding in run(name, "slow", 0, 10_000))


@pytest.mark.parametrize("name", FORMATS)
def test_an_input_is_the_same_each_time(name: str) -> None:
    assert [run_one(name, "again", n) for n in range(20)] == [
        run_one(name, "again", n) for n in range(20)
    ]
