r"""Regular expressions in RE2's syntax, read into automata.

What RE2 refuses (back-references, looking around) is refused; classes (`\w`, `[[:alpha:]]`) are of ASCII, letters
have the cases of Unicode.  Whether a repetition is lazy says nothing about which texts match, and nothing about the
longest match.  Called by `strings` and `tokenizer`.

Source: RE2's syntax of regular expressions (google/re2, Syntax).
"""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from typing import Final, final

from tilewright.base.errors import ModelError
from tilewright.base.record import record
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.onnx.automata import (
    Alternation,
    Automaton,
    Concatenation,
    Expression,
    Place,
    Repetition,
)
from tilewright.compiler.frontends.onnx.character_classes import (
    ANY,
    ANY_IN_LINE,
    PERL,
    POSIX,
    CharacterClass,
)

_MOST_REPETITIONS: Final = 1000
_DEEPEST: Final = 100
_CONTROLS: Final = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_PLACES: Final = {
    "A": Place.BEGIN_TEXT,
    "b": Place.WORD_BORDER,
    "B": Place.NO_WORD_BORDER,
    "z": Place.END_TEXT,
}
_COUNTS: Final = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_REPEAT: Final = re.compile(r"\{(0|[1-9][0-9]{0,7})(,(0|[1-9][0-9]{0,7})?)?\}")
_NUMBER: Final = re.compile(r"x\{([0-9A-Fa-f]+)\}|x([0-9A-Fa-f]{2})")
_OCTAL: Final = re.compile(r"0[0-7]{0,2}|[1-7][0-7]{1,2}")
_NAMED_GROUP: Final = re.compile(r"\(\?P?<(\w+)>")
_FLAGS: Final = re.compile(r"\(\?([imsU]*)(?:-([imsU]+))?([:)])")
_POSIX_CLASS: Final = re.compile(r"\[:(\^?)(.*?):\]", re.DOTALL)


def regular_expression(pattern: str) -> Automaton:
    """What matches a pattern.

    Raises: ModelError for what is none; UnsupportedError for classes of Unicode, single bytes, and what is too large.
    """
    return Automaton(_Reader(pattern).expression())


@final
@record
class _Modes:
    """What flags say from here to the end of the group."""

    any_case: bool = False
    many_lines: bool = False
    dot_takes_all: bool = False

    def changed(self, flags: str, value: bool) -> _Modes:
        names = {"i": "any_case", "m": "many_lines", "s": "dot_takes_all"}
        return replace(self, **{names[flag]: value for flag in flags if flag in names})


class _Reader:
    """Reads one pattern, from its begin to its end."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._place = 0
        self._modes = _Modes()
        self._repeated = -1  # behind the last repetition, where no other may stand

    def expression(self) -> Expression:
        found = self._alternation(0)
        if self._place < len(self._pattern):
            raise self._wrong("')' closes nothing")
        return found

    def _alternation(self, depth: int) -> Expression:
        """What stands up to the end of a group, or of the pattern."""
        if depth > _DEEPEST:
            raise UnsupportedError(
                f"a regular expression has more than {_DEEPEST} groups inside one another"
            )
        branches: list[list[Expression]] = [[]]
        while (letter := self._next()) not in ("", ")"):
            if letter == "|":
                self._place += 1
                branches.append([])
            else:
                self._term(branches[-1], letter, depth)
        parts = tuple(Concatenation(tuple(branch)) for branch in branches)
        return parts[0] if len(parts) == 1 else Alternation(parts)

    def _term(self, branch: list[Expression], letter: str, depth: int) -> None:
        """Append what comes next, or repeat what is there."""
        if letter in "*+?" or (letter == "{" and _REPEAT.match(self._pattern, self._place)):
            self._repeat(branch)
        elif letter == "(":
            branch += self._group(depth)
        elif letter == "[":
            branch.append(self._bracket())
        elif letter == "\\":
            branch += self._escape()
        else:
            self._place += 1
            branch.append(self._plain(letter))

    def _plain(self, letter: str) -> Expression:
        modes = self._modes
        if letter == ".":
            return ANY if modes.dot_takes_all else ANY_IN_LINE
        if letter == "^":
            return Place.BEGIN_LINE if modes.many_lines else Place.BEGIN_TEXT
        if letter == "$":
            return Place.END_LINE if modes.many_lines else Place.END_TEXT
        return self._letters(ord(letter))

    def _letters(self, number: int) -> CharacterClass:
        return self._cased(CharacterClass.of([(number, number)]))

    def _cased(self, letters: CharacterClass) -> CharacterClass:
        return letters.of_any_case() if self._modes.any_case else letters

    # --- repetitions

    def _repeat(self, branch: list[Expression]) -> None:
        if self._place == self._repeated:
            raise self._wrong("a repetition is repeated")
        if not branch:
            raise self._wrong("a repetition has nothing to repeat")
        found = Repetition(branch[-1], *self._counts())
        high = found.least if found.most is None else found.most
        if high < found.least or _repetitions(found) > _MOST_REPETITIONS:
            raise self._wrong(f"a repetition is not of 0 to {_MOST_REPETITIONS} times")
        branch[-1] = found
        if self._next() == "?":
            self._place += 1
        self._repeated = self._place

    def _counts(self) -> tuple[int, int | None]:
        match = _REPEAT.match(self._pattern, self._place)
        if match is None:
            self._place += 1
            return _COUNTS[self._pattern[self._place - 1]]
        self._place = match.end()
        least, is_open, most = match.groups()
        if is_open is None:
            return int(least), int(least)
        return int(least), None if most is None else int(most)

    # --- groups

    def _group(self, depth: int) -> list[Expression]:
        """What is in parentheses, if anything but flags."""
        modes = self._modes
        if not self._pattern.startswith("(?", self._place):
            self._place += 1
        elif named := _NAMED_GROUP.match(self._pattern, self._place):
            self._place = named.end()
        elif flags := _FLAGS.match(self._pattern, self._place):
            self._modes = modes.changed(flags.group(1), value=True)
            self._modes = self._modes.changed(flags.group(2) or "", value=False)
            self._place = flags.end()
            if flags.group(3) == ")":
                return []
        else:
            raise self._wrong("'(?' begins no group")
        found = self._alternation(depth + 1)
        if self._next() != ")":
            raise self._wrong("')' is missing")
        self._place += 1
        self._modes = modes
        return [found]

    # --- characters

    def _escape(self) -> list[Expression]:
        name = self._pattern[self._place + 1 : self._place + 2]
        if name == "Q":
            return self._quoted()
        if name == "C":
            raise UnsupportedError(f"pattern '{self._pattern}' has single bytes of a text")
        if name in _PLACES:
            self._place += 2
            return [_PLACES[name]]
        return [self._class_of_perl() or self._letters(self._escaped_number())]

    def _quoted(self) -> list[Expression]:
        begin = self._place + 2
        end = self._pattern.find("\\E", begin)
        text = self._pattern[begin:] if end < 0 else self._pattern[begin:end]
        self._place = len(self._pattern) if end < 0 else end + 2
        return [self._letters(ord(letter)) for letter in text]

    def _class_of_perl(self) -> CharacterClass | None:
        name = self._pattern[self._place + 1 : self._place + 2]
        if name in ("p", "P"):
            raise UnsupportedError(
                f"pattern '{self._pattern}' has a class of Unicode's characters",
                hint="write its characters, as in [a-zA-Z]",
            )
        if name.lower() not in PERL:
            return None
        self._place += 2
        found = self._cased(PERL[name.lower()])
        return found if name.islower() else found.inverted()

    def _escaped_number(self) -> int:
        r"""The character that `\` and what follows it stand for."""
        self._place += 1
        letter = self._next()
        if match := _OCTAL.match(self._pattern, self._place):
            self._place = match.end()
            return int(match.group(), 8)
        if match := _NUMBER.match(self._pattern, self._place):
            number = int(match.group(1) or match.group(2), 16)
            if number > sys.maxunicode:
                raise self._wrong("a number is no character's")
            self._place = match.end()
            return number
        if letter in _CONTROLS:
            self._place += 1
            return _CONTROLS[letter]
        if letter == "" or not letter.isascii() or letter.isalnum():
            raise self._wrong("'\\' stands before what has no other meaning")
        self._place += 1
        return ord(letter)

    def _bracket(self) -> CharacterClass:
        self._place += 1
        is_inverted = self._next() == "^"
        self._place += is_inverted
        first, parts = self._place, list[CharacterClass]()
        while self._next() != "]" or self._place == first:
            if self._next() == "":
                raise self._wrong("']' is missing")
            parts.append(self._named_class() or self._range())
        self._place += 1
        found = CharacterClass.of(each for part in parts for each in part.ranges)
        return found.inverted() if is_inverted else found

    def _named_class(self) -> CharacterClass | None:
        if self._next() == "\\":
            return self._class_of_perl()
        match = _POSIX_CLASS.match(self._pattern, self._place)
        if match is None:
            return None
        sign, name = match.groups()
        if name not in POSIX:
            raise self._wrong(f"there is no class '{name}'")
        self._place = match.end()
        found = self._cased(POSIX[name])
        return found.inverted() if sign else found

    def _range(self) -> CharacterClass:
        first = last = self._number_in_class()
        follows = self._pattern[self._place : self._place + 2]
        if len(follows) == 2 and follows[0] == "-" and follows[1] != "]":
            self._place += 1
            last = self._number_in_class()
        if last < first:
            raise self._wrong("a range ends before it begins")
        return self._cased(CharacterClass.of([(first, last)]))

    def _number_in_class(self) -> int:
        if self._next() == "\\":
            return self._escaped_number()
        self._place += 1
        return ord(self._pattern[self._place - 1])

    # --- where the reader is

    def _next(self) -> str:
        return self._pattern[self._place : self._place + 1]

    def _wrong(self, reason: str) -> ModelError:
        return ModelError(
            f"pattern '{self._pattern}' is not a regular expression: {reason}, at {self._place}"
        )


def _repetitions(expression: Expression) -> int:
    """How many copies of a part repetitions inside one another make at most."""
    match expression:
        case Repetition(part, least, most):
            return max(least if most is None else most, 1) * _repetitions(part)
        case Concatenation(parts) | Alternation(parts):
            return max(map(_repetitions, parts), default=1)
        case _:
            return 1
