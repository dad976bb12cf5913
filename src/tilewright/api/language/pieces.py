"""Tokens of characters with scores: neighbours become what scores best; what has no token becomes bytes.

Source: Kudo and Richardson, SentencePiece, 2018; llama.cpp, `llama-vocab.cpp` (llm_tokenizer_spm), for files
whose scores are all there is of the merges.
"""

from __future__ import annotations

from typing import Final, final

from tilewright.api.language.merging import merged
from tilewright.api.language.vocabulary import TokenType, Vocabulary

_SPACE: Final = "\u2581"


@final
class Pieces:
    """Text to tokens and back, for one vocabulary."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._tokens: tuple[str, ...] = vocabulary.tokens
        self._types = vocabulary.types
        self._scores = vocabulary.scores or [0.0] * len(vocabulary.tokens)
        self._ids: dict[str, int] = {}
        for token, text in enumerate(vocabulary.tokens):
            self._ids.setdefault(text, token)
        self._unknown: list[int] = (
            [] if vocabulary.unknown is None else [vocabulary.unknown]
        )
        self._adds_space: bool = vocabulary.adds_space

    def encode(self, text: str) -> list[int]:
        """The tokens of a text without special ones."""
        if not text:
            return []
        spaced = f" {text}" if self._adds_space else text
        symbols = merged(spaced.replace(" ", _SPACE), self._worth)
        return [token for symbol in symbols for token in self._tokens_of(symbol)]

    def _worth(self, left: str, right: str) -> float | None:
        token = self._ids.get(left + right)
        return None if token is None else -self._scores[token]

    def _tokens_of(self, symbol: str) -> list[int]:
        whole = self._ids.get(symbol)
        if whole is not None:
            return [whole]
        raw = symbol.encode()
        found = [self._ids.get(f"<0x{byte:02X}>") for byte in raw]
        return [t for t in found if t is not None] if None not in found else self._unknown

    def piece(self, token: int) -> bytes:
        """The bytes that a token stands for."""
        text = self._tokens[token]
        if self._types[token] == TokenType.BYTE and len(text) == 6:
            try:
                return bytes([int(text[3:5], 16)])
            except ValueError:
                return b""
        return text.replace(_SPACE, " ").encode("utf-8", "surrogateescape")
