"""How arrays travel into the C core: formats of the buffer protocol, bit views, types as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import calcsize
from typing import Final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.dtypes import DType

Array = np.ndarray[tuple[int, ...], np.dtype[np.generic]]
TensorType = tuple[DType, tuple[int, ...]]


def _letters(candidates: str, size_bytes: int) -> str:
    """Those letters of the buffer protocol whose elements have this size here: `l` has 4 bytes or 8."""
    return "|".join(c for c in candidates if calcsize(c) == size_bytes)


# What the buffer protocol calls each type; types it has no letter for travel as their bits.
_FORMATS: Final[Mapping[str, str]] = {
    "bool": "?",
    "i8": "b",
    "u8": "B",
    "i16": "h",
    "u16": "H",
    "i32": _letters("ilq", 4),
    "u32": _letters("ILQ", 4),
    "i64": _letters("ilq", 8),
    "u64": _letters("ILQ", 8),
    "f16": "e",
    "f32": "f",
    "f64": "d",
}
_BITS: Final[Mapping[int, str]] = {1: "B", 2: "H"}


def buffer_formats(dtype: DType) -> str:
    """The accepted format letters of a type, separated by `|`."""
    return _FORMATS.get(dtype.name) or _BITS[dtype.itemsize]


def wire_type(dtype: DType) -> np.dtype[np.generic]:
    """The numpy type that carries `dtype` through the buffer protocol."""
    if dtype.name in _FORMATS:
        return dtype.numpy
    return np.dtype(np.uint8 if dtype.itemsize == 1 else np.uint16)


def as_bits(array: Array, dtype: DType) -> Array:
    """The array itself, or its bit pattern where the buffer protocol has no letter for it."""
    return array if dtype.name in _FORMATS else array.view(wire_type(dtype))


def describe(dtype: DType, shape: Sequence[object]) -> str:
    """`f32[2, 3]`."""
    return f"{dtype}[{', '.join(map(str, shape))}]"


def describe_array(array: Array) -> str:
    """`f32[2, 3]`; types that tensors cannot have go by numpy's name."""
    dtype = dtypes.find_numpy(array.dtype)
    name = array.dtype.name if dtype is None else dtype.name
    if dtype is None and not array.dtype.isnative:
        name += " of the other byte order "
    return f"{name}[{', '.join(map(str, array.shape))}]"
