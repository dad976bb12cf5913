"""A few thousand mutated inputs of `bytecode_mutations.py`, and what it found before."""

from __future__ import annotations

import pytest

from fuzz.bytecode_mutations import run, run_one
from fuzz.harness import counts_of


def test_mutated_bytecode_is_refused_fails_or_answers_alike_on_both_engines() -> None:
    counts = counts_of(run("default", 0, 1500))
    assert counts["answered"] > 50
    assert counts["failed"] > 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "count"),
    [(0, 10_000), pytest.param(10_000, 30_000, marks=pytest.mark.nightly)],
)
def test_more_mutated_bytecode(first: int, count: int) -> None:
    assert all(finding is None for _, finding in run("slow", first, count))


def test_an_input_is_the_same_each_time() -> None:
    assert [run_one("again", n) for n in range(40)] == [
        run_one("again", n) for n in range(40)
    ]


@pytest.mark.parametrize(
    "number",
    [
        596_708,  # an integer raised to the power of one as if it were a float: it grew for ever
        505_763,  # 257 million bytes of globals in a file of 200 bytes
    ],
)
def test_what_was_found_before(number: int) -> None:
    assert run_one("bytecode", number) in ("answered", "failed", "refused")
