"""Whose files are loaded: public keys, and the check of a file before anything of it is used.

Ed25519 comes from the package `cryptography` (extra `sign`), imported when a signature is checked.
Not here: signing (`api.signing`), the bytes of signatures (`formats.signature`).
Called by whatever reads files of a user: modules, weights, libraries.
"""

from __future__ import annotations

import base64
import binascii
import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, TypeAlias, final

from tilewright.base.errors import ArchiveError, UserError, reason_of
from tilewright.base.fork_locks import LATE_IMPORTS
from tilewright.base.input_file import is_file, read_beginning
from tilewright.formats.byte_view import Buffer, view_bytes
from tilewright.formats.signature import (
    KEY_BYTES,
    RECORD_LIMIT,
    SIGNATURE_BYTES,
    SignatureRecord,
    content_digest,
    detached_path,
    fingerprint,
    read_detached,
    split_signatures,
)
from tilewright.runtime import native

Key: TypeAlias = "str | Path | bytes"
"""A public key: a PEM file, its content, or the 32 bytes."""

MISSING_PACKAGE: Final = "signatures need the package 'cryptography'"
INSTALL: Final = "pip install 'tilewright[sign]'"
_SIG_FILE_LIMIT: Final = 1 << 14
_KEY_FILE_LIMIT: Final = 1 << 16
_PEM: Final = re.compile(
    rb"-----BEGIN ([A-Z0-9 ]+)-----\s*([A-Za-z0-9+/=\s]+?)-----END \1-----"
)
# SubjectPublicKeyInfo of Ed25519 before the 32 bytes of the key (RFC 8410).
_SPKI: Final = bytes.fromhex("302a300506032b6570032100")


@final
class TrustedKeys:
    """Public keys; a file is accepted that one of them has signed.

    Args:
        keys: at least one.

    Raises: UserError for none, or what is no public key.
    Thread-safety: immutable.
    """

    __slots__ = ("_keys",)

    def __init__(self, keys: Sequence[Key]) -> None:
        if isinstance(keys, str | bytes | Path):
            keys = (keys,)
        self._keys: tuple[bytes, ...] = tuple(
            dict.fromkeys(found for key in keys for found in read_public_keys(key))
        )
        if not self._keys:
            raise UserError("no trusted keys, expected at least one")

    @property
    def fingerprints(self) -> tuple[str, ...]:
        """How messages name them."""
        return tuple(map(fingerprint, self._keys))

    def check_file(self, path: str | Path) -> str:
        """`check` for a file that somebody else is going to open.  Raises: ArchiveError."""
        try:
            mapped = native.map_file(str(path))
        except (OSError, ValueError) as error:
            raise ArchiveError(
                f"cannot read the file: {reason_of(error)}", location=str(path)
            ) from error
        return self.check(memoryview(mapped)[: mapped.size_bytes], path, str(path))

    def check(self, data: Buffer, path: str | Path | None, location: str) -> str:
        """Raise unless one of the keys has signed these bytes.

        Args:
            data: the whole file, signatures inside included.
            path: where signatures may lie beside it; None for bytes in memory.
            location: how errors call it.

        Returns: the fingerprint of the key.
        Raises: ArchiveError for a file that is not signed, signed by others, or changed.
        """
        content, records = split_signatures(data, location)
        trusted = self._of_ours(records)
        if not trusted and path is not None:
            beside = _detached(path)  # of the whole file, signatures inside included
            content, trusted = view_bytes(data), self._of_ours(beside)
            records += beside
        if not records:
            raise ArchiveError(
                "is not signed, and only signed files are to be loaded",
                location=location,
                hint="sign it: tilewright sign FILE --key key.pem; or load it without trusted keys "
                "if you know where it comes from",
            )
        if not trusted:
            raise ArchiveError(
                f"is signed by {_listed(r.public_key for r in records)}, trusted are only "
                f"{_listed(self._keys)}",
                location=location,
                hint="if you trust whoever holds that key, add it to the trusted keys",
            )
        for record in trusted:
            _check_record(record, location)
        digest = content_digest(content)
        for record in trusted:
            if (record.size_bytes, record.digest) == (len(content), digest):
                return fingerprint(record.public_key)
        raise ArchiveError(
            f"was changed after {fingerprint(trusted[0].public_key)} signed it: {len(content)} bytes, "
            f"the signature is for {trusted[0].size_bytes} bytes of other content",
            location=location,
            hint="get the file again from where it was signed",
        )

    def _of_ours(self, records: Iterable[SignatureRecord]) -> list[SignatureRecord]:
        return [r for r in records if r.public_key in self._keys]


def signers(path: str | Path) -> tuple[str, ...]:
    """Fingerprints of the keys that a file names, which are not checked: for showing only."""
    size = SIGNATURE_BYTES * RECORD_LIMIT
    with Path(path).open("rb") as file:
        file.seek(max(0, file.seek(0, io.SEEK_END) - size))
        _, records = split_signatures(file.read(), str(path))
    keys = dict.fromkeys(r.public_key for r in (*records, *_detached(path)))
    return tuple(map(fingerprint, keys))


def _listed(keys: Iterable[bytes]) -> str:
    return ", ".join(sorted(map(fingerprint, keys)))


def _detached(path: str | Path) -> tuple[SignatureRecord, ...]:
    """The signatures beside a file; of a link, also beside the file that it leads to."""
    beside = detached_path(path)
    try:
        if not is_file(beside):
            beside = detached_path(Path(path).resolve())
        if not is_file(beside):
            return ()
        data = read_beginning(beside, _SIG_FILE_LIMIT)
    except (OSError, ValueError) as error:
        raise ArchiveError(
            f"cannot read the file: {reason_of(error)}", location=str(beside)
        ) from error
    return read_detached(data, str(beside))


def _check_record(record: SignatureRecord, location: str) -> None:
    """Raise unless the holder of the key has signed the record."""
    with LATE_IMPORTS:
        try:
            from cryptography.exceptions import InvalidSignature  # noqa: PLC0415
            from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415
                Ed25519PublicKey,
            )
        except ImportError as error:
            raise UserError(MISSING_PACKAGE, hint=INSTALL) from error
    try:
        key = Ed25519PublicKey.from_public_bytes(record.public_key)
        key.verify(record.signature, record.message)
    except (InvalidSignature, ValueError) as error:
        raise ArchiveError(
            f"has a signature that {fingerprint(record.public_key)} did not make",
            location=location,
            hint="get the file again from where it was signed",
        ) from error


def read_public_keys(key: Key) -> tuple[bytes, ...]:
    """The public keys in a PEM file or text, or the 32 bytes themselves.

    Raises: UserError for anything else, a private key above all.
    """
    where = None
    if isinstance(key, bytes):
        if len(key) == KEY_BYTES:
            return (key,)
        data = key
    else:
        where = str(key)
        try:
            data = read_beginning(key, _KEY_FILE_LIMIT)
        except (OSError, ValueError) as error:
            raise UserError(
                f"cannot read the key: {reason_of(error)}", location=where
            ) from error
    found = tuple(_public_key(m[1], m[2], where) for m in _PEM.finditer(data))
    if not found or len(found) > RECORD_LIMIT:
        raise UserError(
            f"{len(found)} public keys in PEM form, expected 1 to {RECORD_LIMIT}",
            location=where,
            hint="tilewright keygen writes one, and so does openssl pkey -pubout",
        )
    return found


def _public_key(label: bytes, text: bytes, where: str | None) -> bytes:
    name = label.decode()
    if name != "PUBLIC KEY":
        raise UserError(
            f"is a '{name}', expected a 'PUBLIC KEY'",
            location=where,
            hint="keep private keys where signing happens; openssl pkey -pubout gives the public one",
        )
    try:
        der = base64.b64decode(b"".join(text.split()), validate=True)
    except binascii.Error as error:
        raise UserError(f"the key is damaged: {error}", location=where) from error
    if not der.startswith(_SPKI) or len(der) != len(_SPKI) + KEY_BYTES:
        raise UserError(
            "is a public key of another algorithm, expected Ed25519", location=where
        )
    return der[len(_SPKI) :]


def public_key_pem(public_key: bytes) -> bytes:
    """The PEM form of a public key."""
    text = base64.encodebytes(_SPKI + public_key)
    return b"-----BEGIN PUBLIC KEY-----\n" + text + b"-----END PUBLIC KEY-----\n"
