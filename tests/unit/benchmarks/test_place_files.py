"""Models of the set appear whole or not at all, and a full disk is said before the work."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from place_files import SPARE_BYTES, NoSpaceError, check_space, files_of_model


class Usage(NamedTuple):
    """What `shutil.disk_usage` returns."""

    total: int
    used: int
    free: int


@pytest.fixture
def free_bytes(monkeypatch: pytest.MonkeyPatch) -> int:
    """A disk with 5 MB beside what must stay free."""
    free = SPARE_BYTES + 5_000_000

    def usage(_: Path) -> Usage:
        return Usage(1 << 40, 0, free)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    return free


def test_files_of_a_model_appear_together(tmp_path: Path) -> None:
    (tmp_path / "net.json").write_text("old")
    with files_of_model(tmp_path) as unfinished:
        (unfinished / "net.onnx").write_bytes(b"model")
        (unfinished / "net.json").write_text("new")
        assert not (tmp_path / "net.onnx").exists()
    assert (tmp_path / "net.json").read_text() == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net.json", "net.onnx"]


def write_and_fail(folder: Path, error: BaseException) -> None:
    """Write two files of a model, of which one is there already, before an error."""
    with files_of_model(folder) as unfinished:
        (unfinished / "net.onnx").write_bytes(b"mod")
        (unfinished / "net.json").write_text("new")
        raise error


@pytest.mark.parametrize("error", [OSError("No space left on device"), KeyboardInterrupt()])
def test_a_model_that_is_not_written_leaves_what_was_there(
    tmp_path: Path, error: BaseException
) -> None:
    (tmp_path / "net.json").write_text("old")
    with pytest.raises(type(error)):
        write_and_fail(tmp_path, error)
    assert [path.name for path in tmp_path.iterdir()] == ["net.json"]
    assert (tmp_path / "net.json").read_text() == "old"


def test_a_disk_without_room_is_said_before_the_work(
    tmp_path: Path, free_bytes: int
) -> None:
    room = free_bytes - SPARE_BYTES
    check_space("net", {tmp_path: room})
    message = rf"^net: needs 39 MB in {tmp_path}, 39 MB are free\nhint: make room"
    with pytest.raises(NoSpaceError, match=message):
        check_space("net", {tmp_path: room + 1})


def test_folders_of_one_disk_share_its_room(tmp_path: Path, free_bytes: int) -> None:
    other = tmp_path / "other"
    other.mkdir()
    half = (free_bytes - SPARE_BYTES) // 2
    check_space("net", {tmp_path: half, other: half})
    with pytest.raises(NoSpaceError, match=rf"in {tmp_path} and {other}, "):
        check_space("net", {tmp_path: half, other: half + 1})
