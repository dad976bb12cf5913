"""Weights of an artifact that lie in another file: found, mapped and checked.

They are used where they are, unless copies are asked for; what does not begin at a cache line is copied.  Called by sessions, for plans;
the virtual machine's are found by `modules.io_parameters`, and only compared here.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from tilewright.base.errors import OF_DAMAGE, ArchiveError
from tilewright.base.input_file import why_no_file
from tilewright.base.text import did_you_mean
from tilewright.formats.artifact import OutsideWeights
from tilewright.formats.byte_view import Buffer, view_bytes
from tilewright.formats.parameters import (
    ParameterIndex,
    StoredEntry,
    read_parameters,
    scope_and_path,
)
from tilewright.runtime import native
from tilewright.runtime.loaders.module_file import MAPPED, Care, read_memory

if TYPE_CHECKING:
    from tilewright.runtime.modules.io_parameters import FileCheck

_ALIGNMENT = 64
Compared: TypeAlias = tuple[str, str, int]
"""A weight that was compared: its files, its name and its checksum."""


def weights_beside(weights: OutsideWeights, location: str) -> str:
    """The file of the weights beside an archive, as `=path`; of a link, also beside the file that it leads to.

    Raises: ArchiveError when it is not there.
    """
    archive = Path(location)
    places = (archive.with_name(weights.file), archive.resolve().with_name(weights.file))
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        raise ArchiveError(
            f"the weights are in '{weights.file}', which is not beside the archive",
            location=location,
            hint="give its place: parameters=['…'] (--parameters=…)",
        )
    return f"={path}"  # a '=' of the path ends no scope


def map_weights(
    weights: OutsideWeights,
    files: Sequence[str],
    check: FileCheck | None = None,
    care: Care = MAPPED,
) -> tuple[Buffer, ...]:
    """The bytes of each constant, views of the mapped files; of several the first that has a name.

    Args:
        weights: what an archive says of them.
        files: `path` or `scope=path`; the weights are in those without a scope.
        check: sees each file (bytes, path, how errors call it) before it is read, and may raise.
        care: how the files are read, and whether the weights are compared with their checksums.

    Raises: ArchiveError for a file that cannot be read, and a weight that none has, that has another
        size, or is another one than its checksum says.
    """
    paths = _paths(files)
    indices = [_read(path, check, care) for path in paths]
    found = tuple(
        _aligned(_find(indices, name, size, paths))
        for name, size in zip(weights.names, weights.sizes, strict=True)
    )
    if care.copy or care.verify:
        _compare(weights, found, paths, optional=not care.verify)
    return found


def compare_weights(
    weights: OutsideWeights,
    files: Sequence[str],
    check: FileCheck | None = None,
    *,
    optional: bool = False,
    compared: set[Compared] | None = None,
) -> None:
    """Compare weights with their checksums where they are, for whoever maps the files by themselves.

    Args:
        weights: as for `map_weights`.
        files: as for `map_weights`.
        check: as for `map_weights`.
        optional: take those of an archive that has no checksums as they are.
        compared: those that were compared for other archives of the same files, which are not compared again;
            those that are compared now are added.

    Raises: ArchiveError as `map_weights`.
    """
    paths = _paths(files)
    indices = [_read(path, check, MAPPED) for path in paths]
    found = [
        _find(indices, name, size, paths)
        for name, size in zip(weights.names, weights.sizes, strict=True)
    ]
    _compare(weights, found, paths, optional=optional, compared=compared)


def _compare(
    weights: OutsideWeights,
    found: Sequence[Buffer],
    paths: Sequence[str],
    *,
    optional: bool,
    compared: set[Compared] | None = None,
) -> None:
    """Refuse weights that are not those which an archive was written with."""
    where = ", ".join(paths)
    if weights.checksums is None:
        if optional:
            return
        raise ArchiveError(
            "the archive has no checksums of its weights",
            location=where,
            hint="it was made by an older version: load it without verify",
        )
    known = set[Compared]() if compared is None else compared
    for name, data, wanted in zip(weights.names, found, weights.checksums, strict=True):
        row = (where, name, wanted)
        if row in known:
            continue
        known.add(row)
        if zlib.crc32(view_bytes(data)) != wanted:
            raise ArchiveError(
                f"weight '{name}' is damaged, or is not the one that the archive was written with",
                location=where,
                hint=f"{OF_DAMAGE}; to exchange weights, load without copy and verify",
            )


def _paths(files: Sequence[str]) -> Sequence[str]:
    """The files without a scope.  Raises: ArchiveError where all have one."""
    found = [scope_and_path(file) for file in files]
    if not any(scope == "" for scope, _ in found):
        raise ArchiveError(
            f"no weights without a scope, got those of '{found[0][0]}'",
            location=", ".join(files),
            hint=f"leave the scope out: {found[0][1]}; a path with '=' in it is written ={files[0]}",
        )
    return [path for scope, path in found if scope == ""]


def _read(path: str, check: FileCheck | None, care: Care) -> ParameterIndex:
    reason = why_no_file(path)
    if reason is not None:
        raise ArchiveError(reason, location=path)
    try:
        data = read_memory(path) if care.copy else native.map_file(path)
        contents = memoryview(data)[: data.size_bytes]
    except (OSError, ValueError) as error:
        raise ArchiveError(f"cannot read the file: {error}", location=path) from error
    if check is not None:
        check(contents, path, path)
    return read_parameters(contents, path)


def _find(
    indices: Sequence[ParameterIndex], name: str, size: int, paths: Sequence[str]
) -> memoryview:
    where = ", ".join(paths)
    index = next((one for one in indices if name in one.entries), None)
    if index is None:
        known = [entry for one in indices for entry in one.entries]
        raise ArchiveError(
            f"there is no weight '{name}'", location=where, hint=did_you_mean(name, known)
        )
    entry = index.entries[name]
    if not isinstance(entry, StoredEntry) or entry.length != size:
        raise ArchiveError(
            f"weight '{name}' has {entry.length} bytes, expected {size} that are stored",
            location=where,
        )
    return index.bytes_of(entry)


def _aligned(data: memoryview) -> Buffer:
    """The same bytes, where they begin at a cache line; else a copy that does."""
    address = np.frombuffer(data, np.uint8).ctypes.data if data.nbytes else 0
    return data if address % _ALIGNMENT == 0 else _aligned_copy(data)


def _aligned_copy(data: memoryview) -> Buffer:
    room = np.empty(data.nbytes + _ALIGNMENT, np.uint8)
    begin = -room.ctypes.data % _ALIGNMENT
    copy = room[begin : begin + data.nbytes]
    copy[:] = np.frombuffer(data, np.uint8)
    copy.flags.writeable = False
    return copy.data
