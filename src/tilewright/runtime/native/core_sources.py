"""What the C core was built from, so that one that is older or newer than the Python beside it is refused.

Its builder, `setup.py`, runs this file alone and compiles the mark of the sources into the extension; in a wheel the
mark lies beside this file, in a checkout the sources are in `native/`.  Not here: what is built, and how.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

MARK_FILE: Final = "core_sources.txt"
FOLDERS: Final = ("include", "src", "src/program", "src/python", "src/relax")


def files_of_core(native: Path) -> Iterator[Path]:
    """Every source and header of the extension, in a fixed order."""
    for folder in FOLDERS:
        yield from sorted((native / folder).glob("*.[ch]"))


def mark_of(native: Path) -> str:
    """A short text that differs where the name or the content of a file does."""
    checksum, size = 0, 0
    for path in files_of_core(native):
        content = path.read_bytes()
        checksum = zlib.crc32(content, zlib.crc32(path.name.encode(), checksum))
        size += len(content)
    return f"{checksum:08x}-{size}"


def expected_mark() -> str | None:
    """The mark of the sources that belong to this Python; None where there are none to look at."""
    here = Path(__file__).parent
    stored = here / MARK_FILE
    if stored.is_file():
        return stored.read_text()
    native = here.parents[3] / "native"
    return mark_of(native) if (native / "src" / "python").is_dir() else None
