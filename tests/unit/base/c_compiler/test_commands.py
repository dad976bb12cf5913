"""What is told of commands that fail."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest

from tilewright.base.c_compiler import commands
from tilewright.base.errors import UserError


@pytest.mark.parametrize(("said", "is_hinted"), [("", True), ("x.c:1: error\n", False)])
def test_a_command_that_fails_without_a_word_may_have_had_no_disk(
    said: str, is_hinted: bool
) -> None:
    error = commands._failure(["cc", "-c", "x.c"], 1, said)
    assert ("TMPDIR" in (error.hint or "")) == is_hinted


def test_a_compiler_that_is_ended_leaves_no_temporary_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As gcc does, whose other half may even go on: the first command waits for its file, fails, and ends the second."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr(commands, "usable_cores", lambda: 2)
    (tmp_path / "temporary").mkdir()
    begun = tmp_path / "begun"
    waits = f"import pathlib, time\nwhile not pathlib.Path({str(begun)!r}).exists(): time.sleep(0.01)\nraise SystemExit(3)"
    writes = f"import os, pathlib, time; pathlib.Path(os.environ['TMPDIR'], 'cc1.s').touch(); pathlib.Path({str(begun)!r}).touch(); time.sleep(60)"
    with pytest.raises(UserError, match="ended with status 3"):
        commands.run_all([[sys.executable, "-c", text] for text in (waits, writes)])
    assert begun.exists()
    assert list((tmp_path / "temporary").iterdir()) == []
