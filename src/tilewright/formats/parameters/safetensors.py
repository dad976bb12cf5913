"""Reads .safetensors: a JSON table of tensors, then their bytes.

Source: https://huggingface.co/docs/safetensors, format section.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from tilewright.base.errors import ArchiveError
from tilewright.formats.byte_view import ByteView
from tilewright.formats.parameters.entries import StoredEntry

_PREFIX_BYTES: Final = 8
_HEADER_LIMIT_BYTES: Final = 100_000_000
_RANK_LIMIT: Final = 64
_METADATA: Final = "__metadata__"
# Bits per element; packed types are whole bytes per tensor.
_BITS: Final[Mapping[str, int]] = {
    "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "F16": 16, "BF16": 16, "F32": 32, "F64": 64, "C64": 64,
}  # fmt: skip


def looks_like(view: ByteView) -> bool:
    """Whether the data begins as such a file does: a length, then a JSON object."""
    return view.size > _PREFIX_BYTES and view.data[_PREFIX_BYTES] == ord("{")


def read_entries(view: ByteView) -> Iterator[StoredEntry]:
    """All tensors.  Raises: ArchiveError."""
    header_length = view.u64(0, "header length")
    if header_length > _HEADER_LIMIT_BYTES:
        raise ArchiveError(
            f"header of {header_length} bytes, at most {_HEADER_LIMIT_BYTES} are allowed",
            location=view.location,
        )
    base = _PREFIX_BYTES + header_length
    for name, fields in _parse_header(view, header_length).items():
        if name != _METADATA:
            yield _entry(view, name, fields, base)


def _parse_header(view: ByteView, length: int) -> Mapping[str, Any]:
    text = bytes(view.sub(_PREFIX_BYTES, length, "header"))
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ArchiveError(
            f"the header is not JSON: {error}", location=view.location
        ) from error
    if not isinstance(header, dict):
        raise ArchiveError("the header is no JSON object", location=view.location)
    return cast("Mapping[str, Any]", header)


def _entry(view: ByteView, name: str, fields: object, base: int) -> StoredEntry:
    where = f"{view.location}: tensor '{name}'"
    members = cast("Mapping[str, object]", fields) if isinstance(fields, dict) else {}
    dtype, shape = members.get("dtype"), _naturals(members.get("shape"))
    offsets = _naturals(members.get("data_offsets"))
    if not isinstance(dtype, str) or shape is None or offsets is None or len(offsets) != 2:
        raise ArchiveError(
            "expected dtype, shape and data_offsets of natural numbers", location=where
        )
    bits = _BITS.get(dtype)
    if bits is None:
        raise ArchiveError(f"unknown dtype '{dtype}'", location=where)
    length = offsets[1] - offsets[0]
    if length * 8 != math.prod(shape) * bits:
        raise ArchiveError(
            f"{length} bytes for {dtype}{list(shape)}, expected {math.prod(shape) * bits / 8:g}",
            location=where,
        )
    return StoredEntry(name, base + offsets[0], length, dtype, shape)


def _naturals(value: object) -> tuple[int, ...] | None:
    if not isinstance(value, list):
        return None
    numbers = cast("list[object]", value)
    if len(numbers) > _RANK_LIMIT:
        return None
    if not all(type(number) is int and 0 <= number < 1 << 64 for number in numbers):
        return None
    return tuple(cast("list[int]", numbers))
