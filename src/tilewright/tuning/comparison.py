"""Which of two is faster: both run by turns, so that what else the machine does meets both.

The clock and what runs are given, so that tests need no machine.  Called by the tuner, for kernels and whole models.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, final

Clock = Callable[[], int]
"""Nanoseconds since some moment."""

_LEAST_ROUNDS: Final = 3
_HOPELESS: Final = 1.1
_SURE: Final = 2.0
"""Standard errors that a gain must be larger than."""
_LEAST_GAIN: Final = 0.01
_OF_MEDIANS: Final = 1.4826 * 1.2533
"""From the median deviation to the standard error of a median of one normal sample."""


@final
@dataclass(frozen=True, slots=True)
class Comparison:
    """How long the second took, as a part of the first.

    Units: nanoseconds.

    Attributes:
        ratio: the median over the rounds of second to first.
        error: its standard error.
        first_ns: the median of the first.
    """

    ratio: float
    error: float
    first_ns: float

    @property
    def is_gain(self) -> bool:
        """Whether the second is faster by more than chance explains."""
        return self.ratio < 1 - max(_LEAST_GAIN, _SURE * self.error)

    def per_call(self, calls: int) -> Comparison:
        """The same where each run was so many calls."""
        return Comparison(self.ratio, self.error, self.first_ns / calls)


def compare(
    first: Callable[[], object],
    second: Callable[[], object],
    *,
    rounds: int,
    clock: Clock = time.perf_counter_ns,
    gives_up: bool = False,
) -> Comparison:
    """Run both in every round, in turns first, after one run of each that does not count.

    `gives_up`: stop after a few rounds where the second is far slower.
    """
    first()
    second()
    firsts: list[float] = []
    ratios: list[float] = []
    for i in range(rounds):
        if i % 2:
            later = _time(second, clock)
            earlier = _time(first, clock)
        else:
            earlier = _time(first, clock)
            later = _time(second, clock)
        firsts.append(earlier)
        ratios.append(later / earlier)
        if (
            gives_up
            and len(ratios) >= _LEAST_ROUNDS
            and statistics.median(ratios) > _HOPELESS
        ):
            break
    middle = statistics.median(ratios)
    deviation = statistics.median(abs(ratio - middle) for ratio in ratios)
    error = _OF_MEDIANS * deviation / math.sqrt(len(ratios))
    return Comparison(middle, error, statistics.median(firsts))


def _time(run: Callable[[], object], clock: Clock) -> float:
    begin = clock()
    run()
    return max(1, clock() - begin)
