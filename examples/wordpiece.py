"""WordPiece, the tokenizer of the BERT family: text to token ids.

What it is: lower-casing, accent stripping, splitting at punctuation and Chinese characters, then
longest match first against a vocabulary.
What it is not: part of Tilewright; a general tokenizer (no truncation strategies, no offsets).
Who calls it: the examples.
"""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

LONGEST_WORD: Final = 100
CHINESE: Final = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


def stands_alone(character: str) -> bool:
    """Say whether a character is a word of its own: punctuation, symbols of ASCII, Chinese."""
    code = ord(character)
    if 33 <= code <= 126 and not character.isalnum():
        return True
    if unicodedata.category(character).startswith("P"):
        return True
    return any(low <= code <= high for low, high in CHINESE)


def split_words(text: str) -> list[str]:
    """Return lower-case words without accents, punctuation apart."""
    pieces: list[str] = []
    for character in unicodedata.normalize("NFD", text.lower()):
        category = unicodedata.category(character)
        if category == "Mn" or character in "\0\ufffd":
            continue
        if character.isspace():
            pieces.append(" ")
        elif category.startswith("C"):
            continue
        elif stands_alone(character):
            pieces.append(f" {character} ")
        else:
            pieces.append(character)
    return "".join(pieces).split()


class WordPiece:
    """Token ids by longest match first.

    Args:
        vocabulary: ``vocab.txt``, one piece a line, the line number is the id.
    """

    def __init__(self, vocabulary: Path) -> None:
        lines = vocabulary.read_text(encoding="utf-8").split("\n")
        self.ids = {piece: number for number, piece in enumerate(lines) if piece}

    def split_pieces(self, word: str) -> list[str]:
        """Return the pieces of one word, or the unknown mark."""
        if len(word) > LONGEST_WORD:
            return ["[UNK]"]
        pieces: list[str] = []
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            ends = range(len(word), start, -1)
            end = next((end for end in ends if prefix + word[start:end] in self.ids), None)
            if end is None:
                return ["[UNK]"]
            pieces.append(prefix + word[start:end])
            start = end
        return pieces

    def encode(self, text: str, longest: int = 256) -> list[int]:
        """Return the ids of ``text`` between the start and end marks."""
        pieces = [piece for word in split_words(text) for piece in self.split_pieces(word)]
        return [self.ids[p] for p in ("[CLS]", *pieces[: longest - 2], "[SEP]")]

    def encode_batch(self, texts: list[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return ids and mask, ``[batch, longest]`` i64 each, padded with zeros."""
        rows = [self.encode(text) for text in texts]
        ids = np.zeros((len(rows), max(map(len, rows))), np.int64)
        mask = np.zeros_like(ids)
        for row, values in enumerate(rows):
            ids[row, : len(values)] = values
            mask[row, : len(values)] = 1
        return ids, mask
