"""The tokenizer of the examples splits as BERT's does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from wordpiece import WordPiece, split_words

PIECES = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "un",
    "##aff",
    "##able",
    "the",
    ",",
    "!",
    "中",
    "cafe",
]


@pytest.fixture
def tokenizer(tmp_path: Path) -> WordPiece:
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    return WordPiece(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hello, World!", ["hello", ",", "world", "!"]),
        ("naïve CAFÉ", ["naive", "cafe"]),
        ("a中b", ["a", "中", "b"]),
        ("tab\tand\u00a0space\u200b", ["tab", "and", "space"]),
        ("", []),
        ("$5.00", ["$", "5", ".", "00"]),
    ],
)
def test_words_are_lower_case_plain_and_apart_from_punctuation(
    text: str, words: list[str]
) -> None:
    assert split_words(text) == words


@pytest.mark.parametrize(
    ("word", "pieces"),
    [
        ("unaffable", ["un", "##aff", "##able"]),
        ("unknown", ["[UNK]"]),
        ("x" * 101, ["[UNK]"]),
        ("the", ["the"]),
    ],
)
def test_the_longest_piece_wins(tokenizer: WordPiece, word: str, pieces: list[str]) -> None:
    assert tokenizer.split_pieces(word) == pieces


def test_a_batch_is_padded_and_masked(tokenizer: WordPiece) -> None:
    ids, mask = tokenizer.encode_batch(["the", "the unaffable!"])
    assert ids.tolist() == [[2, 7, 3, 0, 0, 0, 0], [2, 7, 4, 5, 6, 9, 3]]
    assert mask.tolist() == [[1, 1, 1, 0, 0, 0, 0], [1] * 7]
    assert ids.dtype == mask.dtype == np.int64


def test_long_text_is_cut_with_its_end_mark(tokenizer: WordPiece) -> None:
    assert tokenizer.encode("the " * 50, longest=4) == [2, 7, 7, 3]
