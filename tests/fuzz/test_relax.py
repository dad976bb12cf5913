"""Some thousand mutated Relax programs (`relax_mutations.py`) are refused, or run to an end."""

from __future__ import annotations

import pytest

from fuzz.harness import counts_of
from fuzz.relax_mutations import run


@pytest.mark.slow
def test_mutated_code_is_refused_or_runs() -> None:
    counts = counts_of(run("default", 0, 1500))
    assert counts["run"] > 100
    assert counts["failed"] > 200


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "count"),
    [(0, 4_000), pytest.param(4_000, 46_000, marks=pytest.mark.nightly)],
)
def test_more_mutated_code(first: int, count: int) -> None:
    assert counts_of(run("slow", first, count)).total() == count
