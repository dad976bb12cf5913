"""What earlier compilations made, on disk, found again by what it was made of.

One folder holds entries of all kinds: object code by its IR (`llvm.compile`), kernels by their naive
loops (`program.kernel_cache`).  An entry is a file named by the digest of everything that decides its
content; it carries a checksum, appears by an atomic rename and is touched when used, so the oldest go
first when the folder grows beyond its limit.  Safe with several processes.  Nothing here ever fails
a compilation: a corrupt or unreadable entry is a miss.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from tilewright.base import knobs

_MAGIC: Final = b"TWOBJ\x02\x00\x00"
_DIGEST_BYTES: Final = 32
_KEPT: Final = 0.8
"""Trimming goes down to this share of the limit, so that it is rare."""
_STALE_SECONDS: Final = 3600.0


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CompilationCache:
    """A folder of entries.  Thread-safe.  Units: `limit_bytes` on disk."""

    folder: Path
    limit_bytes: int

    @staticmethod
    def default() -> CompilationCache | None:
        """The cache that the knobs describe; None when it is switched off."""
        if not knobs.CACHE.get():
            return None
        return CompilationCache(
            folder=knobs.CACHE_DIR.get() / "objects", limit_bytes=knobs.CACHE_LIMIT.get()
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

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / key

    def get(self, key: str) -> bytes | None:
        """The bytes under `key`, or None."""
        path = self._path(key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        head = len(_MAGIC) + _DIGEST_BYTES
        payload = data[head:]
        checksum = hashlib.sha256(payload).digest()
        if data[:head] != _MAGIC + checksum or not payload:
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return payload

    def put(self, key: str, payload: bytes) -> None:
        """Keep an entry."""
        path = self._path(key)
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(_MAGIC + hashlib.sha256(payload).digest() + payload)
                Path(name).replace(path)
            except OSError:
                Path(name).unlink(missing_ok=True)
                raise

    def trim(self) -> int:
        """Delete the entries unused for longest until the limit holds.  Returns: bytes freed."""
        entries: list[tuple[float, int, Path]] = []
        total = 0
        with contextlib.suppress(OSError):
            for path in self.folder.glob("*/*"):
                with contextlib.suppress(OSError):
                    status = path.stat()
                    total += status.st_size
                    entries.append((status.st_mtime, status.st_size, path))
        freed = self._delete_abandoned(entries)
        if total - freed <= self.limit_bytes:
            return freed
        wanted = total - int(self.limit_bytes * _KEPT)
        for _, size, path in sorted(entries, key=lambda entry: entry[0]):
            if freed >= wanted:
                break
            with contextlib.suppress(OSError):
                path.unlink()
                freed += size
        return freed

    def _delete_abandoned(self, entries: list[tuple[float, int, Path]]) -> int:
        """Remove what an interrupted writer left."""
        freed = 0
        oldest = time.time() - _STALE_SECONDS
        for entry in list(entries):
            modified, size, path = entry
            if path.name.startswith(".new-"):
                entries.remove(entry)
                if modified < oldest:
                    with contextlib.suppress(OSError):
                        path.unlink()
                        freed += size
        return freed
