"""The time of a tuning run, shared out between the kernels of a model, and its end checked with the whole model.

Kernels that take most of a call and of which least was tried come next.  Everything is in the store at once, so that a run
that is stopped is taken up by the next.  How code is made and run is given (`Bench`), so that tests need no
machine.  Called by `api.tune`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol, final

from tilewright.base.errors import ScheduleError
from tilewright.base.log import Log
from tilewright.compiler.backends.kernel_cache import KernelRequest
from tilewright.compiler.backends.tuning_store import Finding, TuningStore
from tilewright.compiler.schedule.rules import Decisions, KernelSpace
from tilewright.tuning.comparison import Clock, Comparison, compare
from tilewright.tuning.search import KernelSearch

_LOG: Final = Log("tuning")
_BATCH: Final = 4
_BATCHES: Final = 4
"""Points that are compiled together, and how often that is done before another kernel's turn."""
_ROUNDS: Final = 7
_CONFIRMING: Final = 21
_PROMISING: Final = 0.99


class Candidate(Protocol):
    """A point as code."""

    @property
    def code(self) -> str:
        """Equal for points that came to the same code."""
        ...

    def __call__(self) -> None:
        """Run it."""
        ...


class Work(Protocol):
    """A kernel with tensors."""

    @property
    def repeats(self) -> int:
        """How often a candidate runs in one call."""
        ...

    def build(self, points: Sequence[Any]) -> Sequence[Candidate]:
        """Points as code.  Raises: InternalError for one that gives another result than the first."""
        ...

    def settle(self, runnable: Any, clock: Clock) -> float:
        """How many nanoseconds one run takes; later candidates run long enough to be timed."""
        ...


@final
@dataclass(eq=False)
class Tuned:
    """A kernel of the model, and what is known of it.

    Attributes:
        request: the kernel, without decisions.
        uses: steps of the model that run it.
        open_work: gives it tensors.
        space: all that may be decided.
        ns: of one run with the cost model's decisions; 0 as long as that is not known.
        finding: the best, where something is better than the cost model's.
    """

    request: KernelRequest
    uses: int
    open_work: Callable[[], Work]
    space: KernelSpace
    search: KernelSearch
    ns: float = 0.0
    is_done: bool = False
    finding: Finding | None = None
    codes: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def name(self) -> str:
        """The kernel's."""
        return self.request.naive.name

    @property
    def weight(self) -> float:
        """How much another point of it is worth: its part of a call, less for each that was tried."""
        return self.ns * self.uses / (1 + len(self.search.tried))

    @property
    def gain_ns(self) -> float:
        """What was found saves in a call."""
        found = self.finding
        return 0.0 if found is None else (found.before_ns - found.after_ns) * self.uses


@final
class Tuner:
    """Tries points of kernels until the time is over.

    Args:
        kernels: of the model.
        store: what was tried and found, before and from now on.
        clock: nanoseconds.
        watch: told what is tried, and what part of the time is over.
    """

    def __init__(
        self,
        kernels: Sequence[Tuned],
        store: TuningStore,
        *,
        clock: Clock = time.perf_counter_ns,
        watch: Callable[[str, float], None] = lambda _, __: None,
    ) -> None:
        self.kernels: Final = kernels
        self._store: Final = store
        self._clock: Final = clock
        self._watch: Final = watch
        self._begin: int = clock()
        self._budget_ns: float = 0.0
        self.tried_now: int = 0

    def run(self, seconds: float) -> None:
        """Search for about so long.

        Raises: InternalError for a point that computes something else; UserError where the store cannot be written.
        """
        self._begin, self._budget_ns = self._clock(), seconds * 1e9
        for kernel in self.kernels:
            if self._is_over():
                return
            self._watch(kernel.name, self._spent())
            self._open(kernel)
        while not self._is_over():
            ready = [k for k in self.kernels if not k.is_done]
            if not ready:
                return
            self._turn(max(ready, key=lambda k: k.weight))

    def _spent(self) -> float:
        return min(1.0, (self._clock() - self._begin) / max(self._budget_ns, 1.0))

    def _is_over(self) -> bool:
        return self._clock() - self._begin >= self._budget_ns

    def _open(self, kernel: Tuned) -> None:
        """Time the cost model's point."""
        work = kernel.open_work()
        (start,) = work.build([kernel.search.start])
        kernel.ns = work.settle(start, self._clock)
        kernel.codes[start.code] = 1.0

    def _turn(self, kernel: Tuned) -> None:
        """Try some points of one kernel."""
        work, search = kernel.open_work(), kernel.search
        (start,) = work.build([search.start])
        work.settle(start, self._clock)
        best, *_ = work.build([search.best])
        for _ in range(_BATCHES):
            points = search.next_points(_BATCH)
            kernel.is_done = not points
            if not points or self._is_over():
                break
            before = len(search.tried)
            try:
                for point, candidate in zip(points, work.build(points), strict=True):
                    self._watch(f"{kernel.name} ({len(search.tried)} tried)", self._spent())
                    best = self._try(kernel, point, candidate, best)
            finally:
                self.tried_now += len(search.tried) - before
                self._store.note_tried(kernel.request.key, search.tried)
        if search.best != search.start:
            self._keep(kernel)

    def _try(
        self, kernel: Tuned, point: Decisions, candidate: Candidate, best: Candidate
    ) -> Candidate:
        """Compare a point with the best one.  Returns: which is the best now."""
        search = kernel.search
        known = kernel.codes.get(candidate.code)
        if known is not None:
            search.note(point, known)
            return best
        found = self._compare(best, candidate, _ROUNDS)
        is_best = found.ratio < _PROMISING
        if is_best:
            found = self._compare(best, candidate, _CONFIRMING)
            is_best = found.is_gain
        ratio = found.ratio * search.best_ratio
        kernel.codes[candidate.code] = ratio
        search.note(point, ratio, is_best=is_best)
        return candidate if is_best else best

    def _compare(self, first: Candidate, second: Candidate, rounds: int) -> Comparison:
        return compare(first, second, rounds=rounds, clock=self._clock, gives_up=True)

    def _keep(self, kernel: Tuned) -> None:
        """Put the best point into the store, if it beats the cost model's side by side on tensors that lie elsewhere.

        Where tensors lie in memory decides what they drive out of the caches: in one place a point may win by a
        third that is no better in another.
        """
        search, known = kernel.search, kernel.finding
        text = str(search.best)
        if known is not None and known.decisions == text:
            return
        work = kernel.open_work()
        (start,) = work.build([search.start])
        work.settle(start, self._clock)
        start, best = work.build([search.start, search.best])
        found = compare(start, best, rounds=_CONFIRMING, clock=self._clock)
        if not found.is_gain:
            search.note(search.best, found.ratio)
            search.best = search.start
            return
        before = found.first_ns / work.repeats
        kernel.finding = Finding(kernel.name, text, before, before * found.ratio)
        self._store.note_best(kernel.request.key, kernel.finding)


def make_tuned(
    request: KernelRequest,
    uses: int,
    space: KernelSpace,
    open_work: Callable[[], Work],
    store: TuningStore,
) -> Tuned:
    """A kernel with what the store knows of it, as far as that is still understood."""
    tried = {
        text: ratio
        for text, ratio in store.tried(request.key).items()
        if _is_point(space, text)
    }
    search = KernelSearch(space, tried, seed=0)
    tuned = Tuned(request, uses, open_work, space, search)
    found = store.findings([request.key]).get(request.key)
    point = None if found is None else _known_point(space, found)
    if found is not None and point is not None:
        ratio = found.after_ns / max(found.before_ns, 1e-9)
        search.note(point, ratio, is_best=True)
        tuned.finding = found
    return tuned


def _known_point(space: KernelSpace, found: Finding) -> Decisions | None:
    """What a store says is best, if it is a point of the space."""
    try:
        return _point_of(space, found.decisions)
    except (ScheduleError, ValueError) as error:
        _LOG.warning("kernel '%s': what was found is not used: %s", found.kernel, error)
        return None


def _is_point(space: KernelSpace, text: str) -> bool:
    """Whether a search may walk on from what a store says was tried."""
    try:
        return str(_point_of(space, text)) == text
    except (ScheduleError, ValueError):
        return False


def _point_of(space: KernelSpace, text: str) -> Decisions:
    """The point that a text names.  Raises: ScheduleError, ValueError for one that the space does not have."""
    pairs = zip(space.nests, Decisions.parse(text).nests, strict=True)
    return Decisions(tuple(nest.check(chosen) for nest, chosen in pairs))


Slowdown = Callable[[Mapping[str, Decisions], Mapping[str, Decisions]], Comparison]
"""Compares the model with some decisions to the model with others; what both lack is the cost model's."""


def keep_what_helps(
    found: Mapping[str, Decisions], slowdown: Slowdown
) -> dict[str, Decisions]:
    """Of decisions, the ones most wanted first, those that do not make the whole model slower.

    Halves are tried where all together make it slower, down to single kernels.
    """
    kept: dict[str, Decisions] = {}
    waiting = [tuple(found)] if found else []
    while waiting:
        part = waiting.pop()
        more = kept | {key: found[key] for key in part}
        if slowdown(kept, more).ratio <= 1.0:
            kept = more
        elif len(part) > 1:
            half = len(part) // 2
            waiting += [part[half:], part[:half]]
    return kept


def mark_checked(
    kernels: Sequence[Tuned], kept: Mapping[str, Decisions], store: TuningStore
) -> None:
    """Let compilations take what was kept, and forget the rest."""
    for kernel in kernels:
        key = kernel.request.key
        if kernel.finding is None:
            continue
        if key in kept:
            kernel.finding = replace(kernel.finding, is_checked=True)
            store.note_best(key, kernel.finding)
        else:
            kernel.finding = None
            store.drop([key])
