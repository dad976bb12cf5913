"""The weights of a model in a file of their own, which several artifacts may share.

The suffix decides: `.irpa` (IREE), `.safetensors`, `.params` (TVM).  A file that has all of them already
stays as it is; an `.irpa` that has some gets the others.  Weights are known by name; another value under a
name that is taken gets a name of its own, unless it is there under another one.  Called by whoever saves or exports a model.
"""

from __future__ import annotations

import hashlib
import itertools
import mmap
from collections.abc import Callable, Container, Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, Final, final

import numpy as np

from tilewright.base.errors import ArchiveError, UserError
from tilewright.base.input_file import STREAM, is_stream
from tilewright.base.output_file import check_output, open_output
from tilewright.base.record import record
from tilewright.compiler.program.share_constants import dense_bytes
from tilewright.formats.byte_view import Buffer, view_bytes
from tilewright.formats.parameters import (
    ParameterIndex,
    SplatEntry,
    StoredEntry,
    read_parameters,
    write_archive,
    write_safetensors,
    write_tvm_params,
)

Array = np.ndarray[tuple[int, ...], np.dtype[np.generic]]
_EXTENSIBLE: Final = ".irpa"


def _write_irpa(file: BinaryIO, arrays: Mapping[str, Array]) -> None:
    write_archive(file, {name: dense_bytes(array) for name, array in arrays.items()})


FORMATS: Final[Mapping[str, Callable[[BinaryIO, Mapping[str, Array]], None]]] = {
    _EXTENSIBLE: _write_irpa,
    ".safetensors": write_safetensors,
    ".params": write_tvm_params,
}
UNALIGNED: Final = (".params",)
"""Formats without room before a tensor's bytes, so that what lies there must be copied to be used."""


@final
@record(kw_only=True)
class StoredWeights:
    """Where the weights of a model are in a file.

    Attributes:
        path: the file.
        names: of each constant of the plan, in order.
        index: all entries of the file.
    """

    path: Path
    names: tuple[str, ...]
    index: ParameterIndex

    @property
    def entries(self) -> tuple[StoredEntry, ...]:
        """The place of each constant."""
        found = (self.index.entries[name] for name in self.names)
        return tuple(entry for entry in found if isinstance(entry, StoredEntry))


def check_weights_path(path: str | Path, *, inputs: Iterable[str | Path] = ()) -> None:
    """Say before the work what would go wrong after it.

    Raises: UserError for a suffix that no format has, for a device or a pipe, and as `base.output_file.check_output`.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise UserError(
            f"no file of weights is called '{suffix}'",
            location=path,
            hint=f"suffixes: {' '.join(FORMATS)}",
        )
    check_output(path, inputs=inputs)
    if is_stream(path):
        raise UserError(STREAM, location=path)


@contextmanager
def storing_weights(
    path: Path, arrays: Mapping[str, Array], *, inputs: Iterable[str | Path] = ()
) -> Generator[StoredWeights]:
    """Have a file with these weights when the block ends without an error: in it is written what refers to them.

    Args:
        path: of the file.
        arrays: by name, in the order of the plan's constants.
        inputs: files that must stay as they are.

    Raises: UserError as `check_weights_path`, for a file that holds something else, and when the
        system refuses.
    """
    check_weights_path(path, inputs=inputs)
    if not arrays:
        raise UserError("the model has no weights to put there", location=path)
    known = _read(path)
    names: list[str] = []
    missing: dict[str, Array] = {}
    same = _by_contents(known, {array.nbytes for array in arrays.values()})
    for name, array in arrays.items():
        chosen = _free_name(name, array, known, missing)
        if known is not None and chosen not in known.entries and same:
            chosen = same.get(_digest(dense_bytes(array)), chosen)
        names.append(chosen)
        if known is None or chosen not in known.entries:
            missing[chosen] = array
    suffix = path.suffix.lower()
    kept: dict[str, Array] = {}
    if missing and known is not None:
        if known.entries and suffix != _EXTENSIBLE:
            raise UserError(
                "has other weights, which its format takes no more to",
                location=path,
                hint=f"give another name, or a file that can be extended: {_EXTENSIBLE}",
            )
        kept = _stored(known, path)
    with ExitStack() as written:
        if missing:
            file = written.enter_context(open_output(path, inputs=inputs))
            FORMATS[suffix](file, {**kept, **missing})
            file.flush()
            known = _index(file, path)
        assert known is not None, "written, or there before"
        yield StoredWeights(path=path, names=tuple(names), index=known)


def _read(path: Path) -> ParameterIndex | None:
    """What a file holds; None where there is none."""
    if not path.exists() or path.stat().st_size == 0:
        return None
    try:
        with path.open("rb") as file:
            return _index(file, path)
    except (OSError, ValueError, ArchiveError) as error:
        raise UserError(
            f"is there already and holds no weights: {error}",
            location=path,
            hint="give another name, or remove it",
        ) from error


def _index(file: BinaryIO, path: Path) -> ParameterIndex:
    contents = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return read_parameters(memoryview(contents), str(path))


def _free_name(
    name: str, array: Array, known: ParameterIndex | None, new: Mapping[str, Array]
) -> str:
    """`name`, or one like it that is free or has this very value already."""
    for count in itertools.count():
        chosen = f"{name}.{count}" if count else name
        if known is not None and chosen in known.entries:
            entry = known.entries[chosen]
            if isinstance(entry, StoredEntry) and known.bytes_of(entry) == dense_bytes(
                array
            ):
                return chosen
        elif chosen not in new:
            return chosen
    raise AssertionError("counting ends nowhere")


def _by_contents(known: ParameterIndex | None, sizes: Container[int]) -> dict[bytes, str]:
    """Names by what they stand for: two programs of one model number what they have packed differently."""
    if known is None:
        return {}
    entries = [e for e in known.entries.values() if isinstance(e, StoredEntry)]
    return {_digest(known.bytes_of(e)): e.name for e in entries if e.length in sizes}


def _digest(data: Buffer) -> bytes:
    return hashlib.blake2b(view_bytes(data), digest_size=32).digest()


def _stored(known: ParameterIndex, path: Path) -> dict[str, Array]:
    """The entries of a file that are kept."""
    splats = [e.name for e in known.entries.values() if isinstance(e, SplatEntry)]
    if splats:
        raise UserError(
            f"has patterns ('{splats[0]}'), which would be written out",
            location=path,
            hint="give another name",
        )
    return {
        entry.name: np.frombuffer(known.bytes_of(entry), np.uint8)
        for entry in known.entries.values()
        if isinstance(entry, StoredEntry)
    }
