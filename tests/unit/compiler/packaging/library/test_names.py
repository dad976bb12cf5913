"""Names that a linker, a preprocessor and other languages take."""

from __future__ import annotations

import pytest

from tilewright.compiler.packaging.library.names import (
    comment,
    library_name,
    macro_names,
    string,
)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("resnet50", "resnet50"),
        ("all-MiniLM-L6-v2", "all_MiniLM_L6_v2"),
        ("50net", "model_50net"),
        ("double", "double_model"),
        ("string", "string_model"),
        ("tw_pool", "tw_pool_model"),
        ("", "model"),
        ("µß", "model"),
        ("..//", "model"),
    ],
)
def test_any_text_becomes_a_name_of_c(text: str, name: str) -> None:
    assert library_name(text) == name
    assert library_name(name) in (name, f"{name}_model")


def test_macros_of_one_header_differ() -> None:
    assert macro_names(["x", "X", "x.1", "1", "é"]) == ("X", "X_1", "X_1_1", "1", "4")


def test_no_macro_is_what_another_is_followed_by() -> None:
    assert macro_names(["x_rank", "x", "COUNT"], endings=("RANK",)) == (
        "X_RANK",
        "X_1",
        "COUNT_1",
    )
    assert macro_names(["x", "x_rank"], endings=("RANK",)) == ("X", "X_RANK_1")


def test_texts_cannot_leave_their_literal_or_comment() -> None:
    assert string('a"b\\c\n??/é') == '"a\\042b\\134c\\012\\077\\077/\\303\\251"'
    assert "*/" not in comment("end */ int x; /* \\")
    assert "\n" not in comment("a\nb")
    assert "??" not in comment("??/ ????")
