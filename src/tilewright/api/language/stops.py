"""Where a text ends that comes in parts: before the first of some texts.

Called by `language_model` and `tool_calls`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable


def until(
    parts: Iterable[str], stops: tuple[str, ...], ended: Callable[[int], None]
) -> Generator[str]:
    """Parts up to a text that ends them; what may be the beginning of one waits for what follows.

    Args:
        parts: of the text.
        stops: what ends it; empty ones do not.
        ended: is told how many characters the text has where one of them ended it.
    """
    held, said = "", 0
    for part in parts:
        held += part
        found = [at for stop in stops if stop and (at := held.find(stop)) >= 0]
        if found:
            ended(said + min(found))
            yield held[: min(found)]
            return
        ready = len(held) - max((overlap(held, stop) for stop in stops), default=0)
        said += ready
        yield held[:ready]
        held = held[ready:]
    yield held


def overlap(text: str, stop: str) -> int:
    """How many of the last characters are the beginning of `stop`."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
