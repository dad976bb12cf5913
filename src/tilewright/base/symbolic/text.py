"""The text form of expressions: reads back what `str` prints.

Text may come from a file that nobody vouches for, so nesting, numbers and the size of products
are bounded.  Printing is `str`'s work.
"""

from __future__ import annotations

import re
from typing import Final, final

from tilewright.base.errors import UserError
from tilewright.base.symbolic.algebra import (
    Dim,
    floordiv,
    maximum,
    minimum,
    mod,
    symbol,
)

_DEPTH_LIMIT: Final = 100
_TERM_LIMIT: Final = 1000
_FACTOR_LIMIT: Final = 100
_DIGIT_LIMIT: Final = 40
_WORD: Final = re.compile(r"[\w.$']+", re.ASCII)
_SPACE: Final = re.compile(r"\s*")


def parse(text: str) -> Dim:
    """Read back what `str` prints; names are sizes, so they are at least 0.

    Raises: UserError on anything else, and on expressions too large to be dimensions.
    """
    return _Parser(text).parse()


@final
class _Parser:
    """Recursive descent over `+ - * // % ( ) , names integers`."""

    def __init__(self, text: str) -> None:
        self.text: str = text
        self.position: int = 0
        self.depth: int = 0

    def parse(self) -> Dim:
        value = self._sum()
        self._space()
        if self.position != len(self.text):
            raise self._error("is not a dimension")
        return value

    def _error(self, problem: str) -> UserError:
        shown = self.text if len(self.text) <= 80 else f"{self.text[:77]}..."
        return UserError(f"'{shown}' {problem} (at column {self.position + 1})")

    def _space(self) -> None:
        match = _SPACE.match(self.text, self.position)
        self.position = self.position if match is None else match.end()

    def _accept(self, token: str) -> bool:
        self._space()
        if self.text.startswith(token, self.position):
            self.position += len(token)
            return True
        return False

    def _expect(self, token: str) -> None:
        if not self._accept(token):
            raise self._error("is not a dimension")

    def _sum(self) -> Dim:
        value = self._product()
        while True:
            if self._accept("+"):
                value = value + self._product()
            elif self._accept("-"):
                value = value - self._product()
            else:
                return value

    def _product(self) -> Dim:
        value = self._unit()
        while True:
            if self._accept("*"):
                value = self._multiply(value, self._unit())
            elif self._accept("//"):
                value = floordiv(value, self._unit())
            elif self._accept("%"):
                value = mod(value, self._unit())
            else:
                return value

    def _multiply(self, left: Dim, right: Dim) -> Dim:
        terms, factors = _size(left)
        other_terms, other_factors = _size(right)
        if terms * other_terms > _TERM_LIMIT or factors + other_factors > _FACTOR_LIMIT:
            raise self._error("is too large for a dimension")
        return left * right

    def _unit(self) -> Dim:
        self.depth += 1
        if self.depth > _DEPTH_LIMIT:
            raise self._error("is nested too deeply for a dimension")
        value = self._nested()
        self.depth -= 1
        return value

    def _nested(self) -> Dim:
        if self._accept("("):
            value = self._sum()
            self._expect(")")
            return value
        if self._accept("-"):
            return -self._unit()
        return self._word()

    def _word(self) -> Dim:
        match = _WORD.match(self.text, self.position)
        if match is None:
            raise self._error("is not a dimension")
        word = match[0]
        if word.isdigit() and len(word) > _DIGIT_LIMIT:
            raise self._error("has a number too large for a dimension")
        self.position = match.end()
        if word.isdigit():
            return int(word)
        if word in ("min", "max") and self._accept("("):
            left = self._sum()
            self._expect(",")
            right = self._sum()
            self._expect(")")
            return minimum(left, right) if word == "min" else maximum(left, right)
        return symbol(word)


def _size(value: Dim) -> tuple[int, int]:
    """How many terms, and how many factors the longest of them has."""
    if isinstance(value, int):
        return 1, 0
    return len(value.terms) + 1, max(len(monomial) for monomial, _ in value.terms)
