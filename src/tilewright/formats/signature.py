"""Signatures: who made a file, and that nothing of it was changed since.

A record of 152 bytes names a public key and signs a digest of everything before it.  Records stand at
the end of a `.vmfb`, one behind the other if several people sign, where other runtimes ignore them; or
alone in a file beside any other one (`net.so.sig`).  The digest is a tree of SHA-256 over pieces of the
file, so that threads share the work.  Ed25519 itself is not here (`runtime.loaders.trusted_keys`), nor is
who is trusted.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, final

from tilewright.base.errors import ArchiveError, version_hint
from tilewright.base.host import usable_cores
from tilewright.base.record import record
from tilewright.base.version import VERSION as TILEWRIGHT
from tilewright.formats.byte_view import Buffer, view_bytes

DETACHED_SUFFIX: Final = ".sig"
KEY_BYTES: Final = 32
RECORD_LIMIT: Final = 64
"""Signatures of one file."""

_VERSION: Final = 1
_ED25519: Final = 1
_PIECE_BYTES: Final = 1 << 22
_MAGIC: Final = b"TILESIGN"
_CONTEXT: Final = b"tilewright signature 1\0"  # what is signed is never of another protocol
_SIGNED: Final = struct.Struct("<8sHHIQ32s32s")
_RECORD: Final = struct.Struct(f"<{_SIGNED.size}s64s")
SIGNATURE_BYTES: Final = _RECORD.size
_LEAF: Final = b"\0"
_ROOT: Final = b"\1"


@final
@record(kw_only=True)
class SignatureRecord:
    """One signature.

    Attributes:
        size_bytes: of what is signed.
        digest: of what is signed (`content_digest`).
        public_key: Ed25519, 32 bytes.
        signature: of `message`, 64 bytes.
    """

    size_bytes: int
    digest: bytes
    public_key: bytes
    signature: bytes = bytes(64)

    @property
    def message(self) -> bytes:
        """What is signed: every field but the signature."""
        return _CONTEXT + self._fields

    @property
    def _fields(self) -> bytes:
        return _SIGNED.pack(
            _MAGIC,
            _VERSION,
            _ED25519,
            _PIECE_BYTES,
            self.size_bytes,
            self.digest,
            self.public_key,
        )

    def to_bytes(self) -> bytes:
        """The record as it stands in a file."""
        return _RECORD.pack(self._fields, self.signature)


def split_signatures(
    data: Buffer, location: str = "file"
) -> tuple[memoryview, tuple[SignatureRecord, ...]]:
    """What was signed, and the records behind it; all of the file and none if there are none.

    Raises: ArchiveError for a record of another version.
    """
    view = view_bytes(data)
    found: list[SignatureRecord] = []
    while len(found) < RECORD_LIMIT and len(view) >= _RECORD.size:
        tail = view[-_RECORD.size :]
        if bytes(tail[: len(_MAGIC)]) != _MAGIC:
            break
        found.append(_read(bytes(tail), location))
        view = view[: -_RECORD.size]
    return view, tuple(reversed(found))


def read_detached(data: Buffer, location: str) -> tuple[SignatureRecord, ...]:
    """The records of a file that holds nothing else.  Raises: ArchiveError."""
    rest, records = split_signatures(data, location)
    if len(rest) or not records:
        raise ArchiveError("is no file of signatures", location=location)
    return records


def _read(data: bytes, location: str) -> SignatureRecord:
    fields, signature = _RECORD.unpack(data)
    _, version, algorithm, piece_bytes, size, digest, key = _SIGNED.unpack(fields)
    if (version, algorithm, piece_bytes) != (_VERSION, _ED25519, _PIECE_BYTES):
        raise ArchiveError(
            f"the signature has version {version} and algorithm {algorithm}, tilewright "
            f"{TILEWRIGHT} reads version {_VERSION} and algorithm {_ED25519} (Ed25519)",
            location=location,
            hint=version_hint("sign the file again", is_newer=version >= _VERSION),
        )
    return SignatureRecord(
        size_bytes=size, digest=digest, public_key=key, signature=signature
    )


def content_digest(data: Buffer) -> bytes:
    """The digest that is signed: SHA-256 over the size and the SHA-256 of each piece of 4 MiB."""
    view = view_bytes(data)
    starts = range(0, len(view), _PIECE_BYTES)
    leaves = _leaves([view[s : s + _PIECE_BYTES] for s in starts])
    root = hashlib.sha256(_ROOT + struct.pack("<Q", len(view)))
    root.update(b"".join(leaves))
    return root.digest()


def _leaves(pieces: Sequence[memoryview]) -> Sequence[bytes]:
    if len(pieces) > 1:  # hashing lets go of the interpreter's lock
        # Where the system starts no further thread, this one does it.
        with (
            contextlib.suppress(RuntimeError),
            ThreadPoolExecutor(min(len(pieces), usable_cores())) as threads,
        ):
            return list(threads.map(_leaf, pieces))
    return list(map(_leaf, pieces))


def _leaf(piece: memoryview) -> bytes:
    found = hashlib.sha256(_LEAF)
    found.update(piece)
    return found.digest()


def fingerprint(public_key: bytes) -> str:
    """How messages name a key: `SHA256:` and 43 characters."""
    digest = hashlib.sha256(public_key).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def detached_path(path: str | Path) -> Path:
    """Where the signatures of a file are that has none inside."""
    return Path(f"{path}{DETACHED_SUFFIX}")
