"""Element types: numbers, names, numpy's types, and packing of what is smaller than a byte."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tilewright.base.errors import UserError
from tilewright.runtime.hal.element_type import (
    element_type_name,
    element_type_of,
    numpy_type,
    pack,
    same_element_type,
    unpack,
)

F32, I32, SI32, UI32 = 0x21000020, 0x10000020, 0x11000020, 0x12000020


@pytest.mark.parametrize(
    ("number", "dtype"),
    [
        (F32, np.float32),
        (SI32, np.int32),
        (0x13000008, np.bool_),
        (0x22000010, ml_dtypes.bfloat16),
        (0x23000040, np.complex64),
        (0x23000080, np.complex128),
        (0x26000008, ml_dtypes.float8_e5m2fnuz),
        (0x27000008, ml_dtypes.float8_e4m3fnuz),
        (0x28000008, ml_dtypes.float8_e8m0fnu),
        (0x11000004, ml_dtypes.int4),
    ],
)
def test_numbers_and_numpy_types_are_each_others(number: int, dtype: type) -> None:
    assert numpy_type(number) == np.dtype(dtype)
    assert element_type_of(np.dtype(dtype)) == number


def test_integers_without_sign_are_seen_as_signed() -> None:
    assert numpy_type(I32) == np.int32


@pytest.mark.parametrize("dtype", ["O", "S3", "M8[s]"])
def test_what_tensors_cannot_hold_is_refused(dtype: str) -> None:
    with pytest.raises(UserError, match="no tensor data type"):
        element_type_of(np.dtype(dtype))
    with pytest.raises(UserError, match="0x00000008 is not supported"):
        numpy_type(8)


def test_signs_of_integers_do_not_matter_but_kinds_and_widths_do() -> None:
    assert same_element_type(I32, SI32)
    assert same_element_type(UI32, SI32)
    assert not same_element_type(I32, F32)
    assert not same_element_type(I32, 0x10000040)
    assert not same_element_type(0x21000010, 0x22000010)


def test_types_have_names_even_when_unknown() -> None:
    assert element_type_name(F32) == "f32"
    assert element_type_name(0x23000040) == "complex<f32>"
    assert element_type_name(0x7F000040) == "0x7F000040"


@pytest.mark.parametrize("dtype", [ml_dtypes.int4, ml_dtypes.uint4])
@pytest.mark.parametrize("count", [0, 1, 2, 7, 16])
def test_packing_loses_nothing(dtype: type, count: int) -> None:
    lowest = -8 if dtype is ml_dtypes.int4 else 0
    elements = (np.arange(count) % 16 + lowest).astype(dtype)
    packed = pack(elements, 4)
    assert packed.dtype == np.uint8
    assert packed.size == (count + 1) // 2
    back = unpack(packed, count, np.dtype(dtype), 4)
    assert back.dtype == np.dtype(dtype)
    assert back.astype(int).tolist() == elements.astype(int).tolist()


def test_the_first_element_is_in_the_low_bits() -> None:
    assert pack(np.array([1, -1, 3], ml_dtypes.int4), 4).tolist() == [0xF1, 0x03]
