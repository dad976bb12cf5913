"""The seal: what a sound archive of ours ends with, so that damage is found.

The last 24 bytes of the file: a magic word, how many bytes come before, the CRC-32 of the tables and
that of everything before the seal.  The module attribute `tilewright.seal` says that there is one, so a
file that was cut is noticed, too.  Runtimes that know nothing of it ignore both.  The checksums of the
code and of the plans, which every load looks at, stand in the manifest (`formats.artifact`).  Signatures may
follow (`formats.signature`): those say who wrote the file, the seal does not.

Called by the reader, the writer and whoever verifies whole files.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

from tilewright.base.errors import OF_DAMAGE, ArchiveError
from tilewright.formats.byte_view import Buffer
from tilewright.formats.signature import split_signatures

SEAL_ATTRIBUTE: Final = "tilewright.seal"
SEAL_KIND: Final = "crc32"
_SEAL: Final = struct.Struct("<8sQII")
_MAGIC: Final = b"TILESEAL"
_CHUNK_BYTES: Final = 1 << 24


class SealWriter:
    """Sums up what is written before the seal; the first piece is the tables."""

    def __init__(self, tables: bytes) -> None:
        self._size: int = len(tables)
        self._tables: int = zlib.crc32(tables)
        self._whole: int = self._tables

    def add(self, data: bytes | memoryview) -> None:
        """The next piece."""
        self._size += len(data)
        self._whole = zlib.crc32(data, self._whole)

    def finish(self) -> bytes:
        """The seal."""
        return _SEAL.pack(_MAGIC, self._size, self._tables, self._whole)


def check_seal(data: memoryview, tables_end: int, is_sealed: bool, location: str) -> None:
    """Compare the file's size and the tables with the seal: cheap, for every load.

    Raises: ArchiveError.
    """
    seal = _find(data)
    if seal is None:
        if is_sealed:
            raise ArchiveError(
                "the file was cut, or something follows: its end is missing",
                location=location,
                hint=OF_DAMAGE,
            )
        return
    _, size, tables, _ = seal
    if size != len(data) - _SEAL.size:
        raise ArchiveError(
            f"{len(data) - _SEAL.size} bytes before the seal, expected {size}",
            location=location,
            hint=OF_DAMAGE,
        )
    if zlib.crc32(data[:tables_end]) != tables or not is_sealed:
        raise ArchiveError("the tables are damaged", location=location, hint=OF_DAMAGE)


def verify_archive(
    data: Buffer, location: str = "module", *, optional: bool = False
) -> None:
    """Compare every byte with the seal.

    Args:
        data: a whole archive, which `read_archive` accepted.
        location: how errors call it.
        optional: accept a file without a seal.

    Raises: ArchiveError for a damaged file, or one without a seal.
    """
    view, _ = split_signatures(data, location)
    seal = _find(view)
    if seal is None:
        if optional:
            return
        raise ArchiveError(
            "has no checksum",
            location=location,
            hint="archives of other compilers and of older versions have none",
        )
    whole = 0
    for start in range(0, len(view) - _SEAL.size, _CHUNK_BYTES):
        end = min(start + _CHUNK_BYTES, len(view) - _SEAL.size)
        whole = zlib.crc32(view[start:end], whole)
    if whole != seal[3]:
        raise ArchiveError("the file is damaged", location=location, hint=OF_DAMAGE)


def _find(data: memoryview) -> tuple[bytes, int, int, int] | None:
    if len(data) < _SEAL.size:
        return None
    seal = _SEAL.unpack_from(data, len(data) - _SEAL.size)
    return seal if seal[0] == _MAGIC else None
