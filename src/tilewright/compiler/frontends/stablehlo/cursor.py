"""The place up to which a text is read, its next token, and errors that name line and column.

Tokens are made when they are looked at: a list of dimensions (`2x3xf32`) and a literal of many
elements are read by expressions of their own from the same place.  Called by the parsers.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final, final

from tilewright.base.errors import ModelError
from tilewright.base.text import beginning, did_you_mean
from tilewright.compiler.frontends.stablehlo.tree import Place

# A file that nests deeper is hostile: JAX writes three or four levels.
MAX_DEPTH: Final = 64
MAX_DIGITS: Final = 400
_SHOWN: Final = 40
_SPACE: Final = re.compile(r"(?:\s+|//[^\n]*)+")
_TOKEN: Final = re.compile(
    r"""
      (?P<string>"(?:[^"\\\n]|\\.)*")
    | (?P<value>%[\w$.-]+(?:\#\d+)?)
    | (?P<symbol>@(?:[\w$.-]+|"(?:[^"\\\n]|\\.)*"))
    | (?P<block>\^[\w$.-]+)
    | (?P<alias>[#!](?:[A-Za-z_][\w$]*(?:\.[\w$]+)*))
    | (?P<hex>0x[0-9a-fA-F]+)
    | (?P<float>\d+\.\d*(?:[eE][+-]?\d+)?)
    | (?P<integer>\d+)
    | (?P<word>[A-Za-z_][\w$]*(?:\.[\w$]+)*)
    | (?P<mark>->|::|\.\.\.|\#-|-\#|[][(){}<>,:=*+?/|!\#-])
    """,
    re.VERBOSE,
)
_ESCAPE: Final = re.compile(r"\\(?:([0-9a-fA-F]{2})|(.))")
_LETTERS: Final = {"n": "\n", "t": "\t"}


@final
class Cursor:
    """Reads one text; `kind` and `word` are those of the next token, `end` and empty after the last.

    `first_line` is the number, in the file, of the line that the text begins in.
    """

    __slots__ = (
        "_depth",
        "_lines",
        "end",
        "file",
        "first_line",
        "kind",
        "start",
        "text",
        "word",
    )

    def __init__(self, text: str, file: str, first_line: int = 1) -> None:
        self.text: str = text
        self.file: str = file
        self.first_line: int = first_line
        self.start: int = 0
        self.end: int = 0
        self.kind: str = ""
        self.word: str = ""
        self._depth: int = 0
        self._lines: list[int] | None = None
        self.advance()

    # --- tokens

    def advance(self) -> str:
        """Step over the next token.  Returns: it, as it is written."""
        word, position = self.word, self.end
        space = _SPACE.match(self.text, position)
        position = position if space is None else space.end()
        self.start = position
        found = _TOKEN.match(self.text, position)
        if found is not None:
            self.kind, self.word, self.end = str(found.lastgroup), found[0], found.end()
            return word
        self.kind, self.word, self.end = "end", "", position
        if position < len(self.text):
            raise self.error(f"character {self.text[position]!r} begins nothing")
        return word

    def seek(self, position: int) -> None:
        """Go on from a place in the text."""
        self.end = position
        self.advance()

    def at(self, word: str) -> bool:
        """Whether the next token is `word`."""
        return self.word == word and self.kind != "string"

    def accept(self, word: str) -> bool:
        """Step over the next token if it is `word`."""
        if not self.at(word):
            return False
        self.advance()
        return True

    def expect(self, word: str) -> None:
        """Step over `word`.  Raises: ModelError if it is not there."""
        if not self.accept(word):
            raise self.unexpected(f"'{word}'")

    def take(self, kind: str, wanted: str) -> str:
        """Step over a token of a kind.  Raises: ModelError if there is none."""
        if self.kind != kind:
            raise self.unexpected(wanted)
        return self.advance()

    def integer(self) -> int:
        """Step over a whole number, with its sign.  Raises: ModelError if there is none."""
        sign = -1 if self.accept("-") else 1
        if self.kind not in ("integer", "hex") or len(self.word) > MAX_DIGITS:
            raise self.unexpected("a whole number")
        base = 16 if self.kind == "hex" else 10
        return sign * int(self.advance(), base)

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Step over what `pattern` finds where the next token begins; None: it finds nothing."""
        found = pattern.match(self.text, self.start)
        if found is not None:
            self.seek(found.end())
        return found

    def skip_balanced(self) -> None:
        """Step over what stands between a bracket, which is next, and its partner."""
        first, depth = self.place, 0
        while self.kind != "end":
            depth += (
                (self.word in "([{<") - (self.word in ")]}>") if self.kind == "mark" else 0
            )
            self.advance()
            if depth == 0:
                return
        raise self.error("bracket is not closed", first)

    @contextmanager
    def nested(self) -> Generator[None]:
        """One level deeper.  Raises: ModelError where no program nests that deep."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self.error(f"nests deeper than {MAX_DEPTH} levels")
        yield
        self._depth -= 1

    # --- errors

    @property
    def place(self) -> Place:
        """Where the next token begins."""
        return self.place_of(self.start)

    def place_of(self, offset: int) -> Place:
        """Line and column of an offset in the text."""
        if self._lines is None:
            self._lines = [0, *(m.end() for m in re.finditer("\n", self.text))]
        line = bisect_right(self._lines, offset)
        return Place(self.first_line + line - 1, offset - self._lines[line - 1] + 1)

    def error(
        self, message: str, place: Place | None = None, hint: str | None = None
    ) -> ModelError:
        """An error at a place, by default that of the next token."""
        where = f"{self.file}:{self.place if place is None else place}"
        return ModelError(message, location=where, hint=hint)

    def unexpected(self, expected: str, known: tuple[str, ...] = ()) -> ModelError:
        """The error for a next token that is not what the grammar asks for."""
        is_end = self.kind == "end"
        got = "the end of the text" if is_end else f"'{beginning(self.word, _SHOWN)}'"
        hint = did_you_mean(self.word, known) if known else None
        if is_end:
            hint = "the file is cut: get it again, whole"
        return self.error(f"got {got}, expected {expected}", hint=hint)


def unescape(token: str) -> str:
    """The text of a string token: without quotes, escapes as the characters they stand for."""
    return _ESCAPE.sub(_letter, token[1:-1])


def _letter(found: re.Match[str]) -> str:
    code, letter = found.groups()
    return chr(int(code, 16)) if code else _LETTERS.get(letter, letter)
