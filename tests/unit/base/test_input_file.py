"""What is wrong with a file, said alike by all that read one."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

import tilewright as tw
from fakes import small_models
from fakes.command_line import tilewright
from tilewright.base.errors import InputError, TilewrightError
from tilewright.base.input_file import (
    is_there,
    read_beginning,
    read_small_file,
    why_no_file,
)


def test_files_are_read_and_all_else_has_a_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert why_no_file(tmp_path / "file") is None
    assert why_no_file(tmp_path) == "is a folder, expected a file"
    assert why_no_file(tmp_path / "none") == "no such file"
    assert why_no_file(tmp_path / "file" / "none") == "no such file"
    (tmp_path / "ring").symlink_to("ring")
    assert (why_no_file(tmp_path / "ring") or "").startswith("cannot be looked at: ")
    assert (why_no_file("x" * 5000) or "").startswith("cannot be looked at: ")
    assert why_no_file(os.devnull) == "is a device or a pipe, expected a file"


@pytest.mark.parametrize(
    "read",
    [tw.compile, tw.coverage, tw.InferenceSession, tw.load, tw.runtime.load_module],
)
@pytest.mark.parametrize(
    "path",
    ["x" * 5000, "x" * 5000 + ".onnx", "/dev/null/a", "\udcff.so"],
    ids=["long", "long.onnx", "below a device", "no text"],
)
def test_paths_that_no_file_can_have_are_errors_of_ours(
    read: Callable[[str], object], path: str
) -> None:
    with pytest.raises(TilewrightError):
        read(path)


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


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs")
def test_what_cannot_be_looked_at_is_not_taken_for_nothing(tmp_path: Path) -> None:
    (tmp_path / "here").write_bytes(b"x")
    (tmp_path / "round").symlink_to("round")
    assert is_there(tmp_path / "here")
    assert is_there(tmp_path)
    assert not is_there(tmp_path / "gone")
    assert not is_there(tmp_path / "here" / "inside")
    for name in ("x" * 300, "round"):
        with pytest.raises(OSError, match=name[:9]):
            is_there(tmp_path / name)


def test_only_files_are_read_and_nothing_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    assert read_beginning(tmp_path / "file", 3) == b"123"
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", os.devnull):
        with pytest.raises(ValueError, match="is a device or a pipe"):
            read_beginning(path, 3)
    with pytest.raises((ValueError, OSError)):
        read_beginning(tmp_path, 3)


def test_a_small_file_is_read_whole_or_refused_by_its_name(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * (1 << 20))
    assert len(read_small_file(file, 1 << 20)) == 1 << 20
    for path, most, problem in (
        (file, (1 << 20) - 1, "is larger than 0 MiB"),
        (tmp_path, 1, "is a folder, expected a file"),
        (tmp_path / "none", 1, "no such file"),
    ):
        with pytest.raises(InputError, match=problem) as caught:
            read_small_file(path, most)
        assert caught.value.location == path


@pytest.mark.skipif(
    not Path("/proc/self/mem").exists(), reason="no file here that opens and is not read"
)
@pytest.mark.parametrize(
    "words",
    [
        ("run", "{}", "--input=4xf32=@/proc/self/mem"),
        ("generate", "{}", "hi", "--json-schema=/proc/self/mem"),
        ("compile", "{}", "--schedules=/proc/self/mem"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    model = small_models.save(small_models.mlp(), tmp_path / "net.onnx")
    done = tilewright(*(word.format(model) for word in words))
    assert done.code == 1
    assert "/proc/self/mem" in done.err, done.err
    assert "Input/output error" in done.err


@pytest.mark.skipif(os.name != "posix", reason="pipes of another kind")
def test_what_would_have_to_be_waited_for_is_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log of the system's kernel is called a regular file, and reading it waits."""
    reading, writing = os.pipe()
    monkeypatch.setattr(os, "open", lambda *_: _nonblocking(reading))
    monkeypatch.setattr(stat, "S_ISREG", lambda _: True)
    assert read_beginning(tmp_path, 10) == b""
    os.close(writing)


def _nonblocking(descriptor: int) -> int:
    os.set_blocking(descriptor, False)
    return descriptor
