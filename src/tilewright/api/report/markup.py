"""Elements of a page as text: whatever is not markup already is escaped.

Names come from models, which anybody can have written: nothing of them may become an element, leave
the page's encoding or turn the text around it.  No parser and no template language.  Called by the
drawings and the page.
"""

from __future__ import annotations

import re
from html import escape
from typing import Final, final

_UNPRINTABLE: Final = re.compile(
    # control characters but tab and newline, surrogates, what reverses the text behind it
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
_REPLACEMENT: Final = "\ufffd"
_ELLIPSIS: Final = "…"


@final
class Markup(str):
    """Text that is markup, made by `element`."""

    __slots__ = ()


def clean(text: str) -> str:
    """`text` without what no page can show, or what would change how others are read."""
    return _UNPRINTABLE.sub(_REPLACEMENT, text)


def shortened(text: str, limit: int) -> str:
    """At most `limit` characters: the beginning and the end, which tells siblings apart."""
    if len(text) <= limit:
        return text
    tail = (limit - 1) // 3
    return f"{text[: limit - 1 - tail]}{_ELLIPSIS}{text[len(text) - tail :]}"


def element(name: str, *children: str, **attributes: str | float) -> Markup:
    """`<name attribute="…">children</name>`.

    `data_step` becomes `data-step`, `class_` becomes `class`, `name_` `name`; fractions have two digits.
    """
    words = [name, *(_attribute(key, value) for key, value in attributes.items())]
    return Markup(f"<{' '.join(words)}>{joined(*children)}</{name}>")


def void_element(name: str, **attributes: str | float) -> Markup:
    """`<name attribute="…">`, of a kind that has neither children nor an end."""
    words = [name, *(_attribute(key, value) for key, value in attributes.items())]
    return Markup(f"<{' '.join(words)}>")


def joined(*pieces: str) -> Markup:
    """One after the other."""
    return Markup(
        "".join(
            p if isinstance(p, Markup) else escape(clean(p), quote=True) for p in pieces
        )
    )


def _attribute(key: str, value: str | float) -> str:
    name = key.removesuffix("_").replace("_", "-")
    text = value if isinstance(value, str) else number(value)
    return f'{name}="{escape(clean(text), quote=True)}"'


def number(value: float) -> str:
    """Two digits behind the point, none where it is whole."""
    return (
        f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
    )
