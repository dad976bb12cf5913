"""The reference pages are what the tables say, and the tool notices when they are not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import compatibility
import gendocs
from tilewright.base import knobs
from tilewright.compiler.frontends.onnx import table
from tilewright.compiler.ops import catalogue
from tilewright.compiler.schedule.trace import PRIMITIVES


def test_the_pages_are_current() -> None:
    assert gendocs.outdated(gendocs.DOCS) == [], "run: python tools/gendocs.py"


def test_a_changed_page_is_found_and_written_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gendocs.main(["--folder", str(tmp_path)]) == 0
    assert gendocs.main(["--check", "--folder", str(tmp_path)]) == 0
    (tmp_path / "knobs.md").write_text("old")
    assert gendocs.main(["--check", "--folder", str(tmp_path)]) == 1
    assert "docs/knobs.md: outdated" in capsys.readouterr().out
    assert (tmp_path / "knobs.md").read_text() == "old"


def test_nothing_is_left_out() -> None:
    ops = gendocs.ops_page()
    assert [op.name for op in catalogue.all_ops() if f"| `{op.name}` |" not in ops] == []
    listed = gendocs.knobs_page()
    assert [k.variable for k in knobs.TABLE.values() if k.variable not in listed] == []
    operators = gendocs.onnx_page()
    assert [name for name in table.names("") if f"`{name}`" not in operators] == []


def test_words_of_other_systems_lead_to_primitives() -> None:
    named = {
        word for _, here in gendocs.OTHER_WORDS for word in re.findall(r"`(\w+)`", here)
    }
    assert named <= set(PRIMITIVES)
    assert "cache_read" in named


def test_bars_in_cells_do_not_break_the_table() -> None:
    assert compatibility.table(("a",), [("x | y",)]).splitlines()[-1] == "| x \\| y |"
