"""What earlier compilations made, on disk, found again by what it was made of.

One folder per user holds entries of all kinds: object code by its IR (`llvm.compile`), kernels by their
naive loops (`compiler.backends.kernel_cache`), objects of C by what their compiler reads (`base.c_compiler.object_store`).  An entry is a file named by the digest of everything that decides
its content; it carries a checksum of name and content, appears by an atomic rename and is touched when used, so the oldest
go first when the folder grows beyond its limit.  Safe with several processes.

Entries are code that will run, so only what this user wrote is read: the folder has mode 0700, one that
belongs to somebody else or that others may write to is left alone, and so are links and entries of
other owners.  Keys are digests; nothing else is a name here.

Nothing here ever fails a compilation: a corrupt or unreadable entry is a miss, and a folder that cannot
be used is said once.  `tilewright.cli` shows and empties it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple, final

from tilewright.base import knobs
from tilewright.base.diagnostics import warn
from tilewright.base.record import record

_MAGIC: Final = b"TWOBJ\x03\x00\x00"
_DIGEST_BYTES: Final = 32
_KEY: Final = re.compile("[0-9a-f]{64}")
_MODE: Final = 0o700
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_UNFINISHED: Final = ".new-"
_KEPT: Final = 0.8
"""Trimming goes down to this share of the limit, so that it is rare."""
_STALE_SECONDS: Final = 3600.0
_TRIALS: Final = 5
_CLOCK_SECONDS: Final = 60.0
"""That the clocks of two machines with one folder may differ."""
_MOST_BYTES: Final = 1 << 28
"""Of an entry: code of a kernel is a thousandth of it."""
_AS_IT_LIES: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""Flags of files that somebody may have put there: no link is followed, and no pipe waited for."""
_SAID: Final[set[Path]] = set()
"""Folders of which this process has said that they cannot be used."""


class CacheUsage(NamedTuple):
    """How much a cache holds."""

    entry_count: int
    size_bytes: int


@final
@record(kw_only=True)
class CompilationCache:
    """A folder of entries.  Thread-safe.  Units: `limit_bytes` on disk."""

    folder: Path
    limit_bytes: int

    @staticmethod
    def default() -> CompilationCache | None:
        """The cache that the knobs describe; None when it is switched off."""
        return CompilationCache.of_user() if knobs.CACHE.get() else None

    @staticmethod
    def of_user() -> CompilationCache:
        """The cache of this user, switched on or not: each user has a folder, also in a shared one."""
        owner = f"-{os.geteuid()}" if hasattr(os, "geteuid") else ""
        return CompilationCache(
            folder=knobs.CACHE_DIR.get() / f"objects{owner}",
            limit_bytes=knobs.CACHE_LIMIT.get(),
        )

    @staticmethod
    def key(*parts: str) -> str:
        """The name of what `parts` produce."""
        digest = hashlib.sha256()
        for part in parts:
            data = part.encode()
            digest.update(len(data).to_bytes(8, "little"))
            digest.update(data)
        return digest.hexdigest()

    def _path(self, key: str) -> Path | None:
        """Where an entry lies; None for what is no key, which an entry may have told us."""
        return self.folder / key[:2] / key if _KEY.fullmatch(key) else None

    def get(self, key: str) -> bytes | None:
        """The bytes under `key`, or None."""
        path = self._path(key)
        if path is None or not self.is_ours():
            return None
        try:
            data = _read_own(path)
        except OSError:
            return None
        head = len(_MAGIC) + _DIGEST_BYTES
        payload = data[head:]
        if data[:head] != _head(key, payload) or not payload:
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return payload

    def put(self, key: str, payload: bytes) -> None:
        """Keep an entry."""
        path = self._path(key)
        if path is None or len(payload) > _MOST_BYTES:
            return
        try:
            if self.claim():
                entry = _head(key, payload) + payload
                _write(path, entry)
                self._count(len(entry))
        except OSError as error:
            self.warn_unwritable(error)

    def claim(self) -> bool:
        """Make the folder where it is not there; whether it can be used, which is said where it cannot."""
        try:
            self.folder.mkdir(mode=_MODE, parents=True, exist_ok=True)
        except OSError as error:
            return self.warn_unwritable(error)
        return self.is_ours()

    def warn_unwritable(self, error: OSError) -> bool:
        """Say that nothing can be kept, as on a full disk; False."""
        return self._say(f"cannot be written: {error.strerror or error}")

    def is_ours(self) -> bool:
        """Whether the folder is there, is this user's, and nobody else can write to it."""
        try:
            found = self.folder.lstat()
        except OSError:
            return False
        if not hasattr(os, "geteuid"):
            return True
        if not stat.S_ISDIR(found.st_mode):
            return self._say("is no folder")
        if found.st_uid != os.geteuid():
            return self._say(f"belongs to the user {found.st_uid}, not to {os.geteuid()}")
        if found.st_mode & _OTHERS_WRITE:
            return self._say("can be written by other users, who could put code there")
        if stat.S_IMODE(found.st_mode) != _MODE:
            with contextlib.suppress(OSError):
                self.folder.chmod(_MODE)
        return True

    def _say(self, problem: str) -> bool:
        """Warn of a folder that cannot be used, once, and not from every process that compiles."""
        if self.folder not in _SAID and not _is_child():
            _SAID.add(self.folder)
            warn(
                f"{self.folder}: the cache {problem}; what it holds is made again each time\n"
                "hint: set TILEWRIGHT_CACHE_DIR to a folder of your own, or TILEWRIGHT_CACHE=0"
            )
        return False

    def _entries(self) -> Iterator[tuple[Path, os.stat_result]]:
        """Everything that this class has put there, half-written entries among it."""
        if not self.is_ours():
            return
        with contextlib.suppress(OSError):
            for path in self.folder.glob("*/*"):
                if _KEY.fullmatch(path.name) or path.name.startswith(_UNFINISHED):
                    with contextlib.suppress(OSError):
                        yield path, path.lstat()

    def usage(self) -> CacheUsage:
        """How many entries there are and what they take."""
        sizes = [status.st_size for _, status in self._entries()]
        return CacheUsage(len(sizes), sum(sizes))

    def clear(self) -> CacheUsage:
        """Delete every entry, and nothing else that somebody put there.  Returns: what went."""
        count = freed = 0
        for path, status in list(self._entries()):
            with contextlib.suppress(OSError):
                path.unlink()
                count, freed = count + 1, freed + status.st_size
        with contextlib.suppress(OSError):
            self._tally.unlink()
        for folder in (*self.folder.glob("??"), self._tally.parent):
            with contextlib.suppress(OSError):
                folder.rmdir()  # where it is empty
        return CacheUsage(count, freed)

    def trim(self) -> int:
        """Delete the entries unused for longest until the limit holds.  Returns: bytes freed.

        All are looked at where the limit may be reached, and once an hour: a full cache has hundreds of thousands.
        """
        if not self._may_be_full():
            return 0
        now = time.time()
        found = list(self._entries())
        unfinished = [each for each in found if each[0].name.startswith(_UNFINISHED)]
        abandoned = sum(_delete_abandoned(*each, now) for each in unfinished)
        entries = [
            (used_at(status, now), status.st_size, path)
            for path, status in found
            if not path.name.startswith(_UNFINISHED)
        ]
        total = sum(size for _, size, _ in entries)
        wanted = total - int(self.limit_bytes * _KEPT) if total > self.limit_bytes else 0
        freed = 0
        for _, size, path in sorted(entries, key=lambda entry: entry[0]):
            if freed >= wanted:
                break
            with contextlib.suppress(OSError):
                path.unlink()
                freed += size
        self._write_tally(total - freed)
        return abandoned + freed

    @property
    def _tally(self) -> Path:
        """When all entries were looked at, what they took then, and what was put since: a number on each line.

        Writers that come in each other's way lose some lines, which the next look at all entries makes good.
        """
        return self.folder / "tally" / "bytes"

    def _may_be_full(self) -> bool:
        try:
            looked_at, *sizes = map(int, _read_own(self._tally).splitlines())
        except (OSError, ValueError):
            return True
        is_old = not 0 <= time.time() - looked_at < _STALE_SECONDS
        return is_old or sum(sizes) > self.limit_bytes

    def _write_tally(self, total: int) -> None:
        with contextlib.suppress(OSError):
            if self.is_ours():
                _write(self._tally, f"{int(time.time())}\n{total}\n".encode())

    def _count(self, size: int) -> None:
        """Add what was put; nothing where there is no tally, as then all entries are looked at anyway."""
        with contextlib.suppress(OSError):
            handle = os.open(self._tally, os.O_WRONLY | os.O_APPEND | _AS_IT_LIES)
            with os.fdopen(handle, "ab") as file:
                file.write(b"%d\n" % size)


def _delete_abandoned(path: Path, status: os.stat_result, now: float) -> int:
    """Remove a half-written entry if nobody writes it any more.  Returns: bytes freed."""
    if not is_abandoned(status.st_mtime, now, _STALE_SECONDS):
        return 0
    with contextlib.suppress(OSError):
        path.unlink()
        return status.st_size
    return 0


def is_abandoned(changed: float, now: float, seconds: float) -> bool:
    """Whether a writer that takes `seconds` at most has left what changed last at that time.

    A time to come is that of the clock of a file server, or what a clock that was set back leaves: then it is far away.
    """
    return abs(now - changed) > seconds


def used_at(status: os.stat_result, now: float) -> float:
    """When something was used last.  A time to come, as a clock that was set back leaves it, is before all others."""
    return status.st_mtime if status.st_mtime <= now + _CLOCK_SECONDS else 0.0


def _head(key: str, payload: bytes) -> bytes:
    """What an entry begins with: an entry that was moved to the name of another is none."""
    return _MAGIC + hashlib.sha256(key.encode() + payload).digest()


def _read_own(path: Path) -> bytes:
    """A file of this user.  Raises: OSError for one of another owner, for what is no file, and for what is no entry by its size.

    Devices and pipes are not even opened: that alone may wait for ever.
    """
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode):
        raise FileNotFoundError(f"{path} is no file")
    with open(
        path, "rb", opener=lambda name, mode: os.open(name, mode | _AS_IT_LIES)
    ) as file:
        opened = os.fstat(file.fileno())
        if hasattr(os, "geteuid") and opened.st_uid != os.geteuid():
            raise PermissionError(f"{path} belongs to somebody else")
        if opened.st_size > len(_MAGIC) + _DIGEST_BYTES + _MOST_BYTES:
            raise OSError(errno.EFBIG, f"{path} is no entry")
        return file.read(opened.st_size)


def _write(path: Path, entry: bytes) -> None:
    """Write an entry, whole or not at all.  Raises: OSError.

    Who empties the cache meanwhile takes its folder, or what is half-written, away (`mkdir` may say of a folder that has
    just gone that it exists): then it is written again.
    """
    for _ in range(_TRIALS - 1):
        with contextlib.suppress(FileNotFoundError, FileExistsError):
            return _write_once(path, entry)
    return _write_once(path, entry)


def _write_once(path: Path, entry: bytes) -> None:
    path.parent.mkdir(mode=_MODE, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(entry)
        Path(name).replace(path)
    except BaseException:  # Ctrl-C, too, leaves nothing half-written
        Path(name).unlink(missing_ok=True)
        raise


def _is_child() -> bool:
    """Whether `multiprocessing` made this process: it is loaded then, and takes long to load elsewhere."""
    processes = sys.modules.get("multiprocessing.process")
    try:
        return processes is not None and processes.parent_process() is not None
    except (AttributeError, NameError):  # another thread loads it just now
        return False
