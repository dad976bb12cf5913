"""Files that are read: what is wrong with one, said alike wherever a user names it.

Models and archives are mapped, so they are regular files.  Not for reading them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

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
        return f"cannot be looked at: {getattr(error, 'strerror', None) or error}"
    if place.is_file():
        return None
    if place.is_dir():
        return FOLDER
    return STREAM
