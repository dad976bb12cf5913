from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.base import text
from tilewright.base.errors import UserError


def test_a_close_word_is_suggested():
    assert text.did_you_mean("matmull", ["matmul", "add"]) == "did you mean 'matmul'?"


def test_nothing_is_suggested_for_a_far_word():
    assert text.did_you_mean("zzz", ["matmul", "add"]) is None


@pytest.mark.parametrize(
    ("word", "number"),
    [
        ("0", 0),
        ("007", 7),
        ("18446744073709551615", 2**64 - 1),
        ("0" * 30 + "5", 5),
        ("", None),
        ("-1", None),
        ("+1", None),
        (" 1", None),
        ("1_0", None),
        ("²", None),
        ("٣", None),
        ("9" * 21, None),
        ("9" * 5000, None),
        ("0" * 5000, None),
    ],
)
def test_plain_digits_are_a_number(word, number):
    assert text.whole_number(word) == number
    if number is not None:
        assert text.whole_number(f"-{word}", signed=True) == -number
        assert text.whole_number(f"-{word}") is None
    assert text.whole_number(f"--{word}", signed=True) is None


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (5 << 40, "5.0 TiB"),
        (5 << 50, "5120.0 TiB"),
    ],
)
def test_sizes_are_shown_with_one_decimal(size, shown):
    assert text.format_bytes(size) == shown


@pytest.mark.parametrize(
    ("duration", "shown"),
    [(0, "0 ns"), (850, "850 ns"), (1_520_000, "1.52 ms"), (2_300_000_000, "2.30 s")],
)
def test_durations_choose_their_unit(duration, shown):
    assert text.format_duration(duration) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0 FLOP"),
        (12, "12 FLOP"),
        (999.4, "999 FLOP"),
        (999.9, "1 kFLOP"),
        (8.2134e9, "8.21 GFLOP"),
        (1.5e13, "15 TFLOP"),
        (0.25, "0.25 FLOP"),
    ],
)
def test_a_quantity_has_three_digits_and_a_prefix(value, shown):
    assert text.format_quantity(value, "FLOP") == shown


@pytest.mark.parametrize(
    ("raw", "clean"),
    [("a/b.c", "a_b_c"), ("3x", "_3x"), ("", "v"), ("::", "v"), ("ok_1", "ok_1")],
)
def test_identifiers_keep_what_they_can(raw, clean):
    assert text.identifier(raw) == clean


def test_unique_counts_up_from_one():
    assert text.unique("a", {"a", "a_1"}) == "a_2"
    assert text.unique("b", {"a"}) == "b"


@given(st.text())
def test_quoting_round_trips_on_one_line(value):
    quoted = text.quote(value)
    assert "\n" not in quoted
    assert text.unquote(quoted) == value


@pytest.mark.parametrize("bad", ["", '"', "abc", '"\\q"', '"\\u12"', '"\\"'])
def test_unquote_refuses_what_is_not_quoted(bad):
    with pytest.raises(UserError):
        text.unquote(bad)


def test_indent_leaves_blank_lines_alone():
    assert text.indent("a\n\nb") == "  a\n\n  b"


def test_suggestions_look_at_a_bounded_number_of_names_of_a_bounded_length() -> None:
    looked_at = 0

    def names() -> Iterator[str]:
        nonlocal looked_at
        for number in range(10**9):
            looked_at += 1
            yield f"name{number}"

    text.did_you_mean("nam", names())
    assert looked_at < 10_000
    assert text.did_you_mean("x" * 10_000, ["x" * 10_001]) is None


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain, µ, 名, é", "plain, µ, 名, é"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("\x1b[31mred\x07\r\x00", "\\x1b[31mred\\x07\\r\\x00"),
        ("\x9b2J", "\\x9b2J"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("name\udcff", "name\udcff"),
    ],
)
def test_what_steers_a_terminal_is_shown_in_letters(raw, shown):
    assert text.printable(raw) == shown


def test_lines_without_end_are_abridged_in_the_middle():
    short, long = "x" * 4000, "a" + "x" * 1_000_000 + "z"
    assert text.abridged(short) == short
    kept, other = text.abridged(f"{long}\nhint").split("\n")
    assert other == "hint"
    assert len(kept) < 4100
    assert kept[0] == "a"
    assert kept[-1] == "z"
    assert "… 996002 letters …" in kept
