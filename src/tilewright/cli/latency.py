"""How long calls take: measured, summed up as quantiles and drawn as a histogram of text.

Called by `bench`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from tilewright.base.interrupts import answered

_QUANTILES: Final = {"min": 0.0, "median": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
_LEAST_CALLS: Final = 3
_NOISY: Final = 1.3


@final
@dataclass(frozen=True, slots=True)
class Bin:
    """`count` calls took from `low_ns` to less than `high_ns`."""

    low_ns: float
    high_ns: float
    count: int


@final
@dataclass(frozen=True, slots=True)
class Latency:
    """Durations of calls in nanoseconds, in the order they ran; all that were wanted, or some."""

    times_ns: tuple[int, ...]
    is_interrupted: bool = False

    def quantile(self, part: float) -> float:
        """The duration that `part` of the calls did not exceed."""
        return float(np.quantile(self.times_ns, part))

    @property
    def median_ns(self) -> float:
        """The middle one."""
        return self.quantile(0.5)

    @property
    def quantiles(self) -> dict[str, float]:
        """`min`, `median`, `p90`, `p99` and `max`."""
        return {name: self.quantile(part) for name, part in _QUANTILES.items()}

    @property
    def is_noisy(self) -> bool:
        """Whether the slowest tenth took much longer than the median."""
        return self.quantile(0.9) > _NOISY * self.median_ns

    def histogram(self, bins: int = 10) -> tuple[Bin, ...]:
        """Equal steps up to the 99 % quantile; what is slower is in the last bin."""
        times = np.sort(np.array(self.times_ns, np.float64))
        low, high = times[0], float(np.quantile(times, 0.99))
        if high <= low:
            return (Bin(low, times[-1], len(times)),)
        edges = np.linspace(low, high, bins + 1)
        places = np.minimum(((times - low) / (high - low) * bins).astype(int), bins)
        counts = np.bincount(places, minlength=bins + 1)
        counts[bins - 1] += int((times == high).sum())
        counts[bins] -= int((times == high).sum())
        found = [
            Bin(float(edges[i]), float(edges[i + 1]), int(counts[i])) for i in range(bins)
        ]
        if counts[bins]:
            found.append(Bin(high, float(times[-1]), int(counts[bins])))
        return tuple(found)


def measure(
    call: Callable[[], object],
    *,
    seconds: float,
    warmup: int,
    repeat: int | None = None,
    clock: Callable[[], int] = time.perf_counter_ns,
    progress: Callable[[float], None] | None = None,
) -> Latency:
    """Call over and over: `repeat` times, else for about `seconds` and at least three times.

    `progress` is told what part is done, between calls.  Ctrl-C ends it early; what was measured
    until then is kept, and raised is only what comes before the first call has ended.
    """
    for _ in range(warmup):
        call()
    times: list[int] = []
    begin = clock()
    stop = begin + int(seconds * 1e9)
    try:
        while _goes_on(times, repeat, clock() < stop):
            start = clock()
            call()
            times.append(clock() - start)
            if progress is not None:
                spent = (clock() - begin) / max(stop - begin, 1)
                progress(min(1.0, len(times) / repeat if repeat else spent))
    except KeyboardInterrupt:
        if not times:
            raise
        answered()
        return Latency(tuple(times), is_interrupted=True)
    return Latency(tuple(times))


def _goes_on(times: Sequence[int], repeat: int | None, in_time: bool) -> bool:
    if repeat is not None:
        return len(times) < repeat
    return in_time or len(times) < _LEAST_CALLS
