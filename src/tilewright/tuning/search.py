"""Which points of a kernel's space to try next: a walk from the best known, with jumps by chance.

All it knows is what was tried and how that went, so a search that was stopped goes on from its notes.  Called by the tuner.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping
from typing import Final, final

from tilewright.compiler.schedule.rules import Decisions, KernelSpace

_NEAR: Final = 1.03
"""Points nearly as fast as the best: walking on from them leads out of corners."""
_CENTRES: Final = 4
_DRAWS: Final = 64
"""Points drawn by chance that may all be known before a space counts as tried out."""


@final
class KernelSearch:
    """The search over one kernel's space.

    Args:
        space: everything that may be decided.
        tried: points of earlier searches, and their times over that of the cost model's point.
        seed: of the jumps.
    """

    def __init__(
        self, space: KernelSpace, tried: Mapping[str, float] | None = None, seed: int = 0
    ) -> None:
        self.space: Final = space
        self.start: Final = space.best()
        self.tried: Final[dict[str, float]] = {str(self.start): 1.0} | dict(tried or {})
        self.best: Decisions = self.start
        self._chance: Final = random.Random(f"{seed} {len(self.tried)}")

    @property
    def best_ratio(self) -> float:
        """The time of the best point over that of the cost model's."""
        return self.tried[str(self.best)]

    def next_points(self, count: int) -> list[Decisions]:
        """Up to so many points that were not tried; none when there are no others."""
        found: dict[str, Decisions] = {}
        for point in itertools.chain(self._near(), self._anywhere()):
            text = str(point)
            if text not in self.tried and text not in found:
                found[text] = point
            if len(found) == count:
                break
        return list(found.values())

    def note(self, point: Decisions, ratio: float, *, is_best: bool = False) -> None:
        """Say how a point went; `is_best`: it was confirmed to be faster than the best before."""
        self.tried[str(point)] = ratio
        if is_best:
            self.best = point

    def _near(self) -> Iterator[Decisions]:
        """Neighbours of the best point, and of others that are nearly as fast."""
        yield from self.space.neighbours(self.best)
        limit = _NEAR * self.best_ratio
        others = sorted((r, t) for t, r in self.tried.items() if r <= limit)
        for _, text in others[:_CENTRES]:
            yield from self.space.neighbours(Decisions.parse(text))

    def _anywhere(self) -> Iterator[Decisions]:
        return (self.space.sample(self._chance) for _ in range(_DRAWS))
