"""What a check says, as a text: that a verifier accepts something can so be asserted."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.base.errors import TilewrightError


def complaint_of(check: Callable[..., object], *arguments: object) -> str:
    """The text of the error that `check` raises; empty if it accepts."""
    try:
        check(*arguments)
    except TilewrightError as error:
        return str(error)
    return ""
