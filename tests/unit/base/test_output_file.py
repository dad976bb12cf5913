"""Files that are written: whole or not at all, and never over what must stay."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tilewright.base.errors import UserError
from tilewright.base.output_file import (
    check_output,
    is_regular_output,
    open_output,
    write_text_output,
)

needs_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
needs_fifo = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs")
needs_limits = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere"
)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_new_file_stands_under_its_name_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with open_output(path) as file:
        file.write(b"all")
        assert not path.exists()
    assert path.read_bytes() == b"all"
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask
    assert names(tmp_path) == {"out"}


def stop_halfway(target: Path, error: type[BaseException], *, append: bool = False) -> None:
    with open_output(target, append=append) as file:
        file.write(b"half")
        raise error


def has_unnamed_files(folder: Path) -> bool:
    try:
        os.close(os.open(folder, os.O_TMPFILE | os.O_RDWR))
    except (AttributeError, OSError):
        return False
    return Path("/proc/self/fd").is_dir()


def test_a_process_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    if not has_unnamed_files(tmp_path):
        pytest.skip("files have names here from the beginning")
    script = (
        "import os, signal, sys\n"
        "from tilewright.base.output_file import open_output\n"
        "with open_output(sys.argv[1]) as file:\n"
        "    file.write(bytes(100_000)); file.flush()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    command = [sys.executable, "-c", script, tmp_path / "out"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (-signal.SIGKILL, "")
    assert names(tmp_path) == set()


@pytest.mark.parametrize("missing", ["files without names", "links to them"])
def test_what_a_system_lacks_is_done_in_another_way(
    tmp_path: Path, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOENT, "no such file")

    if missing == "links to them":
        monkeypatch.setattr(os, "link", refuse)
    else:
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    with open_output(tmp_path / "out", executable=True) as file:
        file.write(b"all")
    assert (tmp_path / "out").read_bytes() == b"all"
    assert os.access(tmp_path / "out", os.X_OK)
    with pytest.raises(ValueError):  # noqa: PT011 - this one alone
        stop_halfway(tmp_path / "out", ValueError)
    assert (tmp_path / "out").read_bytes() == b"all"
    assert names(tmp_path) == {"out"}


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_after_an_error_everything_is_as_before(
    tmp_path: Path, error: type[BaseException]
) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"old")

    for target in (path, tmp_path / "new"):
        for append in (False, True):
            with pytest.raises(error):
                stop_halfway(target, error, append=append)
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == {"out"}


def test_a_file_that_is_replaced_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"old")
    path.chmod(0o640)
    write_text_output(path, "new")
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("new", 0o640)


def test_links_are_followed_and_stay(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    link, inner = tmp_path / "link", tmp_path / "inner"
    link.symlink_to(inner)
    inner.symlink_to(Path("folder", "real"))
    for text in ("first", "second"):  # what they name is made, then replaced
        write_text_output(link, text)
        assert link.is_symlink()
        assert inner.is_symlink()
        assert (tmp_path / "folder" / "real").read_text() == text


def test_links_and_folders_that_lead_nowhere_are_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(UserError, match=r"loop: cannot write the file"):
        write_text_output(loop, "x")
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(UserError, match=r"^x: no such folder: the current one was removed"):
        write_text_output("x", "x")
    astray = tmp_path / "astray"
    astray.symlink_to(tmp_path / "none" / "file")
    with pytest.raises(UserError, match=r"none: no such folder"):
        write_text_output(astray, "x")


def test_an_input_is_never_written_whatever_it_is_called(tmp_path: Path) -> None:
    source = tmp_path / "model"
    source.write_bytes(b"precious")
    hard, soft = tmp_path / "hard", tmp_path / "soft"
    hard.hardlink_to(source)
    soft.symlink_to(source)
    for path in (source, hard, soft, tmp_path / "." / "model"):
        with pytest.raises(UserError, match="is an input") as caught:
            check_output(path, inputs=[tmp_path / "none", source])
        assert caught.value.hint == "give another name for the output"
        with (
            pytest.raises(UserError, match="is an input"),
            open_output(path, inputs=[source], append=True),
        ):
            pass
    assert source.read_bytes() == b"precious"


def test_a_device_may_be_both(tmp_path: Path) -> None:
    check_output(os.devnull, inputs=[os.devnull])
    write_text_output(os.devnull, "x", inputs=[os.devnull])
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)
    assert not is_regular_output(os.devnull)
    assert is_regular_output(tmp_path / "none")


@needs_fifo
def test_a_fifo_is_written_to_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(path.read_bytes()))
    reader.start()
    write_text_output(path, "through")
    reader.join(60)
    assert read == [b"through"]
    assert stat.S_ISFIFO(path.stat().st_mode)


def test_standard_output_takes_what_is_written_where_it_stands(tmp_path: Path) -> None:
    script = (
        "import sys; from tilewright.base.output_file import write_text_output as write\n"
        "print('before'); write(sys.argv[1], 'written\\n'); print('after')"
    )
    for name in ("-", "/dev/stdout", "/dev/fd/1"):
        path = tmp_path / "log"
        with path.open("wb") as file:
            file.write(b"first\n")
            file.flush()
            subprocess.run([sys.executable, "-c", script, name], stdout=file, check=True)
        assert path.read_text() == "first\nbefore\nwritten\nafter\n"
        piped = subprocess.run(
            [sys.executable, "-c", script, name], capture_output=True, check=True
        )
        assert piped.stdout == b"before\nwritten\nafter\n"


@needs_full
def test_a_full_disk_is_an_error() -> None:
    with pytest.raises(UserError, match="/dev/full: cannot write the file: No space left"):
        write_text_output("/dev/full", "x")


@pytest.mark.skipif(not hasattr(os, "setsid"), reason="no limits of file sizes")
def test_a_disk_that_fills_up_leaves_nothing(tmp_path: Path) -> None:
    """The limit of a file's size ends writing in the middle, as a full disk does."""
    script = (
        "import resource, signal, sys; from pathlib import Path\n"
        "from tilewright.base.output_file import open_output\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "for append in (False, True):\n"
        "    try:\n"
        "        with open_output(sys.argv[1], append=append) as file:\n"
        "            file.write(bytes(5000))\n"
        "    except Exception as error: print(type(error).__name__, error)\n"
    )
    for old in (None, b"old"):
        path = tmp_path / "out"
        if old is not None:
            path.write_bytes(old)
        done = subprocess.run(
            [sys.executable, "-c", script, path], capture_output=True, text=True, check=True
        )
        expected = f"UserError {path}: cannot write the file: File too large\n"
        assert done.stdout == 2 * expected
        assert names(tmp_path) == (set() if old is None else {"out"})
        assert old is None or path.read_bytes() == old


def test_folders_and_what_is_not_there_are_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is a folder, expected a file"):
        write_text_output(tmp_path, "x")
    with pytest.raises(UserError, match="none: no such folder"):
        write_text_output(tmp_path / "none" / "file", "x")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UserError, match="file: no such folder"):
        write_text_output(tmp_path / "file" / "below", "x")
    with pytest.raises(UserError, match="is no name of a file"):
        write_text_output("a\0b", "x")


@needs_limits
def test_what_may_not_be_written_stays(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"old")
    path.chmod(0o444)
    with pytest.raises(UserError, match="cannot write the file: it is read-only"):
        write_text_output(path, "new")
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(UserError, match="cannot write the file: Permission denied"):
            write_text_output(tmp_path / "other", "new")
    finally:
        tmp_path.chmod(0o755)
    assert path.read_bytes() == b"old"


def test_appending_goes_on_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "out"
    for text in (b"a", b"b"):
        with open_output(path, append=True) as file:
            file.write(text)
    assert path.read_bytes() == b"ab"
