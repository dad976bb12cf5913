"""Reads and writes TVM's parameter files: a list of names, then a tensor for each.

The bytes stand behind each tensor's header without alignment, so most are copied once when they are
loaded.  The device of a tensor is where it was; it is not looked at.

Source: TVM 0.27, `save_param_dict`; the layout is that of `src/runtime/file_utils.cc` since 0.6.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, Final, final

import numpy as np
import numpy.typing as npt

from tilewright.base import dtypes
from tilewright.base.budget import pace
from tilewright.base.errors import ArchiveError
from tilewright.base.record import record
from tilewright.formats.byte_cursor import ByteCursor
from tilewright.formats.byte_view import ByteView
from tilewright.formats.dlpack_types import DataType
from tilewright.formats.parameters.entries import StoredEntry

_LIST_MAGIC: Final = 0xF7E58D4F05049CB7
_TENSOR_MAGIC: Final = 0xDD5E40F096B4A13F
MAGIC: Final = struct.pack("<Q", _LIST_MAGIC)
_RESERVED: Final = 0
_CPU: Final = 1
_RANK_LIMIT: Final = 64
_TENSOR: Final = struct.Struct("<QQiiiBBH")  # magic, reserved, device, rank, data type
_NAME_BYTES_AT_LEAST: Final = 8


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
        tensor = read_tensor(cursor, f"parameter '{name}'")
        yield StoredEntry(
            name, tensor.offset, tensor.length, str(tensor.element_type), tensor.shape
        )


@final
@record
class TensorRecord:
    """A tensor in a file of TVM's: where its elements are, their type, its shape.

    `offset` and `length` are in bytes.
    """

    offset: int
    length: int
    element_type: DataType
    shape: tuple[int, ...]


def read_tensor(cursor: ByteCursor, subject: str) -> TensorRecord:
    """The next tensor.  Raises: ArchiveError."""
    where = f"{cursor.view.location}: {subject}"
    at = cursor.skip(_TENSOR.size, subject)
    magic, _, _, _, rank, code, bits, lanes = cursor.view.unpack(_TENSOR, at, subject)
    if magic != _TENSOR_MAGIC:
        raise ArchiveError(f"no tensor at byte {at}", location=where)
    if not 0 <= rank <= _RANK_LIMIT:
        raise ArchiveError(f"a tensor of rank {rank}", location=where)
    shape = tuple(cursor.i64("dimension") for _ in range(rank))
    if any(size < 0 for size in shape):
        raise ArchiveError(f"a tensor of shape {list(shape)}", location=where)
    length = cursor.i64("length of a tensor")
    kind = DataType(code, bits, lanes)
    if not kind.is_known:
        raise ArchiveError(
            f"unknown data type (code {code}, {bits} bits, {lanes} lanes)", location=where
        )
    elements = math.prod(shape)
    if not kind.fits(elements, length):
        raise ArchiveError(
            f"{length} bytes for {kind}{list(shape)}, expected {-(-elements * kind.width // 8)}",
            location=where,
        )
    return TensorRecord(cursor.skip(length, subject), length, kind, shape)


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
