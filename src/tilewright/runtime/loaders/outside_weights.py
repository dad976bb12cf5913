"""Weights of an artifact that lie in another file: found, mapped and checked.

They are used where they are; what does not begin at a cache line is copied.  Called by sessions, for plans;
the virtual machine's are found by `modules.io_parameters`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tilewright.base.errors import ArchiveError
from tilewright.base.input_file import why_no_file
from tilewright.base.text import did_you_mean
from tilewright.formats.artifact import OutsideWeights
from tilewright.formats.byte_view import Buffer
from tilewright.formats.parameters import ParameterIndex, StoredEntry, read_parameters
from tilewright.runtime import native

if TYPE_CHECKING:
    from tilewright.runtime.modules.io_parameters import FileCheck

_ALIGNMENT = 64


def weights_beside(weights: OutsideWeights, location: str) -> str:
    """The file of the weights beside an archive; of a link, also beside the file that it leads to.

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
    return str(path)


def map_weights(
    weights: OutsideWeights, files: Sequence[str], check: FileCheck | None = None
) -> tuple[Buffer, ...]:
    """The bytes of each constant, views of the mapped files; of several the first that has a name.

    Args:
        weights: what an archive says of them.
        files: `path` or `scope=path`.
        check: sees each file (bytes, path, how errors call it) before it is read, and may raise.

    Raises: ArchiveError for a file that cannot be read, and a weight that none has or that has another
        size.
    """
    indices = [_read(spec.partition("=")[2] or spec, check) for spec in files]
    return tuple(
        _find(indices, name, size, files)
        for name, size in zip(weights.names, weights.sizes, strict=True)
    )


def _read(path: str, check: FileCheck | None) -> ParameterIndex:
    reason = why_no_file(path)
    if reason is not None:
        raise ArchiveError(reason, location=path)
    try:
        contents = memoryview(native.map_file(path))
    except (OSError, ValueError) as error:
        raise ArchiveError(f"cannot read the file: {error}", location=path) from error
    if check is not None:
        check(contents, path, path)
    return read_parameters(contents, path)


def _find(
    indices: Sequence[ParameterIndex], name: str, size: int, files: Sequence[str]
) -> Buffer:
    where = ", ".join(files)
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
    data = index.bytes_of(entry)
    address = np.frombuffer(data, np.uint8).ctypes.data if size else 0
    return data if address % _ALIGNMENT == 0 else _aligned_copy(data)


def _aligned_copy(data: memoryview) -> Buffer:
    room = np.empty(data.nbytes + _ALIGNMENT, np.uint8)
    begin = -room.ctypes.data % _ALIGNMENT
    copy = room[begin : begin + data.nbytes]
    copy[:] = np.frombuffer(data, np.uint8)
    copy.flags.writeable = False
    return copy.data
