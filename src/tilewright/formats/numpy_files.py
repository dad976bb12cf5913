"""Arrays in files of numpy (`.npy`, `.npz`), which strangers may have written.

numpy evaluates the head of an array as a Python literal, after some repairs, and leaves the rest to the readers of zip
files: what is wrong with a file shows as almost any exception.  Here it is one.  Objects are never unpickled.
Called by the command line's readers of inputs.

Source: NEP 1 (the format .npy); numpy.lib.npyio for archives.
"""

from __future__ import annotations

import errno
import lzma
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
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
_MAGIC: Final = b"\x93NUMPY"
_HEADS: Final = {
    (1, 0): "read_array_header_1_0",
    (2, 0): "read_array_header_2_0",
    (3, 0): "read_array_header_2_0",
}
"""numpy's readers by version; the third differs from the second in names of fields, which no array here has."""


class NumpyFileError(Exception):
    """A file is none of numpy's, damaged, or of a kind that is not read."""


def read_npy(file: BinaryIO) -> Array:
    """The next array of a file that is open, or a pipe.

    Raises: NumpyFileError; OSError where the system refuses.
    """
    # numpy asks files for their position, which pipes have none of.
    source = file if file.seekable() else SimpleNamespace(read=file.read)
    read_array = cast("Any", np.lib.format.read_array)
    with _refusing():
        return cast("Array", read_array(source, allow_pickle=False))


def read_npz(
    path: str | Path,
    choose: Callable[[Sequence[str]], Iterable[str]] = tuple,
    check: Callable[[str, Sequence[int], np.dtype[Any]], None] | None = None,
) -> dict[str, Array]:
    """Arrays of an archive, by name.

    Args:
        path: the file, or a pipe.
        choose: which of the names are read; nothing of the others is unpacked.
        check: raises for an array of a shape or an element type that is not wanted, before any is unpacked: a small
            file may hold very large arrays.

    Raises: as `read_npy`, for a member that is no `.npy` and for two of one name, too; and what `choose` and
    `check` raise.
    """
    with Path(path).open("rb") as file:
        # What comes through a pipe has no end to begin at.
        source = file if file.seekable() else BytesIO(file.read())
        with _refusing():
            archive = cast("np.lib.npyio.NpzFile", np.load(source, allow_pickle=False))
            names = _array_names(archive)
        with archive:
            chosen = tuple(choose(names))
            for key in chosen:
                shape, dtype = _head_of(archive, f"{key}{_SUFFIX}")
                if check is not None:
                    check(key, shape, dtype)
            with _refusing():
                return {key: cast("Array", archive[f"{key}{_SUFFIX}"]) for key in chosen}


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


def _head_of(
    archive: np.lib.npyio.NpzFile, member: str
) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and element type that a member begins with.

    Raises: NumpyFileError, also for what does not begin as arrays do, and for a head that says more than the
        member holds.
    """
    members = cast("zipfile.ZipFile", archive.zip)
    with _refusing(), members.open(member) as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise NumpyFileError(f"{member!r} is no array")
        file.seek(0)
        version = np.lib.format.read_magic(file)
        if version not in _HEADS:
            raise NumpyFileError(
                f"{member!r} has version {version[0]}.{version[1]} of .npy, expected 1.0 to 3.0"
            )
        shape, _, dtype = getattr(np.lib.format, _HEADS[version])(file)
        left = members.getinfo(member).file_size - file.tell()
    wanted = math.prod(shape) * dtype.itemsize
    if wanted > left and not dtype.hasobject:
        raise NumpyFileError(
            f"{member!r} has {left} bytes behind its head, expected {wanted}"
        )
    return shape, dtype


@contextmanager
def _refusing() -> Generator[None]:
    """What numpy and the readers of zip files raise of a damaged file.  Raises: NumpyFileError."""
    try:
        yield
    except _RAISED as error:
        raise _refused(error) from error
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        raise NumpyFileError("an offset lies before the file's beginning") from error


def _refused(error: Exception) -> NumpyFileError:
    lines = str(error).splitlines()
    return NumpyFileError(lines[0][:200] if lines else type(error).__name__)
