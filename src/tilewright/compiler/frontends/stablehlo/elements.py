"""Element types of StableHLO: what numpy calls them, and the dtype of ours, if there is one.

Source: StableHLO specification, "Types"; MLIR Language Reference, "Builtin Types".
"""

from __future__ import annotations

import re
from typing import Final

import ml_dtypes
import numpy as np

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.compiler.frontends.stablehlo.tree import ComplexType, Element, ScalarType

SCALARS: Final = re.compile(r"(?:[us]?i\d+|bf16|tf32|f\d+(?:E\d+M\d+\w*)?|index|none)\Z")
"""The names of scalar types, of which not all have elements that can be written down."""

_NUMPY: Final[dict[str, np.dtype[np.generic]]] = {
    name: np.dtype(scalar)
    for name, scalar in {
        "i1": np.bool_, "i2": ml_dtypes.int2, "i4": ml_dtypes.int4, "i8": np.int8, "i16": np.int16,
        "i32": np.int32, "i64": np.int64, "index": np.int64, "ui2": ml_dtypes.uint2,
        "ui4": ml_dtypes.uint4, "ui8": np.uint8, "ui16": np.uint16, "ui32": np.uint32,
        "ui64": np.uint64, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32,
        "f64": np.float64, "f4E2M1FN": ml_dtypes.float4_e2m1fn,
        "f6E2M3FN": ml_dtypes.float6_e2m3fn, "f6E3M2FN": ml_dtypes.float6_e3m2fn,
        "f8E3M4": ml_dtypes.float8_e3m4, "f8E4M3": ml_dtypes.float8_e4m3,
        "f8E4M3FN": ml_dtypes.float8_e4m3fn, "f8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
        "f8E4M3B11FNUZ": ml_dtypes.float8_e4m3b11fnuz, "f8E5M2": ml_dtypes.float8_e5m2,
        "f8E5M2FNUZ": ml_dtypes.float8_e5m2fnuz, "f8E8M0FNU": ml_dtypes.float8_e8m0fnu,
    }.items()
}  # fmt: skip
_NARROW: Final = re.compile(r"(?:[us]?i[24]|f[468]E\d+M\d+\w*)\Z")
_COMPLEX: Final = {"f32": np.dtype(np.complex64), "f64": np.dtype(np.complex128)}
_SIGNED: Final = re.compile(r"si(\d+)\Z")


def numpy_of(element: Element) -> np.dtype[np.generic] | None:
    """The numpy type of elements that a literal gives; None if there is none."""
    match element:
        case ScalarType(name):
            return _NUMPY.get(_SIGNED.sub(r"i\1", name))
        case ComplexType(part):
            return _COMPLEX.get(part.name)
        case _:
            return None


def stored_dtype(element: ScalarType) -> DType | None:
    """Our type of as many bits, for data that comes in or goes out; None if there is none."""
    found = numpy_of(element)
    return None if found is None else dtypes.find_numpy(found)


def dtype_of(element: ScalarType) -> DType | None:
    """Our type that holds these elements inside of a module; None if there is none.

    Elements of fewer than 16 bits that no arithmetic is made for are held in the next wider type whose
    arithmetic is exact: integers in eight bits, floats in f32.
    """
    if is_narrow(element):
        found = numpy_of(element)
        assert found is not None, "a narrow type has elements"
        if element.name.startswith("f"):
            return dtypes.f32
        return dtypes.u8 if element.name.startswith("u") else dtypes.i8
    return stored_dtype(element)


def is_narrow(element: Element) -> bool:
    """Whether elements are held in a wider type, and results must be rounded to their own."""
    return isinstance(element, ScalarType) and _NARROW.match(element.name) is not None


def bits_of(element: Element) -> int:
    """The width of an element in bits; 0 if its name says none."""
    if isinstance(element, ComplexType):
        return 2 * bits_of(element.part)
    if not isinstance(element, ScalarType):
        return bits_of(element.storage)
    digits = re.search(r"\d+", element.name)
    return 64 if element.name == "index" else int(digits[0]) if digits else 0


def whole_range(storage: ScalarType) -> tuple[int, int]:
    """The least and the largest integer of a type of integers."""
    bits = bits_of(storage)
    if storage.name.startswith("u"):
        return 0, (1 << bits) - 1
    return -(1 << (bits - 1)), (1 << (bits - 1)) - 1
