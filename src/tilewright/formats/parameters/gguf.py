"""Reads .gguf: typed key/value pairs, a table of tensors, then their blocks.

Versions 2 and 3, little-endian.  Sizes of tensors follow from their types: `BLOCKS` has a row per
type.  Not here: what quantised blocks mean.

Source: ggml, `docs/gguf.md` and the block structures of `ggml-common.h`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final

from tilewright.base.errors import ArchiveError
from tilewright.formats.byte_cursor import ByteCursor
from tilewright.formats.byte_view import ByteView
from tilewright.formats.parameters.entries import StoredEntry

MAGIC: Final = b"GGUF"
_VERSIONS: Final = (2, 3)
_DEFAULT_ALIGNMENT: Final = 32
_ALIGNMENT_KEY: Final = "general.alignment"
_RANK_LIMIT: Final = 8

# Code: (name, elements per block, bytes per block).
BLOCKS: Final[Mapping[int, tuple[str, int, int]]] = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22), 7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 36),
    10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50), 20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4), 27: ("I64", 1, 8), 28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2), 34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
}  # fmt: skip

# Codes of metadata values: how many bytes a number takes; texts and arrays have their own codes.
_NUMBER_BYTES: Final[Mapping[int, int]] = {
    0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8,
}  # fmt: skip
_U32: Final = 4
_TEXT: Final = 8
_ARRAY: Final = 9


def read_entries(view: ByteView) -> Iterator[StoredEntry]:
    """All tensors.  Raises: ArchiveError."""
    cursor = ByteCursor(view, len(MAGIC))
    version = cursor.u32("version")
    if version not in _VERSIONS:
        raise ArchiveError(
            f"GGUF version {version}, expected {_VERSIONS[0]} or {_VERSIONS[1]}",
            location=view.location,
        )
    tensor_count = cursor.u64("tensor count")
    alignment = _read_alignment(cursor, cursor.u64("metadata count"))
    infos = [_read_info(cursor) for _ in cursor.counted(tensor_count, 24, "tensor table")]
    base = -(-cursor.offset // alignment) * alignment
    for name, shape, code, offset in infos:
        yield _entry(view, name, shape, code, base + offset)


def _read_alignment(cursor: ByteCursor, count: int) -> int:
    """The alignment of the tensors' bytes; all other metadata is passed over."""
    alignment = _DEFAULT_ALIGNMENT
    for _ in cursor.counted(count, 13, "metadata"):
        key = bytes(cursor.raw_text("metadata key"))
        code = cursor.u32("metadata type")
        place = cursor.offset
        _skip_value(cursor, code)
        if key == _ALIGNMENT_KEY.encode():
            if code != _U32:
                raise ArchiveError(
                    f"{_ALIGNMENT_KEY} is no u32", location=cursor.view.location
                )
            alignment = cursor.view.u32(place, _ALIGNMENT_KEY)
    if alignment == 0 or alignment % 8:
        raise ArchiveError(
            f"{_ALIGNMENT_KEY} is {alignment}, expected a multiple of 8",
            location=cursor.view.location,
        )
    return alignment


def _skip_value(cursor: ByteCursor, code: int) -> None:
    subject = "metadata value"
    if code == _TEXT:
        cursor.raw_text(subject)
    elif code == _ARRAY:
        item = cursor.u32("type of a metadata array")
        count = cursor.u64("length of a metadata array")
        if item == _TEXT:
            for _ in cursor.counted(count, 8, "metadata array"):
                cursor.raw_text(subject)
        else:
            cursor.skip(count * _number_bytes(cursor, item), subject)
    else:
        cursor.skip(_number_bytes(cursor, code), subject)


def _number_bytes(cursor: ByteCursor, code: int) -> int:
    size = _NUMBER_BYTES.get(code)
    if size is None:
        raise ArchiveError(
            f"metadata of type {code} is not supported", location=cursor.view.location
        )
    return size


def _read_info(cursor: ByteCursor) -> tuple[str, tuple[int, ...], int, int]:
    """Name, shape, type and offset of a tensor; ggml counts dimensions from the innermost."""
    name = cursor.text("tensor name")
    rank = cursor.u32("rank of a tensor")
    if rank > _RANK_LIMIT:
        raise ArchiveError(f"tensor '{name}' of rank {rank}", location=cursor.view.location)
    shape = tuple(cursor.u64("dimension of a tensor") for _ in range(rank))[::-1]
    return name, shape, cursor.u32("type of a tensor"), cursor.u64("offset of a tensor")


def _entry(
    view: ByteView, name: str, shape: tuple[int, ...], code: int, offset: int
) -> StoredEntry:
    where = f"{view.location}: tensor '{name}'"
    row = BLOCKS.get(code)
    if row is None:
        raise ArchiveError(f"unknown tensor type {code}", location=where)
    type_name, block_elements, block_bytes = row
    blocks, rest = divmod(math.prod(shape), block_elements)
    if rest:
        raise ArchiveError(
            f"{type_name}{list(shape)} is no whole number of blocks of {block_elements}",
            location=where,
        )
    return StoredEntry(name, offset, blocks * block_bytes, type_name, shape)
