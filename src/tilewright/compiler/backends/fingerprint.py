"""The digest of the sources that turn naive loops into machine code.

A kernel kept from an earlier compilation is right only if the same compiler would make it again, and
a version number does not tell two states of a working copy apart.  Called by `kernel_cache`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
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
        for path in sorted((folder / room).rglob("*.py")):
            data = path.read_bytes()
            name = path.relative_to(folder).as_posix()
            digest.update(f"{name} {len(data)}\n".encode())
            digest.update(data)
    return digest.hexdigest()


SOURCES_DIGEST: Final = sources_digest(_PACKAGE)
"""Read while this code is loaded, not at the first use: files may change under a long process."""
