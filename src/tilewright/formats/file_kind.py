"""What a file is that a loader refuses, and who takes it: by what it holds, then by what it is called.

The one decision of `tilewright.load` and `load_module`, whose errors say the result.  Not here: what the suffixes say
(`base.file_kinds`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tilewright.base.file_kinds import LOAD_MODULE, RUN, FileKind, is_artifact_name, kind_of
from tilewright.formats.byte_view import Buffer, view_bytes
from tilewright.formats.native_file import (
    ARCHIVE_MAGIC,
    OBJECT,
    OTHER_SYSTEMS,
    PROGRAM,
    SHARED,
    ZIP_MAGIC,
    describe,
    elf_type,
)
from tilewright.formats.tar import is_gzip, is_tar

_ELF_REMEDIES: Final = {OBJECT: LOAD_MODULE, SHARED: LOAD_MODULE, PROGRAM: RUN}
_OTHER_SYSTEM: Final = (
    "it is for another system: load it there, or export a library for this one (.so)"
)
_SOURCES: Final = (".c", ".ll", ".s")


def refused_kind(data: Buffer, path: str | Path) -> FileKind | None:
    """What a file is that is no artifact, with the remedy; without one where nothing takes it.

    Returns: None where neither says anything: damaged artifacts, and what has no name that is known.
    """
    elf, begin = elf_type(data), bytes(view_bytes(data)[: len(ARCHIVE_MAGIC)])
    if elf:
        return FileKind(describe(data), _ELF_REMEDIES.get(elf, ""))
    if begin == ARCHIVE_MAGIC or is_tar(data):
        return FileKind(describe(data), LOAD_MODULE)
    if is_gzip(data):
        return FileKind(describe(data), "uncompress it first: gunzip")
    if begin.startswith(OTHER_SYSTEMS):
        return FileKind(describe(data), _OTHER_SYSTEM)
    suffix, called = Path(path).suffix.lower(), kind_of(path)
    if is_artifact_name(path):
        return None  # its reader says more
    if called is None:
        return FileKind(describe(data), "") if begin.startswith(ZIP_MAGIC) else None
    if called.remedy != LOAD_MODULE or (suffix in _SOURCES and describe(data) == "text"):
        return called
    return FileKind(describe(data), "")  # called a library, and none
