"""Element types of buffer views: the numbers that modules use, and what numpy calls them.

The rows of `base.dtypes` and those that tensors have at the border of a module only: complex
numbers.  Called by buffer views and by whoever makes them of arrays.  Not
here: what kernels compute with.

Source: IREE `hal/buffer_view.h` (`iree_hal_element_types_t`: numerical type << 24 | bit count).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.errors import UserError

Array = np.ndarray[tuple[int, ...], np.dtype[np.generic]]

_BORDER_ROWS: Final[tuple[tuple[str, int, np.dtype[np.generic]], ...]] = (
    ("complex<f32>", 0x23000040, np.dtype(np.complex64)),
    ("complex<f64>", 0x23000080, np.dtype(np.complex128)),
)
_BY_NUMBER: Final[dict[int, tuple[str, np.dtype[np.generic]]]] = {
    number: (name, dtype) for name, number, dtype in _BORDER_ROWS
}
_BY_NUMPY: Final[dict[np.dtype[np.generic], int]] = {
    dtype: number for _, number, dtype in _BORDER_ROWS
}
# Numerical types of integers in the top byte: without, with and with no sign mean the same bits.
_INTEGER_KINDS: Final = frozenset({0x10, 0x11, 0x12})


def bit_count(element_type: int) -> int:
    """Bits of one element."""
    return element_type & 0xFF


def numpy_type(element_type: int) -> np.dtype[np.generic]:
    """How numpy sees an element.  Raises: UserError for a type it has no name for."""
    row = _BY_NUMBER.get(element_type)
    return dtypes.from_iree(element_type).numpy if row is None else row[1]


def element_type_of(dtype: np.dtype[np.generic]) -> int:
    """The number of numpy's type.  Raises: UserError for objects, strings and the like."""
    number = _BY_NUMPY.get(dtype)
    return dtypes.from_numpy(dtype).iree if number is None else number


def same_element_type(left: int, right: int) -> bool:
    """Whether two element types are equal, not minding how integers are signed."""
    if left == right:
        return True
    return (left ^ right) & 0xFFFFFF == 0 and {left >> 24, right >> 24} <= _INTEGER_KINDS


def element_type_name(element_type: int) -> str:
    """`f32` for 0x21000020; the number where there is no such type."""
    row = _BY_NUMBER.get(element_type)
    if row is not None:
        return row[0]
    try:
        return dtypes.from_iree(element_type).name
    except UserError:
        return f"0x{element_type & 0xFFFFFFFF:08X}"


def pack(array: Array, bits: int) -> Array:
    """The bytes of elements of less than eight bits: the first in the lowest bits of its byte.

    Args:
        array: one element per byte, in the low bits, as ml_dtypes keeps them.
        bits: of an element; a divisor of eight.
    """
    per_byte = 8 // bits
    codes = np.ascontiguousarray(array).reshape(-1).view(np.uint8) & ((1 << bits) - 1)
    rows = np.zeros((-(-codes.size // per_byte), per_byte), np.uint8)
    rows.reshape(-1)[: codes.size] = codes
    shifts = np.arange(per_byte, dtype=np.uint8) * np.uint8(bits)
    return np.bitwise_or.reduce(rows << shifts, axis=1, dtype=np.uint8)


def unpack(data: Array, count: int, dtype: np.dtype[np.generic], bits: int) -> Array:
    """`count` elements of packed bytes, one per byte: what `pack` reverses."""
    shifts = np.arange(8 // bits, dtype=np.uint8) * np.uint8(bits)
    columns = data.view(np.uint8).reshape(-1, 1)
    codes = ((columns >> shifts) & ((1 << bits) - 1)).reshape(-1)[:count]
    numbers = codes.astype(np.int16)
    if dtypes.from_numpy(dtype).is_signed:
        half = 1 << (bits - 1)
        numbers = (numbers ^ half) - half
    return numbers.astype(dtype)
