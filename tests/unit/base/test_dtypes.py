"""The table of data types: every spelling of a row leads back to the row."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from tilewright.base import dtypes
from tilewright.base.dtypes import DType, Kind
from tilewright.base.errors import UserError

ROWS = pytest.mark.parametrize("row", dtypes.ALL, ids=lambda row: row.name)


@ROWS
def test_every_spelling_leads_back_to_the_row(row: DType) -> None:
    assert dtypes.parse(row.name) is row
    assert dtypes.from_numpy(row.numpy) is row
    assert dtypes.find_numpy(row.numpy) is row
    assert dtypes.from_dlpack(*row.dlpack) is row
    assert dtypes.from_iree(row.iree) is row
    assert pickle.loads(pickle.dumps(row)) is row
    assert str(row) == row.name


@ROWS
def test_the_columns_of_a_row_agree_with_each_other(row: DType) -> None:
    assert row.itemsize == row.numpy.itemsize
    assert row.iree & 0xFF == row.bits
    assert row.dlpack[1] == row.bits
    assert row.is_float + row.is_integer + row.is_bool == 1
    assert row.is_signed == (row.kind in (Kind.SINT, Kind.FLOAT))


@pytest.mark.parametrize("code", [0x10000008, 0x10000020, 0x10000040])
def test_signless_integers_of_iree_name_the_signed_rows(code: int) -> None:
    assert dtypes.from_iree(code).is_signed


@pytest.mark.parametrize("name", ["f33", "", "F32", "float32", "int"])
def test_other_names_are_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(UserError, match=f"unknown data type '{name}'") as caught:
        dtypes.parse(name)
    assert "bf16 bool f16" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "dtype", [object, np.complex64, "U3", "M8[s]", ">f4", np.longdouble]
)
def test_numpy_types_without_a_row_are_refused(dtype: object) -> None:
    assert dtypes.find_numpy(np.dtype(dtype)) is None
    with pytest.raises(UserError, match="has no tensor data type"):
        dtypes.from_numpy(np.dtype(dtype))


def test_codes_without_a_row_are_refused() -> None:
    with pytest.raises(UserError, match="DLPack type code 5 with 64 bits"):
        dtypes.from_dlpack(5, 64)
    with pytest.raises(UserError, match="element type 0xFF000020"):
        dtypes.from_iree(0xFF000020)
