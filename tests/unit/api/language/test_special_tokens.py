"""Special tokens in a text: as an expression of all of them would find them, however many there are."""

from __future__ import annotations

import random
import re

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


def test_a_hundred_thousand_of_them_are_looked_up_and_not_tried() -> None:
    class Counted(dict[str, int]):
        tried = 0

        def __contains__(self, key: object) -> bool:
            self.tried += 1
            return super().__contains__(key)

    tokens = Counted({f"<|reserved_{at}|>": at for at in range(100_000)})
    found = list(SpecialTokens(tokens).parts("a < b <|reserved_99999|> <|reserved_|>" * 50))
    assert found.count(99_999) == 50
    assert tokens.tried < 50 * 3 * 6
