"""Reads .gguf: typed key/value pairs, a table of tensors, then their blocks.

Versions 2 and 3, little-endian.  Every count is compared with what is left of the file before anything is made of
it; tensors stay where they are.  Called by front ends, by tokenizers and by `formats.parameters`.

Source: ggml, `docs/gguf.md`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias, final

import numpy as np
import numpy.typing as npt

from tilewright.base.errors import ArchiveError
from tilewright.base.record import record
from tilewright.formats.byte_cursor import ByteCursor
from tilewright.formats.byte_view import Buffer, ByteView
from tilewright.formats.gguf.block_types import BLOCK_TYPES, BlockType

MAGIC: Final = b"GGUF"
_VERSIONS: Final = (2, 3)
_DEFAULT_ALIGNMENT: Final = 32
_ALIGNMENT_KEY: Final = "general.alignment"
_RANK_LIMIT: Final = 8

# Codes of metadata values; texts and arrays have their own.
_NUMBERS: Final[Mapping[int, str]] = {
    0: "u1", 1: "i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8", 11: "<i8",
    12: "<f8",
}  # fmt: skip
_LENGTH: Final = struct.Struct("<Q")
_TEXT: Final = 8
_ARRAY: Final = 9

MetadataValue: TypeAlias = (
    "bool | int | float | str | tuple[str, ...] | npt.NDArray[np.generic]"
)
"""A number, a text, texts, or an array of numbers, which shows the file's memory."""


@final
@record
class GgufTensor:
    """A tensor: a range of the file.

    Attributes:
        name: unique in its file.
        shape: outermost dimension first (ggml counts from the innermost).
        type: of its blocks, which lie along the last axis.
        offset: from the beginning of the file, in bytes.
        size_bytes: of all blocks.
        part: in which file of a model that lies in several.
    """

    name: str
    shape: tuple[int, ...]
    type: BlockType
    offset: int
    size_bytes: int
    part: int = 0


@final
@dataclass(frozen=True, slots=True, eq=False)
class GgufFile:
    """A whole file.

    Attributes:
        version: of the format.
        metadata: by key, in the order of the file.
        tensors: by name, in the order of the file.
        contents: the whole file; tensors are ranges of it.
        location: how errors call it.
        others: further files of a model that lies in several.
    """

    version: int
    metadata: Mapping[str, MetadataValue]
    tensors: Mapping[str, GgufTensor]
    contents: memoryview = field(repr=False)
    location: str
    others: tuple[memoryview, ...] = field(default=(), repr=False)

    def bytes_of(self, tensor: GgufTensor) -> npt.NDArray[np.uint8]:
        """The blocks of a tensor, in place: `[.., blocks of a row, bytes of a block] u8`."""
        end = tensor.offset + tensor.size_bytes
        held = (self.contents, *self.others)[tensor.part]
        flat = np.frombuffer(held[tensor.offset : end], np.uint8)
        kind, shape = tensor.type, tensor.shape or (1,)
        return flat.reshape(*shape[:-1], shape[-1] // kind.elements, kind.size_bytes)


def read_gguf(data: Buffer, location: str = "model.gguf") -> GgufFile:
    """The description of a file.

    Args:
        data: the whole file, which must stay unchanged; nothing of its tensors is copied.
        location: how errors call it.

    Raises: ArchiveError naming the field that is wrong.
    """
    view = ByteView(data, location)
    if bytes(view.data[: len(MAGIC)]) != MAGIC:
        raise ArchiveError(
            "is no GGUF file: it does not begin with 'GGUF'",
            location=location,
            hint="language models that speak are GGUF files, as llama.cpp reads them; tilewright run takes others",
        )
    cursor = ByteCursor(view, len(MAGIC))
    version = cursor.u32("version")
    if int.from_bytes(version.to_bytes(4, "big"), "little") in _VERSIONS:
        raise ArchiveError(
            "has its bytes in the order of big-endian machines, which is not read",
            location=location,
            hint="gguf-convert-endian of the package gguf changes it",
        )
    if version not in _VERSIONS:
        raise ArchiveError(
            f"GGUF version {version}, expected {_VERSIONS[0]} or {_VERSIONS[1]}",
            location=location,
        )
    tensor_count = cursor.u64("tensor count")
    metadata = _read_metadata(cursor, cursor.u64("metadata count"))
    alignment = _alignment(metadata, location)
    infos = [_read_info(cursor) for _ in cursor.counted(tensor_count, 24, "tensor table")]
    base = -(-cursor.offset // alignment) * alignment
    tensors: dict[str, GgufTensor] = {}
    for name, shape, code, offset in infos:
        if name in tensors:
            raise ArchiveError(f"tensor '{name:.80}' stands twice", location=location)
        tensors[name] = _tensor(view, name, shape, code, base + offset)
    return GgufFile(version, metadata, tensors, view.data, location)


def _read_metadata(cursor: ByteCursor, count: int) -> dict[str, MetadataValue]:
    metadata: dict[str, MetadataValue] = {}
    for _ in cursor.counted(count, 13, "metadata"):
        key = _text(cursor, "metadata key")
        if key in metadata:
            raise ArchiveError(
                f"metadata '{key:.80}' stands twice", location=cursor.view.location
            )
        code = cursor.u32(f"type of metadata '{key:.80}'")
        metadata[key] = _value(cursor, code, f"metadata '{key:.80}'")
    return metadata


def _value(cursor: ByteCursor, code: int, subject: str) -> MetadataValue:
    if code == _TEXT:
        return _text(cursor, subject)
    if code != _ARRAY:
        return _numbers(cursor, code, 1, subject)[0].item()
    item = cursor.u32(f"type of the items of {subject}")
    count = cursor.u64(f"length of {subject}")
    if item == _TEXT:
        return _texts(cursor, len(cursor.counted(count, 8, subject)), subject)
    return _numbers(cursor, item, count, subject)


def _numbers(
    cursor: ByteCursor, code: int, count: int, subject: str
) -> npt.NDArray[np.generic]:
    name = _NUMBERS.get(code)
    if name is None:
        raise ArchiveError(
            f"{subject} is of type {code}, which is not known",
            location=cursor.view.location,
        )
    dtype = np.dtype(name)
    place = cursor.skip(count * dtype.itemsize, subject)
    return np.frombuffer(cursor.view.data[place : cursor.offset], dtype)


def _text(cursor: ByteCursor, subject: str) -> str:
    """Texts are UTF-8; the bytes of one that is not are kept, for vocabularies have pieces of characters."""
    return str(cursor.raw_text(subject), "utf-8", "surrogateescape")


def _texts(cursor: ByteCursor, count: int, subject: str) -> tuple[str, ...]:
    """So many texts; a vocabulary has a hundred thousand, so this is what a file takes to be read."""
    data, size, at = cursor.view.data, cursor.view.size, cursor.offset
    found: list[str] = []
    for _ in range(count):
        begin = at + 8
        end = begin + (_LENGTH.unpack_from(data, at)[0] if begin <= size else size)
        if end > size:
            cursor.offset = at
            cursor.raw_text(subject)  # says what is wrong
        found.append(str(data[begin:end], "utf-8", "surrogateescape"))
        at = end
    cursor.offset = at
    return tuple(found)


def _alignment(metadata: Mapping[str, MetadataValue], location: str) -> int:
    """The alignment of the tensors' bytes."""
    alignment = metadata.get(_ALIGNMENT_KEY, _DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment <= 0 or alignment % 8:
        raise ArchiveError(
            f"{_ALIGNMENT_KEY} is {alignment}, expected a multiple of 8", location=location
        )
    return alignment


def _read_info(cursor: ByteCursor) -> tuple[str, tuple[int, ...], int, int]:
    """Name, shape, type and offset of a tensor."""
    name = cursor.text("tensor name")
    rank = cursor.u32("rank of a tensor")
    if rank > _RANK_LIMIT:
        raise ArchiveError(
            f"tensor '{name:.80}' of rank {rank}", location=cursor.view.location
        )
    shape = tuple(cursor.u64("dimension of a tensor") for _ in range(rank))[::-1]
    return name, shape, cursor.u32("type of a tensor"), cursor.u64("offset of a tensor")


def _tensor(
    view: ByteView, name: str, shape: tuple[int, ...], code: int, offset: int
) -> GgufTensor:
    where = f"{view.location}: tensor '{name:.80}'"
    kind = BLOCK_TYPES.get(code)
    if kind is None:
        raise ArchiveError(f"unknown tensor type {code}", location=where)
    if (shape[-1] if shape else 1) % kind.elements:
        raise ArchiveError(
            f"{kind.name}{list(shape)} is no whole number of blocks of {kind.elements}",
            location=where,
        )
    size_bytes = math.prod(shape) // kind.elements * kind.size_bytes
    view.check(offset, size_bytes, f"tensor '{name:.80}'")
    return GgufTensor(name, shape, kind, offset, size_bytes)
