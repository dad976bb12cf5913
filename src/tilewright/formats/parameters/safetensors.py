"""Reads and writes .safetensors: a JSON table of tensors, then their bytes.

Source: https://huggingface.co/docs/safetensors, format section.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, Final, cast

import numpy as np
import numpy.typing as npt

from tilewright.base import dtypes
from tilewright.base.arena import align
from tilewright.base.errors import ArchiveError, UserError
from tilewright.base.json_text import read_json
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

_NAMES: Final[Mapping[str, str]] = {
    "bool": "BOOL", "u8": "U8", "i8": "I8", "u16": "U16", "i16": "I16", "u32": "U32", "i32": "I32",
    "u64": "U64", "i64": "I64", "f8e4m3fn": "F8_E4M3", "f8e5m2": "F8_E5M2", "f16": "F16",
    "bf16": "BF16", "f32": "F32", "f64": "F64",
}  # fmt: skip
_DATA_ALIGNMENT: Final = 64


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
        header = read_json(text)
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
    length, expected = offsets[1] - offsets[0], math.prod(shape) * bits
    if length * 8 != expected:
        raise ArchiveError(
            f"{length} bytes for {dtype}{list(shape)}, expected {-(-expected // 8)}",
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


def write_safetensors(file: BinaryIO, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write a file; the same arrays give the same bytes.

    Data may have no gaps, so what fills whole cache lines comes first: all of it is aligned.

    Args:
        file: opened for writing, at its beginning.
        arrays: of any shape and order in memory, by name.
    Raises: UserError for a type that the format has no name for.
    """
    order = sorted(arrays, key=lambda name: arrays[name].nbytes % _DATA_ALIGNMENT != 0)
    header: dict[str, object] = {}
    end = 0
    for name in order:
        array, begin = arrays[name], end
        end += array.nbytes
        header[name] = {
            "dtype": _name_of(array, name),
            "shape": list(array.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    length = align(_PREFIX_BYTES + len(text), _DATA_ALIGNMENT) - _PREFIX_BYTES
    file.write(length.to_bytes(_PREFIX_BYTES, "little") + text.ljust(length))
    for name in order:
        file.write(np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8).data)


def _name_of(array: npt.NDArray[Any], name: str) -> str:
    dtype = dtypes.from_numpy(array.dtype).name
    if dtype not in _NAMES:
        raise UserError(
            f"'{name}' is of type {dtype}, which .safetensors has no name for",
            hint="write an .irpa",
        )
    return _NAMES[dtype]
