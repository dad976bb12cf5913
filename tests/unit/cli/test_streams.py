"""Standard streams as shells leave them."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.base.compilation_cache import CompilationCache
from tilewright.cli import VERBS, _run
from tilewright.cli.streams import prepare_streams

FULL = Path("/dev/full")


def shell(line: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
    """Run a line in which `tilewright` is the command."""
    command = f"{sys.executable} -m tilewright"
    return subprocess.run(
        ["bash", "-c", line.replace("tilewright", command, 1)],
        capture_output=True,
        timeout=60,
        check=False,
        env={**os.environ, **variables},
    )


@pytest.mark.thinned(2)
@pytest.mark.skipif(not FULL.exists(), reason="no device that is full")
@pytest.mark.parametrize("verb", ["--help", "devices", "cache --json", "compile --help"])
def test_output_that_is_full_is_an_error_of_one_line(verb: str) -> None:
    done = shell(f"tilewright {verb} > {FULL}")
    assert (done.returncode, done.stderr) == (
        1,
        b"error: standard output: No space left on device\n",
    )


@pytest.mark.thinned(4)
@pytest.mark.parametrize("redirection", [">&-", "2>&-", ">&- 2>&-", "<&-"])
def test_streams_may_be_closed(redirection: str) -> None:
    done = shell(f"tilewright cache {redirection}")
    assert done.returncode == 0
    assert b"Traceback" not in done.stderr + done.stdout


def test_closed_input_is_input_without_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a shell's `<&-` leaves."""
    for stream in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, stream, None)
    prepare_streams()
    assert sys.stdin.read() == ""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        stream.close()


@pytest.mark.thinned(2)
@pytest.mark.parametrize("verb", ["--help", "compile --help", "devices", "cache"])
def test_a_reader_may_go_away(verb: str) -> None:
    """The code is that of the pipeline's first command, not of the reader."""
    done = shell(f"set -o pipefail; tilewright {verb} | exec 0<&-")
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_pipe_that_breaks_elsewhere_is_an_error(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of a worker, say: whoever reads the output is still there."""

    def break_down(*_: object, **__: object) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr(CompilationCache, "usage", break_down)
    monkeypatch.setattr(sys, "argv", ["tilewright", "cache"])
    for stream in ("stdout", "stderr"):  # which click replaces
        monkeypatch.setattr(sys, stream, getattr(sys, stream))
    assert _run() == 1
    assert capfd.readouterr().err == "error: Broken pipe\n"


@pytest.mark.thinned(2)
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_letters_that_an_encoding_lacks_stop_nothing(encoding: str) -> None:
    done = shell("tilewright compile --help", PYTHONIOENCODING=encoding, PYTHONUTF8="0")
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"NAME=D,D," in done.stdout


def test_a_verb_that_is_none_is_told_all() -> None:
    done = shell("tilewright frobnicate")
    assert done.returncode == 2
    assert (
        f"no verb is called 'frobnicate', there are {', '.join(VERBS)}"
        in done.stderr.decode()
    )
