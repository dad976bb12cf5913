"""The rows of the figures: measurements turned into ratios and held against their bars.

What it is: one outcome per row of ``bars.py``, and those of several rows together.
What it is not: a measurement (``measure.py``, ``processes.py``) or a layout (``bench.py``, ``page.py``).
Who calls it: ``bench.py``.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from figures import processes
from figures.bars import (
    COMPILE_BARS_S,
    COMPILED_MODEL,
    IMPORT_BARS_S,
    LEVEL_BAR,
    LEVEL_MODELS,
    LEVELS,
    MEAN_BAR,
    MEAN_SUBSETS,
    MEMORY_MODELS,
    MODEL_ROWS,
    OURS,
    PEERS,
    ROUNDED,
    ROUNDED_BAR,
    ROUNDED_ERROR,
    ROUNDED_MODELS,
    THREAD_BAR,
    THREAD_ROWS,
    TWIN_ROWS,
    ModelRow,
    TwinRow,
)
from figures.measure import ATTEMPTS, Arena, Measurement, Series, WorkerError

MEGABYTE: Final = 1e6
LARGEST_ERROR: Final = 1e-5
OTHER_MODEL_ERROR: Final = 1e-3
"""A peer that is further off computes something else, such as f32 in bf16."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One line of the report.

    Attributes:
        subset: "ops", "models", "int8", "bf16", "decode", "levels", "threads" or "processes".
        ratio: What is compared with the bar; none if it could not be measured.
        at_least: Whether the bar is a least or a most.
        bar: None for lines that only inform.
        unit: What the ratio is a share of.
        detail: Absolute values, for the reader.
        largest_error: Of the error; a row that is further off is wrong.
    """

    subset: str
    name: str
    ratio: float | None
    at_least: bool
    bar: float | None
    unit: str
    detail: str
    error: float | None = None
    largest_error: float = LARGEST_ERROR

    @property
    def verdict(self) -> str:
        """PASS or MISS; "-" without a bar."""
        if self.ratio is None:
            return "MISS" if self.bar is not None else "-"
        if self.error is not None and not self.error <= self.largest_error:
            return "WRONG"
        if self.bar is None:
            return "-"
        met = self.ratio >= self.bar if self.at_least else self.ratio <= self.bar
        return "PASS" if met else "MISS"


def fastest_peer(
    result: Measurement, largest_error: float = OTHER_MODEL_ERROR
) -> str | None:
    """Return the peer that takes least, of those that ran and computed the same model."""
    ran = {
        name: series
        for name, series in result.series.items()
        if name in PEERS and not (series.error or 0.0) > largest_error
    }
    return min(ran, key=lambda name: ran[name].seconds, default=None)


def median(values: list[float]) -> float:
    """Return the middle value; the readings of a limit are few."""
    return sorted(values)[len(values) // 2]


def format_duration(seconds: float) -> str:
    """Return a duration with a unit that suits it."""
    return f"{seconds * 1e6:.1f} µs" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


class Figures:
    """Measures rows of one run; results of one thread are kept for the two-thread rows.

    Args:
        models: Folder with the exported models.
        threads: Threads for the model rows.
        rounds: Rounds per model.
        seconds: Least time per contender and round.
        contenders: Who takes part.
        attempts: How often a measurement that others disturb is taken; 1 never waits for them.
    """

    def __init__(
        self,
        *,
        models: Path,
        threads: int,
        rounds: int,
        seconds: float,
        contenders: tuple[str, ...],
        attempts: int = ATTEMPTS,
    ) -> None:
        self.models = models
        self.threads = threads
        self.rounds = rounds
        self.seconds = seconds
        self.contenders = contenders
        self.attempts = attempts
        self.measured: dict[tuple[str, int], Measurement] = {}

    def path(self, model: str) -> Path:
        """Return where a model lies: in the model set, or among the further families."""
        path = self.models / f"{model}.onnx"
        further = self.models / "families" / path.name
        return further if further.exists() else path

    def run(self, wanted: Callable[[str, str], bool]) -> Iterator[Outcome]:
        """Yield the outcome of every row for which ``wanted(subset, model)``."""
        rows = [row for row in MODEL_ROWS if wanted(row.subset, row.model)]
        yield from self.run_models(rows)
        yield from self.mean_of(rows)
        if OURS in self.contenders:
            twins = [row for row in TWIN_ROWS if wanted("int8", row.model)]
            yield from self.run_twins(twins)
            rounded = [name for name in ROUNDED_MODELS if wanted("bf16", name)]
            yield from self.run_rounded(rounded)
            levels = [name for name in LEVEL_MODELS if wanted("levels", name)]
            yield from self.run_levels(levels)
        pairs = [pair for pair in THREAD_ROWS if wanted("threads", pair[0])]
        if pairs and OURS in self.contenders:
            yield from self.run_threads(pairs)
        if OURS in self.contenders:
            if wanted("processes", "import"):
                yield from self.run_imports()
            if wanted("processes", "compile"):
                yield from self.run_compilation()
            if wanted("processes", "memory"):
                yield from self.run_memory()

    def run_models(self, rows: list[ModelRow]) -> Iterator[Outcome]:
        """Yield the rows that are timed in rounds."""
        if not rows:
            return
        with self.arena(self.threads) as arena:
            for row in rows:
                if not self.path(row.model).exists():
                    yield failed(row, "model is not exported")
                    continue
                yield self.judge(row, self.measure(arena, row.model))

    def arena(self, threads: int) -> Arena:
        """Return an arena with the settings of this run."""
        return Arena(
            threads=threads,
            rounds=self.rounds,
            seconds=self.seconds,
            attempts=self.attempts,
        )

    def measure(self, arena: Arena, model: str) -> Measurement:
        """Measure a model and keep the result."""
        result = arena.measure(self.contenders, self.path(model))
        self.measured[model, arena.threads] = result
        return result

    def judge(self, row: ModelRow, result: Measurement) -> Outcome:
        """Turn a measurement into the ratio of its row."""
        alone = OURS not in result.series and OURS not in result.failures
        main = fastest_peer(result, self.peer_error(row)) if alone else OURS
        if main is None or main not in result.series:
            return failed(row, "; ".join(result.failures.values()))
        series = result.series[main]
        ratio, unit = self.ratio_of(row, result, series)
        words = [describe(name, found) for name, found in result.series.items()]
        words += [text for name, text in result.failures.items() if name != main]
        words.append(self.describe_share(row, result, series))
        if max(series.foreign) > 0.1:
            words.append(f"disturbed {max(series.foreign):.0%}")
        return Outcome(
            subset=row.subset,
            name=row.title,
            ratio=None if alone and row.measure == "peer" else ratio,
            at_least=row.measure != "peer",
            bar=None if alone else row.bar,
            unit=unit,
            detail=", ".join(filter(None, words)),
            error=series.error,
            largest_error=self.facts(row.model).get("rounding_error", LARGEST_ERROR),
        )

    def peer_error(self, row: ModelRow) -> float:
        """How far a peer may be off.

        Where a sum lies between two bytes its order decides, and bytes far behind differ: all are right that are
        as near to the reference as the reference is to the model in f32.
        """
        return self.facts(row.model).get("rounding_error", OTHER_MODEL_ERROR)

    def facts(self, model: str) -> dict[str, float]:
        """Return the fact sheet of a model."""
        return json.loads(self.path(model).with_suffix(".json").read_text())

    def ratio_of(
        self, row: ModelRow, result: Measurement, series: Series
    ) -> tuple[float | None, str]:
        """Return the ratio of a row and what it is a share of."""
        facts = self.facts(row.model)
        if row.measure == "peak":
            rate = facts["flops"] / series.seconds
            return rate / median(result.fma_flops), "of FMA peak"
        if row.measure == "stream":
            rate = facts["streamed_bytes"] / series.seconds
            return rate / median(result.read_bytes), "of streaming read"
        peer = fastest_peer(result, self.peer_error(row))
        if peer is None:
            return None, ""
        return series.seconds / result.series[peer].seconds, f"× {peer}"

    def mean_of(self, rows: list[ModelRow]) -> Iterator[Outcome]:
        """Yield the geometric mean of our time over the faster peer's, where all were measured."""
        chosen = [row for row in MODEL_ROWS if row.subset in MEAN_SUBSETS]
        if any(row not in rows for row in chosen):
            return
        found = [self.measured.get((row.model, self.threads)) for row in chosen]
        ratios: list[float] = []
        for result in found:
            peer = None if result is None else fastest_peer(result)
            if result is None or peer is None or OURS not in result.series:
                continue
            ratios.append(result.series[OURS].seconds / result.series[peer].seconds)
        if ratios:
            yield Outcome(
                subset="models",
                name=f"geometric mean of {len(ratios)} of {len(chosen)} models",
                ratio=statistics.geometric_mean(ratios),
                at_least=False,
                bar=MEAN_BAR if len(ratios) == len(chosen) else None,
                unit="× the faster peer",
                detail=f"{self.threads} thread(s)",
            )

    def run_levels(self, models: list[str]) -> Iterator[Outcome]:
        """Yield what an artifact of several levels takes, in the time of one for the host."""
        for model in models:
            with self.arena(self.threads) as arena:
                result = arena.measure((OURS, LEVELS), self.path(model))
            yield level_outcome(model, result)

    def run_twins(self, rows: list[TwinRow]) -> Iterator[Outcome]:
        """Yield what models of few bits take, in the time of those in f32 that they were made from."""
        for row in rows:
            if missing := [n for n in (row.model, row.twin) if not self.path(n).exists()]:
                yield twin_outcome(row, None, None, f"{missing[0]} is not exported")
                continue
            for name in (row.model, row.twin):
                if (name, self.threads) not in self.measured:
                    with self.arena(self.threads) as arena:
                        self.measure(arena, name)
            found = [self.measured[name, self.threads] for name in (row.model, row.twin)]
            reasons = "; ".join(text for one in found for text in one.failures.values())
            few, full = (one.series.get(OURS) for one in found)
            yield twin_outcome(row, few, full, reasons)

    def run_rounded(self, models: list[str]) -> Iterator[Outcome]:
        """Yield what models take whose products have operands in bf16, in their time in f32."""
        for model in models:
            with self.arena(self.threads) as arena:
                yield rounded_outcome(
                    model, arena.measure((OURS, ROUNDED), self.path(model))
                )

    def describe_share(self, row: ModelRow, result: Measurement, series: Series) -> str:
        """Return absolute rates: what was reached, and the limit in the same run."""
        facts = self.facts(row.model)
        if row.measure == "stream":
            rate = facts["streamed_bytes"] / series.seconds / 1e9
            return f"{rate:.1f} of {median(result.read_bytes) / 1e9:.1f} GB/s"
        if facts["flops"] == 0:
            return ""
        peak = median(result.fma_flops)
        rate = facts["flops"] / series.seconds
        best = facts["flops"] / min(series.times) / peak
        text = (
            f"{rate / 1e9:.1f} of {peak / 1e9:.1f} GFLOP/s ({rate / peak:.0%}, "
            f"best call {best:.0%})"
        )
        if row.measure != "peak":
            return text
        tile = median(result.tile_flops)
        return f"{text}, {rate / tile:.0%} of a register tile's {tile / 1e9:.1f} from L1"

    def run_threads(self, pairs: list[tuple[str, str]]) -> Iterator[Outcome]:
        """Yield the two-thread rows: our own time against our own with one thread."""
        for model, title in pairs:
            if not self.path(model).exists():
                yield thread_outcome(title, None, "model is not exported")
                continue
            for threads in (1, 2):
                if (model, threads) not in self.measured:
                    with self.arena(threads) as arena:
                        self.measure(arena, model)
            one, two = (self.measured[model, threads] for threads in (1, 2))
            if OURS not in one.series or OURS not in two.series:
                reasons = [*one.failures.values(), *two.failures.values()]
                yield thread_outcome(title, None, "; ".join(reasons))
                continue
            ratio = two.series[OURS].seconds / one.series[OURS].seconds
            words = [f"2 threads {format_duration(two.series[OURS].seconds)}"]
            words += [
                f"{peer} {format_duration(two.series[peer].seconds)}"
                for peer in PEERS
                if peer in two.series
            ]
            yield thread_outcome(title, ratio, ", ".join(words))

    def run_imports(self) -> Iterator[Outcome]:
        """Yield what importing costs beyond numpy."""
        for module, bar in IMPORT_BARS_S:
            name = f"import {module}, beyond numpy"
            try:
                seconds = processes.import_seconds(module)
            except WorkerError as failure:
                yield time_outcome(name, None, bar, str(failure))
                continue
            yield time_outcome(name, seconds, bar, "")

    def run_compilation(self) -> Iterator[Outcome]:
        """Yield how long compiling, recompiling and loading take."""
        model = f"ResNet-50 ({COMPILED_MODEL})"
        names = (
            f"compile {model}, cold cache",
            f"compile {model}, warm cache",
            f"load {model} artifact and first run",
        )
        try:
            taken = processes.compilation(self.path(COMPILED_MODEL))
        except WorkerError as failure:
            for name, bar in zip(names, COMPILE_BARS_S, strict=True):
                yield time_outcome(name, None, bar, str(failure))
            return
        values = (taken.cold_s, taken.warm_s, taken.first_run_s)
        for name, value, bar in zip(names, values, COMPILE_BARS_S, strict=True):
            yield time_outcome(name, value, bar, "")

    def run_memory(self) -> Iterator[Outcome]:
        """Yield the peak memory while compiling."""
        for model in MEMORY_MODELS:
            path = self.path(model)
            name = f"peak memory while compiling {model}"
            try:
                peak = processes.peak_memory_bytes(path)
                limit = 3 * processes.weight_bytes(path) + 500 * MEGABYTE
            except (WorkerError, FileNotFoundError) as failure:
                yield memory_outcome(name, None, str(failure))
                continue
            detail = f"{peak / MEGABYTE:.0f} of {limit / MEGABYTE:.0f} MB"
            yield memory_outcome(name, peak / limit, detail)


def describe(name: str, series: Series) -> str:
    """Return a contender's time with the spread of its rounds."""
    spread = (max(series.medians) - min(series.medians)) / series.seconds
    return f"{name} {format_duration(series.seconds)} ±{spread / 2:.0%}"


def failed(row: ModelRow, reason: str) -> Outcome:
    """Return the outcome of a row that could not be measured."""
    return Outcome(
        subset=row.subset,
        name=row.title,
        ratio=None,
        at_least=row.measure != "peer",
        bar=row.bar,
        unit="",
        detail=reason[:160],
    )


def level_outcome(model: str, result: Measurement) -> Outcome:
    """Return the row of an artifact of several levels."""
    ours, levels = result.series.get(OURS), result.series.get(LEVELS)
    return Outcome(
        subset="levels",
        name=f"{model}, one artifact of levels v2, v3 and v4",
        ratio=None if ours is None or levels is None else levels.seconds / ours.seconds,
        at_least=False,
        bar=LEVEL_BAR,
        unit="× one for the host",
        detail="; ".join(result.failures.values())[:160],
        error=None if levels is None else levels.error,
    )


def twin_outcome(
    row: TwinRow, few: Series | None, full: Series | None, reasons: str
) -> Outcome:
    """Return the row of a model of few bits against its twin in f32."""
    ratio, detail = None, reasons[:160]
    if few is not None and full is not None:
        ratio = few.seconds / full.seconds
        detail = f"{format_duration(few.seconds)} of {format_duration(full.seconds)}"
    return Outcome(
        subset="int8",
        name=f"{row.title}, of our f32",
        ratio=ratio,
        at_least=False,
        bar=row.bar,
        unit="× our f32",
        detail=detail,
    )


def rounded_outcome(model: str, result: Measurement) -> Outcome:
    """Return the row of a model whose operands are rounded to bf16."""
    ours, rounded = result.series.get(OURS), result.series.get(ROUNDED)
    return Outcome(
        subset="bf16",
        name=f"{model}, products of bf16",
        ratio=None if ours is None or rounded is None else rounded.seconds / ours.seconds,
        at_least=False,
        bar=ROUNDED_BAR,
        unit="× our f32",
        detail="; ".join(result.failures.values())[:160],
        error=None if rounded is None else rounded.error,
        largest_error=ROUNDED_ERROR,
    )


def thread_outcome(title: str, ratio: float | None, detail: str) -> Outcome:
    """Return a two-thread row."""
    return Outcome(
        subset="threads",
        name=f"{title}, two threads",
        ratio=ratio,
        at_least=False,
        bar=THREAD_BAR,
        unit="× one thread",
        detail=detail[:160],
    )


def time_outcome(name: str, seconds: float | None, bar_s: float, detail: str) -> Outcome:
    """Return a row whose bar is a time; its ratio is the share of the bar that was used."""
    used = (
        "" if seconds is None else f"{format_duration(seconds)} of {format_duration(bar_s)}"
    )
    return Outcome(
        subset="processes",
        name=name,
        ratio=None if seconds is None else seconds / bar_s,
        at_least=False,
        bar=1.0,
        unit="of the time allowed",
        detail=detail[:160] or used,
    )


def memory_outcome(name: str, ratio: float | None, detail: str) -> Outcome:
    """Return a row whose bar is an amount of memory."""
    return Outcome(
        subset="processes",
        name=name,
        ratio=ratio,
        at_least=False,
        bar=1.0,
        unit="of 3 × weights + 500 MB",
        detail=detail[:160],
    )
