"""Data types: one row per type, every other spelling derived from it.

A row knows its size in bits and how numpy, LLVM, C, DLPack and IREE's HAL name it.  Not a tensor
type (shapes live in `graph`); called by every room that reads or writes typed data.
"""

from __future__ import annotations

import enum
import functools
import importlib
from typing import Final, final

import numpy as np

from tilewright.base.errors import UserError
from tilewright.base.record import record


class Kind(enum.Enum):
    """What a bit pattern of the type means."""

    BOOL = "bool"
    SINT = "sint"
    UINT = "uint"
    FLOAT = "float"


@final
@record(eq=False)
class DType:
    """One scalar type; instances are unique, compare them with `is` or `==`.

    Units: `bits` is the storage width of one element; sub-byte types are packed low bits first.

    Attributes:
        scalar: numpy's scalar type, or the name of one that `ml_dtypes` adds to numpy.
    """

    name: str
    kind: Kind
    bits: int
    scalar: type[np.generic] | str
    llvm: str
    c: str
    dlpack: tuple[int, int]
    iree: int

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[object, ...]:
        return (parse, (self.name,))

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The numpy type of an element."""
        return _numpy_type(self.scalar)

    @property
    def itemsize(self) -> int:
        """Bytes of one element, rounded up for sub-byte types."""
        return (self.bits + 7) // 8

    @property
    def is_float(self) -> bool:
        return self.kind is Kind.FLOAT

    @property
    def is_signed(self) -> bool:
        return self.kind in (Kind.SINT, Kind.FLOAT)

    @property
    def is_integer(self) -> bool:
        return self.kind in (Kind.SINT, Kind.UINT)

    @property
    def is_bool(self) -> bool:
        return self.kind is Kind.BOOL


@functools.cache
def _numpy_type(scalar: type[np.generic] | str) -> np.dtype[np.generic]:
    """The types of `ml_dtypes` are loaded when one is asked for: most models have none."""
    if isinstance(scalar, str):
        return np.dtype(getattr(importlib.import_module("ml_dtypes"), scalar))
    return np.dtype(scalar)


# Source: DLPack 1.1 DLDataTypeCode; IREE element types are numerical_type << 24 | bit_count.
_INT, _UINT, _FLOAT, _BFLOAT, _BOOL = 0, 1, 2, 4, 6


def _small_float(name: str, scalar: str, bits: int, dlpack: int, iree: int) -> DType:
    """A float of a byte or less; its element lies in the low bits of a byte."""
    return DType(
        name, Kind.FLOAT, bits, scalar, "i8", "uint8_t", (dlpack, bits), iree << 24 | bits
    )


bool_: Final = DType(
    "bool", Kind.BOOL, 8, np.bool_, "i8", "uint8_t", (_BOOL, 8), 0x13000008
)
i4: Final = DType("i4", Kind.SINT, 4, "int4", "i4", "int8_t", (_INT, 4), 0x11000004)
u4: Final = DType("u4", Kind.UINT, 4, "uint4", "i4", "uint8_t", (_UINT, 4), 0x12000004)
i8: Final = DType("i8", Kind.SINT, 8, np.int8, "i8", "int8_t", (_INT, 8), 0x11000008)
u8: Final = DType("u8", Kind.UINT, 8, np.uint8, "i8", "uint8_t", (_UINT, 8), 0x12000008)
i16: Final = DType("i16", Kind.SINT, 16, np.int16, "i16", "int16_t", (_INT, 16), 0x11000010)
u16: Final = DType(
    "u16", Kind.UINT, 16, np.uint16, "i16", "uint16_t", (_UINT, 16), 0x12000010
)
i32: Final = DType("i32", Kind.SINT, 32, np.int32, "i32", "int32_t", (_INT, 32), 0x11000020)
u32: Final = DType(
    "u32", Kind.UINT, 32, np.uint32, "i32", "uint32_t", (_UINT, 32), 0x12000020
)
i64: Final = DType("i64", Kind.SINT, 64, np.int64, "i64", "int64_t", (_INT, 64), 0x11000040)
u64: Final = DType(
    "u64", Kind.UINT, 64, np.uint64, "i64", "uint64_t", (_UINT, 64), 0x12000040
)
f16: Final = DType(
    "f16",
    Kind.FLOAT,
    16,
    np.float16,
    "half",
    "_Float16",
    (_FLOAT, 16),
    0x21000010,
)
bf16: Final = DType(
    "bf16",
    Kind.FLOAT,
    16,
    "bfloat16",
    "bfloat",
    "uint16_t",
    (_BFLOAT, 16),
    0x22000010,
)
f32: Final = DType(
    "f32", Kind.FLOAT, 32, np.float32, "float", "float", (_FLOAT, 32), 0x21000020
)
f64: Final = DType(
    "f64",
    Kind.FLOAT,
    64,
    np.float64,
    "double",
    "double",
    (_FLOAT, 64),
    0x21000040,
)
i2: Final = DType("i2", Kind.SINT, 2, "int2", "i2", "int8_t", (_INT, 2), 0x11000002)
u2: Final = DType("u2", Kind.UINT, 2, "uint2", "i2", "uint8_t", (_UINT, 2), 0x12000002)
f8e4m3fn: Final = _small_float("f8e4m3fn", "float8_e4m3fn", 8, 10, 0x25)
f8e5m2: Final = _small_float("f8e5m2", "float8_e5m2", 8, 12, 0x24)
f8e4m3fnuz: Final = _small_float("f8e4m3fnuz", "float8_e4m3fnuz", 8, 11, 0x27)
f8e5m2fnuz: Final = _small_float("f8e5m2fnuz", "float8_e5m2fnuz", 8, 13, 0x26)
f8e8m0fnu: Final = _small_float("f8e8m0fnu", "float8_e8m0fnu", 8, 14, 0x28)
# IREE has no numbers for these six; ours are the next ones.
f6e2m3fn: Final = _small_float("f6e2m3fn", "float6_e2m3fn", 6, 15, 0x29)
f6e3m2fn: Final = _small_float("f6e3m2fn", "float6_e3m2fn", 6, 16, 0x2A)
f4e2m1fn: Final = _small_float("f4e2m1fn", "float4_e2m1fn", 4, 17, 0x2B)
f8e3m4: Final = _small_float("f8e3m4", "float8_e3m4", 8, 7, 0x2C)
f8e4m3: Final = _small_float("f8e4m3", "float8_e4m3", 8, 8, 0x2D)
f8e4m3b11fnuz: Final = _small_float("f8e4m3b11fnuz", "float8_e4m3b11fnuz", 8, 9, 0x2E)

ALL: Final = (
    bool_, i4, u4, i8, u8, i16, u16, i32, u32, i64, u64, f16, bf16, f32, f64, f8e4m3fn, f8e5m2,
    i2, u2, f8e4m3fnuz, f8e5m2fnuz, f8e8m0fnu, f6e2m3fn, f6e3m2fn, f4e2m1fn, f8e3m4, f8e4m3,
    f8e4m3b11fnuz,
)  # fmt: skip
HALVES: Final = (f16, bf16)
"""Types whose arithmetic happens in f32."""
FLOATS: Final = (*HALVES, f32, f64)
SMALL_FLOATS: Final = (
    f8e4m3fn, f8e5m2, f8e4m3fnuz, f8e5m2fnuz, f8e8m0fnu, f6e2m3fn, f6e3m2fn, f4e2m1fn, f8e3m4,
    f8e4m3, f8e4m3b11fnuz,
)  # fmt: skip
"""Types of a byte or less, which are stored and converted, never computed with."""
SMALL_INTEGERS: Final = (i2, u2, i4, u4)
"""Types of less than a byte, each element in the low bits of one."""
SIGNED_INTEGERS: Final = (i8, i16, i32, i64)
UNSIGNED_INTEGERS: Final = (u8, u16, u32, u64)
INTEGERS: Final = SIGNED_INTEGERS + UNSIGNED_INTEGERS
NUMERIC: Final = FLOATS + INTEGERS
ANY: Final = (bool_, *NUMERIC)

_BY_NAME: Final = {t.name: t for t in ALL}
_BY_NUMPY_NAME: Final = {
    t.scalar if isinstance(t.scalar, str) else np.dtype(t.scalar).name: t for t in ALL
}
_BY_DLPACK: Final = {t.dlpack: t for t in ALL}
# The signless integers of IREE (numerical type 0x10) name the signed rows on the way in.
_BY_IREE: Final = {t.iree: t for t in ALL} | {
    0x10000000 | t.bits: t for t in (i2, i4, *SIGNED_INTEGERS)
}


def parse(name: str) -> DType:
    """The type called `name` (`f32`, `i64`, `bool`).

    Raises: UserError for a name that no row has.
    """
    found = _BY_NAME.get(name)
    if found is None:
        raise UserError(
            f"unknown data type '{name}'", hint="known: " + " ".join(sorted(_BY_NAME))
        )
    return found


@functools.lru_cache(maxsize=256)
def find_numpy(dtype: np.dtype[np.generic] | type) -> DType | None:
    """The row of a numpy dtype in native byte order, None if it has none."""
    # Remembered: numpy puts a name together each time it is asked for it.
    wanted = np.dtype(dtype)
    found = _BY_NUMPY_NAME.get(wanted.name)
    # Names say nothing of the byte order; types of `ml_dtypes` are loaded if theirs is met.
    return found if found is not None and wanted == found.numpy else None


def find_numpy_name(name: str) -> DType | None:
    """The row that numpy and TVM call `name` (`float32`, `bool`, `bfloat16`), None if there is none."""
    return _BY_NUMPY_NAME.get(name)


def from_numpy(dtype: np.dtype[np.generic] | type) -> DType:
    """The row of a numpy dtype (native byte order).

    Raises: UserError for object, string, complex and other types without a row.
    """
    found = find_numpy(dtype)
    if found is None:
        raise UserError(f"numpy type '{np.dtype(dtype)}' has no tensor data type")
    return found


def from_dlpack(code: int, bits: int) -> DType:
    """The row of a DLPack (code, bits) pair.  Raises: UserError if there is none."""
    found = _BY_DLPACK.get((code, bits))
    if found is None:
        raise UserError(f"DLPack type code {code} with {bits} bits is not supported")
    return found


def from_iree(element_type: int) -> DType:
    """The row of an IREE HAL element type.  Raises: UserError if there is none."""
    found = _BY_IREE.get(element_type)
    if found is None:
        raise UserError(f"element type 0x{element_type:08X} is not supported")
    return found
