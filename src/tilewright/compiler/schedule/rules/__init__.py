"""The rules: how a kernel shall run on a machine, chosen by its structure.

Each nest goes one way: a rule matches it (`match`), says all that may be chosen (`space`), takes the point that the cost
model likes best or that somebody decided, and carries it out (`apply`).  One file per class of nest; `schedule` is the
only door for kernels; which form suits a graph is asked of `algorithms`, `tiles` and `tilings`.  No rule knows an op or a
model.  A rule that meets something it cannot prove leaves the nest as it was, and the next one tries; the last one only
looks for an outer loop to share out, so every kernel gets a correct schedule.  What it came to is the kernel's `verdict`.  Called by the pipeline, and by tuners: `space_of`, `schedule(decisions=...)`.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar, final

from tilewright.base.errors import ScheduleError, UserError
from tilewright.base.outcome import Outcome, Verdict
from tilewright.base.record import record
from tilewright.base.text import did_you_mean, format_duration
from tilewright.compiler.kernel.ir import Kernel
from tilewright.compiler.kernel.rewrite import loops
from tilewright.compiler.schedule.decisions import ChoiceSpace, Decision, Site
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.rules.attention import RowTiles, match_attention
from tilewright.compiler.schedule.rules.attention_streams import (
    KeyStreams,
    match_key_streams,
)
from tilewright.compiler.schedule.rules.bands import Bands, match_bands
from tilewright.compiler.schedule.rules.columns import Columns, match_columns
from tilewright.compiler.schedule.rules.contraction import match_contraction
from tilewright.compiler.schedule.rules.generic import Sharing, match_generic
from tilewright.compiler.schedule.rules.many_rows import ManyRows, match_many_rows
from tilewright.compiler.schedule.rules.pointwise import Pointwise, match_pointwise
from tilewright.compiler.schedule.rules.prepare import prepare
from tilewright.compiler.schedule.rules.rows import Rows, match_rows
from tilewright.compiler.schedule.rules.structure import guarded_nests, top_nests
from tilewright.compiler.schedule.rules.tilings import Tiling
from tilewright.compiler.schedule.rules.verdict import (
    NestVerdict,
    kernel_verdict,
    nest_verdict,
)
from tilewright.compiler.schedule.rules.workgroups import Grid, largest_nest
from tilewright.compiler.schedule.trace import Schedule
from tilewright.compiler.schedule.tree import find

Made = TypeVar("Made")
Matcher = Callable[[Schedule, str, MachineModel, int], Site[Any, Outcome] | None]
"""(schedule, outermost loop of a nest, machine, threads) -> what the rule can do with the nest, if it is of its class."""
ArrangementMatcher = Callable[[Schedule, MachineModel], Site[Any, list[str]] | None]
"""The same of all nests; carried out, it gives the outermost loops of what stands in a workgroup, then the nests beside."""
_RULES: Final[tuple[tuple[type[Decision], Matcher], ...]] = (
    (KeyStreams, match_key_streams),
    (RowTiles, match_attention),
    (Tiling, match_contraction),
    (Pointwise, match_pointwise),
    (Columns, match_columns),
    (Rows, match_rows),
    (Sharing, match_generic),
)
"""What each rule chooses, and the rule; the first that matches and can be carried out takes the nest."""
_ARRANGEMENTS: Final[tuple[tuple[type[Decision], ArrangementMatcher], ...]] = (
    (Bands, match_bands),
    (ManyRows, match_many_rows),
)
"""What puts nests of a kernel into workgroups together, before any nest is scheduled."""
_KINDS: Final = {kind.rule: kind for kind, _ in (*_ARRANGEMENTS, *_RULES)}
"""What can be decided, by the word in front."""


@final
@record
class Decisions:
    """What was decided for a kernel: one record per nest, the largest nest first; before them, if it is cut in bands, how.

    >>> text = "contraction columns=32 lanes=8 rows=[2,7] streams=1 outer=rows panels=2 tiles=3 steps=0 unroll=4 prefetch=no near=no"
    >>> Decisions.parse(text).to_text() == text
    True
    """

    nests: tuple[Decision, ...]

    def to_text(self) -> str:
        """One line, which `parse` reads back."""
        return "; ".join(map(str, self.nests))

    __str__ = to_text

    @staticmethod
    def parse(text: str) -> Decisions:
        """Read what `to_text` wrote.  Raises: ScheduleError naming the word that is not understood."""
        found: list[Decision] = []
        for part in filter(None, map(str.strip, text.split(";"))):
            rule, *words = part.split()
            if rule not in _KINDS:
                hint = did_you_mean(rule, _KINDS) or f"rules: {' '.join(_KINDS)}"
                raise ScheduleError(f"there is no rule '{rule}'", hint=hint)
            found.append(_KINDS[rule].read(words))
        return Decisions(tuple(found))


@final
@record
class KernelSpace:
    """All that may be chosen for a kernel: the space of each of its nests, the largest nest first."""

    nests: tuple[ChoiceSpace[Any], ...]

    def best(self) -> Decisions:
        """What `schedule` takes when nothing is decided."""
        return Decisions(tuple(space.best() for space in self.nests))

    def points(self) -> Iterator[Decisions]:
        """Every point; there may be very many."""
        return map(Decisions, itertools.product(*(space.points() for space in self.nests)))

    def neighbours(self, point: Decisions) -> Iterator[Decisions]:
        """Points that differ in one choice of one nest, and in what no longer fits it."""
        for at, (space, chosen) in enumerate(zip(self.nests, point.nests, strict=True)):
            for near in space.neighbours(chosen):
                yield Decisions((*point.nests[:at], near, *point.nests[at + 1 :]))

    def sample(self, chance: random.Random) -> Decisions:
        """A point picked by chance."""
        return Decisions(tuple(space.sample(chance) for space in self.nests))


def schedule(
    kernel: Kernel,
    machine: MachineModel,
    *,
    threads: int = 1,
    decisions: Decisions | None = None,
) -> Kernel:
    """The kernel as it shall run on `machine`, with trace, notes, verdict, and what was decided.

    `threads` sizes workgroups; what is computed does not depend on it.  `decisions` are a point of `space_of` the kernel;
    None: the best by the cost model.

    Raises: ScheduleError for decisions that do not fit the kernel.
    """
    return _Run(kernel, machine, threads, decisions).finish()


def space_of(kernel: Kernel, machine: MachineModel, *, threads: int = 1) -> KernelSpace:
    """All that may be decided for a kernel.  Units: as for `schedule`."""
    run = _Run(kernel, machine, threads, None)
    run.finish()
    return KernelSpace(tuple(run.spaces))


@final
class _Run:
    """One kernel on its way through the rules."""

    def __init__(
        self,
        kernel: Kernel,
        machine: MachineModel,
        threads: int,
        decisions: Decisions | None,
    ) -> None:
        self.s: Schedule = Schedule(kernel)
        self.machine: MachineModel = machine
        self.threads: int = threads
        self.decisions: Decisions | None = decisions
        self.chosen: list[Decision] = []
        self.spaces: list[ChoiceSpace[Any]] = []

    def finish(self) -> Kernel:
        """Schedule every nest: those in bands first, or the largest, which the grid is made of."""
        s = self.s
        prepare(s)
        order = self._arranged()
        main = None if order else largest_nest(s.kernel)
        if not order:
            names = [nest.var.name for nest in top_nests(s.kernel)]
            first = [] if main is None else [main]
            order = [*first, *(name for name in names if name != main)]
            order += [nest.var.name for nest in guarded_nests(s.kernel)]
        grids = {n: Grid(s, main=n == main, threads=self.threads) for n in order}
        found = [self._nest(n, grids[n]) for n in order if self._is_there(n)]
        if self.decisions is not None and len(self.decisions.nests) != len(self.chosen):
            raise ScheduleError(
                f"decisions for {len(self.decisions.nests)} nests, the kernel has {len(self.chosen)}",
                location=s.kernel.name,
            )
        return self._concluded(kernel_verdict(found))

    def _arranged(self) -> list[str]:
        """Put nests into workgroups together; the nests that are left to be scheduled, those first."""
        decided = None if self.decisions is None else next(iter(self.decisions.nests), None)
        rules = [
            (kind, partial(match, self.s, self.machine))
            for kind, match in _ARRANGEMENTS
            if self.decisions is None or kind is type(decided)
        ]
        return self._carried_out(rules, decided, Grid(self.s, threads=self.threads)) or []

    def _is_there(self, nest: str) -> bool:
        return any(loop.var.name == nest for loop in loops(self.s.kernel.body))

    def _concluded(self, verdict: Verdict) -> Kernel:
        s = self.s
        text = f"outcome: {verdict.outcome}, about {format_duration(verdict.expected_ns)}"
        if verdict.is_slow:
            text += f"; in lanes {format_duration(verdict.lanes_ns)}"
        s.note(text)
        s.note(f"decided: {Decisions(tuple(self.chosen))}")
        return replace(s.kernel, verdict=verdict)

    def _nest(self, nest: str, grid: Grid) -> NestVerdict:
        naive, loop = self.s.kernel, find(self.s.kernel, nest)
        outcome = self._rule(nest, grid)
        return nest_verdict(loop, outcome, naive, self.s.kernel, self.machine)

    def _rule(self, nest: str, grid: Grid) -> Outcome:
        """The word of the first rule that applies; the kernel is what that rule made of it."""
        decided = self._decided()
        rules = [
            (kind, partial(match, self.s, nest, self.machine, self.threads))
            for kind, match in _RULES
            if decided is None or kind is type(decided)
        ]
        outcome = self._carried_out(rules, decided, grid)
        if outcome is None:
            raise ScheduleError(
                f"'{decided}' does not fit a nest", location=self.s.kernel.name
            )
        return outcome

    def _carried_out(
        self,
        rules: Iterable[tuple[type[Decision], Callable[[], Site[Any, Made] | None]]],
        decided: Decision | None,
        grid: Grid,
    ) -> Made | None:
        """What the first rule gives that matches and can be carried out; None where there is none."""
        s = self.s
        for kind, match in rules:
            before = s.kernel
            try:
                site = match()
                if site is not None:
                    space = site.space()
                    point = space.best() if decided is None else space.check(decided)
                    made = site.apply(point, grid)
                    self.chosen.append(point)
                    self.spaces.append(space)
                    return made
                s.kernel = before
            except UserError as error:
                if decided is not None:
                    raise
                s.kernel = before
                s.note(f"{kind.rule} does not apply: {error.message}")
        return None

    def _decided(self) -> Decision | None:
        """What was decided for the next nest."""
        if self.decisions is None:
            return None
        at = len(self.chosen)
        if at >= len(self.decisions.nests):
            raise ScheduleError(
                f"decisions for {at} nests, the kernel has more",
                location=self.s.kernel.name,
            )
        return self.decisions.nests[at]
