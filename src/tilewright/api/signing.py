"""Make keys, sign files.

Called by users (`tilewright.generate_key`, `tilewright.sign`) and the CLI.  Checking is loading's
(`runtime.loaders.trusted_keys`).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tilewright.base.errors import UserError, reason_of
from tilewright.base.file_kinds import is_artifact_name
from tilewright.base.input_file import is_file
from tilewright.base.output_file import open_output
from tilewright.formats.signature import (
    RECORD_LIMIT,
    SignatureRecord,
    content_digest,
    detached_path,
    fingerprint,
    read_detached,
    split_signatures,
)
from tilewright.runtime import native
from tilewright.runtime.loaders.trusted_keys import (
    INSTALL,
    MISSING_PACKAGE,
    public_key_pem,
)

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

PUBLIC_SUFFIX: Final = ".pub"
_OWNER_ONLY: Final = 0o600
_MOST_KEY_BYTES: Final = 1 << 16


def generate_key(path: str | Path, *, password: str | None = None) -> str:
    """Make an Ed25519 key: `path` gets the private half, `path` + `.pub` the public one, both PEM.

    Args:
        path: where; a file that is there is never written over.
        password: encrypts the private half.

    Returns: the fingerprint.
    Raises: UserError when a file is there, or cannot be written (then there is neither), and for an empty
        password.
    """
    if password == "":
        raise UserError("the password is empty", hint="None leaves the key unencrypted")
    private_path, public_path = Path(path), Path(f"{path}{PUBLIC_SUFFIX}")
    for place in (private_path, public_path):
        if os.path.lexists(place):
            raise _is_there(place)
    ed25519, serialization = _cryptography()
    key = ed25519.Ed25519PrivateKey.generate()
    secret: object = serialization.NoEncryption()
    if password is not None:
        secret = serialization.BestAvailableEncryption(password.encode())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret
    )
    public = key.public_key().public_bytes_raw()
    _write_new(private_path, private)
    try:
        _write_new(public_path, public_key_pem(public))
    except BaseException:
        private_path.unlink()
        raise
    return fingerprint(public)


def sign(
    path: str | Path,
    key: str | Path,
    *,
    detached: bool = False,
    password: str | None = None,
) -> str:
    """Sign a file: a `.vmfb` at its own end, any other in a file `path` + `.sig` beside it.

    Signing again with the same key replaces that key's signature; other keys' stay.

    Args:
        path: the file; of a `.vmfb` only 152 bytes are added at the end, nothing else is written.
        key: the PEM file of a private Ed25519 key.
        detached: put the signature of a `.vmfb` beside it, too.
        password: of an encrypted key.

    Returns: the fingerprint of the key.
    Raises: UserError for what is no such key, a file that cannot be read or written, or that has as many
        signatures as are read.
    """
    private = _private_key(key, password)
    public = private.public_key().public_bytes_raw()
    is_inside = is_artifact_name(path) and not detached
    beside = detached_path(path)
    try:
        mapped = native.map_file(str(path))
        content, records = split_signatures(
            memoryview(mapped)[: mapped.size_bytes], str(path)
        )
        if not is_inside:
            if records:  # those inside are part of what is signed beside
                content = memoryview(mapped)[: mapped.size_bytes]
            is_known = is_file(beside)
            records = read_detached(beside.read_bytes(), str(beside)) if is_known else ()
        size, digest = len(content), content_digest(content)
    except (OSError, ValueError) as error:
        raise UserError(
            f"cannot read the file: {reason_of(error)}", location=path
        ) from error
    unsigned = SignatureRecord(size_bytes=size, digest=digest, public_key=public)
    signed = SignatureRecord(
        size_bytes=size,
        digest=digest,
        public_key=public,
        signature=private.sign(unsigned.message),
    )
    kept = [r.to_bytes() for r in records if r.public_key != public]
    if len(kept) >= RECORD_LIMIT:
        raise UserError(f"has {len(kept)} signatures, more are not read", location=path)
    tail = b"".join([*kept, signed.to_bytes()])
    if is_inside:
        _write_tail(Path(path), size, tail)
    else:
        with open_output(beside) as file:
            file.write(tail)
    return fingerprint(public)


def read_password(path: str | Path | None) -> str | None:
    """The first line of a file; None for no file.

    Raises: UserError when it cannot be read, or is empty: a key would be left unencrypted.
    """
    if path is None:
        return None
    try:
        password = _read_short(path).decode().partition("\n")[0].rstrip("\r")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise UserError(f"cannot read the password: {reason}", location=path) from error
    if not password:
        raise UserError("cannot read the password: its line is empty", location=path)
    return password


def _read_short(path: str | Path) -> bytes:
    """The beginning of a file or a pipe, which may never end: keys and passwords are short.  Raises: OSError, ValueError."""
    with Path(path).open("rb") as file:
        return file.read(_MOST_KEY_BYTES)


def _write_tail(path: Path, offset: int, tail: bytes) -> None:
    """Put the signatures behind the content, in place: a file of gigabytes is not copied for that."""
    try:
        with path.open("r+b") as file:
            file.seek(offset)
            file.write(tail)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise UserError(
            f"cannot write the file: {error.strerror or error}", location=path
        ) from error


def _write_new(path: Path, data: bytes) -> None:
    """A file of the owner's alone, which was not there before."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
        except BaseException:
            path.unlink()
            raise
    except FileExistsError as error:
        raise _is_there(path) from error
    except (OSError, ValueError) as error:
        raise UserError(
            f"cannot write the file: {reason_of(error)}", location=path
        ) from error


def _is_there(path: Path) -> UserError:
    return UserError("is there already, and a key is never written over", location=path)


def _private_key(path: str | Path, password: str | None) -> Ed25519PrivateKey:
    ed25519, serialization = _cryptography()
    try:
        data = _read_short(path)
    except (OSError, ValueError) as error:
        raise UserError(
            f"cannot read the key: {reason_of(error)}", location=path
        ) from error
    try:
        key = serialization.load_pem_private_key(
            data, password.encode() if password else None
        )
    except TypeError as error:  # a password that is missing, or that nothing needs
        raise UserError(
            "the key is encrypted, and no password was given"
            if password is None
            else "the key is not encrypted, and a password was given",
            location=path,
        ) from error
    except Exception as error:  # of `cryptography`, which has several
        raise UserError(
            "is no private key in PEM form, or the password is wrong",
            location=path,
            hint="tilewright keygen writes one",
        ) from error
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise UserError(
            "is a private key of another algorithm, expected Ed25519", location=path
        )
    return key


def _cryptography():
    # Imported here: it is of an extra.
    try:
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415
    except ImportError as error:
        raise UserError(MISSING_PACKAGE, hint=INSTALL) from error
    return ed25519, serialization
