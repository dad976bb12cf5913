"""JSON of strangers: one meaning, or refused.

Python takes the last of two members of one key, other readers the first: what a file means must not depend on who reads it.
Called by readers of files and requests; what this system wrote for itself alone is read as it is.

Source: RFC 8259, section 4, on names that are not unique.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Final

_Constant = Callable[[str], object]
_SHOWN: Final = 200  # characters of what a stranger wrote


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


def what_is_wrong(error: Exception) -> str:
    """What is wrong with a document, in words, where reading it or taking it apart raised `error`."""
    if isinstance(error, RecursionError):
        return "it nests too deeply"
    if isinstance(error, KeyError):
        return f"there is no {str(error)[:_SHOWN]}"
    if isinstance(error, (TypeError, AttributeError, IndexError)) or not str(error):
        return "a value is of another kind than expected"
    text = str(error).partition("\n")[0][:_SHOWN]
    unpacked = re.fullmatch(r"(?:too many|not enough) values to unpack \((.*)\)", text)
    return (
        text if unpacked is None else f"a row has another number of values ({unpacked[1]})"
    )
