"""Models that lie in several files: `name-00001-of-00003.gguf` and those beside it, as one.

The first file has the metadata, every file some of the tensors.  Called by front ends, which open files.

Source: llama.cpp, `llama_split_path` and `llama_model_loader` for names and the keys under `split`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, TypeGuard

from tilewright.base.errors import ArchiveError
from tilewright.formats.gguf.reader import GgufFile, GgufTensor

_NAME: Final = re.compile(r"(.*)-(\d{5})-of-(\d{5})(\.gguf)", re.DOTALL)
_MOST_FILES: Final = 1024


def file_count(file: GgufFile) -> int:
    """How many files a model has, of which this is one.

    Raises: ArchiveError for a number that makes no sense.
    """
    count = file.metadata.get("split.count", 1)
    if not _is_count(count) or not 0 <= count <= _MOST_FILES:
        raise ArchiveError(
            f"metadata 'split.count' is {str(count)[:40]!r}, expected at most {_MOST_FILES} files",
            location=file.location,
        )
    return max(1, count)


def _is_count(value: object) -> TypeGuard[int]:
    """Whether it is a whole number; metadata may have arrays and truth values anywhere."""
    return isinstance(value, int) and not isinstance(value, bool)


def file_names(first: str, count: int) -> Sequence[str]:
    """The names of all files of a model, given that of the first.

    Raises: ArchiveError for a name that is not that of the first of so many.
    """
    found = _NAME.fullmatch(first)
    if found is None or (int(found[2]), int(found[3])) != (1, count):
        expected = f"NAME-00001-of-{count:05d}.gguf"
        raise ArchiveError(
            f"is one of {count} files",
            location=first,
            hint=f"give the first one, whose name is {expected}; the others lie beside it",
        )
    return [f"{found[1]}-{n + 1:05d}-of-{count:05d}{found[4]}" for n in range(count)]


def joined(files: Sequence[GgufFile]) -> GgufFile:
    """Files of one model, in their order, as one with the metadata of the first.

    Raises: ArchiveError naming the file that is none of them, or what is there twice or not at all.
    """
    tensors: dict[str, GgufTensor] = {}
    for part, file in enumerate(files):
        said = [file.metadata.get(f"split.{key}") for key in ("no", "count")]
        if not all(map(_is_count, said)) or said != [part, len(files)]:
            number, count = (str(each)[:40] for each in said)
            raise ArchiveError(
                f"says of itself that it is file {number} of {count}, expected {part} of {len(files)}",
                location=file.location,
            )
        for name, tensor in file.tensors.items():
            if name in tensors:
                raise ArchiveError(f"tensor '{name}' stands twice", location=file.location)
            tensors[name] = replace(tensor, part=part)
    first = files[0]
    wanted = first.metadata.get("split.tensors.count", len(tensors))
    if not _is_count(wanted) or wanted != len(tensors):
        raise ArchiveError(
            f"{len(files)} files have {len(tensors)} tensors, expected {str(wanted)[:40]}",
            location=first.location,
        )
    return replace(
        first, tensors=tensors, others=tuple(file.contents for file in files[1:])
    )
