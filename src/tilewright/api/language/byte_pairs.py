"""Tokens of bytes: text is split by a rule, then pairs of bytes are merged in the order of a list.

Source: Sennrich et al., Neural Machine Translation of Rare Words with Subword Units, 2016, algorithm 1; Radford
et al., GPT-2, 2019, section 2.2, for bytes written as characters.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, final

from tilewright.api.language.merging import merged
from tilewright.api.language.splitting import Splitter
from tilewright.api.language.splitting_rules import RULES
from tilewright.api.language.vocabulary import Vocabulary
from tilewright.base.errors import ModelError

_CACHED_WORDS: Final = 1 << 16
_CACHED_LENGTH: Final = 64
"""Words that come again are short; what is long may be a whole prompt of somebody who sends many."""


def _byte_characters() -> tuple[str, ...]:
    """A visible character for every byte: those that have one keep it, others come after them."""
    visible = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return tuple(chr(b if b in visible else next(others)) for b in range(256))


BYTE_CHARACTERS: Final = _byte_characters()
_BYTES: Final = {character: byte for byte, character in enumerate(BYTE_CHARACTERS)}


@final
class BytePairs:
    """Text to tokens and back, for one vocabulary.

    Raises: ModelError for a rule of splitting that is not known.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        if vocabulary.split not in RULES:
            raise ModelError(
                f"text is split by a rule '{vocabulary.split}' that is not known",
                location=vocabulary.location,
                hint=f"known are {', '.join(sorted(filter(None, RULES)))}",
            )
        self._splitter: Splitter = Splitter(vocabulary.split)
        self._ids: dict[str, int] = {t: i for i, t in enumerate(vocabulary.tokens)}
        self._tokens: tuple[str, ...] = vocabulary.tokens
        self._ranks: dict[tuple[str, str], int] = {}
        for rank, merge in enumerate(vocabulary.merges):
            left, _, right = merge.partition(" ")
            self._ranks.setdefault((left, right), rank)
        self._takes_words: bool = RULES[vocabulary.split].takes_words
        self._cache: dict[str, tuple[int, ...]] = {}

    def encode(self, text: str) -> list[int]:
        """The tokens of a text without special ones."""
        found: list[int] = []
        for part in self._splitter.parts(text):
            known = self._cache.get(part)
            if known is None:
                known = tuple(self._word(part))
                if len(part) <= _CACHED_LENGTH and len(self._cache) < _CACHED_WORDS:
                    self._cache[part] = known
            found.extend(known)
        return found

    def _word(self, part: str) -> Iterable[int]:
        raw = part.encode()
        word = "".join(BYTE_CHARACTERS[byte] for byte in raw)
        whole = self._ids.get(word) if self._takes_words else None
        if whole is not None:
            return (whole,)
        symbols = merged(word, lambda left, right: self._ranks.get((left, right)))
        return (token for symbol in symbols for token in self._tokens_of(symbol))

    def _tokens_of(self, symbol: str) -> list[int]:
        """A symbol, or where the vocabulary lacks it each of its bytes; those that it lacks, too, are lost."""
        whole = self._ids.get(symbol)
        if whole is not None:
            return [whole]
        return [self._ids[byte] for byte in symbol if byte in self._ids]

    def piece(self, token: int) -> bytes:
        """The bytes that a token stands for."""
        text = self._tokens[token]
        if all(character in _BYTES for character in text):
            return bytes(_BYTES[character] for character in text)
        return text.encode("utf-8", "surrogateescape")
