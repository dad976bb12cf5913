from __future__ import annotations

import itertools
import json
import random

import pytest

from tilewright.api.language.grammars import DEAD, Automaton, Grammar, Nonterminal
from tilewright.api.language.number_ranges import integers, number, numbers


def _is_of(grammar: Grammar, rule: Nonterminal, texts: list[str]) -> list[bool]:
    automaton = Automaton(grammar, rule)
    states = [automaton.follow_all(automaton.start, text.encode()) for text in texts]
    return [state != DEAD and automaton.may_end(state) for state in states]


@pytest.mark.parametrize(
    "ends", [(0, 0), (0, 9), (3, 17), (-5, 5), (-120, -7), (99, 1001), (-1, 1), (5, 5), (10, 99), (-10, 0)]
)  # fmt: skip
def test_whole_numbers_are_those_between_their_ends(ends: tuple[int, int]) -> None:
    g = Grammar()
    asked = list(range(-1300, 1300))
    found = _is_of(g, integers(g, *ends), [str(n) for n in asked])
    assert found == [ends[0] <= n <= ends[1] for n in asked]


def test_whole_numbers_have_no_zeros_before_them_and_an_end() -> None:
    g = Grammar()
    texts = ["007", "-0", "1.0", "", "-", "9" * 16, "9" * 17, "-" + "9" * 16]
    found = _is_of(g, integers(g, -(10**30), 10**30), texts)
    assert found == [False, False, False, False, False, True, False, True]


def test_long_ranges_are_exact() -> None:
    rng = random.Random(5)
    for _ in range(60):
        ends = sorted(
            rng.randrange(-(10 ** rng.randint(1, 15)), 10 ** rng.randint(1, 15))
            for _ in "ab"
        )
        g = Grammar()
        asked = [n + d for n in ends for d in (-1, 0, 1)] + [
            rng.randrange(ends[0], ends[1] + 1)
        ]
        found = _is_of(g, integers(g, ends[0], ends[1]), [str(n) for n in asked])
        assert found == [ends[0] <= n <= ends[1] for n in asked], ends


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    "ends", [(0, 1), (0, 0), (-1, 1), (3, 12), (-12, -3), (-1, 0), (-3, 5)]
)
def test_numbers_are_between_their_ends(ends: tuple[int, int]) -> None:
    least, most = ends
    for above, below in itertools.product((False, True), repeat=2):
        if least == most and (above or below):
            continue
        g = Grammar()
        rule = numbers(g, least, most, above=above, below=below)
        asked = [f"{hundredths / 100:.2f}" for hundredths in range(-1500, 1500)]
        values = [float(text) for text in asked]
        fine = [
            (least < x if above else least <= x) and (x < most if below else x <= most)
            for x in values
        ]
        for text, value, expected, found in zip(
            asked, values, fine, _is_of(g, rule, asked), strict=True
        ):
            assert not found or expected, (ends, above, below, text)
            # Of the ends themselves only one form is a text.
            assert found or not expected or value.is_integer(), (ends, above, below, text)
        whole = [str(n) for n in range(-15, 15)]
        wanted = [
            (least < n or (n == least and not above))
            and (n < most or (n == most and not below))
            for n in range(-15, 15)
        ]
        assert [
            a or b
            for a, b in zip(
                _is_of(g, rule, whole),
                _is_of(g, rule, [f"{w}.0" for w in whole]),
                strict=True,
            )
        ] == wanted


def test_any_number_is_one_of_json() -> None:
    g = Grammar()
    fine = ["0", "-0", "12.5", "1e5", "-3.25E-07", "0.1", "1e99"]
    wrong = ["01", ".5", "5.", "+1", "1e", "1e999", "--1", "NaN"]
    assert _is_of(g, number(g), fine + wrong) == [True] * len(fine) + [False] * len(wrong)
    assert all(isinstance(json.loads(text), int | float) for text in fine)
