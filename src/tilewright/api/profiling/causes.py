"""What holds a kernel up, from what was seen of it: one cause, a sentence with its figures, what would help.

Decided from what was measured (times, threads, the limits of the machine) and from what its schedule
came to, never from the name of an op.  Called by `explanation` and reports.
"""

from __future__ import annotations

import enum
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import numpy as np

from tilewright.api.profiling.kernels import (
    START_NS,
    KernelRow,
    Sample,
    constant_bytes,
    rows_of,
)
from tilewright.api.profiling.roofline import MEMORY, Roofline
from tilewright.base.outcome import NOTICEABLE_NS, Outcome
from tilewright.base.symbolic import evaluate
from tilewright.base.text import format_bytes, format_duration, plural
from tilewright.formats.tensor_text import Array

if TYPE_CHECKING:
    from tilewright.runtime.session import Session

_DONE: Final = 0.8  # of a limit: what is left is not worth looking for
_EVEN: Final = 0.75  # of the time of all threads is work
_NODES: Final = 3
_TUNED_FORMS: Final = (".onnx", ".mlir", ".mlirbc")

Words = tuple[str, tuple[str, ...]]
"""Why, as sentences, and what to try."""


@final
class Cause(enum.StrEnum):
    """What holds a kernel up."""

    HOST = "runs on the host"
    CALL = "a function of another module"
    NO_LANES = "runs without vectors"
    START = "too short to matter"
    PIECES = "fewer pieces than threads"
    ABSENT = "threads that come too late"
    UNEVEN = "threads wait for each other"
    COMPUTE = "at the limit of arithmetic"
    MEMORY = "at the limit of memory"
    CACHE = "at the limit of a cache"
    BELOW = "below all its limits"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What was seen of a kernel over all its runs in a call.

    Attributes:
        row: its time, arithmetic, bytes.
        pieces: the workgroups of its largest run; 0 where nobody knows.
        came: threads that did some of it; 0 where nobody looked.
        busy: the share of their time that was work.
        weight_bytes: what it reads of constants.
        best_ns: its time where every run took as long as the shortest of its kind.
    """

    row: KernelRow
    pieces: int = 0
    came: int = 0
    busy: float = 1.0
    weight_bytes: int = 0
    best_ns: int = 0


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFinding:
    """A kernel, what holds it up, and what would help.  Units: nanoseconds of a call.

    Attributes:
        share: of the time of all steps.
        limit: what it is nearest to (`compute`, `memory`, `L3` …, `start`), and how near: `of_limit`.
        could_save_ns: what a call would win if it were at that limit; 0 where it cannot be.
    """

    kernel: str
    nodes: tuple[str, ...]
    runs: int
    time_ns: int
    share: float
    cause: Cause
    limit: str
    of_limit: float
    could_save_ns: int
    reason: str
    advice: tuple[str, ...]

    @property
    def heading(self) -> str:
        """The kernel with its time and the nodes of the model that it computes."""
        more = len(self.nodes) - _NODES
        nodes = ", ".join(self.nodes[:_NODES]) + (f" +{more}" if more > 0 else "")
        where = f" ({nodes})" if nodes else ""
        time, runs = format_duration(self.time_ns), plural(self.runs, "run")
        return (
            f"{self.kernel}: {time} in {runs}, {100 * self.share:.1f} % of all steps{where}"
        )


def observe(
    session: Session, arrays: Sequence[Array], samples: Sequence[Sequence[Sample]]
) -> tuple[Observation, ...]:
    """What calls that were profiled tell of each kernel, slowest first."""
    dims = session.executor.dimensions_of(arrays)
    plan = None if session.variant is None else session.variant.plan
    places: dict[str, list[int]] = {}
    for place, (step, _) in enumerate(samples[0]):
        places.setdefault(step.target or step.kind, []).append(place)
    found: list[Observation] = []
    for row in rows_of(session, arrays, samples):
        steps = [samples[0][place].step for place in places[row.name]]
        runs = [[call[place] for call in samples] for place in places[row.name]]
        came, busy = _threads(runs)
        grids = ([evaluate(extent, dims) for extent in step.grid] for step in steps)
        found.append(
            Observation(
                row=row,
                pieces=max((int(np.prod(grid)) for grid in grids if grid), default=0),
                came=came,
                busy=busy,
                weight_bytes=sum(constant_bytes(plan, step, dims) for step in steps),
                best_ns=sum(min(s.timing.duration_ns for s in run) for run in runs),
            )
        )
    return tuple(found)


def _threads(runs: Sequence[Sequence[Sample]]) -> tuple[int, float]:
    """How many threads did some of a kernel, and the share of their time that was work: medians."""
    seen = [
        s.timing for run in runs for s in run if s.timing.threads and s.timing.duration_ns
    ]
    if not seen:
        return 0, 1.0
    work = (
        sum(span.end_ns - span.begin_ns for span in timing.threads)
        / (len(timing.threads) * timing.duration_ns)
        for timing in seen
    )
    came = np.median([len(timing.threads) for timing in seen])
    return round(float(came)), float(np.median(list(work)))


def findings_of(
    seen: Sequence[Observation], limits: Roofline, *, model: str, dims: Mapping[str, int]
) -> tuple[KernelFinding, ...]:
    """What holds each kernel up, and what would help.

    Args:
        seen: of each kernel.
        limits: of the machine, for the threads that a call may use.
        model: the name of its file, for the commands that are proposed.
        dims: the sizes that a call decided.
    """
    total = sum(each.row.time_ns for each in seen) or 1
    explainer = _Explainer(limits, model, dims)
    return tuple(explainer.finding(each, total) for each in seen)


@final
class _Explainer:
    """Turns what was seen into sentences."""

    def __init__(self, limits: Roofline, model: str, dims: Mapping[str, int]) -> None:
        self._limits: Roofline = limits
        self._model: str = model
        self._name: str = shlex.quote(model)
        self._dims: Mapping[str, int] = dims

    def finding(self, seen: Observation, total_ns: int) -> KernelFinding:
        row = seen.row
        limit, near = row.limit(self._limits)
        cause = (
            _by_outcome(row)
            or _by_limit(row, limit, near)
            or _by_threads(seen, self._limits.threads)
            or Cause.BELOW
        )
        reason, advice = _WORDS[cause](self, seen, limit, f"{100 * near:.0f} %")
        return KernelFinding(
            kernel=row.name,
            nodes=row.nodes,
            runs=row.calls,
            time_ns=row.time_ns,
            share=row.time_ns / total_ns,
            cause=cause,
            limit=limit,
            of_limit=near,
            could_save_ns=0
            if cause in _NOTHING_TO_WIN
            else round(row.time_ns * (1 - near)),
            reason=reason,
            advice=advice,
        )

    def host(self, seen: Observation, limit: str, percent: str) -> Words:
        del seen, limit, percent
        reason = "There is no kernel for it: its reference implementation runs, in Python and on one thread."
        return reason, (
            self._coverage(),
            "write the model with another operator, or give the op a body",
        )

    def call(self, seen: Observation, limit: str, percent: str) -> Words:
        del seen, limit, percent
        return "A code generator of yours made it; nothing is known of its inside.", ()

    def no_lanes(self, seen: Observation, limit: str, percent: str) -> Words:
        del seen, limit, percent
        sizes = ", ".join(sorted(self._dims))
        fixed = f"fix the sizes that your calls have ({sizes}): --input-shape"
        reason = "It computes one element after the other, without vectors."
        return reason, (self._coverage(), *((fixed,) if sizes else ()))

    def start(self, seen: Observation, limit: str, percent: str) -> Words:
        del limit, percent
        each = format_duration(seen.row.time_ns / seen.row.calls)
        reason = f"A run takes {each}; starting it and waiting for its end is most of that."
        fewer = ("--threads 1: nothing waits for other threads",)
        more = "give a call more to do, such as a larger batch"
        return reason, (more, *(fewer if self._limits.threads > 1 else ()))

    def pieces(self, seen: Observation, limit: str, percent: str) -> Words:
        del limit, percent
        threads, pieces = self._limits.threads, plural(seen.pieces, "piece")
        idle = threads - seen.pieces
        reason = f"Its work is {pieces}, so {idle} of {threads} threads have nothing to do."
        return reason, ("fewer threads, or larger inputs", *self._tune(seen.row))

    def absent(self, seen: Observation, limit: str, percent: str) -> Words:
        del limit, percent
        reason = (
            f"{seen.came} of {self._limits.threads} threads did all of it; the others had not begun when it was over: "
            "other processes run on their cores, or it is too short for them."
        )
        return reason, (f"--threads {seen.came}, or a machine that does nothing else",)

    def uneven(self, seen: Observation, limit: str, percent: str) -> Words:
        del limit, percent
        reason = (
            f"Its threads work {100 * seen.busy:.0f} % of the time and wait for each other the rest: "
            f"{plural(seen.pieces, 'piece')} on {self._limits.threads} threads."
        )
        return reason, ("fewer threads", *self._tune(seen.row))

    def compute(self, seen: Observation, limit: str, percent: str) -> Words:
        del seen, limit
        reason = (
            f"Its multiply-adds run at {percent} of what this machine reaches: "
            "only less arithmetic makes it faster."
        )
        return reason, (
            "8-bit integers (a QDQ model), or --precision=bf16 where the CPU multiplies bf16",
            "a smaller model",
        )

    def moved(self, seen: Observation, limit: str, percent: str) -> Words:
        size = seen.row.size_bytes
        source = "memory" if limit == MEMORY else f"the {limit} cache"
        rate = f"at {percent} of what {source} delivers: only fewer bytes make it faster."
        if seen.weight_bytes > size / 2:
            return f"It reads {format_bytes(seen.weight_bytes)} of weights, {rate}", (
                f"tilewright quantize {self._name} -o small.onnx: 4 or 8 bits a weight",
                "a larger batch, which reads the weights once for all its rows",
            )
        return f"It moves {format_bytes(size)}, {rate}", (
            "smaller types (f16, bf16, 8 bits)",
            "a smaller batch, whose tensors stay in a cache",
        )

    def below(self, seen: Observation, limit: str, percent: str) -> Words:
        reason = (
            f"It is nearest to {limit} and reaches {percent} of it. What stops it is none of the limits: short loops, "
            "work that is no multiply-add (exponentials, taking numbers apart), or a schedule that could be better."
        )
        name = seen.row.name
        look = f"tilewright inspect {self._name} --output=kernel --kernel={name} says why its schedule is as it is"
        return reason, (*self._tune(seen.row), look)

    def _coverage(self) -> str:
        return f"tilewright coverage {self._name} names the node and the reason"

    def _tune(self, row: KernelRow) -> tuple[str, ...]:
        if not self._model.endswith(_TUNED_FORMS):
            return ("tilewright tune, on the model that this was compiled from",)
        sizes = sorted(self._dims.items())
        dims = "".join(f" --dim {name}={value}" for name, value in sizes)
        words = f"tilewright tune {self._name} --kernel {row.name}"
        return (f"{words} --threads {self._limits.threads}{dims}",)


_WORDS: Final[Mapping[Cause, Callable[[_Explainer, Observation, str, str], Words]]] = {
    Cause.HOST: _Explainer.host,
    Cause.CALL: _Explainer.call,
    Cause.NO_LANES: _Explainer.no_lanes,
    Cause.START: _Explainer.start,
    Cause.PIECES: _Explainer.pieces,
    Cause.ABSENT: _Explainer.absent,
    Cause.UNEVEN: _Explainer.uneven,
    Cause.COMPUTE: _Explainer.compute,
    Cause.MEMORY: _Explainer.moved,
    Cause.CACHE: _Explainer.moved,
    Cause.BELOW: _Explainer.below,
}
_NOTHING_TO_WIN: Final = frozenset(
    (Cause.START, Cause.CALL, Cause.COMPUTE, Cause.MEMORY, Cause.CACHE)
)


def _by_outcome(row: KernelRow) -> Cause | None:
    """What its schedule came to, where that is the matter."""
    match row.outcome:
        case Outcome.HOST:
            return Cause.HOST
        case Outcome.CALL:
            return Cause.CALL
        case Outcome.GENERIC if row.time_ns > NOTICEABLE_NS * row.calls:
            return Cause.NO_LANES
        case _:
            return None


def _by_limit(row: KernelRow, limit: str, near: float) -> Cause | None:
    """The limit that it has reached."""
    if near < _DONE:
        return Cause.START if row.time_ns < START_NS * row.calls else None
    return {"compute": Cause.COMPUTE, MEMORY: Cause.MEMORY}.get(limit, Cause.CACHE)


def _by_threads(seen: Observation, threads: int) -> Cause | None:
    """How its threads shared it, where that is the matter."""
    if 0 < seen.pieces < threads:
        return Cause.PIECES
    if 0 < seen.came < threads:
        return Cause.ABSENT
    return Cause.UNEVEN if seen.came > 1 and seen.busy < _EVEN else None
