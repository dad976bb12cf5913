"""What is wrong with a file, said alike by all that read one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import tilewright as tw
from fakes.command_line import tilewright
from tilewright.base.errors import TilewrightError
from tilewright.base.input_file import why_no_file


def test_files_are_read_and_all_else_has_a_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert why_no_file(tmp_path / "file") is None
    assert why_no_file(tmp_path) == "is a folder, expected a file"
    assert why_no_file(tmp_path / "none") == "no such file"
    assert why_no_file(os.devnull) == "is a device or a pipe, expected a file"


@pytest.mark.parametrize(
    "read",
    [tw.compile, tw.coverage, tw.InferenceSession],
)
def test_devices_are_no_models(read: Callable[[str], object]) -> None:
    with pytest.raises(TilewrightError, match="/dev/null: is a device or a pipe"):
        read("/dev/null")


def test_devices_are_no_models_for_verbs() -> None:
    for verb in ("compile", "run", "bench"):
        done = tilewright(verb, "/dev/null")
        assert (done.code, done.err) == (
            1,
            "error: /dev/null: is a device or a pipe, expected a file\n",
        )
