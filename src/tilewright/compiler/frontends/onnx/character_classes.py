"""Sets of characters as regular expressions name them: ranges, classes of ASCII, letters of either case.

Called by `regular_expressions` and `automata`.

Source: RE2's syntax of regular expressions; Unicode Standard, CaseFolding.txt (simple folding).
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Final, final

from tilewright.base.record import record

_BEHIND_ALL: Final = sys.maxunicode + 1
# Unicode gives cases to letters of its first two planes alone.
_BEHIND_CASES: Final = 0x20000
# Letters that fold to several and are one but for their case nevertheless, since Unicode 15.1.
_SIMPLY_FOLDED: Final = {"\u1fd3": "\u0390", "\u1fe3": "\u03b0", "\ufb05": "\ufb06"}

Range = tuple[int, int]


@final
@record
class CharacterClass:
    """A set of characters.

    bounds: numbers of characters, ascending, at which the set begins and ends in turn.
    """

    bounds: tuple[int, ...]

    @staticmethod
    def of(ranges: Iterable[Range]) -> CharacterClass:
        """The characters of ranges, first and last included, in any order."""
        bounds: list[int] = []
        for first, last in sorted(ranges):
            if bounds and first <= bounds[-1]:
                bounds[-1] = max(bounds[-1], last + 1)
            else:
                bounds += (first, last + 1)
        return CharacterClass(tuple(bounds))

    def __contains__(self, letter: str) -> bool:
        """Whether a character is one of these."""
        return bisect_right(self.bounds, ord(letter)) % 2 == 1

    @property
    def ranges(self) -> Iterator[Range]:
        """First and last characters, ascending."""
        for first, behind in zip(self.bounds[::2], self.bounds[1::2], strict=True):
            yield first, behind - 1

    def inverted(self) -> CharacterClass:
        """All other characters."""
        inner = [bound for bound in self.bounds if 0 < bound < _BEHIND_ALL]
        begins = () if self.bounds[:1] == (0,) else (0,)
        ends = () if self.bounds[-1:] == (_BEHIND_ALL,) else (_BEHIND_ALL,)
        return CharacterClass((*begins, *inner, *ends))

    def of_any_case(self) -> CharacterClass:
        """With the letters that differ from one of these by their case."""
        alike = _letters_by_case()
        more = [
            (other, other)
            for first, last in self.ranges
            for number in _both(range(first, last + 1), alike)
            for other in alike[number]
        ]
        return CharacterClass.of([*self.ranges, *more])


def _both(numbers: range, alike: dict[int, tuple[int, ...]]) -> Iterator[int]:
    """What is in both, by a walk over the shorter one."""
    if len(numbers) < len(alike):
        return (number for number in numbers if number in alike)
    return (number for number in alike if number in numbers)


@cache
def _letters_by_case() -> dict[int, tuple[int, ...]]:
    """All letters that are one but for their case, by each of them."""
    groups: defaultdict[str, list[int]] = defaultdict(list)
    for number in range(_BEHIND_CASES):
        letter = chr(number)
        forms = (_SIMPLY_FOLDED.get(letter, ""), letter.casefold(), letter.lower())
        # Where a letter folds to several, its other case alone counts.
        key = next((form for form in forms if len(form) == 1), letter)
        groups[key].append(number)
    return {
        number: tuple(group)
        for group in groups.values()
        if len(group) > 1
        for number in group
    }


def _ascii(*ranges: str) -> CharacterClass:
    return CharacterClass.of((ord(each[0]), ord(each[-1])) for each in ranges)


ANY: Final = CharacterClass((0, _BEHIND_ALL))
ANY_IN_LINE: Final = _ascii("\n").inverted()
DIGITS: Final = _ascii("09")
WORD: Final = _ascii("09", "AZ", "az", "_")
PERL: Final = {"d": DIGITS, "s": _ascii("\t\n", "\f\r", " "), "w": WORD}
POSIX: Final = {
    "alnum": _ascii("09", "AZ", "az"),
    "alpha": _ascii("AZ", "az"),
    "ascii": _ascii("\x00\x7f"),
    "blank": _ascii("\t", " "),
    "cntrl": _ascii("\x00\x1f", "\x7f"),
    "digit": DIGITS,
    "graph": _ascii("!~"),
    "lower": _ascii("az"),
    "print": _ascii(" ~"),
    "punct": _ascii("!/", ":@", "[`", "{~"),
    "space": _ascii("\t\r", " "),
    "upper": _ascii("AZ"),
    "word": WORD,
    "xdigit": _ascii("09", "AF", "af"),
}
