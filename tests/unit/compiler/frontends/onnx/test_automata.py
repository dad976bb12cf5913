"""Automata: which match is found, and what they refuse."""

from __future__ import annotations

import pytest

import tilewright.compiler.frontends.onnx.automata as automata
from fakes.growth import grows_in_proportion
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.onnx.automata import (
    Alternation,
    Automaton,
    Concatenation,
    Place,
    Repetition,
)
from tilewright.compiler.frontends.onnx.character_classes import CharacterClass
from tilewright.compiler.frontends.onnx.regular_expressions import regular_expression

A, B = (CharacterClass.of([(ord(letter), ord(letter))]) for letter in "ab")
EMPTY = Concatenation(())


def test_the_first_match_is_found_and_of_those_the_longest() -> None:
    found = Automaton(Alternation((A, Concatenation((A, B)), B)))
    assert found.find("xab", 0) == (1, 3)
    assert found.find("xab", 2) == (2, 3)
    assert found.find("xab", 3) is None
    assert found.find("xab", 9) is None


def test_a_repetition_of_nothing_ends() -> None:
    found = Automaton(Repetition(Repetition(Alternation((A, EMPTY)), 0, None), 2, None))
    assert found.matches("")
    assert found.matches("aaa")
    assert not found.matches("ab")


@pytest.mark.parametrize(("least", "most"), [(0, 0), (0, 1), (2, 2), (1, 3), (2, None)])
def test_a_repetition_is_of_so_many_times(least: int, most: int | None) -> None:
    found = Automaton(Repetition(A, least, most))
    for count in range(6):
        assert found.matches("a" * count) == (
            least <= count <= (5 if most is None else most)
        )


@pytest.mark.parametrize(
    ("text", "place", "expected"),
    [
        ("", 0, Place.BEGIN_TEXT | Place.END_TEXT | Place.BEGIN_LINE | Place.END_LINE),
        ("a\n", 1, Place.END_LINE | Place.WORD_BORDER),
        ("a\nb", 2, Place.BEGIN_LINE | Place.WORD_BORDER),
        ("éa", 0, Place.BEGIN_TEXT | Place.BEGIN_LINE),
        ("éa", 1, Place.WORD_BORDER),
        ("a1", 1, Place(0)),
    ],
)
def test_a_place_in_a_text(text: str, place: int, expected: Place) -> None:
    border = Place.WORD_BORDER | Place.NO_WORD_BORDER
    found = Place.of(text, place)
    assert found & ~Place.NO_WORD_BORDER == expected
    assert found & border in (Place.WORD_BORDER, Place.NO_WORD_BORDER)


@pytest.mark.parametrize(
    ("pattern", "expected"), [("a*", True), (r"\b", True), ("a|$", True), ("a+", False)]
)
def test_whether_nothing_at_all_may_match(pattern: str, *, expected: bool) -> None:
    assert regular_expression(pattern).may_be_empty == expected


def test_a_text_is_read_once_where_backtracking_takes_for_ever() -> None:
    def work(count: int) -> None:
        assert not regular_expression("(a|aa|a*)*c").matches("a" * count + "b")

    assert grows_in_proportion(work, 100, 3_200)


def test_an_expression_of_too_many_states_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="too large"):
        regular_expression("(?:" + "ab" * 200 + "){1000}")


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automata, "_MOST_REMEMBERED", 2)
    found = regular_expression(r"[a-m]+\b[^x]*z")
    assert found.matches("abc 123 éz")
    assert not found.matches("abc 123 éx")
