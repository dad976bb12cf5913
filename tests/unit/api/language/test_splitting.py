from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable

import numpy as np
import pytest

from fakes.growth import grows_in_proportion
from tilewright.api.language.splitting import Splitter
from tilewright.api.language.splitting_rules import RULES


def test_letters_numbers_punctuation_and_symbols_stand_where_they_are_looked_for() -> None:
    assert not [
        code
        for code in range(0x40000, 0x110000)
        if unicodedata.category(chr(code))[0] in "LNPS"
    ]


def test_marks_of_the_last_planes_are_those_that_are_named() -> None:
    found = [
        code
        for code in range(0x40000, 0x110000)
        if unicodedata.category(chr(code))[0] == "M"
    ]
    assert found == list(range(0xE0100, 0xE01F0))


@pytest.mark.thinned(3)
@pytest.mark.parametrize("rule", sorted(RULES))
def test_parts_together_are_the_text(rule: str) -> None:
    text = "It's 12345 o'clock…\n\n  \t ünï\u3000x  "
    assert "".join(Splitter(rule).parts(text)) == text


def test_digits_stand_alone_or_in_threes() -> None:
    assert list(Splitter("smollm").parts("a 123")) == ["a", " ", "1", "2", "3"]
    assert list(Splitter("llama-bpe").parts("a 12345")) == ["a", " ", "123", "45"]
    assert list(Splitter("gpt-2").parts("a 12345")) == ["a", " 12345"]


_LINES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_ENDING = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORD = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LOW = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
PUBLISHED = {
    "gpt-2": (_GPT2,),
    "tekken": (
        rf"{_WORD}*{_LOW}+|{_WORD}+{_LOW}*|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_LINES}",
    ),
    "gpt-4o": (
        (rf"{_WORD}*{_LOW}+{_ENDING}?|{_WORD}+{_LOW}*{_ENDING}?|\p{{N}}{{1,3}}"
        rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_LINES}"),
    ),
    "deepseek-v3": (
        r"\p{N}{1,3}",
        "[一-龥\u3040-ゟ゠-ヿ]+",
        (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
        rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_LINES}"),
    ),
    "deepseek-coder": (
        r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-\ud7ff]+", r"\p{N}",
    ),
    "default": (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]"),
    "falcon": (r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]"),
    "viking": (r" ?[^(\s|.,!?…。，、।۔،)]+", r"\p{N}"),
    "qwen35": (
        (rf"{_ENDING}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
        rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_LINES}"),
    ),
    "seed-coder": (
        (rf"{_ENDING}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1}}"
        rf"| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_LINES}"),
    ),
    "bailingmoe": (
        (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*"
        r"|\s*[\r\n]|\s+(?!\S)|\s+"),
    ),
    "minicpm5": (
        r"\p{N}{1,3}",
        rf"{_ENDING}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_LINES}",
    ),
}  # fmt: skip
"""As tokenizers publish them, for an engine that knows categories."""
OFTEN = " '\n\t\r.,!?$/sSTdLRveaZ059²½ß日한ग\u094d\u0301ǅ😀—"


def test_words_of_letters_with_case_are_those_of_a_list() -> None:
    """Armenian capitals stand in the list, small letters do not; what ends a text is apart from what stands within."""
    text = "Ab \u0561\u0531 cd  12日本!?  "
    expected = ["Ab", " \u0561", "\u0531", " cd", "  ", "12", "日本", "!?", "  "]
    assert list(Splitter("deepseek-llm").parts(text)) == expected
    assert list(Splitter("deepseek-llm").parts("  x")) == [" ", " x"]


@pytest.mark.needs_torch
@pytest.mark.parametrize("rule", PUBLISHED)
def test_parts_are_those_of_an_engine_that_knows_categories(rule: str) -> None:
    """`regex` comes with transformers; characters that it knows other categories of than the library are left out."""
    regex = pytest.importorskip("regex")
    random = np.random.default_rng(0)
    codes = (
        random.integers(0x20, 0xFFFF, 3000).tolist()
        + random.integers(0x10000, 0x2FFFF, 300).tolist()
    )
    characters = [
        c
        for c in map(chr, codes)
        if unicodedata.category(c) not in ("Cn", "Cs")
        and regex.fullmatch(rf"\p{{{unicodedata.category(c)}}}", c)
    ]
    splitter, patterns = Splitter(rule), [regex.compile(e) for e in PUBLISHED[rule]]
    for _ in range(300):
        drawn = random.random(20) < 0.85
        text = "".join(
            OFTEN[random.integers(len(OFTEN))]
            if often
            else characters[random.integers(len(characters))]
            for often in drawn
        )
        expected = [text]
        for pattern in patterns:
            expected = [
                part
                for whole in expected
                for part in regex.split(f"({pattern.pattern})", whole)
                if part
            ]
        assert list(splitter.parts(text)) == expected, text


def is_in_proportion(split: Callable[[str], Iterable[str]], character: str) -> bool:
    """Whether a long run of one character takes time in proportion to its length."""

    def work(count: int) -> None:
        assert sum(map(len, split(character * count))) == count

    return grows_in_proportion(work, 300, 9_600)


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    "rule", ["tekken", "gpt-4o", "deepseek-v3", "deepseek-llm", "default"]
)
def test_long_runs_of_one_kind_take_time_in_proportion(rule: str) -> None:
    splitter = Splitter(rule)
    slow = [c for c in "aA日1 \n'." if not is_in_proportion(splitter.parts, c)]
    assert slow == []


def test_rules_that_look_at_a_run_again_from_each_of_its_places_are_found() -> None:
    assert not is_in_proportion(re.compile("a+b|a").findall, "a")
    assert not is_in_proportion(lambda text: [text, *re.findall("a+b", text)], "a")
    assert is_in_proportion(re.compile("a").findall, "a")


@pytest.mark.slow
@pytest.mark.parametrize("rule", sorted(RULES))
def test_long_runs_of_one_kind_are_split_whole(rule: str) -> None:
    splitter = Splitter(rule)
    for character in "aA日1 \n'.":
        text = character * 5_000
        assert "".join(splitter.parts(text)) == text
