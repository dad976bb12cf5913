"""tools/mutate.py: which mutants are tried, which tests judge them, and what is kept."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import mutate
from mutants import Mutant, mutants_of

TESTS = "from a import half\ndef test_half() -> None:\n    assert half(8) == 4\n"
SOURCE = "def half(x):\n    if x < 0:\n        return x\n    return x // 2\n"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A repository of one file of the core, and its test."""
    source = tmp_path / mutate.COMPILER / "kernel" / "a.py"
    source.parent.mkdir(parents=True)
    source.write_text(SOURCE)
    tests = tmp_path / "tests" / "unit" / "compiler" / "kernel"
    tests.mkdir(parents=True)
    (tests / "test_a.py").write_text(TESTS)
    settings = f"[tool.pytest.ini_options]\npythonpath = ['{mutate.COMPILER}/kernel']\n"
    (tmp_path / "pyproject.toml").write_text(f"{settings}markers = ['slow']\n")
    return tmp_path


def mutants_in(copy: Path) -> list[Mutant]:
    return mutants_of(copy / mutate.COMPILER / "kernel" / "a.py", copy)


def one(copy: Path, after: str) -> Mutant:
    (found,) = [mutant for mutant in mutants_in(copy) if mutant.after == after]
    return found


@pytest.mark.slow
def test_a_mutant_that_a_test_notices_is_killed_and_the_source_is_put_back(
    copy: Path,
) -> None:
    result = mutate.Runner(copy).judge(one(copy, "return x * 2"), reach="room")
    assert (result.status, result.by) == (
        "killed",
        "tests/unit/compiler/kernel/test_a.py::test_half",
    )
    assert (copy / mutate.COMPILER / "kernel" / "a.py").read_text() == SOURCE


@pytest.mark.slow
def test_a_mutant_that_no_test_notices_survives(copy: Path) -> None:
    result = mutate.Runner(copy).judge(one(copy, "if x <= 0:"), reach="room")
    assert result.status == "survived"


@pytest.mark.nightly
def test_a_mutant_without_end_is_counted_as_noticed(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutate, "GRACE_S", 0.5)
    path = copy / mutate.COMPILER / "kernel" / "a.py"
    path.write_text(
        "def half(x):\n    n = 0\n    while n < x // 2:\n        n += 1\n    return n\n"
    )
    result = mutate.Runner(copy).judge(one(copy, "pass"), reach="room")
    assert (result.status, result.by) == ("timeout", "tests/unit/compiler/kernel/test_a.py")


@pytest.mark.slow
def test_tests_that_fail_without_a_change_are_named(copy: Path) -> None:
    path = copy / "tests" / "unit" / "compiler" / "kernel" / "test_a.py"
    path.write_text(TESTS.replace("== 4", "== 5"))
    with pytest.raises(SystemExit, match=r"without any change .*test_half fails"):
        mutate.Runner(copy).judge(one(copy, "return x * 2"), reach="room")


def test_tests_go_from_near_to_far() -> None:
    file = f"{mutate.COMPILER}/schedule/rules/tiles.py"
    near, room, others, code = mutate.stages(mutate.ROOT, file, reach="code")
    assert near == ["tests/unit/compiler/schedule/rules/test_tiles.py"]
    assert room == ["tests/unit/compiler/schedule"]
    assert "tests/unit/compiler/kernel" in others
    assert "tests/conformance/native" in code
    assert mutate.stages(mutate.ROOT, file, reach="core") == [near, room, others]


def test_a_sample_takes_the_operators_in_turns_and_depends_on_the_seed() -> None:
    found = mutants_of(mutate.ROOT / "tools" / "mutate.py", mutate.ROOT)
    assert len({mutant.operator for mutant in mutate.sample(found, 5, seed=0)}) == 5
    assert mutate.sample(found, 9, seed=1) == mutate.sample(found, 9, seed=1)
    assert mutate.sample(found, 9, seed=1) != mutate.sample(found, 9, seed=2)
    assert {m.key for m in mutate.sample(found, 9999, seed=1)} == {m.key for m in found}


def test_results_are_read_back_and_the_later_one_counts(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    assert mutate.read_results(path) == {}
    mutate.write_result(path, mutate.Result(key="k", status="survived", by="", seconds=1.5))
    later = mutate.Result(key="k", status="killed", by="tests/a.py", seconds=2.0)
    mutate.write_result(path, later)
    assert mutate.read_results(path) == {"k": later}


def test_ctrl_c_keeps_what_was_found(
    copy: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    runner = mutate.Runner(copy)
    monkeypatch.setattr(mutate.Runner, "prepare", lambda self: None)
    chosen = [one(copy, "return x * 2"), one(copy, "if x <= 0:")]
    answers = iter([mutate.Result(key=chosen[0].key, status="survived", by="", seconds=1)])

    def judge(self: mutate.Runner, mutant: Mutant, *, reach: str) -> mutate.Result:
        for answer in answers:
            return answer
        raise KeyboardInterrupt

    monkeypatch.setattr(mutate.Runner, "judge", judge)
    results = tmp_path / "results.jsonl"
    assert mutate.run(chosen, runner, results, reach="room") == chosen[:1]
    assert list(mutate.read_results(results)) == [chosen[0].key]
    assert re.search(r"\[1/2, 0 min left\] survived", capsys.readouterr().out)


def test_a_survivor_is_shown_as_a_patch(copy: Path) -> None:
    shown = mutate.show_diff(one(copy, "if x <= 0:"), SOURCE)
    assert "-    if x < 0:\n+    if x <= 0:" in shown


def test_a_reason_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "mutants.toml"
    path.write_text('[[explained]]\nplace = "a"\nbefore = "b"\nafter = "c"\nreason = " "\n')
    with pytest.raises(SystemExit, match="'b' has no reason"):
        mutate.read_explained(path)


def test_an_explained_mutant_that_is_gone_is_named(copy: Path) -> None:
    known = one(copy, "if x <= 0:").key
    gone = known.replace("half", "third")
    elsewhere = known.replace("a.py", "b.py")
    assert mutate.find_stale(copy, [known, gone, elsewhere]) == [gone, elsewhere]


def test_every_explained_mutant_is_one() -> None:
    assert mutate.find_stale(mutate.ROOT, mutate.read_explained(mutate.EXPLAINED)) == []


def test_the_help_says_how_to_begin(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        mutate.main(["--help"])
    assert "python tools/mutate.py --count" in capsys.readouterr().out


def test_the_copy_holds_what_the_tests_read() -> None:
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=mutate.ROOT, capture_output=True, text=True, check=False
    )
    if tracked.returncode != 0:
        pytest.skip("no git here")
    folders = {line.split("/")[0] for line in tracked.stdout.splitlines() if "/" in line}
    assert folders - set(mutate.COPIED) <= {".ci", ".github"}
