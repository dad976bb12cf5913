"""Text to tokens and back, as the vocabulary in a model's file has it.

Special tokens stand in text as themselves (`<|im_end|>`) where the caller wants that; between them the
vocabulary's own kind does the work.  Called by `language_model` and by chat templates.
"""

from __future__ import annotations

import codecs
import operator
from collections.abc import Iterable
from typing import Final, cast, final

from tilewright.api.language.byte_pairs import BytePairs
from tilewright.api.language.pieces import Pieces
from tilewright.api.language.special_tokens import SpecialTokens
from tilewright.api.language.vocabulary import (
    SPECIAL,
    TokenType,
    Vocabulary,
    read_vocabulary,
)
from tilewright.base.errors import InputError, ModelError
from tilewright.base.lazy import lazy
from tilewright.base.options import text_option, wrong
from tilewright.base.text import utf8
from tilewright.formats.gguf import GgufFile

_KINDS: Final = {"gpt2": BytePairs, "llama": Pieces}


@final
class Tokenizer:
    """A model's tokenizer.

    Args:
        vocabulary: what tokens there are.

    Raises: ModelError for a kind of tokenizer that is not known.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary: Final[Vocabulary] = vocabulary
        kind = _KINDS.get(vocabulary.kind)
        if kind is None:
            raise ModelError(
                f"tokenizer '{vocabulary.kind}' is not supported",
                location=vocabulary.location,
                hint=f"supported are: {' '.join(_KINDS)}",
            )
        self._kind: BytePairs | Pieces = kind(vocabulary)
        stripping = vocabulary.stripping
        self._special: SpecialTokens = SpecialTokens(
            vocabulary.special(*SPECIAL), stripping
        )
        # Those of users are words of the vocabulary, found before all others.
        self._words: SpecialTokens = SpecialTokens(
            vocabulary.special(TokenType.USER), stripping
        )

    @classmethod
    def of(cls, file: GgufFile) -> Tokenizer:
        """That of a file.  Raises: ModelError."""
        return cls(read_vocabulary(file))

    def __len__(self) -> int:
        return len(self.vocabulary.tokens)

    @lazy
    def longest_bytes(self) -> int:
        """No token stands for more bytes of text."""
        tokens = self.vocabulary.tokens
        sizes = (len(token.encode("utf-8", "surrogateescape")) for token in tokens)
        return max(1, max(sizes, default=1))

    def encode(
        self, text: str, *, special: bool = True, bos: bool | None = None
    ) -> list[int]:
        """The tokens of a text.

        Args:
            text: any text.
            special: take texts of control tokens for these, else for text like any other.
            bos: begin with the token that begins texts; default: as the model has it.

        Raises: UserError for half a character, which has no bytes.
        """
        utf8(text_option("text", text, "a text"))
        begins = self.vocabulary.adds_bos if bos is None else bos
        found = [self.vocabulary.bos] if begins and self.vocabulary.bos is not None else []
        for part in (self._special if special else self._words).parts(text):
            found += self._kind.encode(part) if isinstance(part, str) else [part]
        return found

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """The bytes of a token; of control tokens only where `special` are wanted.

        Raises: InputError for a token that there is not.
        """
        token = self._checked(token)
        if self.vocabulary.types[token] in (TokenType.CONTROL, TokenType.USER):
            is_control = self.vocabulary.types[token] == TokenType.CONTROL
            text = self.vocabulary.tokens[token]
            return (
                b""
                if is_control and not special
                else text.encode("utf-8", "surrogateescape")
            )
        return self._kind.piece(token)

    def checked(self, tokens: Iterable[int]) -> list[int]:
        """Tokens of callers as plain numbers.

        Raises: UserError for what is no sequence of them; InputError for a token that there is not.
        """
        if isinstance(tokens, (str, bytes)) or not isinstance(
            cast("object", tokens), Iterable
        ):
            raise wrong("tokens", tokens, "a sequence of tokens")
        return [self._checked(token) for token in tokens]

    def _checked(self, token: object) -> int:
        try:
            number = operator.index(cast("int", token))
        except TypeError as error:
            raise wrong("token", token, "a whole number") from error
        if isinstance(token, bool):
            raise wrong("token", token, "a whole number")
        if not 0 <= number < len(self):
            raise InputError(
                f"token {number} is out of range, expected 0 .. {len(self) - 1}"
            )
        return number

    def decode(self, tokens: Iterable[int], *, special: bool = False) -> str:
        """The text of tokens; what is no character is shown as a replacement.

        Raises: InputError for a token that there is not.
        """
        raw = b"".join(self.piece(token, special=special) for token in self.checked(tokens))
        text = raw.decode("utf-8", "replace")
        return text.removeprefix(" ") if self.vocabulary.adds_space else text

    def stream(self, *, special: bool = False) -> TextStream:
        """Tokens to text, one after the other, where characters may span several."""
        return TextStream(self, special=special)


@final
class TextStream:
    """Makes text of tokens as they come; a character appears with the last of its bytes."""

    def __init__(self, tokenizer: Tokenizer, *, special: bool = False) -> None:
        self._tokenizer: Tokenizer = tokenizer
        self._special: bool = special
        self._decoder: codecs.IncrementalDecoder = codecs.getincrementaldecoder("utf-8")(
            "replace"
        )

    def add(self, token: int) -> str:
        """What a token adds to the text."""
        return self._decoder.decode(self._tokenizer.piece(token, special=self._special))

    def finish(self) -> str:
        """What is left: a replacement for a character that never ended."""
        return self._decoder.decode(b"", final=True)
