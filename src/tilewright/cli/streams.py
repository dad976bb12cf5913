"""Standard streams as a shell may leave them: closed, full, or without letters for what is printed.

Called by the entry point, before anything is printed and when all has been.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import sys
from pathlib import Path


def prepare_streams() -> None:
    """Have all three, and make the last two such that printing never fails for a letter."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:  # closed by the shell: `>&-`
            nothing = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115 - stays
            setattr(sys, name, nothing)
        elif (
            mode == "w" and isinstance(stream, io.TextIOWrapper) and not _takes_all(stream)
        ):
            stream.reconfigure(errors="replace")


def _takes_all(stream: io.TextIOWrapper) -> bool:
    if stream.errors in ("replace", "backslashreplace", "xmlcharrefreplace", "ignore"):
        return True
    is_utf8 = stream.encoding.lower().replace("-", "") == "utf8"
    return is_utf8 and stream.errors == "surrogateescape"


def has_lost_its_reader() -> bool:
    """Whether standard output is a pipe, or a connection, that nobody reads any more."""
    try:
        poller = select.poll()
        poller.register(sys.__stdout__.fileno(), 0)  # pyright: ignore[reportOptionalMemberAccess]
    except (AttributeError, OSError, ValueError):  # no such call, or no stream
        return False
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poller.poll(0))


def discard_output() -> None:
    """Drop what standard output cannot take, so that leaving does not try again."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        with (
            Path(os.devnull).open("wb") as nothing,
            contextlib.suppress(OSError, ValueError),
        ):
            os.dup2(nothing.fileno(), sys.stdout.fileno())
