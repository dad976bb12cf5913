"""Commands of the system: compilers, linkers, archivers, and what they say.

Called by `toolchain` and `object_store`.  Not here: which commands there are (`toolchain`).
"""

from __future__ import annotations

import errno
import shlex
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import IO, Final

from tilewright.base import knobs
from tilewright.base.errors import UserError
from tilewright.base.host import usable_cores
from tilewright.base.host_thread import NO_FILES, room_hint

COMPILER_HINT: Final = "install a C compiler, name one (cc=…, CC, TILEWRIGHT_CC), or: pip install 'tilewright[cross]'"
TEMPORARY: Final = "tilewright-"
"""What the names of temporary folders begin with."""
_NO_ROOM: Final = (errno.EAGAIN, errno.ENOMEM, *NO_FILES)
"""Of the system, whose compiler is another matter."""
_SILENT_HINT: Final = "where the disk of temporary files is full, nothing can be said: TMPDIR names another folder"
_SHOWN_LINES: Final = 20
_SHOWN_COMMAND: Final = 400


def output_of(command: Sequence[str]) -> str:
    """What a command prints; empty where it fails or is not there."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False
        )
    except OSError:
        return ""
    return done.stdout if done.returncode == 0 else ""


def run(command: Sequence[str], *, cwd: str | None = None) -> None:
    """Run a command to its end.  Raises: UserError with the command and its last lines."""
    run_all([command], cwd=cwd)


def run_all(commands: Sequence[Sequence[str]], *, cwd: str | None = None) -> list[str]:
    """Run commands, as many at a time as there are cores.

    Returns: what each of them said, in order.
    Raises: UserError as `run`, for the first of them that fails; the others are ended.
    """
    # A compiler that is ended leaves its temporary files, and what it had started may still write to them.
    with tempfile.TemporaryDirectory(prefix=TEMPORARY, ignore_cleanup_errors=True) as name:
        return _run_all(commands, cwd, knobs.environment_with(TMPDIR=name))


def _run_all(
    commands: Sequence[Sequence[str]], cwd: str | None, environment: Mapping[str, str]
) -> list[str]:
    texts: list[str] = []
    waiting = list(reversed(commands))
    running: list[tuple[Sequence[str], subprocess.Popen[str], IO[str]]] = []
    try:
        while waiting or running:
            while waiting and len(running) < usable_cores():
                running.append(_start(waiting.pop(), cwd, environment))
            command, process, said = running.pop(0)
            try:
                status = process.wait()
            except BaseException:
                running.append((command, process, said))
                raise
            with said:
                said.seek(0)
                texts.append(said.read())
                if status:
                    raise _failure(command, status, texts[-1])
        return texts
    finally:
        for _, process, said in running:
            process.kill()
            process.wait()
            said.close()


def _start(
    command: Sequence[str], cwd: str | None, environment: Mapping[str, str]
) -> tuple[Sequence[str], subprocess.Popen[str], IO[str]]:
    """A command that runs, and the file that gets what it says."""
    said = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - whoever waits closes it
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=cwd,
            env=environment,
        )
    except OSError as error:
        said.close()
        raise UserError(
            f"cannot run '{command[0]}': {error.strerror or error}",
            hint=room_hint(error) if error.errno in _NO_ROOM else COMPILER_HINT,
        ) from error
    return command, process, said


def _failure(command: Sequence[str], status: int, said: str) -> UserError:
    text = shlex.join(command)
    if len(text) > _SHOWN_COMMAND:
        text = f"{text[: _SHOWN_COMMAND // 2]} … {text[-_SHOWN_COMMAND // 2 :]}"
    lines = said.strip().splitlines()
    shown = (
        "\n".join(f"  {line}" for line in lines[-_SHOWN_LINES:]) or "  (it said nothing)"
    )
    cause = f"with status {status}" if status > 0 else f"by signal {-status}"
    # What it says goes to the folder where it writes: a disk that is full takes neither.
    return UserError(
        f"'{command[0]}' ended {cause}:\n{shown}\n  command: {text}",
        hint=None if lines else _SILENT_HINT,
    )
