"""Files of a model that appear together when all are written, in a folder that has room for them.

What it is: what the scripts of ``make models`` write through.  A disk that fills, or Ctrl-C, leaves the
folder as it was, so that the next run does not take a part of a model for the whole.
What it is not: a lock; two runs that write one model leave that of the later one.
Who calls it: ``export.py`` and ``quantize.py``.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

SPARE_BYTES: Final = 32 << 20
"""What must stay free beside what is asked for: facts, arrays and what others write meanwhile."""
UNFINISHED: Final = ".new-"


class NoSpaceError(OSError):
    """A file system has less room than files to be written there take."""


@contextmanager
def files_of_model(folder: Path) -> Generator[Path]:
    """A folder inside of `folder` for the files of one model, which move up when the block ends without an error.

    Yields: an empty folder in the same file system, which goes whatever happens.
    """
    with tempfile.TemporaryDirectory(prefix=UNFINISHED, dir=folder) as name:
        yield Path(name)
        # From here on nothing is written: a rename takes no room.
        for made in sorted(Path(name).iterdir()):
            made.replace(folder / made.name)


def check_space(needer: str, needed: Mapping[Path, int]) -> None:
    """Say before the work that there is no room for it.

    Args:
        needer: who needs the room, for the message.
        needed: bytes by folder; those of folders in one file system are added.

    Raises: NoSpaceError, which names the folders, what they need and what is free there.
    """
    folders: dict[int, list[Path]] = {}
    for folder in needed:
        folders.setdefault(folder.stat().st_dev, []).append(folder)
    for shared in folders.values():
        wanted = sum(needed[folder] for folder in shared) + SPARE_BYTES
        free = shutil.disk_usage(shared[0]).free
        if free < wanted:
            places = " and ".join(str(folder) for folder in shared)
            raise NoSpaceError(
                f"{needer}: needs {wanted / 1e6:.0f} MB in {places}, {free / 1e6:.0f} MB are free\n"
                "hint: make room, give another folder, or set TMPDIR for temporary files"
            )
