"""Some thousand mutated files per format (`format_mutations.py`), and what it found before."""

from __future__ import annotations

import pytest

from fuzz.format_mutations import FORMATS, run, run_one
from fuzz.harness import counts_of


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", FORMATS)
def test_mutated_files_are_refused_or_read(name: str) -> None:
    counts = counts_of(run(name, "default", 0, 1000))
    assert counts["refused"] > 50
    assert counts["read"] > 5


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    ("first", "count"), [(0, 3000), pytest.param(3000, 7000, marks=pytest.mark.nightly)]
)
def test_more_mutated_files(name: str, first: int, count: int) -> None:
    assert all(finding is None for _, finding in run(name, "slow", first, count))


@pytest.mark.parametrize("name", FORMATS)
def test_an_input_is_the_same_each_time(name: str) -> None:
    assert [run_one(name, "again", n) for n in range(20)] == [
        run_one(name, "again", n) for n in range(20)
    ]
