"""The sweeps' table sorts by ratio and its summary counts what the bars are about."""

from __future__ import annotations

from typing import Any

import pytest

from sweep.report import KNOWN, family_lines, summarize, symbol_lines, table

Row = dict[str, Any]


def row(name: str, ours: float, peer: float | None, **more: object) -> Row:
    found: Row = {"name": name, "family": name.partition("/")[0], **more}
    found["tilewright"] = {"min_s": ours, "median_s": 1.5 * ours}
    if peer is not None:
        found["onnxruntime"] = {"min_s": peer, "median_s": peer}
    return found


ROWS = [
    row("a/even", 100e-6, 100e-6),
    row("a/slow", 300e-6, 100e-6),
    row("b/light", 10e-6, 1e-6),
    row("b/fast", 50e-6, 100e-6),
    row("b/wrong", 40e-6, 50e-6, wrong="result 0: error 1e-1, allowed 2e-5"),
    row("c/alone", 1e-3, None, refused={"onnxruntime": "NotImplemented"}),
    {
        "name": "c/refused",
        "family": "c",
        "refused": {"tilewright": "ModelError: no"},
        "onnxruntime": {"min_s": 1e-6, "median_s": 1e-6},
    },
    {"name": "c/dead", "family": "c", "failed": "the process ended with status -11"},
]


def test_the_worst_case_is_a_weighty_one() -> None:
    summary = summarize(ROWS, bar=2.0)
    assert summary.worst == pytest.approx(3.0)
    assert summary.above == 1
    assert summary.weighty == 4


def test_the_median_is_of_all_cases_that_both_ran() -> None:
    summary = summarize(ROWS, bar=2.0)
    assert summary.cases == 5
    assert summary.median == 1.0


def test_wrong_results_refusals_and_deaths_are_counted() -> None:
    summary = summarize(ROWS, bar=2.0)
    assert (summary.wrong, summary.refused, summary.alone) == (1, 2, 1)


def test_a_sweep_without_rows_has_a_summary() -> None:
    assert summarize([], bar=2.0).cases == 0


def test_the_table_shows_failures_first_then_falling_ratios_then_light_cases() -> None:
    order = ["c/refused", "c/dead", "a/slow", "a/even", "b/wrong", "b/fast", "b/light"]
    names = [name for line in table(ROWS) for name in order if f"  {name}" in line]
    assert names == order


def test_every_row_stands_in_the_table_once() -> None:
    lines = table(ROWS)
    for entry in ROWS:
        assert sum(f"  {entry['name']}" in line for line in lines) == 1


def test_a_line_says_what_is_wrong() -> None:
    text = "\n".join(table(ROWS))
    assert "WRONG result 0" in text
    assert "tilewright refuses: ModelError: no" in text
    assert "FAILED the process ended with status -11" in text


def test_families_stand_by_their_worst_weighty_case() -> None:
    lines = family_lines(ROWS)
    assert [line.split()[0] for line in lines] == ["a", "b"]
    assert "3.00" in lines[0]


def test_cases_that_symbols_slow_down_stand_slowest_first() -> None:
    known = {"min_s": 80e-6, "median_s": 80e-6}
    rows = [
        row("a/even", 80e-6, 100e-6, **{KNOWN: known}),
        row("a/slow", 100e-6, 50e-6, **{KNOWN: known}),
        row("a/slower", 160e-6, None, **{KNOWN: known}),
        row("a/light", 10e-6, 10e-6, **{KNOWN: {"min_s": 1e-6, "median_s": 1e-6}}),
    ]
    title, _, *lines = symbol_lines(rows)
    assert "3 weighty cases" in title
    assert "2 below" in title
    assert [line.split()[-1] for line in lines if line] == ["a/slower", "a/slow"]
    assert "2.00" in lines[1]
    assert symbol_lines(ROWS) == []
