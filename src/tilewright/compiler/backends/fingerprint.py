"""The digest of the sources that turn naive loops into machine code.

A kernel kept from an earlier compilation is right only if the same compiler would make it again, and
a version number does not tell two states of a working copy apart.  Called by `kernel_cache`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

ROOMS: Final = (
    "base",
    "formats",
    "compiler/analysis",
    "compiler/backends",
    "compiler/graph",
    "compiler/kernel",
    "compiler/linker",
    "compiler/lowering",
    "compiler/passes",
    "compiler/printers",
    "compiler/program",
    "compiler/schedule",
)
"""What the way from a naive kernel to its object and signature may read; a test holds it to that."""

_PACKAGE: Final = Path(__file__).parents[2]


def sources_digest(folder: Path, rooms: Iterable[str] = ROOMS) -> str:
    """The digest of every source file of `rooms`; only names and contents count."""
    digest = hashlib.sha256()
    for room in rooms:
        for parts, path in sorted(_sources(folder / room, (*room.split("/"),))):
            with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - of a text, no Path: each start reads all of them
                data = file.read()
            digest.update(f"{'/'.join(parts)} {len(data)}\n".encode())
            digest.update(data)
    return digest.hexdigest()


def _sources(
    folder: str | Path, parts: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], str]]:
    """The source files under a folder, whose own name is `parts`: their names in parts, and where they are."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _sources(entry.path, (*parts, entry.name))
            elif entry.name.endswith(".py"):
                yield (*parts, entry.name), entry.path


SOURCES_DIGEST: Final = sources_digest(_PACKAGE)
"""Read while this code is loaded, not at the first use: files may change under a long process."""
