"""One case between two contenders in one process: results compared, calls timed in turns.

What it is: what becomes of a model; refusals and wrong numbers are rows like any other.
What it is not: protection from a contender that ends the process (``referee.py``).
Who calls it: ``worker.py`` of this package.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
import onnx
import onnxruntime

import tilewright
from sweep.case import Case
from sweep.network import Array, Network
from sweep.report import KNOWN
from tilewright.base.errors import UserError

LONG_CALL_S: Final = 0.25
NEWS: Final = 1.3
REPEATS: Final = 2
TOLERANCES: Final = {"float16": 5e-3, "bfloat16": 5e-2, "float32": 2e-5, "float64": 1e-5}
Call = Callable[[], object]
Shape = Sequence[int | str]
Answer = dict[str, Any]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Stopwatch:
    """How calls are timed.

    Attributes:
        clock: What is read, in seconds.
        rounds: Turns of each contender.
        round_s: What a turn takes about.
        most_calls: In a turn.
        singly: Each call by itself; else what calls of a turn take on average, where reading the clock costs more.
    """

    clock: Callable[[], float]
    rounds: int
    round_s: float
    most_calls: int
    singly: bool


WALL: Final = Stopwatch(
    clock=time.perf_counter, rounds=5, round_s=0.012, most_calls=400, singly=True
)
PROCESSOR: Final = Stopwatch(
    clock=time.process_time, rounds=25, round_s=0.002, most_calls=1000, singly=False
)


class RefusalError(Exception):
    """A contender would not take a model or a call."""


class Ours:
    """The model compiled here."""

    name = "tilewright"

    def __init__(self, model: onnx.ModelProto, feeds: dict[str, Array]) -> None:
        self.model = tilewright.compile(model, threads=1, jobs=1)
        self.inputs = tuple(feeds.values())

    def runs_as(self) -> str:
        """Return how its kernels were scheduled, each way once; "" where nothing is left to do."""
        return " ".join(sorted(set(self.model.compiled.parts[0].plan.outcomes.values())))

    def call(self) -> object:
        """Run once."""
        return self.model(*self.inputs)

    def outputs(self) -> list[Array]:
        """Return the results in order."""
        result = self.call()
        many = result if isinstance(result, tuple) else (result,)
        return [np.asarray(value) for value in many]


@final
class Known(Ours):
    """The model compiled here for the sizes of the call, beside one for symbols."""

    name = KNOWN


class Symbols(Ours):
    """The model compiled here for symbols: equal sizes are one symbol, or only first axes are open."""

    def __init__(self, model: onnx.ModelProto, feeds: dict[str, Array]) -> None:
        refusal = UserError("no size of an input is above 1")
        for shapes in openings(feeds):
            try:
                super().__init__(opened(model, shapes), feeds)
                self.outputs()
            except UserError as error:
                refusal = error
            else:
                return
        raise refusal


@final
class Peer:
    """onnxruntime's CPU provider with its own defaults on one thread."""

    name = "onnxruntime"

    def __init__(self, model: onnx.ModelProto, feeds: dict[str, Array]) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        self.session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        self.feeds = feeds

    def call(self) -> object:
        """Run once."""
        return self.session.run(None, self.feeds)

    def outputs(self) -> list[Array]:
        """Return the results in order."""
        return [np.asarray(value) for value in self.session.run(None, self.feeds)]


Kind = type[Ours] | type[Peer]
KINDS: Final[Sequence[Kind]] = (Ours, Peer)
WITH_SYMBOLS: Final[Sequence[Kind]] = (Symbols, Peer, Known)


def openings(feeds: Mapping[str, Array]) -> Iterator[dict[str, list[int | str]]]:
    """Yield shapes of inputs with symbols: for all sizes above 1, then for those of first axes only."""
    for most in (None, 1):
        shapes: dict[str, list[int | str]] = {
            name: [
                f"s{size}" if size > 1 and axis in range(array.ndim)[:most] else size
                for axis, size in enumerate(array.shape)
            ]
            for name, array in feeds.items()
        }
        if any(isinstance(size, str) for shape in shapes.values() for size in shape):
            yield shapes


def opened(model: onnx.ModelProto, shapes: Mapping[str, Shape]) -> onnx.ModelProto:
    """Return the model with symbols as sizes of its inputs, and nothing said of other values."""
    freed = onnx.ModelProto()
    freed.CopyFrom(model)
    for value in freed.graph.input:
        for dim, size in zip(
            value.type.tensor_type.shape.dim, shapes[value.name], strict=True
        ):
            if isinstance(size, str):
                dim.dim_param = size
    del freed.graph.value_info[:]
    for output in freed.graph.output:
        output.type.tensor_type.ClearField("shape")
    return freed


def difference(one: Array, other: Array) -> float:
    """Return the relative Frobenius error; infinite where shapes or NaNs differ."""
    if one.shape != other.shape:
        return float("inf")
    first, second = one.astype(np.float64).ravel(), other.astype(np.float64).ravel()
    same = (first == second) | (np.isnan(first) & np.isnan(second))
    with np.errstate(invalid="ignore"):  # ∞ - ∞ is only looked at where it differs
        distance = np.where(same, 0.0, first - second)
    if not np.isfinite(distance).all():
        return float("inf")
    finite = np.where(np.isfinite(second), second, 0.0)
    return float(np.linalg.norm(distance) / (np.linalg.norm(finite) + 1e-30))


def disagreement(case: Case, ours: Sequence[Array], theirs: Sequence[Array]) -> str:
    """Return how the results differ beyond the tolerance, or nothing."""
    if len(ours) != len(theirs):
        return f"{len(ours)} results, peer has {len(theirs)}"
    for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        if one.shape != other.shape:
            return f"result {index}: shape {one.shape}, peer's {other.shape}"
        if one.dtype != other.dtype:
            return f"result {index}: type {one.dtype}, peer's {other.dtype}"
        limit = case.tolerance
        if limit is None:
            limit = TOLERANCES.get(other.dtype.name, 0.0)
        error = difference(one, other)
        if not error <= limit:
            return f"result {index}: error {error:.1e}, allowed {limit:.0e}"
    return ""


def open_contender(kind: Kind, model: onnx.ModelProto, feeds: dict[str, Array]):
    """Return a contender and its results."""
    try:
        contender = kind(model, feeds)
        return contender, contender.outputs()
    except Exception as error:
        text = " ".join(str(error).split())
        raise RefusalError(f"{type(error).__name__}: {text[:300]}") from error


def time_round(call: Call, count: int, watch: Stopwatch) -> list[float]:
    """Return the durations of ``count`` calls, or what one of them takes on average."""
    clock = watch.clock
    groups, size = (count, 1) if watch.singly else (1, count)
    times: list[float] = []
    for _ in range(groups):
        start = clock()
        for _ in range(size):
            call()
        times.append((clock() - start) / size)
    return times


def count_for(call: Call, watch: Stopwatch) -> int:
    """Return how many calls fill a round, after warming up."""
    call()
    (taken,) = time_round(call, 1, watch)
    return max(1, min(watch.most_calls, int(watch.round_s / max(taken, 1e-7))))


def race(calls: Sequence[Call], watch: Stopwatch = WALL) -> list[Answer]:
    """Time calls in turns; return least and median of each in seconds."""
    counts = [count_for(call, watch) for call in calls]
    first = [time_round(call, 1, watch) for call in calls]
    rounds = 1 if max(map(min, first)) > LONG_CALL_S else watch.rounds
    medians: list[list[float]] = [[] for _ in calls]
    least = [float("inf")] * len(calls)
    gc.collect()
    gc.disable()
    try:
        for number in range(rounds):
            order = range(len(calls)) if number % 2 == 0 else reversed(range(len(calls)))
            for index in order:
                times = time_round(calls[index], counts[index], watch)
                medians[index].append(statistics.median(times))
                least[index] = min(least[index], *times)
    finally:
        gc.enable()
    return [
        {"min_s": low, "median_s": statistics.median(middle)}
        for low, middle in zip(least, medians, strict=True)
    ]


def hold(case: Case, kinds: Sequence[Kind] = KINDS, watch: Stopwatch = WALL) -> Answer:
    """Run a case and return its row: times, or who refused and why."""
    network = Network(case.name, case.opset)
    model = network.model(case.build(network))
    row: Answer = {"name": case.name, "family": case.family, "nodes": len(network.nodes)}
    contenders: dict[str, Ours | Peer] = {}
    results: dict[str, list[Array]] = {}
    for kind in kinds:
        start = time.perf_counter()
        try:
            contenders[kind.name], results[kind.name] = open_contender(
                kind, model, network.feeds
            )
        except RefusalError as refusal:
            row["refused"] = {**row.get("refused", {}), kind.name: str(refusal)}
        row[f"{kind.name}_load_s"] = time.perf_counter() - start
    if isinstance(contender := contenders.get(Ours.name), Ours):
        row["runs_as"] = contender.runs_as()
    if {Ours.name, Peer.name} <= contenders.keys():
        row["wrong"] = disagreement(case, results[Ours.name], results[Peer.name])
    row.update(compare(list(contenders.values()), watch))
    return row


def compare(contenders: Sequence[Ours | Peer], watch: Stopwatch) -> Answer:
    """Return the times of each contender by name, nothing where none is left.

    A ratio that would be news is measured again before it is believed, and the better of the
    two measurements of each contender holds: what else runs on the machine only adds time.
    """
    if not contenders:
        return {}
    calls = [contender.call for contender in contenders]
    times = race(calls, watch)
    for _ in range(REPEATS):
        if times[0]["min_s"] <= NEWS * min(taken["min_s"] for taken in times):
            break
        again = race(calls, watch)
        times = [
            {key: min(one[key], other[key]) for key in one}
            for one, other in zip(times, again, strict=True)
        ]
    return {
        contender.name: taken for contender, taken in zip(contenders, times, strict=True)
    }
