"""Calls of tools in what an assistant says, taken out of its text as it comes.

One form is read, that of Hermes and Qwen: a JSON object with `name` and `arguments` between `<tool_call>` and
`</tool_call>`.  What stands there and is none stays text.  Called by `server`.

Source: Hermes function calling format (NousResearch); Qwen 2.5, chat template.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast, final

from tilewright.api.language.stops import overlap

BEGIN: Final = "<tool_call>"
_END: Final = "</tool_call>"


@final
@dataclass(frozen=True, slots=True)
class ToolCall:
    """A function with its arguments, as JSON."""

    name: str
    arguments: str


@final
class ToolReader:
    """Splits a text that comes in parts into what is said and what is called.

    Args:
        most: calls that are wanted, of which others are left out; None: all.

    Attributes:
        calls: those that are complete.
    """

    def __init__(self, most: int | None = None) -> None:
        self.calls: Final[list[ToolCall]] = []
        self._most: int | None = most
        self._held: str = ""

    def add(self, part: str) -> str:
        """What is said for sure, now that a part has come."""
        self._held += part
        said = ""
        while (at := self._held.find(BEGIN)) >= 0:
            end = self._held.find(_END, at)
            if end < 0:
                break
            said += self._held[:at]
            inner = self._held[at + len(BEGIN) : end]
            call = _call(inner)
            if call is None:
                said += self._held[at : end + len(_END)]
            elif self._most is None or len(self.calls) < self._most:
                self.calls.append(call)
            self._held = self._held[end + len(_END) :]
        keep = at if at >= 0 else len(self._held) - overlap(self._held, BEGIN)
        said, self._held = said + self._held[:keep], self._held[keep:]
        return said

    def finish(self) -> str:
        """What is left: the beginning of a call that did not end is text."""
        said, self._held = self._held, ""
        return said


def _call(text: str) -> ToolCall | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    fields = cast("Mapping[str, object]", found) if isinstance(found, dict) else {}
    name, arguments = fields.get("name"), fields.get("arguments")
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return None
    return ToolCall(name, json.dumps(arguments, ensure_ascii=False))
