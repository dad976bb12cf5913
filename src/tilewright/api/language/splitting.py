"""How text is split before pairs of bytes are merged: no token spans two parts.

The rules are regular expressions over Unicode's categories; those that the standard library has no name for
are written out as ranges of characters, once.

Source: the expressions of GPT-2, Llama 3, Qwen 2 and SmolLM as their tokenizers publish them; which file's rule
is which: llama.cpp, `llama-vocab.cpp`.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Final, final

import numpy as np
import numpy.typing as npt

_SPACES: Final = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_LETTERS_END: Final = 0x40000
"""Letters and numbers stand in the planes before the fourth; a test looks at the others."""
_GPT2: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?{L}+| ?{N}+| ?{O}+|{S}+(?!{X})|{S}+"
_LLAMA3: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|{P}?{L}+|{N}{{1,3}}| ?{O}+[\r\n]*|{S}*[\r\n]+|{S}+(?!{X})|{S}+"
_QWEN2: Final = _LLAMA3.replace("{{1,3}}", "")
_DIGIT: Final = "{N}"

_RULES: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("", "default", "gpt-2", "phi-2", "mpt", "olmo", "jais"), (_GPT2,)),
    **dict.fromkeys(
        ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"),
        (_DIGIT, _GPT2),
    ),
    **dict.fromkeys(("llama-bpe", "llama-v3", "llama3", "dbrx", "smaug-bpe"), (_LLAMA3,)),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez"), (_QWEN2,)),
}
"""By the name that a file has for its rule: the expressions, each of which splits what those before it left."""

RULES: Final = frozenset(_RULES)


@functools.cache
def _initials() -> npt.NDArray[np.uint8]:
    """The first letter of the category of each character."""
    categories = "".join(map(unicodedata.category, map(chr, range(_LETTERS_END))))
    return np.frombuffer(categories.encode(), np.uint8)[::2]


@functools.cache
def _ranges(initial: str) -> str:
    """All characters of the categories with an initial, as the inside of a class of an expression."""
    inside = np.zeros(_LETTERS_END + 2, np.int8)
    inside[1:-1] = _initials() == ord(initial)
    starts, ends = (np.flatnonzero(np.diff(inside) == step) for step in (1, -1))
    return "".join(
        f"\\U{start:08x}-\\U{end - 1:08x}" for start, end in zip(starts, ends, strict=True)
    )


@functools.cache
def _compiled(expression: str) -> re.Pattern[str]:
    letters, numbers = _ranges("L"), _ranges("N")
    return re.compile(
        expression.format(
            L=f"[{letters}]",
            N=f"[{numbers}]",
            S=f"[{_SPACES}]",
            X=f"[^{_SPACES}]",
            O=f"[^{_SPACES}{letters}{numbers}]",
            P=f"[^\r\n{letters}{numbers}]",
        )
    )


@final
class Splitter:
    """Splits text by the rule of a name.  Raises: KeyError for a name without a rule."""

    def __init__(self, rule: str) -> None:
        self._expressions: tuple[re.Pattern[str], ...] = tuple(map(_compiled, _RULES[rule]))

    def parts(self, text: str) -> Iterator[str]:
        """The parts, which together are the text."""
        return self._split(text, 0)

    def _split(self, text: str, depth: int) -> Iterator[str]:
        if depth == len(self._expressions):
            yield text
            return
        end = 0
        for match in self._expressions[depth].finditer(text):
            if match.start() > end:
                yield from self._split(text[end : match.start()], depth + 1)
            yield from self._split(match.group(), depth + 1)
            end = match.end()
        if end < len(text):
            yield from self._split(text[end:], depth + 1)
