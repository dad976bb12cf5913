"""JSON of strangers: one meaning, or refused.

Python takes the last of two members of one key, other readers the first: what a file means must not depend on who reads it.
Called by readers of files and requests; what this system wrote for itself alone is read as it is.

Source: RFC 8259, section 4, on names that are not unique.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable

_Constant = Callable[[str], object]


def read_json(
    text: str | bytes | bytearray, parse_constant: _Constant | None = None
) -> object:
    """The value that a text stands for.

    Args:
        text: a document; bytes are UTF-8, UTF-16 or UTF-32.
        parse_constant: makes something of `NaN`, `Infinity` and `-Infinity`; default: the float.

    Raises: ValueError for what is no JSON, and for an object with a key twice, which it names; RecursionError.
    """
    return json.loads(text, object_pairs_hook=_members, parse_constant=parse_constant)


def _members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        counts = Counter(key for key, _ in pairs)
        twice = next(key for key, count in counts.items() if count > 1)
        raise ValueError(f"key {twice!r:.80} stands twice in one object")
    return members
