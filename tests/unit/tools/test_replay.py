"""tools/replay.py finds which kernels of a model a change of the compiler touched."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import replay
from fakes import small_models
from replay import Code


def test_equal_code_under_another_name_is_no_difference() -> None:
    before = [Code("a", "x = 1"), Code("b", "y = 2")]
    assert list(replay.differences(before, [Code("b", "y = 2"), Code("c", "x = 1")])) == []


def test_a_difference_shows_the_lines_and_not_the_symbol() -> None:
    before = [Code("a", "define @tw_1\nx = 1\nret")]
    after = [Code("a", "define @tw_2\nx = 3\nret")]
    (text,) = replay.differences(before, after)
    assert text.startswith("a:\n")
    assert "-x = 1\n+x = 3" in text
    assert "@tw_" not in text


def test_kernels_that_came_and_went_are_named() -> None:
    found = replay.differences([Code("old", "x")], [Code("new", "y")])
    assert list(found) == ["old: gone", "new: new"]


def test_a_long_difference_is_cut() -> None:
    before, after = ("\n".join(f"{n} {i}" for i in range(100)) for n in "xy")
    (text,) = replay.differences([Code("a", before)], [Code("a", after)])
    assert text.count("\n") == replay.SHOWN_LINES + 1
    assert text.endswith("lines in all")


@pytest.mark.slow
def test_saved_code_compares_equal_until_it_is_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    models, folder = tmp_path / "models", tmp_path / "replay"
    models.mkdir()
    small_models.save(small_models.mlp(), models / "mlp.onnx")
    common = [str(folder), f"--models={models}", "--targets", "x86_64-v3", "--jobs=1"]

    def run(verb: str) -> int:
        monkeypatch.setattr(sys, "argv", ["replay.py", verb, *common])
        return replay.run(replay.parse_arguments())

    assert run("save") == 0
    assert run("compare") == 0
    (file,) = folder.iterdir()
    codes = replay.read(file)
    replay.write(file, [codes[0]._replace(text="other"), *codes[1:]])
    capsys.readouterr()
    assert run("compare") == 1
    assert f"{codes[0].name}:" in capsys.readouterr().out
