"""The two programs of a language model: one reads a prompt, one says the next token.

They are one graph compiled twice, for any number of tokens and for one, and read the same weights.  Compiled
programs lie in a folder beside the kernel cache, so that a model begins to speak at once the second time.
Called by `language_model`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, final

from tilewright.api.language.program_store import ProgramStore, place, remove
from tilewright.api.load import load
from tilewright.base import knobs
from tilewright.base.errors import TilewrightError, UserError
from tilewright.base.fork_locks import LATE_IMPORTS
from tilewright.base.input_file import read_beginning
from tilewright.base.options import progress_option
from tilewright.base.target import Target
from tilewright.base.version import VERSION
from tilewright.formats.artifact import extract
from tilewright.formats.gguf import GgufFile
from tilewright.runtime import native
from tilewright.runtime.loaders.module_file import read_module_file
from tilewright.runtime.loaders.outside_weights import (
    Compared,
    compare_weights,
    weights_beside,
)
from tilewright.runtime.session import Session

if TYPE_CHECKING:
    from tilewright.api.model import Model
    from tilewright.compiler.pipeline import Progress

_READ: Final = "read.vmfb"
_NEXT: Final = "next.vmfb"
_WEIGHTS: Final = "weights.irpa"
_STAMPS: Final = "stamps.txt"
_SHAPES: Final[Mapping[str, Mapping[str, Sequence[int]] | None]] = {
    _READ: None,
    _NEXT: {"tokens": (1, 1)},
}
_REVISION: Final = 4
"""Counts what of the graph changes while the version stays."""
_MOST_BYTES: Final = 1 << 12
"""Of what is noted of a folder's files."""
_SECOND: Final = 1_000_000_000
"""In nanoseconds."""
_FIRST_CACHE: Final = 3
"""Inputs before the keys and values: tokens, where they stand, and places that are read."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Programs:
    """What runs a model.

    Attributes:
        read: takes any number of tokens.
        next: takes one.
    """

    read: Session
    next: Session


def make_programs(
    path: Path,
    key: str,
    *,
    threads: int | None = None,
    precision: str = "f32",
    cache: bool = True,
    progress: Progress | bool | None = None,
) -> Programs:
    """Compile a model, or find what an earlier call has compiled.

    Args:
        path: the file.
        key: the digest of what it holds.
        threads: that a call may use.
        precision: as for `compile`.
        cache: look for programs on disk and leave them there.
        progress: as for `compile`.

    Raises: as `compile`.
    """
    compiling = _Compiling(path, threads, precision, progress_option(progress))
    if cache and knobs.CACHE.get():
        found = _kept(key, compiling)
        if found is not None:
            return found
    return Programs(*(_compile(compiling, name).session for name in _SHAPES))


class _Compiling(NamedTuple):
    """What programs are made from, but the shapes of their inputs."""

    path: Path
    threads: int | None
    precision: str
    progress: Progress | bool | None


def _kept(key: str, compiling: _Compiling) -> Programs | None:
    """Programs that lie on disk, compiled where they do not yet; None where the disk takes none, which is said."""
    store = ProgramStore.of_user()
    if not store.claim():
        return None
    threads = compiling.threads
    words = (
        VERSION,
        str(_REVISION),
        key,
        str(Target.parse(knobs.TARGET.get())),
        str(threads or 0),
        compiling.precision,
    )
    folder = store.place_of(*words)
    found = _load(folder, threads)
    if found is not None:
        return found
    try:
        with store.unfinished() as made:
            for own in _SHAPES:
                model = _compile(compiling, own)
                _save(model, made, own)
                # What a compilation takes is several times its weights, and the next one takes as much.
                del model
                native.give_back_freed_memory()
            _note_stamps(made, _stamps(made))
            place(made, folder)
    except OSError as error:
        store.warn_unwritable(error)
        return None
    store.trim()
    found = _load(folder, threads)
    if found is None:
        raise UserError(
            "cannot be kept", location=folder, hint="TILEWRIGHT_CACHE=0 does without"
        )
    return found


def _save(model: Model, folder: Path, name: str) -> None:
    """Write a program and the weights.  Raises: OSError where the disk takes them not, as one that is full."""
    try:
        model.save(folder / name, sources=False, weights=folder / _WEIGHTS)
    except UserError as error:
        if isinstance(error.__cause__, OSError):
            raise error.__cause__ from error
        raise


def _compile(compiling: _Compiling, name: str) -> Model:
    # Imported here: what is found compiled starts in half the time without the compiler.
    with LATE_IMPORTS:
        from tilewright.api.model import compile as compile_model  # noqa: PLC0415

    return compile_model(
        compiling.path,
        input_shapes=_SHAPES[name],
        threads=compiling.threads,
        precision=compiling.precision,
        progress=compiling.progress,
    )


def _load(folder: Path, threads: int | None) -> Programs | None:
    """What lies in a folder; nothing if it is not whole, or not what was put there.

    Files whose sizes and times of change are those that were noted are taken as they are.  Where one's differ, all are
    read and compared with their checksums, and these sizes and times noted: once, but at each start where the folder
    cannot be written.
    """
    if not folder.is_dir():
        return None
    stamps = _stamps(folder)
    is_noted = _are_noted(stamps, folder)
    try:
        if not is_noted:
            _compare(folder)
        found = [load(folder / name, threads=threads) for name in _SHAPES]
    except TilewrightError:
        found = []
    if not _belong_together(found):
        remove(folder)
        return None
    with contextlib.suppress(OSError):
        os.utime(folder)
        if not is_noted:
            _note_stamps(folder, stamps)
    return Programs(*found)


def _compare(folder: Path) -> None:
    """Compare the programs with their checksums, and each weight once.  Raises: ArchiveError."""
    compared: set[Compared] = set()
    for name in _SHAPES:
        place = str(folder / name)
        weights = extract(read_module_file(place, verify=True), place).weights
        if weights is not None:
            files = (weights_beside(weights, place),)
            compare_weights(weights, files, compared=compared)


def _stamps(folder: Path) -> Sequence[str]:
    """Size and time of change of each file in a folder: `bytes seconds.nanoseconds`; of one that is not there, nothing.

    They stay as they are where a disk loses something, or somebody sets the time back.
    """
    rows: list[str] = []
    for name in (*_SHAPES, _WEIGHTS):
        try:
            status = (folder / name).stat()
        except OSError:
            rows.append("")
        else:
            seconds, nanoseconds = divmod(status.st_mtime_ns, _SECOND)
            rows.append(f"{status.st_size} {seconds}.{nanoseconds:09}")
    return rows


def _are_noted(stamps: Sequence[str], folder: Path) -> bool:
    """Whether the files were like this when they were written, or compared with their checksums.

    Archives and images of containers cut times to whole seconds: such ones are those that were noted, too.
    """
    try:
        noted = read_beginning(folder / _STAMPS, _MOST_BYTES).decode().split("\n")
    except (OSError, ValueError):
        return False
    return len(noted) == len(stamps) and all(
        now in (before, f"{before.partition('.')[0]}.{0:09}")
        for now, before in zip(stamps, noted, strict=True)
    )


def _note_stamps(folder: Path, stamps: Sequence[str]) -> None:
    """From here on files with these stamps are those that were checked.  Raises: OSError."""
    replacement = folder / f".{os.getpid()}-{_STAMPS}"
    replacement.write_text("\n".join(stamps))
    replacement.replace(folder / _STAMPS)


def _belong_together(found: Sequence[Session]) -> bool:
    """Whether programs are of one language model: they take its tokens, and the same keys and values."""
    if len(found) != len(_SHAPES):
        return False
    read, following = ([spec.name for spec in each.inputs] for each in found)
    return read == following and len(read) > _FIRST_CACHE


def digest_of(file: GgufFile, paths: Sequence[Path]) -> str:
    """What tells a model from others without reading its weights: descriptions, sizes and times of change of its files."""
    found = hashlib.sha256()
    held = (file.contents, *file.others)
    for part, (path, contents) in enumerate(zip(paths, held, strict=True)):
        offsets = (t.offset for t in file.tensors.values() if t.part == part)
        found.update(contents[: min(offsets, default=len(contents))])
        status = path.stat()
        found.update(f"{status.st_size} {status.st_mtime_ns}".encode())
    return found.hexdigest()
