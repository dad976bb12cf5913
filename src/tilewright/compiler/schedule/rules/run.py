"""A kernel's way through the rules: which of them there are, and which takes which nest.

Called by the door of the room (`rules.schedule`, `rules.space_of`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar, final

from tilewright.base.errors import ScheduleError, UserError
from tilewright.base.outcome import Outcome, Verdict
from tilewright.base.text import format_duration
from tilewright.compiler.kernel.ir import Kernel
from tilewright.compiler.kernel.rewrite import loops
from tilewright.compiler.schedule.decisions import ChoiceSpace, Decision, Site, text_of
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
from tilewright.compiler.schedule.rules.stages import Stages, match_stages
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
    (Stages, match_stages),
)
"""What puts nests of a kernel into workgroups together, before any nest is scheduled."""
KINDS: Final = {kind.rule: kind for kind, _ in (*_ARRANGEMENTS, *_RULES)}
"""What can be decided, by the word in front."""


@final
class Run:
    """One kernel on its way through the rules."""

    def __init__(
        self,
        kernel: Kernel,
        machine: MachineModel,
        threads: int,
        decisions: tuple[Decision, ...] | None,
    ) -> None:
        self.s: Schedule = Schedule(kernel)
        self.machine: MachineModel = machine
        self.threads: int = threads
        self.decisions: tuple[Decision, ...] | None = decisions
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
        if self.decisions is not None and len(self.decisions) != len(self.chosen):
            raise ScheduleError(
                f"decisions for {len(self.decisions)} nests, the kernel has {len(self.chosen)}",
                location=s.kernel.name,
            )
        return self._concluded(kernel_verdict(found))

    def _arranged(self) -> list[str]:
        """Put nests into workgroups together; the nests that are left to be scheduled, those first."""
        decided = None if self.decisions is None else next(iter(self.decisions), None)
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
        s.note(f"decided: {text_of(self.chosen)}")
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
        if at >= len(self.decisions):
            raise ScheduleError(
                f"decisions for {at} nests, the kernel has more",
                location=self.s.kernel.name,
            )
        return self.decisions[at]
