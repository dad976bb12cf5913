"""`--flagfile=F`: options from a file, one per line, as IREE's tools read them.

The file's options take the place of the flag, so later ones override them.  Empty lines and lines
that begin with `#` say nothing; a flag file may name others.  Called by `cli`.

Source: IREE `base/tooling/flags.c`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tilewright.base.errors import UserError

_FLAG: Final = "--flagfile"
_DEPTH_LIMIT: Final = 16


def expand_flagfiles(words: Sequence[str], depth: int = 0) -> list[str]:
    """The command line with every `--flagfile` replaced by what the file says.

    Raises: UserError for a file that cannot be read, or files that name each other.
    """
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
        expanded += expand_flagfiles(_read(path), depth + 1)
    return expanded


def _read(path: str) -> list[str]:
    if not path:
        raise UserError("--flagfile needs a file", hint="--flagfile=flags.txt")
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"cannot read the flag file: {reason}", location=path) from error
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]
