"""How a sweep is run, in words that the command, its worker and its rows share.

What it is: what rows must have in common to stand in one table.
What it is not: which cases are run (``command.py``).
Who calls it: ``command.py``, ``referee.py`` and ``worker.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self, final


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """What is measured.

    Attributes:
        symbols: Models compiled for symbols, and beside them for the sizes of the call.
        processor: Processor time, the least of many short turns, instead of the wall clock's.
    """

    symbols: bool = False
    processor: bool = False

    @classmethod
    def read(cls, words: Sequence[str]) -> Self:
        """Read what `words` gave."""
        return cls(symbols="symbols" in words, processor="processor" in words)

    def words(self) -> list[str]:
        """What differs from a usual sweep, as arguments and in the names of files."""
        return [word for word, chosen in asdict(self).items() if chosen]

    def marks(self) -> dict[str, bool]:
        """What a row says of it."""
        return asdict(self)

    def made(self, row: Mapping[str, Any]) -> bool:
        """Whether a row was made so; one that does not say how it was made is of an older sweep."""
        return all(row.get(word) == chosen for word, chosen in asdict(self).items())
