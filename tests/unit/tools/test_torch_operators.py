"""tools/torch_operators.py counts each sample once, whatever becomes of the process that runs them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import torch_operators
from torch_operators import Late, Limits, Worker
from torch_tallies import (
    StateError,
    Tally,
    append_state,
    forget,
    page,
    read_state,
    revision_of,
    stale,
)

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


@pytest.mark.slow
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


@pytest.mark.slow
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
    append_state(path, Tally("relu", "int64", total=1, right=1))
    forget(path, [("relu", "float32")])
    assert [*read_state(path)] == [("abs", "bool"), ("relu", "int64")], "its other types"


@pytest.mark.slow
def test_a_line_that_a_run_was_stopped_in_is_written_again(tmp_path: Path) -> None:
    path = tmp_path / "state"
    append_state(path, Tally("relu", "float32", total=3, right=1))
    append_state(path, Tally("abs", "bool", total=1, right=1))
    whole = path.read_bytes()
    second = whole.index(b"\n") + 1
    for end in range(second, len(whole)):
        path.write_bytes(whole[:end])
        assert list(read_state(path)) == [("relu", "float32")]
        append_state(path, Tally("abs", "bool", total=1, right=1))
        assert path.read_bytes() == whole
    path.write_bytes(whole[:-9])
    forget(path, ["abs"])
    assert path.read_bytes() == whole[:second]


@pytest.mark.parametrize("line", ["{", "[]", "7", '{"no": 1}', '{"format": 2}', "é"])
def test_a_line_that_is_none_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "state"
    append_state(path, Tally("relu", "float32"))
    path.write_text(f"{path.read_text()}{line}\n", encoding="utf-8")
    with pytest.raises(StateError, match=r"state:2: .*--again"):
        read_state(path)
    forget(path, [])
    assert list(read_state(path)) == [("relu", "float32")]


def test_lines_that_say_no_format_are_read(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_text('{"operator": "relu", "dtype": "bool", "total": 2, "right": 2}\n')
    assert read_state(path)["relu", "bool"].ran == 2


def test_what_was_tried_with_other_sources_is_told(tmp_path: Path, start: Start) -> None:
    path, wanted = tmp_path / "state", {"relu": ["float32"]}
    torch_operators.run(start("right right"), path, wanted, Limits(samples=1), "one")
    torch_operators.run(start("right right"), path, wanted, Limits(), "two")
    torch_operators.run(start("right"), path, {"abs": ["bool"]}, Limits(), "two")
    rows = read_state(path)
    assert [row.revision for row in rows.values()] == ["one", "two"], (
        "that of the first sample"
    )
    assert stale(path, "two") == {("relu", "float32")}
    assert "with 2 revisions of the sources" in page(rows.values(), "2.13.0")
    assert "revisions" not in page([rows["abs", "bool"]], "2.13.0")


def test_a_revision_is_that_of_the_sources(tmp_path: Path) -> None:
    for name in ("src/tilewright/base", "src/tilewright/compiler", "tools"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "tools" / "torch_samples.py").write_text("1")
    (file := tmp_path / "src/tilewright/base/a.py").write_text("1")
    first = revision_of(tmp_path, "2.13.0")
    assert revision_of(tmp_path, "2.13.0") == first != revision_of(tmp_path, "2.14.0")
    file.write_text("2")
    assert revision_of(tmp_path, "2.13.0") != first


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
