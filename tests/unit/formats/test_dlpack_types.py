"""Names and sizes of DLPack's types."""

from __future__ import annotations

from tilewright.formats.dlpack_types import DataType


def test_types_are_called_what_tvm_calls_them_and_no_type_is_nothing() -> None:
    assert [
        str(DataType(*one)) for one in ((2, 32), (0, 8, 4), (6, 8), (10, 8), (3, 0, 0))
    ] == [
        "float32",
        "int8x4",
        "bool",
        "float8_e4m3fn",
        "",
    ]


def test_elements_of_less_than_a_byte_may_share_it_or_not() -> None:
    small = DataType(0, 4)
    assert small.fits(5, 5)
    assert small.fits(5, 3)
    assert not small.fits(5, 4)
