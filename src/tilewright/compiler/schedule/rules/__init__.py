"""The rules: how a kernel shall run on a machine, chosen by its structure.

Each nest goes one way: a rule matches it (`match`), says all that may be chosen (`space`), takes the point that the cost
model likes best or that somebody decided, and carries it out (`apply`).  One file per class of nest; `schedule` is the
only door for kernels; which form suits a graph is asked of `algorithms`, `tiles` and `tilings`.  No rule knows an op or a
model.  A rule that meets something it cannot prove leaves the nest as it was, and the next one tries; the last one only
looks for an outer loop to share out, so every kernel gets a correct schedule.  What it came to is the kernel's `verdict`.  Called by the pipeline, and by tuners: `space_of`, `schedule(decisions=...)`.

The rules themselves are loaded where the first kernel is scheduled: a compilation whose kernels are all known asks none.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, final

from tilewright.base.errors import ScheduleError
from tilewright.base.fork_locks import LATE_IMPORTS
from tilewright.base.record import record
from tilewright.base.text import did_you_mean
from tilewright.compiler.kernel.ir import Kernel
from tilewright.compiler.schedule.decisions import ChoiceSpace, Decision, text_of
from tilewright.compiler.schedule.machine_model import MachineModel

if TYPE_CHECKING:
    from tilewright.compiler.schedule.rules.run import Run


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
        return text_of(self.nests)

    __str__ = to_text

    @staticmethod
    def parse(text: str) -> Decisions:
        """Read what `to_text` wrote.  Raises: ScheduleError naming the word that is not understood."""
        with LATE_IMPORTS:
            from tilewright.compiler.schedule.rules.run import KINDS  # noqa: PLC0415 - see above
        found: list[Decision] = []
        for part in filter(None, map(str.strip, text.split(";"))):
            rule, *words = part.split()
            if rule not in KINDS:
                hint = did_you_mean(rule, KINDS) or f"rules: {' '.join(KINDS)}"
                raise ScheduleError(f"there is no rule '{rule}'", hint=hint)
            found.append(KINDS[rule].read(words))
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
    decided = None if decisions is None else decisions.nests
    return _run_of(kernel, machine, threads, decided).finish()


def space_of(kernel: Kernel, machine: MachineModel, *, threads: int = 1) -> KernelSpace:
    """All that may be decided for a kernel.  Units: as for `schedule`."""
    run = _run_of(kernel, machine, threads, None)
    run.finish()
    return KernelSpace(tuple(run.spaces))


def _run_of(
    kernel: Kernel,
    machine: MachineModel,
    threads: int,
    decisions: tuple[Decision, ...] | None,
) -> Run:
    with LATE_IMPORTS:
        from tilewright.compiler.schedule.rules.run import Run  # noqa: PLC0415 - see above
    return Run(kernel, machine, threads, decisions)
