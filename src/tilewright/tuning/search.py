"""Which points of a kernel's space to try next: a walk from the best known, with jumps by chance.

All it knows is what was tried and how that went, so a search that was stopped goes on from its notes.  Called by the tuner.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping
from dataclasses import fields
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
        yield from self._by_turns(self.best)
        limit = _NEAR * self.best_ratio
        others = sorted((r, t) for t, r in self.tried.items() if r <= limit)
        for _, text in others[:_CENTRES]:
            yield from self._by_turns(Decisions.parse(text))

    def _by_turns(self, point: Decisions) -> Iterator[Decisions]:
        """Neighbours: the nearest value of every choice of the largest nest, then the next of each; so nest by nest.

        One choice after the other, a short search would never come to the last ones.
        """
        turns: dict[tuple[int, str], list[Decisions]] = {}
        for near in self.space.neighbours(point):
            turns.setdefault(_changed(point, near), []).append(near)
        for _, group in itertools.groupby(turns, key=lambda changed: changed[0]):
            rounds = itertools.zip_longest(*(turns[changed] for changed in group))
            yield from (near for each in rounds for near in each if near is not None)

    def _anywhere(self) -> Iterator[Decisions]:
        return (self.space.sample(self._chance) for _ in range(_DRAWS))


def _changed(point: Decisions, near: Decisions) -> tuple[int, str]:
    """The nest and the first choice of it in which a neighbour differs; what comes after follows from that."""
    for at, (own, other) in enumerate(zip(point.nests, near.nests, strict=True)):
        for field in fields(own):
            if getattr(own, field.name) != getattr(other, field.name):
                return at, field.name
    return len(point.nests), ""
