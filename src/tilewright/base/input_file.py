"""Files that are read: what is wrong with one, said alike wherever a user names it.

Models and archives are mapped, so they are regular files.  Not for reading them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

STREAM: Final = "is a device or a pipe, expected a file"


def is_stream(path: str | Path) -> bool:
    """Whether a path is a device or a pipe, of which the mere opening may wait for ever."""
    place = Path(path)
    return not place.is_file() and place.exists() and not place.is_dir()


def why_no_file(path: str | Path) -> str | None:
    """What an error says of a path that cannot be mapped; None for a file."""
    place = Path(path)
    if place.is_file():
        return None
    if place.is_dir():
        return "is a folder, expected a file"
    return STREAM if place.exists() else "no such file"
