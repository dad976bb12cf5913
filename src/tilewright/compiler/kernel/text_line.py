"""One line of kernel text while it is read: where the reading stands, and errors that say where.

Knows letters, not kernels.  Called by `parser` and `expression_parser`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from typing import Final, TypeVar, final

from tilewright.base.errors import UserError

NAME: Final = re.compile(r"[^\W\d][\w.$']*")
NUMBER: Final = re.compile(r"-?(?:inf|nan|\d+(?:\.\d*)?(?:e[+-]?\d+)?)(?![\w.])")
WHOLE: Final = re.compile(r"-?\d+(?!\w|\.(?!\.))")

Item = TypeVar("Item")
_DIGIT_LIMIT: Final = 40
_SPACE: Final = re.compile(r"[ \t]*")


@final
class Line:
    """A line and a position in it.  Every method that reads skips spaces first."""

    def __init__(self, text: str, number: int) -> None:
        self.text: str = text
        self.number: int = number
        self.position: int = 0

    def error(
        self, message: str, *, at: int | None = None, hint: str | None = None
    ) -> UserError:
        """An error here, or at a position that was kept."""
        column = (self.position if at is None else at) + 1
        place = f"kernel text, line {self.number}, column {column}"
        return UserError(message, location=place, hint=hint)

    def expected(self, subject: str) -> UserError:
        """The error that something else stands here."""
        rest = self.text[self.position :].strip()
        shown = "the end of the line" if not rest else f"'{rest[:24]}'"
        return self.error(f"expected {subject}, got {shown}")

    def unknown(self, subject: str, name: str, known: Iterable[str], at: int) -> UserError:
        """The error that a name means nothing here."""
        near = difflib.get_close_matches(name, list(known), n=1)
        hint = f"did you mean '{near[0]}'?" if near else None
        return self.error(f"unknown {subject} '{name}'", at=at, hint=hint)

    def skip_space(self) -> int:
        """The position of what comes next."""
        match = _SPACE.match(self.text, self.position)
        self.position = self.position if match is None else match.end()
        return self.position

    def is_at(self, token: str) -> bool:
        """Whether a token comes next."""
        return self.text.startswith(token, self.skip_space())

    def accept(self, token: str) -> bool:
        """Read a token if it comes next."""
        if not self.is_at(token):
            return False
        self.position += len(token)
        return True

    def expect(self, token: str) -> None:
        """Read a token.  Raises: UserError if something else comes."""
        if not self.accept(token):
            raise self.expected(f"'{token}'")

    def is_at_digit(self) -> bool:
        """Whether a number without a sign comes next."""
        return self.text[self.skip_space() : self.position + 1].isdecimal()

    def take(self, pattern: re.Pattern[str]) -> str | None:
        """Read what a pattern finds next, if anything."""
        match = pattern.match(self.text, self.skip_space())
        if match is None:
            return None
        self.position = match.end()
        return match[0]

    def several(self, read: Callable[[], Item], end: str) -> tuple[Item, ...]:
        """Read what stands between commas up to the token `end`, which is read, too."""
        found: list[Item] = []
        while not self.accept(end):
            if found:
                self.expect(",")
            found.append(read())
        return tuple(found)

    def word(self, subject: str) -> str:
        """Read a name.  Raises: UserError if something else comes."""
        found = self.take(NAME)
        if found is None:
            raise self.expected(subject)
        return found

    def whole(self, subject: str) -> int:
        """Read a whole number.  Raises: UserError if something else comes, or too many digits."""
        start = self.skip_space()
        found = self.take(WHOLE)
        if found is None:
            raise self.expected(subject)
        if len(found) > _DIGIT_LIMIT:
            raise self.error(f"a number of more than {_DIGIT_LIMIT} digits", at=start)
        return int(found)

    def expect_end(self) -> None:
        """Raises: UserError if anything is left."""
        if self.skip_space() != len(self.text):
            raise self.expected("the end of the line")
