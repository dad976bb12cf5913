"""The vocabulary in a model's file: texts of tokens, what kind each is, and which have a part to play.

Everything is checked where it is read: a file may say anything.  Not how text becomes tokens (`byte_pairs`,
`pieces`).

Source: ggml, `docs/gguf.md` (tokenizer keys); llama.cpp, `llama-vocab.cpp`, for which tokens end a text.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast, final

import numpy as np

from tilewright.api.language.splitting_rules import RULES
from tilewright.base.errors import ModelError
from tilewright.formats.gguf import GgufFile

_ENDINGS: Final = frozenset({
    "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>",
    "<EOT>", "_<EOT>", "[EOT]", "<eos>", "</s>", "[EOS]", "<|END_OF_TURN_TOKEN|>", "<｜end▁of▁sentence｜>",
    "<end_of_utterance>", "<|return|>", "<|call|>", "<|calls|>", "<|flush|>", "<turn|>", "<|tool_response>", "[e~[",
    "<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>",
    "<reponame>", "<|file_sep|>",
})  # fmt: skip
"""What tokens that end a text are called, for files that name one of several: those that end turns and texts, and those that
begin another file of a repository or fill up a batch, which models of code make behind the end of theirs."""
_ENDINGS_OF_TURNS: Final = ({"<|return|>", "<|call|>"}, {"<|calls|>", "<|flush|>"})
"""Where a vocabulary has both of one, `<|end|>` is what stands between parts of an answer."""
_STRIPPING: Final = ("phi-3", "phi3")
"""Models, by their name, whose special tokens take the spaces behind them."""
_KEEPING: Final = ("<unk>", "<s>", "<|endoftext|>")
"""Of those, the tokens that do not."""


@final
class TokenType(enum.IntEnum):
    """What a token is."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER = 4
    UNUSED = 5
    BYTE = 6


SPECIAL: Final = (TokenType.CONTROL, TokenType.USER, TokenType.UNKNOWN)
"""Kinds of tokens that a text may name as they stand."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Vocabulary:
    """The tokens of a model; a token is its place.

    Attributes:
        kind: of tokenizer, as files call it (`gpt2`, `llama`).
        split: by which rule text is split before tokens are looked for.
        tokens: the text of each.
        types: the kind of each.
        scores: of each, where the file has them.
        merges: pairs that become one, the first first.
        bos: what begins a text; None: nothing.
        eos: what ends one by its name in the file; None: nothing has that name.
        ends: whatever ends one.
        unknown: what stands for text without a token.
        adds_bos: whether texts begin so by themselves.
        adds_space: whether a space is put in front of a text.
        stripping: special tokens behind which a text's spaces are no part of it.
        location: how errors call the file.
    """

    kind: str
    split: str
    tokens: tuple[str, ...]
    types: Sequence[int]
    scores: Sequence[float]
    merges: tuple[str, ...]
    bos: int | None
    eos: int | None
    ends: frozenset[int]
    unknown: int | None
    adds_bos: bool
    adds_space: bool
    stripping: frozenset[int]
    location: str

    def special(self, *wanted: TokenType) -> Mapping[str, int]:
        """Tokens of these kinds, which a text may name as they stand."""
        return {
            text: token
            for token, (text, type_) in enumerate(zip(self.tokens, self.types, strict=True))
            if type_ in wanted and text
        }


def read_vocabulary(file: GgufFile) -> Vocabulary:
    """The vocabulary of a file.  Raises: ModelError for one that is missing or senseless."""
    keys = _Keys(file)
    tokens = keys.texts("tokens")
    if not tokens:
        raise ModelError("has no tokenizer", location=file.location)
    kind, split = keys.text("model"), keys.text("pre")
    types = keys.kinds("token_type", len(tokens)) or [int(TokenType.NORMAL)] * len(tokens)
    named = (keys.token(f"{name}_token_id", len(tokens)) for name in ("eos", "eot", "eom"))
    ends = _ends({token for token in named if token is not None}, tokens, types)
    is_pieces = kind == "llama"
    first = 1 if is_pieces and len(tokens) > 1 else None
    begins = is_pieces or (split in RULES and RULES[split].begins)
    return Vocabulary(
        kind=kind,
        split=split,
        tokens=tokens,
        types=types,
        scores=keys.numbers("scores", len(tokens)),
        merges=keys.texts("merges"),
        bos=keys.token("bos_token_id", len(tokens), first),
        eos=keys.token("eos_token_id", len(tokens)),
        ends=ends,
        unknown=keys.token("unknown_token_id", len(tokens)),
        adds_bos=keys.flag("add_bos_token", begins),
        adds_space=keys.flag("add_space_prefix", is_pieces),
        stripping=_stripping(file, tokens, types),
        location=file.location,
    )


def _ends(named: set[int], tokens: Sequence[str], types: Sequence[int]) -> frozenset[int]:
    """Tokens that end a text: those that the file names, and those whose text says so."""
    found = named | {
        token
        for token, text in enumerate(tokens)
        if text in _ENDINGS and types[token] in (TokenType.CONTROL, TokenType.USER)
    }
    texts = {tokens[token] for token in found}
    if any(texts >= pair for pair in _ENDINGS_OF_TURNS):
        found = {token for token in found if tokens[token] != "<|end|>"}
    return frozenset(found)


def _stripping(
    file: GgufFile, tokens: Sequence[str], types: Sequence[int]
) -> frozenset[int]:
    """Special tokens that take the spaces behind them, which files do not say: their models' names do."""
    name = file.metadata.get("general.name")
    if not isinstance(name, str) or not any(each in name.lower() for each in _STRIPPING):
        return frozenset()
    return frozenset(
        token
        for token, text in enumerate(tokens)
        if types[token] in SPECIAL and text not in _KEEPING
    )


@final
class _Keys:
    """Values under `tokenizer.ggml`, of the type that is asked for."""

    def __init__(self, file: GgufFile) -> None:
        self._file: GgufFile = file

    def _wrong(self, key: str, expected: str) -> ModelError:
        return ModelError(
            f"metadata 'tokenizer.ggml.{key}' is not {expected}",
            location=self._file.location,
        )

    def _find(self, key: str) -> object:
        return self._file.metadata.get(f"tokenizer.ggml.{key}")

    def text(self, key: str) -> str:
        found = self._find(key)
        if found is None:
            return ""
        if not isinstance(found, str):
            raise self._wrong(key, "a text")
        return found

    def texts(self, key: str) -> tuple[str, ...]:
        found = self._find(key)
        if found is None:
            return ()
        if isinstance(found, np.ndarray) and not found.size:
            return ()
        if not isinstance(found, tuple):
            raise self._wrong(key, "a list of texts")
        return found

    def numbers(self, key: str, count: int) -> list[float]:
        found = self._find(key)
        if found is None:
            return []
        if not isinstance(found, np.ndarray) or found.size != count:
            raise self._wrong(key, f"a list of {count} numbers")
        return found.tolist()

    def kinds(self, key: str, count: int) -> list[int]:
        found = self._find(key)
        if isinstance(found, np.ndarray) and found.dtype.kind not in "iu":
            raise self._wrong(key, f"a list of {count} whole numbers")
        return cast("list[int]", self.numbers(key, count))

    def flag(self, key: str, default: bool) -> bool:
        found = self._find(key)
        if found is None:
            return default
        if not isinstance(found, bool):
            raise self._wrong(key, "true or false")
        return found

    def token(self, key: str, count: int, default: int | None = None) -> int | None:
        found = self._find(key)
        if found is None:
            return default
        if isinstance(found, bool) or not isinstance(found, int):
            raise self._wrong(key, "a token")
        # Files name tokens that they do not have: those are none.
        return found if 0 <= found < count else None
