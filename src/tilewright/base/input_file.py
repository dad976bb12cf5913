"""Files that are read: what is wrong with one, said alike wherever a user names it.

Models and archives are mapped, so they are regular files.  Not for reading them.
"""

from __future__ import annotations

from pathlib import Path


def why_no_file(path: str | Path) -> str | None:
    """What an error says of a path that cannot be mapped; None for a file."""
    place = Path(path)
    if place.is_file():
        return None
    if place.is_dir():
        return "is a folder, expected a file"
    return "is a device or a pipe, expected a file" if place.exists() else "no such file"
