from __future__ import annotations

import unicodedata

import pytest

from tilewright.api.language.splitting import RULES, Splitter


def test_letters_and_numbers_stand_where_they_are_looked_for() -> None:
    assert not [
        code
        for code in range(0x40000, 0x110000)
        if unicodedata.category(chr(code))[0] in "LN"
    ]


@pytest.mark.parametrize("rule", sorted(RULES))
def test_parts_together_are_the_text(rule: str) -> None:
    text = "It's 12345 o'clock…\n\n  \t ünï\u3000x  "
    assert "".join(Splitter(rule).parts(text)) == text


def test_digits_stand_alone_or_in_threes() -> None:
    assert list(Splitter("smollm").parts("a 123")) == ["a", " ", "1", "2", "3"]
    assert list(Splitter("llama-bpe").parts("a 12345")) == ["a", " ", "123", "45"]
    assert list(Splitter("gpt-2").parts("a 12345")) == ["a", " 12345"]
