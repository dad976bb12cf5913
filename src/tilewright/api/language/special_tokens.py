"""Special tokens in a text that stand there as themselves: where one begins the longest one is meant.

A vocabulary may have any number of them: what a place of the text costs depends on how many lengths those have that
begin like it, not on how many there are.  Called by `tokenizer`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, final

_HEAD: Final = 4
"""Characters by which tokens are told apart before any is compared."""


@final
class SpecialTokens:
    """Finds them.

    Args:
        tokens: by their texts, none of which is empty.
    """

    def __init__(self, tokens: Mapping[str, int]) -> None:
        self._tokens: Mapping[str, int] = tokens
        found: dict[str, set[int]] = {}
        for text in tokens:
            found.setdefault(text[:_HEAD], set()).add(len(text))
        self._lengths: dict[str, list[int]] = {
            head: sorted(lengths, reverse=True) for head, lengths in found.items()
        }
        first = "".join(map(re.escape, sorted({text[0] for text in tokens})))
        self._first: re.Pattern[str] | None = re.compile(f"[{first}]") if first else None

    def parts(self, text: str) -> Iterator[str | int]:
        """Tokens and the texts between them, in order."""
        begin = at = 0
        while self._first is not None:
            place = self._first.search(text, at)
            if place is None:
                break
            at = place.start()
            length = self._length_at(text, at)
            if not length:
                at += 1
                continue
            if at > begin:
                yield text[begin:at]
            yield self._tokens[text[at : at + length]]
            begin = at = at + length
        if begin < len(text):
            yield text[begin:]

    def _length_at(self, text: str, at: int) -> int:
        """Of the longest token that begins at a place; 0: none does."""
        for size in range(_HEAD, 0, -1):
            # Shorter heads are those of whole tokens.
            for length in self._lengths.get(text[at : at + size], ()):
                if text[at : at + length] in self._tokens:
                    return length
        return 0
