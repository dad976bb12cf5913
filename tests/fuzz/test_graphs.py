"""Some thousand mutated graphs (`graph_mutations.py`) are refused, or run to the end."""

from __future__ import annotations

import pytest

from fuzz.graph_mutations import run, run_one
from fuzz.harness import counts_of


def test_mutated_graphs_are_refused_or_run() -> None:
    counts = counts_of(run("default", 0, 800))
    assert counts["refused"] > 200
    assert counts["run"] > 40


@pytest.mark.nightly
def test_more_mutated_graphs() -> None:
    assert all(finding is None for _, finding in run("slow", 0, 50_000))


def test_an_input_is_the_same_each_time() -> None:
    assert [run_one("again", n) for n in range(20)] == [
        run_one("again", n) for n in range(20)
    ]
