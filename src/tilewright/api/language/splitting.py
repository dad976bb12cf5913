"""How text is split before pairs of bytes are merged: no token spans two parts.

Which rule is whose stands in `splitting_rules`; here categories of characters become ranges, which the expressions of the
standard library have no other name for.  Called by `byte_pairs`.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterator
from typing import Final, final

import numpy as np
import numpy.typing as npt

from tilewright.api.language.splitting_rules import CLASSES, RULES

_SPACES: Final = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_ASSIGNED_END: Final = 0x40000
"""Letters, numbers, punctuation and symbols stand in the planes before the fourth; a test looks at the others."""
_LATER_MARKS: Final = "\U000e0100-\U000e01ef"


@functools.cache
def _categories() -> npt.NDArray[np.uint8]:
    """The two letters of the category of each character."""
    categories = "".join(map(unicodedata.category, map(chr, range(_ASSIGNED_END))))
    return np.frombuffer(categories.encode(), np.uint8).reshape(-1, 2)


@functools.cache
def _ranges(category: str) -> str:
    """All characters of a category, or with `*` of those with its initial, as the inside of a class."""
    initial, second = map(ord, category)
    found = _categories()
    inside = np.zeros(_ASSIGNED_END + 2, np.int8)
    inside[1:-1] = found[:, 0] == initial
    if category[1] != "*":
        inside[1:-1] &= found[:, 1] == second
    starts, ends = (np.flatnonzero(np.diff(inside) == step) for step in (1, -1))
    ranges = "".join(
        f"\\U{start:08x}-\\U{end - 1:08x}" for start, end in zip(starts, ends, strict=True)
    )
    return ranges + _LATER_MARKS if category in ("M*", "Mn") else ranges


def _inside(content: str) -> str:
    """What a class of `CLASSES` holds: spaces, line ends, and categories."""
    parts = re.findall(r"[\r\n ]|..", content)
    return "".join(
        {" ": _SPACES, "\r": "\\r", "\n": "\\n"}.get(part) or _ranges(part)
        for part in parts
    )


@final
class _Classes(dict[str, str]):
    """By name: classes, and the insides of some; each made when it is asked for."""

    def __missing__(self, name: str) -> str:
        if name in CLASSES:
            start, content = CLASSES[name]
            found = f"[{start}{_inside(content)}]"
        else:
            found = _SPACES if name == "spaces" else _ranges(f"{name.upper()}*")
        self[name] = found
        return found


_CLASSES: Final = _Classes()


@functools.cache
def _compiled(expression: str) -> re.Pattern[str]:
    return re.compile(expression.format_map(_CLASSES))


@final
class Splitter:
    """Splits text by the rule of a name.  Raises: KeyError for a name without a rule."""

    def __init__(self, rule: str) -> None:
        self._expressions: tuple[re.Pattern[str], ...] = tuple(
            map(_compiled, RULES[rule].expressions)
        )

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
