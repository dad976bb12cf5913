"""Special tokens in a text: as an expression of all of them would find them, however many there are."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from tilewright.api.language.special_tokens import SpecialTokens


def _by_expression(tokens: dict[str, int], text: str) -> list[str | int]:
    """The definition: leftmost, of those the longest."""
    longest = sorted(tokens, key=len, reverse=True)
    parts = re.split(f"({'|'.join(map(re.escape, longest))})", text)
    return [tokens.get(part, part) for part in parts if part]


@pytest.mark.parametrize("seed", range(20))
def test_the_leftmost_and_longest_is_found(seed: int) -> None:
    chance = random.Random(seed)
    letters = "ab<|\U0001f600"
    words = {"".join(chance.choices(letters, k=chance.randint(1, 7))) for _ in range(12)}
    tokens = {word: at for at, word in enumerate(sorted(words))}
    text = "".join(chance.choices(letters + "c", k=300))
    assert list(SpecialTokens(tokens).parts(text)) == _by_expression(tokens, text)


@pytest.mark.parametrize("text", ["", "plain"])
def test_without_special_tokens_a_text_is_one_part(text: str) -> None:
    assert list(SpecialTokens({}).parts(text)) == ([text] if text else [])


def test_characters_that_mean_something_in_expressions_are_themselves() -> None:
    tokens = {text: at for at, text in enumerate(["]", "^", "-", "\\", "[a-z]"])}
    found = list(SpecialTokens(tokens).parts("x^y-z\\[a-z]b]"))
    assert found == ["x", 1, "y", 2, "z", 3, 4, "b", 0]


class Counted(str):
    """A text that counts the characters of it that are looked at."""

    __slots__ = ("looked_at",)
    looked_at: int

    def __getitem__(self, key: Any) -> str:
        found = super().__getitem__(key)
        self.looked_at += len(found)
        return found

    def startswith(self, prefix: Any, *place: Any) -> bool:
        self.looked_at += len(prefix)
        return super().startswith(prefix, *place)


MANY = {
    "reserved": (
        [f"<|reserved_{at}|>" for at in range(100_000)],
        "a < b <|reserved_99999|> <|reserved_|>" * 50,
    ),
    "one head": (["aaaa" + "b" * count for count in range(1, 300)], "a" * 2000),
    "its rest": (["aaaa" + "b" * count for count in range(1, 300)], "aaaabbbbc" * 200),
    "late ends": (["a" * count + "b" for count in range(1, 300)], "a" * 2000),
    "beginnings": (["ab" + "c" * count for count in range(300)], "abd" * 600),
    "many ends": (["b" * count + "a" for count in range(300)], "b" * 2000),
}


@pytest.mark.parametrize("case", MANY)
def test_what_a_place_costs_is_not_how_many_tokens_there_are(case: str) -> None:
    words, text = MANY[case]
    tokens = {word: at for at, word in enumerate(words)}
    counted = Counted(text)
    counted.looked_at = 0
    found = list(SpecialTokens(tokens).parts(counted))
    assert "".join(words[part] if isinstance(part, int) else part for part in found) == text
    # Of the longest of these nothing is looked at more than a few times at one place.
    assert counted.looked_at < 5 * 512 * len(text)
    if case == "reserved":
        assert counted.looked_at < 100 * len(text)
        assert found.count(99_999) == 50


@pytest.mark.parametrize("seed", range(10))
def test_tokens_longer_than_a_glance_are_found(seed: int) -> None:
    chance = random.Random(seed)
    letters = "aaaaaaab"
    words = {"".join(chance.choices(letters, k=chance.randint(1, 150))) for _ in range(20)}
    words |= {
        "a" * chance.randint(30, 140) + "b" * chance.randint(0, 40) for _ in range(30)
    }
    tokens = {word: at for at, word in enumerate(sorted(words))}
    text = "".join(chance.choice([*sorted(words), "a" * 40, "b", "c"]) for _ in range(200))
    assert list(SpecialTokens(tokens).parts(text)) == _by_expression(tokens, text)


@pytest.mark.parametrize("tokens", [{"": 1}, {"": 1, "<s>": 2}])
def test_a_token_without_a_text_is_nowhere(tokens: dict[str, int]) -> None:
    parts = ["a", 2, "b"] if "<s>" in tokens else ["a<s>b"]
    assert list(SpecialTokens(tokens).parts("a<s>b")) == parts
