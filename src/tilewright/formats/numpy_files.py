"""Arrays in files of numpy (`.npy`, `.npz`), which strangers may have written.

numpy evaluates the head of an array as a Python literal, after some repairs, and leaves the rest to the readers of zip
files: what is wrong with a file shows as almost any exception.  Here it is one.  Objects are never unpickled.
Called by the command line's readers of inputs.

Source: NEP 1 (the format .npy); numpy.lib.npyio for archives.
"""

from __future__ import annotations

import lzma
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO, Final, cast

import numpy as np

Array = np.ndarray[tuple[int, ...], np.dtype[np.generic]]

_RAISED: Final = (
    ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, RuntimeError, SyntaxError, TypeError,
    ValueError, lzma.LZMAError, struct.error, tokenize.TokenError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""By numpy and the standard library; among them RecursionError and NotImplementedError."""


_SUFFIX: Final = ".npy"


class NumpyFileError(Exception):
    """A file is none of numpy's, damaged, or of a kind that is not read."""


def read_npy(file: BinaryIO) -> Array:
    """The next array of a file that is open, or a pipe.

    Raises: NumpyFileError; OSError where the system refuses.
    """
    # numpy asks files for their position, which pipes have none of.
    source = file if file.seekable() else SimpleNamespace(read=file.read)
    read_array = cast("Any", np.lib.format.read_array)
    try:
        return cast("Array", read_array(source, allow_pickle=False))
    except _RAISED as error:
        raise _refused(error) from error


def read_npz(
    path: str | Path, choose: Callable[[Sequence[str]], Iterable[str]] = tuple
) -> dict[str, Array]:
    """Arrays of an archive, by name.

    Args:
        path: the file, or a pipe.
        choose: which of the names are read; nothing of the others is unpacked.

    Raises: as `read_npy`, for a member that is no `.npy` and for two of one name, too; and what `choose` raises.
    """
    with Path(path).open("rb") as file:
        # What comes through a pipe has no end to begin at.
        source = file if file.seekable() else BytesIO(file.read())
        try:
            archive = cast("np.lib.npyio.NpzFile", np.load(source, allow_pickle=False))
            names = _array_names(archive)
        except _RAISED as error:
            raise _refused(error) from error
        with archive:
            chosen = choose(names)
            try:
                return {key: _array_of(archive, f"{key}{_SUFFIX}") for key in chosen}
            except _RAISED as error:
                raise _refused(error) from error


def _array_names(archive: np.lib.npyio.NpzFile) -> list[str]:
    """The names of the arrays, in order; a member of another kind may hide one from numpy."""
    names: dict[str, None] = {}
    members = cast("zipfile.ZipFile", archive.zip)  # of one that is open
    for member in members.namelist():
        name = member.removesuffix(_SUFFIX)
        if name == member:
            raise NumpyFileError(
                f"{member!r} is no array: its name does not end in {_SUFFIX}"
            )
        if name in names:
            raise NumpyFileError(f"there are two arrays {name!r}")
        names[name] = None
    return list(names)


def _array_of(archive: np.lib.npyio.NpzFile, member: str) -> Array:
    found = cast("object", archive[member])
    if not isinstance(found, np.ndarray):  # bytes, where it does not begin as arrays do
        raise NumpyFileError(f"{member!r} is no array")
    return cast("Array", found)


def _refused(error: Exception) -> NumpyFileError:
    lines = str(error).splitlines()
    return NumpyFileError(lines[0][:200] if lines else type(error).__name__)
