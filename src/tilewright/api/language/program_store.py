"""Where compiled programs of language models lie, beside the kernel cache: a folder for each model.

A folder appears by its name when it is whole, and is touched when used.  Like entries of the kernel cache programs
are code that will run: only what this user wrote is read (`CompilationCache`), and a name is a digest.
Called by `programs`; `tilewright cache` shows and empties it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from tilewright.base.compilation_cache import (
    CacheUsage,
    CompilationCache,
    is_abandoned,
    used_at,
)

KEPT_MODELS: Final = 4
_KEY: Final = re.compile("[0-9a-f]{64}")
_UNFINISHED: Final = ".new-"
_STALE_SECONDS: Final = 6 * 3600.0
"""Longer than any model takes to compile."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramStore:
    """The folders of programs of one user.

    Thread-safety: any number of threads and processes.
    """

    folder: Path

    @staticmethod
    def of_user() -> ProgramStore:
        """The store of this user, whether it is there or not."""
        kernels = CompilationCache.of_user().folder
        return ProgramStore(
            folder=kernels.with_name(kernels.name.replace("objects", "models", 1))
        )

    def _guard(self) -> CompilationCache:
        return CompilationCache(folder=self.folder, limit_bytes=0)

    def claim(self) -> bool:
        """Make the folder where it is not there; whether it can be used, which is said where it cannot."""
        return self._guard().claim()

    def warn_unwritable(self, error: OSError) -> bool:
        """Say that no program can be kept, as on a full disk; False."""
        return self._guard().warn_unwritable(error)

    def place_of(self, *parts: str) -> Path:
        """Where the programs lie that `parts` produce."""
        return self.folder / CompilationCache.key(*parts)

    @contextmanager
    def unfinished(self) -> Generator[Path]:
        """A folder to write programs to, which goes with what was not placed."""
        with tempfile.TemporaryDirectory(prefix=_UNFINISHED, dir=self.folder) as name:
            made = Path(name) / "programs"
            made.mkdir()
            yield made

    def usage(self) -> CacheUsage:
        """For how many models there are programs, and what these take, unfinished ones included."""
        whole = self._whole()
        size = sum(map(_size_of, (*whole, *self._unfinished())))
        return CacheUsage(len(whole), size)

    def clear(self) -> CacheUsage:
        """Delete all programs but those that are being written.  Returns: what went."""
        count = freed = 0
        for folder in self._whole():
            size = _size_of(folder)
            remove(folder)
            if not os.path.lexists(folder):
                count, freed = count + 1, freed + size
        return CacheUsage(count, freed + self._remove_stale())

    def trim(self) -> None:
        """Remove those that were used longest ago, and what processes left that were killed."""
        with contextlib.suppress(OSError):
            now = time.time()
            newest = sorted(self._whole(), key=lambda f: -used_at(f.lstat(), now))
            for folder in newest[KEPT_MODELS:]:
                remove(folder)
        self._remove_stale()

    def _whole(self) -> Sequence[Path]:
        return [f for f in self._found() if _KEY.fullmatch(f.name)]

    def _unfinished(self) -> Sequence[Path]:
        return [f for f in self._found() if f.name.startswith(_UNFINISHED)]

    def _found(self) -> Sequence[Path]:
        """What lies in the folder, if it is this user's."""
        if not self._guard().is_ours():
            return ()
        try:
            return sorted(self.folder.iterdir())
        except OSError:
            return ()

    def _remove_stale(self) -> int:
        """Remove what nobody writes any more.  Returns: bytes freed."""
        now, freed = time.time(), 0
        for folder in self._unfinished():
            with contextlib.suppress(OSError):
                if is_abandoned(_changed(folder), now, _STALE_SECONDS):
                    size = _size_of(folder)
                    remove(folder)
                    freed += size
        return freed


def place(made: Path, folder: Path) -> None:
    """Give a folder its name.  Another process may have been faster: then its files are as good."""
    if not folder.is_dir():
        with contextlib.suppress(OSError):  # there is nothing, as a rule
            folder.unlink()
    with contextlib.suppress(OSError):
        made.rename(folder)


def remove(folder: Path) -> None:
    """Delete a folder; of one that is a link, or a file, that alone."""
    if folder.is_symlink() or not folder.is_dir():
        with contextlib.suppress(OSError):
            folder.unlink()
    else:
        shutil.rmtree(folder, ignore_errors=True)


def _size_of(folder: Path) -> int:
    """Bytes of a folder; links are what they are, not where they lead."""
    total = 0
    with contextlib.suppress(OSError):
        inside = () if folder.is_symlink() else folder.rglob("*")
        for path in (folder, *inside):
            status = path.lstat()
            total += 0 if path.is_dir() and not path.is_symlink() else status.st_size
    return total


def _changed(folder: Path) -> float:
    """When something in a folder changed last."""
    return max(f.lstat().st_mtime for f in (folder, *folder.rglob("*")))
