"""Special tokens in a text that stand there as themselves: where one begins the longest one is meant.

A vocabulary may have any number of them, of any lengths: they lie in the order of their characters, so a few
comparisons of texts find the one that fits a place best.  Called by `tokenizer`.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Final, final

_GLANCE: Final = 32
"""Characters of a text that are compared first; more only where a token goes on like all of them."""
_SPACES: Final = re.compile(r"[ \t\n\v\f\r]*")


@final
class SpecialTokens:
    """Finds them.

    Args:
        tokens: by their texts.
        stripping: tokens behind which spaces are left out.
    """

    def __init__(self, tokens: Mapping[str, int], stripping: Container[int] = ()) -> None:
        self._stripping: Container[int] = stripping
        # A token without a text, which a file may have, is nowhere.
        self._tokens: Mapping[str, int] = {text: n for text, n in tokens.items() if text}
        self._ordered: list[str] = sorted(self._tokens)
        self._beginnings: dict[str, tuple[str, ...]] = dict(_beginnings(self._ordered))
        first = "".join(map(re.escape, sorted({text[0] for text in self._tokens})))
        self._first: re.Pattern[str] | None = re.compile(f"[{first}]") if first else None

    def parts(self, text: str) -> Iterator[str | int]:
        """Tokens and the texts between them, in order."""
        begin = at = 0
        while self._first is not None:
            place = self._first.search(text, at)
            if place is None:
                break
            at = place.start()
            token = self._longest_at(text, at)
            if token is None:
                at += 1
                continue
            if at > begin:
                yield text[begin:at]
            number = self._tokens[token]
            yield number
            begin = at = at + len(token)
            if number in self._stripping:
                begin = at = _behind_spaces(text, at)
        if begin < len(text):
            yield text[begin:]

    def _longest_at(self, text: str, at: int) -> str | None:
        """The longest token that begins at a place.

        Every token that does stands, in the order, before the text from there on, and begins the last one before it.
        """
        size, behind = _GLANCE, self._behind(text[at : at + _GLANCE])
        while behind < len(self._ordered) and size < len(text) - at:
            if not self._ordered[behind].startswith(text[at : at + size]):
                break
            size *= 2
            behind = self._behind(text[at : at + size])
        if not behind:
            return None
        last = self._ordered[behind - 1]
        if text.startswith(last, at):
            return last
        shorter = self._beginnings.get(last, ())
        fitting = bisect_left(shorter, True, key=lambda each: not text.startswith(each, at))
        return shorter[fitting - 1] if fitting else None

    def _behind(self, text: str) -> int:
        return bisect_right(self._ordered, text)


def _behind_spaces(text: str, at: int) -> int:
    found = _SPACES.match(text, at)
    return found.end() if found else at


def _beginnings(ordered: Sequence[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Tokens that begin with others, with those from the shortest on."""
    open_: list[str] = []
    for text in ordered:
        while open_ and not text.startswith(open_[-1]):
            open_.pop()
        if open_:
            yield text, tuple(open_)
        open_.append(text)
