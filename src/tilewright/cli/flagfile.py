"""`--flagfile=F`: options from a file, one per line, as IREE's tools read them.

The file's options take the place of the flag, so later ones override them.  Empty lines and lines
that begin with `#` say nothing; a flag file may name others.  Called by `cli`.

Source: IREE `base/tooling/flags.c`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, final

from tilewright.base.errors import UserError

_FLAG: Final = "--flagfile"
_DEPTH_LIMIT: Final = 16
_BYTES_LIMIT: Final = 1 << 20
"""Of all flag files together: a device has no end, and files that name others many times grow without one."""


def expand_flagfiles(words: Sequence[str]) -> list[str]:
    """The command line with every `--flagfile` replaced by what the file says.

    Raises: UserError for a file that cannot be read, files that name each other, or more than 1 MiB in all.
    """
    return _Expansion().expand(words, 0)


@final
class _Expansion:
    """Of one command line, which counts what it reads."""

    def __init__(self) -> None:
        self._left_bytes: int = _BYTES_LIMIT

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
        try:
            with Path(path).open("rb") as file:
                data = file.read(self._left_bytes + 1)
            text = data.decode()
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
