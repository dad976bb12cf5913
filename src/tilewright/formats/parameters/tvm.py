"""Reads and writes TVM's parameter files: a list of names, then a tensor for each.

The bytes stand behind each tensor's header without alignment, so most are copied once when they are
loaded.  The device of a tensor is where it was; it is not looked at.

Source: TVM 0.27, `save_param_dict`; the layout is that of `src/runtime/file_utils.cc` since 0.6.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt

from tilewright.base import dtypes
from tilewright.base.budget import pace
from tilewright.base.errors import ArchiveError
from tilewright.formats.byte_cursor import ByteCursor
from tilewright.formats.byte_view import ByteView
from tilewright.formats.parameters.entries import StoredEntry

_LIST_MAGIC: Final = 0xF7E58D4F05049CB7
_TENSOR_MAGIC: Final = 0xDD5E40F096B4A13F
MAGIC: Final = struct.pack("<Q", _LIST_MAGIC)
_RESERVED: Final = 0
_CPU: Final = 1
_RANK_LIMIT: Final = 64
_TENSOR: Final = struct.Struct("<QQiiiBBH")  # magic, reserved, device, rank, data type
_NAME_BYTES_AT_LEAST: Final = 8

# DLPack's type codes, as TVM writes them before the number of bits.
_CODES: Final[Mapping[int, str]] = {
    0: "int", 1: "uint", 2: "float", 3: "handle", 4: "bfloat", 5: "complex", 6: "bool",
    7: "float8_e3m4", 8: "float8_e4m3", 9: "float8_e4m3b11fnuz", 10: "float8_e4m3fn",
    11: "float8_e4m3fnuz", 12: "float8_e5m2", 13: "float8_e5m2fnuz", 14: "float8_e8m0fnu",
    15: "float6_e2m3fn", 16: "float6_e3m2fn", 17: "float4_e2m1fn",
}  # fmt: skip
_CODES_OF_ANY_WIDTH: Final = 6  # below it the name goes on with the number of bits


def read_entries(view: ByteView) -> Iterator[StoredEntry]:
    """All tensors.  Raises: ArchiveError."""
    cursor = ByteCursor(view, len(MAGIC))
    cursor.u64("reserved field")
    count = cursor.u64("number of names")
    names = [
        cursor.text("name of a parameter")
        for _ in cursor.counted(count, _NAME_BYTES_AT_LEAST, "list of names")
    ]
    tensors = cursor.u64("number of tensors")
    if tensors != count:
        raise ArchiveError(f"{tensors} tensors for {count} names", location=view.location)
    for name in names:
        pace(1)
        yield _read_tensor(cursor, name)


def _read_tensor(cursor: ByteCursor, name: str) -> StoredEntry:
    where = f"{cursor.view.location}: parameter '{name}'"
    at = cursor.skip(_TENSOR.size, f"parameter '{name}'")
    magic, _, _, _, rank, code, bits, lanes = cursor.view.unpack(_TENSOR, at, name)
    if magic != _TENSOR_MAGIC:
        raise ArchiveError(f"no tensor at byte {at}", location=where)
    if not 0 <= rank <= _RANK_LIMIT:
        raise ArchiveError(f"a tensor of rank {rank}", location=where)
    shape = tuple(cursor.i64("dimension") for _ in range(rank))
    if any(size < 0 for size in shape):
        raise ArchiveError(f"a tensor of shape {list(shape)}", location=where)
    length = cursor.i64("length of a tensor")
    type_name = _type_name(code, bits, lanes, where)
    elements, width = math.prod(shape), bits * lanes
    # Elements of less than a byte have one each, or share it: that depends on the release.
    if length not in (elements * -(-width // 8), -(-elements * width // 8)):
        raise ArchiveError(
            f"{length} bytes for {type_name}{list(shape)}, expected {elements * width / 8:g}",
            location=where,
        )
    return StoredEntry(
        name, cursor.skip(length, f"parameter '{name}'"), length, type_name, shape
    )


def _type_name(code: int, bits: int, lanes: int, where: str) -> str:
    """`float32`, `bfloat16`, `int8x4`: what TVM calls the type."""
    name = _CODES.get(code)
    if name is None or bits == 0 or lanes == 0:
        raise ArchiveError(
            f"unknown data type (code {code}, {bits} bits, {lanes} lanes)", location=where
        )
    text = name + (str(bits) if code < _CODES_OF_ANY_WIDTH else "")
    return text if lanes == 1 else f"{text}x{lanes}"


def write_params(file: BinaryIO, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write a file that `tvm.runtime.load_param_dict` reads; the same arrays give the same bytes.

    Args:
        file: opened for writing, at its beginning.
        arrays: of any shape and order in memory, by name.
    Raises: UserError for a type that has no row here.
    """
    types = {name: dtypes.from_numpy(array.dtype) for name, array in arrays.items()}
    file.write(MAGIC + struct.pack("<QQ", _RESERVED, len(arrays)))
    for name in arrays:
        text = name.encode()
        file.write(struct.pack("<Q", len(text)) + text)
    file.write(struct.pack("<Q", len(arrays)))
    for name, array in arrays.items():
        head = (_TENSOR_MAGIC, _RESERVED, _CPU, 0, array.ndim, *types[name].dlpack, 1)
        file.write(_TENSOR.pack(*head))
        file.write(struct.pack(f"<{array.ndim}qq", *array.shape, array.nbytes))
        file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
