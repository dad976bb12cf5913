"""How long a function takes: repeats of several calls each, summed up as TVM does.

Not here: times of the parts of a call (profilers).  Called by modules, executors and virtual machines.

Source: TVM 0.27, `Module.time_evaluator` and `BenchmarkResult`; the loop follows `WrapTimeEvaluator`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Final, final

import numpy as np

from tilewright.base.options import count_option, real_option
from tilewright.base.record import record

_GROWTH: Final = 1.618  # of the calls of a repeat that was too short
_COLUMNS: Final = ("mean", "median", "max", "min", "std")


@final
@record
class BenchmarkResult:
    """Times of a function.

    Attributes:
        results: seconds of a call, one for each repeat: the mean over the calls of the repeat.
    """

    results: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean in seconds."""
        return statistics.fmean(self.results)

    @property
    def median(self) -> float:
        """The median in seconds."""
        return statistics.median(self.results)

    @property
    def min(self) -> float:
        """The shortest in seconds."""
        return min(self.results)

    @property
    def max(self) -> float:
        """The longest in seconds."""
        return max(self.results)

    @property
    def std(self) -> float:
        """The standard deviation of the population in seconds."""
        return statistics.pstdev(self.results)

    def __str__(self) -> str:
        """A table of five columns in milliseconds."""
        head = " ".join(f"{f'{name} (ms)':^12}" for name in _COLUMNS)
        times = (getattr(self, name) * 1e3 for name in _COLUMNS)
        row = " ".join(f"{milliseconds:^12.4f}" for milliseconds in times)
        return f"Execution time summary:\n{head.rstrip()}\n{row.rstrip()}"


@final
class TimeEvaluator:
    """Calls a function `1 + number * repeat` times, or more, and says how long a call takes.

    The first call is not counted: it may load and initialize.

    Args:
        function: what is measured.
        number: calls of a repeat, whose mean is one result.
        repeat: how many results there are.
        min_repeat_ms: a repeat lasts so long at least: it is made again with more calls until it does.
        limit_zero_time_iterations: repeats in which no time passed at all, after which it is no longer
            made again.
        cooldown_interval_ms: how long to rest, for machines that get hot.
        repeats_to_cooldown: after how many repeats.
        cache_flush_bytes: write so many bytes before each repeat, so that it finds the caches cold.
        preprocess: is called with the same arguments before each repeat.

    Raises: UserError for an option that makes no sense.
    """

    def __init__(  # noqa: PLR0913 - TVM's parameters
        self,
        function: Callable[..., object],
        *,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: float = 0,
        limit_zero_time_iterations: int = 100,
        cooldown_interval_ms: float = 0,
        repeats_to_cooldown: int = 1,
        cache_flush_bytes: int = 0,
        preprocess: Callable[..., object] | None = None,
    ) -> None:
        self._function: Callable[..., object] = function
        self._number: int = count_option("number", number)
        self._repeat: int = count_option("repeat", repeat)
        self._least_ns: float = real_option("min_repeat_ms", min_repeat_ms) * 1e6
        self._zeros_allowed: int = count_option(
            "limit_zero_time_iterations", limit_zero_time_iterations
        )
        self._rest_s: float = (
            real_option("cooldown_interval_ms", cooldown_interval_ms) / 1e3
        )
        self._rest_every: int = count_option("repeats_to_cooldown", repeats_to_cooldown)
        flushed = count_option("cache_flush_bytes", cache_flush_bytes, least=0)
        self._flushed: np.ndarray = np.zeros(flushed, np.uint8)
        self._preprocess: Callable[..., object] | None = preprocess

    def __call__(self, *arguments: object) -> BenchmarkResult:
        """Measure calls with these arguments."""
        self._function(*arguments)
        results: list[float] = []
        number = self._number
        for index in range(self._repeat):
            if self._preprocess is not None:
                self._preprocess(*arguments)
            duration_ns, number = self._repeat_once(arguments, number)
            results.append(duration_ns / number / 1e9)
            if self._rest_s and (index + 1) % self._rest_every == 0:
                time.sleep(self._rest_s)
        return BenchmarkResult(tuple(results))

    def _repeat_once(self, arguments: tuple[object, ...], number: int) -> tuple[int, int]:
        """Nanoseconds of one repeat that was long enough, and its calls."""
        zeros = 0
        while True:
            self._flushed += np.uint8(1)
            duration_ns = self._time(arguments, number)
            zeros += duration_ns == 0
            if duration_ns >= self._least_ns or zeros >= self._zeros_allowed:
                return duration_ns, number
            wanted = self._least_ns / (duration_ns / number) if duration_ns else 0
            number = max(int(wanted) + 1, int(number * _GROWTH) + 1)

    def _time(self, arguments: tuple[object, ...], number: int) -> int:
        function = self._function
        calls = range(number)
        begin = time.perf_counter_ns()
        for _ in calls:
            function(*arguments)
        return time.perf_counter_ns() - begin
