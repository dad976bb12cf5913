"""Sets of characters, beside sets of Python."""

from __future__ import annotations

import random
import sys

import pytest

from tilewright.compiler.frontends.onnx.character_classes import (
    ANY,
    ANY_IN_LINE,
    PERL,
    POSIX,
    CharacterClass,
)

LETTERS = [chr(number) for number in range(300)]


@pytest.mark.parametrize("seed", range(5))
def test_ranges_in_any_order_make_a_set(seed: int) -> None:
    draw = random.Random(seed)
    begins = [draw.randrange(280) for _ in range(draw.randrange(6))]
    ranges = [(begin, begin + draw.randrange(9)) for begin in begins]
    expected = {n for first, last in ranges for n in range(first, last + 1)}
    found = CharacterClass.of(ranges)
    assert {ord(each) for each in LETTERS if each in found} == expected
    assert {ord(each) for each in LETTERS if each not in found.inverted()} == expected
    assert found.inverted().inverted() == found


def test_all_and_none_are_the_inverse_of_each_other() -> None:
    assert ANY.inverted() == CharacterClass.of([])
    assert CharacterClass.of([]).inverted() == ANY
    last = chr(sys.maxunicode)
    assert last in ANY
    assert last not in CharacterClass.of([(0, sys.maxunicode)]).inverted()
    assert "\n" not in ANY_IN_LINE
    assert last in ANY_IN_LINE


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    ("letters", "expected"),
    [
        ("k", "kK\u212a"),
        ("ſ", "sSſ"),
        ("é", "éÉ"),
        ("ß", "ßẞ"),
        ("i", "iI"),
        ("ı", "ı"),
        ("İ", "İ"),
        ("µ", "µμΜ"),
        ("1", "1"),
        ("\u03b0", "\u03b0\u1fe3"),
        ("\ufb05", "\ufb05\ufb06"),
    ],
)
def test_letters_of_any_case_are_those_of_simple_folding(
    letters: str, expected: str
) -> None:
    found = CharacterClass.of((ord(each), ord(each)) for each in letters).of_any_case()
    assert "".join(chr(n) for a, b in found.ranges for n in range(a, b + 1)) == "".join(
        sorted(expected)
    )


def test_a_range_of_all_has_all_cases() -> None:
    assert ANY.of_any_case() == ANY


def test_classes_by_name_are_of_ascii() -> None:
    ours = {name: "".join(c for c in LETTERS if c in POSIX[name]) for name in POSIX}
    assert ours["space"] == "\t\n\v\f\r "
    assert ours["punct"] == "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
    assert ours["graph"] == ours["print"].replace(" ", "")
    assert ours["cntrl"] == "".join(map(chr, (*range(32), 127)))
    assert sorted(ours["alnum"]) == sorted(ours["alpha"] + ours["digit"])
    assert "".join(c for c in LETTERS if c in PERL["s"]) == "\t\n\f\r "
