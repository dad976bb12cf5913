"""`--flagfile=F`: options from a file, one per line, as IREE's tools read them.

The file's options take the place of the flag, so later ones override them.  Empty lines and lines
that begin with `#` say nothing, nor does a byte order mark; a flag file may name others.  Called by `cli`.

Source: IREE `base/tooling/flags.c`.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Sequence
from typing import Final, final

from tilewright.base.errors import UserError

_FLAG: Final = "--flagfile"
_DEPTH_LIMIT: Final = 16
_BYTES_LIMIT: Final = 1 << 20
"""Of all flag files together: a device has no end, and files that name others many times grow without one."""
_FILES_LIMIT: Final = 1 << 12
"""Read in all, the same one again included: files that say nothing grow by no byte."""


def expand_flagfiles(words: Sequence[str]) -> list[str]:
    """The command line with every `--flagfile` replaced by what the file says.

    Raises: UserError for a file that cannot be read, a pipe that nobody writes to, files that name each other, or more than 4096 of
    them or 1 MiB in all.
    """
    return _Expansion().expand(words, 0)


@final
class _Expansion:
    """Of one command line, which counts what it reads."""

    def __init__(self) -> None:
        self._left_bytes: int = _BYTES_LIMIT
        self._left_files: int = _FILES_LIMIT

    def expand(self, words: Sequence[str], depth: int) -> list[str]:
        expanded: list[str] = []
        rest = iter(words)
        for word in rest:
            name, equals, value = word.partition("=")
            if name != _FLAG:
                expanded.append(word)
                continue
            path = value if equals else next(rest, "")
            if depth == _DEPTH_LIMIT:
                raise UserError("flag files name each other", location=path)
            expanded += self.expand(self._read(path), depth + 1)
        return expanded

    def _read(self, path: str) -> list[str]:
        if not path:
            raise UserError("--flagfile needs a file", hint="--flagfile=flags.txt")
        self._left_files -= 1
        if self._left_files < 0:
            limit = f"more than {_FILES_LIMIT} flag files are read in all"
            raise UserError(limit, location=path)
        try:
            data = _content(path, self._left_bytes + 1)
            text = data.decode("utf-8-sig")
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise UserError(
                f"cannot read the flag file: {reason}", location=path
            ) from error
        self._left_bytes -= len(data)
        if self._left_bytes < 0:
            raise UserError("flag files hold more than 1 MiB in all", location=path)
        lines = (line.strip() for line in text.splitlines())
        return [line for line in lines if line and not line.startswith("#")]


def _content(path: str, most_bytes: int) -> bytes:
    """The beginning of a file, or of what comes through a pipe.

    Raises: OSError; ValueError for no path; UserError for a pipe through which nothing comes.
    """
    # Whoever opens a named pipe waits for a writer, maybe for ever.
    with io.FileIO(path, opener=_open_at_once) as opened, io.BufferedReader(opened) as file:
        os.set_blocking(file.fileno(), True)
        data = file.read(most_bytes)
        if not data and stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):
            raise UserError("nobody writes to this pipe", location=path)
    return data


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
