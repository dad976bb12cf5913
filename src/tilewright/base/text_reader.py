"""A text while it is read: where the reading stands, and errors that say where.

Knows letters, not what they mean.  Called by who reads the text forms of graphs and kernels.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final, TypeVar, final

from tilewright.base.errors import UserError
from tilewright.base.text import did_you_mean

NUMBER: Final = re.compile(r"-?(?:inf|nan|\d+(?:\.\d*)?(?:e[+-]?\d+)?)(?![\w.])")

Item = TypeVar("Item")
_NAME: Final = re.compile(r"[^\W\d][\w.$']*")
_WHOLE: Final = re.compile(r"-?\d+(?!\w|\.(?!\.))")
_DIGIT_LIMIT: Final = 40
_SHOWN: Final = 24
_SPACE: Final = re.compile(r"[ \t]*")


@final
class TextReader:
    """A text and a position in it.  Every method that reads skips first what stands between words.

    Args:
        text: what is read.
        subject: what that is, for errors.
        number: of its first line.
        space: what stands between words.
    """

    def __init__(
        self, text: str, subject: str, number: int = 1, space: re.Pattern[str] = _SPACE
    ) -> None:
        self.text: str = text
        self.subject: str = subject
        self.number: int = number
        self.space: re.Pattern[str] = space
        self.position: int = 0

    def error(
        self, message: str, *, at: int | None = None, hint: str | None = None
    ) -> UserError:
        """An error here, or at a position that was kept."""
        before = self.text[: self.position if at is None else at]
        line, column = self.number + before.count("\n"), len(before) - before.rfind("\n")
        place = f"{self.subject}, line {line}, column {column}"
        return UserError(message, location=place, hint=hint)

    def expected(self, subject: str, *, at: int | None = None) -> UserError:
        """The error that something else stands here, or at a position that was kept."""
        rest, *_ = self.text[self.position if at is None else at :].strip().split("\n", 1)
        shown = f"'{rest[:_SHOWN]}'" if rest else "the end of the line"
        return self.error(f"expected {subject}, got {shown}", at=at)

    def unknown(self, subject: str, name: str, known: Iterable[str], at: int) -> UserError:
        """The error that a name means nothing here."""
        hint = did_you_mean(name, known)
        return self.error(f"unknown {subject} '{name}'", at=at, hint=hint)

    def skip_space(self) -> int:
        """The position of what comes next."""
        match = self.space.match(self.text, self.position)
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

    def accept_word(self, word: str) -> bool:
        """Read a word if it comes next, and not a longer one."""
        end = self.skip_space() + len(word)
        return not self.text[end : end + 1].isalnum() and self.accept(word)

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

    def read(self, pattern: re.Pattern[str], subject: str) -> str:
        """Read what a pattern finds next.  Raises: UserError if it finds nothing."""
        found = self.take(pattern)
        if found is None:
            raise self.expected(subject)
        return found

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
        return self.read(_NAME, subject)

    def whole(self, subject: str) -> int:
        """Read a whole number.  Raises: UserError if something else comes, or too many digits."""
        start = self.skip_space()
        found = self.read(_WHOLE, subject)
        if len(found) > _DIGIT_LIMIT:
            raise self.error(f"a number of more than {_DIGIT_LIMIT} digits", at=start)
        return int(found)

    def bounds(self) -> tuple[int | None, int | None]:
        """Read `1..64`, of which either number may be left out."""
        low = None if self.is_at("..") else self.whole("a lower bound")
        self.expect("..")
        has_upper = self.is_at("-") or self.is_at_digit()
        return low, self.whole("an upper bound") if has_upper else None

    def expect_end(self, subject: str = "the end of the line") -> None:
        """Raises: UserError if anything is left."""
        if self.skip_space() != len(self.text):
            raise self.expected(subject)
