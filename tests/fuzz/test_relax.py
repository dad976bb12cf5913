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
def test_more_mutated_code() -> None:
    assert counts_of(run("slow", 0, 50_000)).total() == 50_000
