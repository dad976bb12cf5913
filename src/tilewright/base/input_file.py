"""Files that are read: what is wrong with one, said alike wherever a user names it.

Models and archives are mapped, so they are regular files.  Not for reading them.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from tilewright.base.errors import InputError, reason_of

STREAM: Final = "is a device or a pipe, expected a file"
FOLDER: Final = "is a folder, expected a file"


def is_stream(path: str | Path) -> bool:
    """Whether a path is a device or a pipe, of which the mere opening may wait for ever."""
    return why_no_file(path) == STREAM


def why_no_file(path: str | Path) -> str | None:
    """What an error says of a path that cannot be mapped; None for a file."""
    place = Path(path)
    try:
        place.stat()
    except (FileNotFoundError, NotADirectoryError):
        return "no such file"
    except (
        OSError,
        ValueError,
    ) as error:  # too long, behind a closed folder, links in a circle
        return f"cannot be looked at: {reason_of(error)}"
    if place.is_file():
        return None
    if place.is_dir():
        return FOLDER
    return STREAM


def is_there(path: str | Path) -> bool:
    """Whether a path leads to something.

    Raises: OSError where that cannot be looked at (too long, behind a closed folder), which `Path.exists` and
        `Path.is_file` take for nothing from Python 3.14 on.
    """
    try:
        Path(path).stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def is_file(path: str | Path) -> bool:
    """Whether a path leads to a regular file.  Raises: OSError as `is_there`."""
    return is_there(path) and Path(path).is_file()


def read_beginning(path: str | Path, size_bytes: int) -> bytes:
    """Up to so many bytes of a regular file; anything else is not waited for.

    Raises: OSError; ValueError for a folder, a device or a pipe, and a path that can be none.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags | getattr(os, "O_CLOEXEC", 0))
    with os.fdopen(descriptor, "rb") as file:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise ValueError(FOLDER if stat.S_ISDIR(mode) else STREAM)
        # Nothing where somebody would have to wait, as for the log of the system's kernel.
        return file.read(size_bytes) or b""


def read_small_file(path: str | Path, most_bytes: int) -> bytes:
    """All of a regular file that people write, such as options.

    Raises: InputError naming what is no file, cannot be read, or is larger.
    """
    problem = why_no_file(path)
    if problem is not None:
        raise InputError(problem, location=path)
    try:
        data = read_beginning(path, most_bytes + 1)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot be read: {reason_of(error)}", location=path) from error
    if len(data) > most_bytes:
        raise InputError(
            f"is larger than {most_bytes >> 20} MiB, which no such file is", location=path
        )
    return data
