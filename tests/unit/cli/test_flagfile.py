"""`--flagfile`: options from files, as the case folders of IREE's test suites have them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from fakes.command_line import tilewright
from tilewright.base.errors import UserError
from tilewright.cli.flagfile import expand_flagfiles


def test_lines_take_the_place_of_the_flag(tmp_path: Path) -> None:
    inner = tmp_path / "inner.txt"
    inner.write_text("--b=2x2xf32=1 2 3 4\n")
    outer = tmp_path / "outer.txt"
    outer.write_text(f"# said before\n\n  --a=1  \n--flagfile={inner}\r\n--c\n")
    words = ["run", f"--flagfile={outer}", "x", "--flagfile", str(inner)]
    assert expand_flagfiles(words) == [
        "run", "--a=1", "--b=2x2xf32=1 2 3 4", "--c", "x", "--b=2x2xf32=1 2 3 4",
    ]  # fmt: skip


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    loop = tmp_path / "loop.txt"
    loop.write_text(f"--flagfile={loop}")
    with pytest.raises(UserError, match="name each other"):
        expand_flagfiles([f"--flagfile={loop}"])
    with pytest.raises(UserError, match=r"nowhere\.txt"):
        expand_flagfiles(["--flagfile", str(tmp_path / "nowhere.txt")])
    with pytest.raises(UserError, match="needs a file"):
        expand_flagfiles(["--flagfile"])
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="binary"):
        expand_flagfiles([f"--flagfile={tmp_path / 'binary'}"])


def test_a_case_folder_runs_unchanged(
    scale_vmfb: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Raw inputs and expected outputs beside the flags, found from the case's folder."""
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    scale = np.array([2, 3, 4], np.float32)
    for name, array in {"input_0": x, "input_1": scale}.items():
        array.tofile(tmp_path / f"{name}.bin")
    flags = ["--input=2x3xf32=@input_0.bin", "--input=3xf32=@input_1.bin"]
    shown = tilewright("run", scale_vmfb, *(f.replace("@", f"@{tmp_path}/") for f in flags),
                       f"--output=@{tmp_path}/output_0.bin", f"--output=@{tmp_path}/output_1.bin")  # fmt: skip
    assert shown.code == 0, shown.err
    outputs = [
        "--expected_output=2x3xf32=@output_0.bin",
        "--expected_output=3x2xf32=@output_1.bin",
    ]
    (tmp_path / "run_module_io_flags.txt").write_text("\n".join([*flags, *outputs]))
    monkeypatch.chdir(tmp_path)
    command = ("run", f"--module={scale_vmfb}", "--flagfile=run_module_io_flags.txt")
    assert tilewright(*command).code == 0
    (x + 1).tofile(tmp_path / "input_0.bin")
    done = tilewright(*command)
    assert done.code == 1
    assert "mismatch" in done.err


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no such device here")
def test_a_device_without_end_is_refused() -> None:
    with pytest.raises(UserError, match="/dev/zero: flag files hold more than 1 MiB"):
        expand_flagfiles(["--flagfile=/dev/zero"])


def test_files_that_name_others_many_times_are_refused(tmp_path: Path) -> None:
    """Ten to the power of ten lines, of ten files with ten lines each."""
    for i in range(10):
        (tmp_path / str(i)).write_text(f"--flagfile={tmp_path / str(i + 1)}\n" * 10)
    (tmp_path / "10").write_text(f"--random\n# {'x' * 1000}\n")
    with pytest.raises(UserError, match="flag files hold more than 1 MiB in all"):
        expand_flagfiles([f"--flagfile={tmp_path / '0'}"])


def test_empty_files_that_are_named_many_times_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    many = tmp_path / "many"
    many.write_text(f"--flagfile={tmp_path / 'empty'}\n" * 4095)
    assert expand_flagfiles([f"--flagfile={many}"]) == []
    many.write_text(f"--flagfile={tmp_path / 'empty'}\n" * 4096)
    with pytest.raises(UserError, match="more than 4096 flag files"):
        expand_flagfiles([f"--flagfile={many}"])


def test_a_byte_order_mark_is_no_part_of_the_first_flag(tmp_path: Path) -> None:
    (tmp_path / "flags").write_bytes(b"\xef\xbb\xbf--x\n--y=\xc3\xa9\n")
    assert expand_flagfiles([f"--flagfile={tmp_path / 'flags'}"]) == ["--x", "--y=é"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_named_pipe_that_nobody_writes_to_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="nobody writes to this pipe"):
        expand_flagfiles([f"--flagfile={tmp_path / 'pipe'}"])


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="no paths of open files here")
def test_flags_come_through_a_pipe() -> None:
    """As `--flagfile=<(command)` of a shell has it."""
    source, sink = os.pipe()
    try:
        os.write(sink, b"--a\n--b\n")
        os.close(sink)
        assert expand_flagfiles([f"--flagfile=/dev/fd/{source}"]) == ["--a", "--b"]
    finally:
        os.close(source)


def test_a_path_that_can_be_none_is_named() -> None:
    with pytest.raises(UserError, match="cannot read the flag file: embedded null"):
        expand_flagfiles(["--flagfile=a\0b"])


def test_help_says_so() -> None:
    assert "--flagfile" in tilewright("--help").out
