from __future__ import annotations

import pytest

from tilewright.base.errors import ArchiveError
from tilewright.formats.calling_convention import parse_calling_convention


@pytest.mark.parametrize(
    "text",
    ["0v_v", "0i_r", "0rrIiiiICiDCiirIID_v", "0iICrD_i", "0fF_Ff", "0CrDi_v"],
)
def test_a_convention_prints_as_it_was_read(text: str) -> None:
    assert str(parse_calling_convention(text)) == text


def test_lists_are_tuples_of_banks() -> None:
    convention = parse_calling_convention("0rCiIDf_rI")
    assert convention.arguments == ("ref", ("i32", "i64"), "f32")
    assert convention.results == ("ref", "i64")
    assert convention.is_variadic


def test_no_text_means_nothing_in_and_nothing_out() -> None:
    assert parse_calling_convention("") == parse_calling_convention("0v_v")


def test_wide_arguments_arrive_in_even_registers() -> None:
    convention = parse_calling_convention("0iIrifFr_v")
    assert list(convention.argument_registers()) == [
        ("i32", 0),
        ("i64", 2),
        ("ref", 0),
        ("i32", 4),
        ("f32", 5),
        ("f64", 6),
        ("ref", 1),
    ]


@pytest.mark.parametrize(
    "text",
    ["v", "1i_i", "0ii", "0x_v", "0C_v", "0CD_v", "0CiCiDD_v", "0i_CiD", "0D_v", "_"],
)
def test_other_strings_are_refused(text: str) -> None:
    with pytest.raises(ArchiveError, match="calling convention"):
        parse_calling_convention(text)
