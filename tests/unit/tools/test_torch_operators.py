"""tools/torch_operators.py counts each sample once, whatever becomes of the process that runs them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import torch_operators
from torch_operators import Late, Limits, Worker
from torch_tallies import Tally, append_state, forget, page, read_state

ANSWERING = """
import json, os, sys, time
becomes = sys.argv[1].split()
for line in sys.stdin:
    asked = json.loads(line)
    print(json.dumps({"total": len(becomes)}), flush=True)
    for outcome in becomes[asked["first"] : asked["most"] or None]:
        if outcome == "hangs":
            time.sleep(60)
        if outcome == "ends":
            os._exit(3)
        print(json.dumps({"outcome": outcome, "text": "why"}), flush=True)
    print(flush=True)
"""
Start = Callable[[str], Worker]


@pytest.fixture
def start() -> Iterator[Start]:
    """Workers whose samples become what the words say."""
    begun: list[Worker] = []

    def begin(words: str) -> Worker:
        begun.append(Worker([sys.executable, "-c", ANSWERING, words]))
        return begun[-1]

    yield begin
    for worker in begun:
        worker.end()


def swept(worker: Worker, limits: Limits, tally: Tally | None = None) -> Tally:
    tally = tally or Tally("relu", "float32")
    torch_operators.sweep(worker, tally, limits)
    return tally


def test_outcomes_are_counted_and_their_reasons_kept(start: Start) -> None:
    tally = swept(start("right refused wrong refused crashed"), Limits())
    assert (tally.total, tally.ran) == (5, 5)
    assert (tally.right, tally.refused, tally.wrong, tally.crashed) == (1, 2, 1, 1)
    assert tally.reasons == {"why": 2}
    assert tally.failures == ["wrong: why", "crashed: why"]


def test_a_process_that_ends_costs_one_sample(start: Start) -> None:
    tally = swept(start("right ends right ends"), Limits())
    assert (tally.right, tally.crashed, tally.ran) == (2, 2, 4)
    assert tally.failures[0] == "crashed: the process ended at sample 1: exit code 3"


def test_a_sample_that_hangs_costs_one_sample(start: Start) -> None:
    tally = swept(start("right hangs right"), Limits(patience=0.5))
    assert (tally.right, tally.slow) == (2, 1)
    assert tally.failures == ["slow: sample 1 took more than 0.5 s"]


def test_what_was_tried_is_not_tried_again(start: Start) -> None:
    worker = start("right right right")
    tally = swept(worker, Limits(samples=2))
    assert (tally.right, tally.total) == (2, 3)
    assert swept(worker, Limits(samples=2), tally).ran == 2
    assert swept(worker, Limits(), tally).right == 3


def test_a_worker_that_was_late_is_asked_anew(start: Start) -> None:
    worker = start("hangs")
    request = {"first": 0, "most": 0}
    with pytest.raises(Late):
        list(worker.ask(request, 0.2))
    assert worker.process is None
    assert next(iter(worker.ask(request, 0.2))) == {"total": 1}


def test_the_last_line_of_the_state_counts_until_it_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "state"
    append_state(path, Tally("relu", "float32", total=3, right=1))
    append_state(path, Tally("relu", "float32", total=3, right=3))
    append_state(path, Tally("abs", "bool", total=1, refused=1, reasons={"why": 1}))
    assert read_state(path)["relu", "float32"].right == 3
    forget(path, ["relu"])
    assert list(read_state(path)) == [("abs", "bool")]


def test_runs_go_on_where_the_state_ends(tmp_path: Path, start: Start) -> None:
    path, worker = tmp_path / "state", start("right wrong")
    wanted = {"relu": ["float32", "int64"]}
    torch_operators.run(worker, path, wanted, Limits(samples=1))
    torch_operators.run(worker, path, wanted, Limits())
    torch_operators.run(start("ends"), path, wanted, Limits())  # nothing is left for it
    found = read_state(path)
    assert [(t.right, t.wrong, t.crashed) for t in found.values()] == [(1, 1, 0)] * 2
    assert len(path.read_text().splitlines()) == 4


def test_a_name_means_its_variants_too() -> None:
    operators = {"div": ["int64"], "div.floor": ["int64"], "divide": ["int64"]}
    assert list(torch_operators.chosen(operators, ["div"])) == ["div", "div.floor"]
    assert torch_operators.chosen(operators, []) == operators


def test_the_page_says_how_many_were_tried() -> None:
    rows = [
        Tally("relu", "float32", total=3, right=3),
        Tally("abs", "float32", total=9, right=1, refused=1, reasons={"a | b": 1}),
        Tally("exp", "float32", total=1, slow=1),
    ]
    text = page(rows, "2.13.0")
    assert "6 of 13 samples" in text
    assert "**1** are right on every sample that was tried, 1 on some" in text
    assert "| `abs` | 2 of 9 | 1 | 1 | 0 | a   b |" in text
    assert "| `exp` | 1 | 0 | 0 | 1 |  |" in text
