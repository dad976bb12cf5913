"""Modules in files: mapped, so that their constants stay where they are.

Called by sessions and the virtual machine's front end.
"""

from __future__ import annotations

from pathlib import Path

from tilewright.base.errors import ArchiveError
from tilewright.formats.vmfb import ModuleDef, read_archive
from tilewright.runtime import native


def read_module_file(path: str | Path) -> ModuleDef:
    """The module of a `.vmfb`, whose parts are views of the mapped file.

    Raises: ArchiveError if the file cannot be read or is corrupt.
    """
    try:
        data = native.map_file(str(path))
    except OSError as error:
        reason = "Is a directory" if Path(path).is_dir() else error.strerror or error
        raise ArchiveError(f"cannot read the file: {reason}", location=str(path)) from error
    if Path(path).suffix == ".onnx":
        raise ArchiveError(
            "is an ONNX model, expected a .vmfb",
            location=str(path),
            hint="compile it first: tilewright.compile or tilewright compile",
        )
    return read_archive(memoryview(data), str(path))
