"""Some thousand mutated Relax programs (`relax_mutations.py`) are refused, or run to an end."""

from __future__ import annotations

from collections import Counter

import pytest

from fuzz.relax_mutations import run


def _counts(seed: str, count: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    for subject, finding in run(seed, 0, count):
        assert finding is None, f"input {finding.number}: {finding.outcome}"
        counts[subject] += 1
    return counts


@pytest.mark.slow
def test_mutated_code_is_refused_or_runs() -> None:
    counts = _counts("default", 1500)
    assert counts["run"] > 100
    assert counts["failed"] > 200


@pytest.mark.slow
def test_more_mutated_code() -> None:
    _counts("slow", 50_000)
