"""The error about a mapped file of which a part is no longer there; the C core raises it by name."""

from __future__ import annotations

from tilewright.base.errors import ArchiveError


def raise_lost_file(path: str) -> None:
    """Say that reading the mapping of `path` failed.  Raises: ArchiveError, always."""
    raise ArchiveError(
        "the file was cut or cannot be read any more, while it was in use",
        location=path,
        hint="load it again; to be independent of the file, load it with copy=True",
    )
