"""The referee keeps a row of every case, whatever becomes of the worker."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from sweep.command import choose, parse_arguments
from sweep.manner import Manner
from sweep.referee import Referee, read_rows, run

WORKER = """
import json, os, sys, time
for line in sys.stdin:
    name = line.strip()
    if name == "a/dies":
        os._exit(7)
    if name == "a/hangs":
        time.sleep(60)
    print(json.dumps({"name": name, "pid": os.getpid()}), flush=True)
"""


USUAL = Manner()
SYMBOLS = Manner(symbols=True)


def referee(timeout_s: float = 120.0, manner: Manner = USUAL) -> Referee:
    command = (sys.executable, "-c", WORKER)
    return Referee("ops", manner=manner, timeout_s=timeout_s, command=command)


def test_one_worker_answers_for_all_cases() -> None:
    with referee() as judge:
        one, other = judge.hold("a/one"), judge.hold("a/other")
    assert one["name"] == "a/one"
    assert one["pid"] == other["pid"]


def test_a_case_that_ends_the_worker_is_a_row_and_the_next_one_runs() -> None:
    with referee() as judge:
        lost, kept = judge.hold("a/dies"), judge.hold("a/one")
    assert lost["failed"] == "the process ended with status 7"
    assert lost["family"] == "a"
    assert kept["name"] == "a/one"


def test_a_case_without_an_answer_is_a_row_and_the_next_one_runs() -> None:
    with referee() as judge:
        judge.hold("a/one")  # the process has started
        judge.timeout_s = 0.2
        assert "no answer" in judge.hold("a/hangs")["failed"]
        judge.timeout_s = 120.0
        assert judge.hold("a/one")["name"] == "a/one"


def test_rows_are_kept_as_they_come(tmp_path: Path) -> None:
    journal = tmp_path / "folder" / "sweep.rows"
    with referee() as judge:
        rows = run(judge, ["a/one", "a/dies", "a/two"], journal)
        assert next(rows)["name"] == "a/one"
        assert list(read_rows(journal, USUAL)) == ["a/one"]
        assert len(list(rows)) == 2
    assert list(read_rows(journal, USUAL)) == ["a/one", "a/dies", "a/two"]


def test_a_line_cut_short_is_run_again(tmp_path: Path) -> None:
    journal = tmp_path / "sweep.rows"
    whole = json.dumps({"name": "a/one", **USUAL.marks()})
    journal.write_text(whole + '\n{"name": "a/tw')
    assert list(read_rows(journal, USUAL)) == ["a/one"]
    with referee() as judge:
        list(run(judge, ["a/two"], journal))
    assert list(read_rows(journal, USUAL)) == ["a/one", "a/two"]


def test_rows_with_symbols_and_rows_without_go_on_each_where_they_ended(
    tmp_path: Path,
) -> None:
    journal = tmp_path / "sweep.rows"
    with referee() as known, referee(manner=SYMBOLS) as opened:
        list(run(known, ["a/one", "a/dies"], journal))
        list(run(opened, ["a/two", "a/dies"], journal))
    assert list(read_rows(journal, USUAL)) == ["a/one", "a/dies"]
    assert list(read_rows(journal, SYMBOLS)) == ["a/two", "a/dies"]


def test_rows_that_do_not_say_how_they_were_made_are_run_again(tmp_path: Path) -> None:
    journal = tmp_path / "sweep.rows"
    journal.write_text('{"name": "a/one", "symbols": false}\n')
    assert not read_rows(journal, USUAL)
    assert not read_rows(journal, SYMBOLS)


@pytest.mark.parametrize(
    ("only", "expected"),
    [((), ["x/a", "x/b", "y/a"]), (("x/",), ["x/a", "x/b"]), (("b", "y/"), ["x/b", "y/a"])],
)
def test_cases_are_chosen_by_a_part_of_their_name(
    only: tuple[str, ...], expected: list[str]
) -> None:
    assert choose(["x/a", "x/b", "y/a"], only) == expected


def test_results_go_to_the_build_folder_unless_told() -> None:
    assert parse_arguments("text", "op_sweep", []).out == Path("build/op_sweep")


def test_a_manner_comes_to_the_worker_and_into_names_of_files() -> None:
    options = parse_arguments("text", "op_sweep", ["--symbols", "--processor"])
    assert options.manner == Manner(symbols=True, processor=True)
    assert options.out == Path("build/op_sweep_symbols_processor")
    command = Referee("ops", manner=options.manner).command
    assert Manner.read(command[command.index("ops") + 1 :]) == options.manner


def test_times_of_two_clocks_stand_in_two_tables(tmp_path: Path) -> None:
    journal = tmp_path / "sweep.rows"
    with referee(manner=Manner(processor=True)) as judge:
        list(run(judge, ["a/one"], journal))
    assert not read_rows(journal, USUAL)
    assert list(read_rows(journal, Manner(processor=True))) == ["a/one"]
