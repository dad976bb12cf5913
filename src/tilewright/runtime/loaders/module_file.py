"""Modules in files: mapped, so that their constants stay where they are.

Called by sessions and the virtual machine's front end.
"""

from __future__ import annotations

import errno
import io
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from tilewright.base.errors import ArchiveError, reason_of
from tilewright.base.fork_locks import LATE_IMPORTS
from tilewright.base.input_file import FOLDER, STREAM, is_stream, why_no_file
from tilewright.base.options import path_option
from tilewright.base.record import record
from tilewright.formats.vmfb import ModuleDef, is_archive, read_archive
from tilewright.formats.vmfb.seal import verify_archive
from tilewright.runtime import native

if TYPE_CHECKING:
    from tilewright.runtime.loaders.trusted_keys import TrustedKeys


@final
@record(kw_only=True)
class Care:
    """How files are read.

    Attributes:
        copy: into memory, so that what becomes of them later does not matter, and verified.
        verify: compared with their checksums.
    """

    copy: bool = False
    verify: bool = False


MAPPED: Final = Care()
"""What is not looked at is not read."""


def read_module_file(
    path: str | Path,
    *,
    copy: bool = False,
    verify: bool = False,
    trusted: TrustedKeys | None = None,
) -> ModuleDef:
    """The module of a `.vmfb`, whose parts are views of the mapped file.

    Args:
        path: the file.
        copy: read it into memory and verify it, instead of mapping it: what becomes of the file later
            does not matter.
        verify: compare all of it with its checksum.
        trusted: whose signature it must have; checked before anything else of it is read.

    Raises: ArchiveError if the file cannot be read, is corrupt, or is not signed so.
    """
    path = path_option("path", path)
    try:
        if is_stream(path):
            raise ArchiveError(STREAM, location=path)
        data = read_memory(path) if copy else native.map_file(path)
    except (OSError, ValueError) as error:
        is_folder = why_no_file(path) == FOLDER
        reason = "Is a directory" if is_folder else reason_of(error)
        raise ArchiveError(f"cannot read the file: {reason}", location=path) from error
    view = memoryview(data)[: data.size_bytes]
    if trusted is not None:
        trusted.check(view, path, path)
    if not is_archive(view):
        _refuse_other_kinds(view, path)
    module = read_archive(view, path)
    if copy or verify:
        verify_archive(view, path, optional=not verify)
    data.check()  # sound up to here, whatever happened to the file meanwhile
    return module


def _refuse_other_kinds(data: memoryview, path: str) -> None:
    """Raise ArchiveError for a file that is something else, by what it holds or is called; not for a damaged archive."""
    with LATE_IMPORTS:  # no file that loads needs it
        from tilewright.formats.file_kind import refused_kind  # noqa: PLC0415

    kind = refused_kind(data, path)
    if kind is not None:
        raise ArchiveError(
            f"is {kind.subject}, expected a .vmfb", location=path, hint=kind.remedy or None
        )


def read_memory(path: str) -> native.Memory:
    """All of a file, which may change afterwards.  Raises: OSError."""
    with Path(path).open("rb") as file:
        data = native.Memory(file.seek(0, io.SEEK_END))
        file.seek(0)
        if file.readinto(memoryview(data)[: data.size_bytes]) != data.size_bytes:
            raise OSError(errno.EIO, "the file became shorter while it was read")
    return data
