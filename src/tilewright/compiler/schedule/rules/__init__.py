"""The rules: which primitives a kernel gets on a target, chosen by its structure.

One file per class of nest; `schedule` is the only door.  No rule knows an op or a model.  A rule
that meets something it cannot prove leaves the nest as it was, and the next one tries; the last
one only looks for an outer loop to share out, so every kernel gets a correct schedule.  What it
came to is the kernel's `verdict`.  Called by the pipeline.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from tilewright.base.errors import UserError
from tilewright.base.outcome import Outcome, Verdict
from tilewright.base.target import Target
from tilewright.base.text import format_duration
from tilewright.compiler.kernel.ir import Kernel
from tilewright.compiler.kernel.rewrite import loops
from tilewright.compiler.schedule.rules.columns import schedule_columns
from tilewright.compiler.schedule.rules.contraction import schedule_contraction
from tilewright.compiler.schedule.rules.pointwise import schedule_pointwise
from tilewright.compiler.schedule.rules.prepare import prepare
from tilewright.compiler.schedule.rules.rows import schedule_rows
from tilewright.compiler.schedule.rules.structure import (
    estimate,
    parallel_chain,
    top_nests,
)
from tilewright.compiler.schedule.rules.tiles import contraction_panel
from tilewright.compiler.schedule.rules.verdict import (
    NestVerdict,
    kernel_verdict,
    nest_verdict,
    unscheduled,
)
from tilewright.compiler.schedule.rules.workgroups import Grid, largest_nest
from tilewright.compiler.schedule.trace import Schedule
from tilewright.compiler.schedule.tree import find

__all__ = ["contraction_panel", "estimate", "schedule", "unscheduled"]

Rule = Callable[[Schedule, str, Target, int, Grid], Outcome | None]


def schedule(kernel: Kernel, target: Target, *, threads: int = 1) -> Kernel:
    """The kernel as it shall run on `target`, with trace, notes and verdict.

    `threads` sizes workgroups; what is computed does not depend on it.
    """
    s = Schedule(kernel)
    prepare(s)
    names = [nest.var.name for nest in top_nests(s.kernel)]
    main = largest_nest(s.kernel)
    found: list[NestVerdict] = []
    for name in () if main is None else (main, *(n for n in names if n != main)):
        if any(loop.var.name == name for loop in loops(s.kernel.body)):
            grid = Grid(s, main=name == main)
            found.append(_schedule_nest(s, name, target, threads, grid))
    return _concluded(s, kernel_verdict(found))


def _concluded(s: Schedule, verdict: Verdict) -> Kernel:
    text = f"outcome: {verdict.outcome}, about {format_duration(verdict.expected_ns)}"
    if verdict.is_slow:
        text += f"; in lanes {format_duration(verdict.lanes_ns)}"
    s.note(text)
    return replace(s.kernel, verdict=verdict)


def _schedule_nest(
    s: Schedule, nest: str, target: Target, threads: int, grid: Grid
) -> NestVerdict:
    naive, loop = s.kernel, find(s.kernel, nest)
    outcome = _apply_rules(s, nest, target, threads, grid)
    return nest_verdict(loop, outcome, naive, s.kernel, target)


def _apply_rules(
    s: Schedule, nest: str, target: Target, threads: int, grid: Grid
) -> Outcome:
    """The word of the first rule that applies; the kernel is what that rule made of it."""
    for rule in _RULES:
        before = s.kernel
        try:
            outcome = rule(s, nest, target, threads, grid)
        except UserError as error:
            s.kernel = before
            s.note(f"{rule.__name__.strip('_')} does not apply: {error.message}")
            continue
        if outcome is not None:
            return outcome
        s.kernel = before
    raise AssertionError("the last rule always applies")


def _pointwise(
    s: Schedule, nest: str, target: Target, threads: int, grid: Grid
) -> Outcome | None:
    del threads
    return schedule_pointwise(s, nest, target, grid)


def _columns(
    s: Schedule, nest: str, target: Target, threads: int, grid: Grid
) -> Outcome | None:
    del threads
    return schedule_columns(s, nest, target, grid)


def _rows(
    s: Schedule, nest: str, target: Target, threads: int, grid: Grid
) -> Outcome | None:
    del threads
    return schedule_rows(s, nest, target, grid)


def _generic(
    s: Schedule, nest: str, target: Target, threads: int, grid: Grid
) -> Outcome | None:
    """Share out the outermost loop, if its iterations are independent; nothing else."""
    del target, threads
    chain = parallel_chain(find(s.kernel, nest))
    s.note("generic: serial code")
    if chain:
        grid.commit([chain[0].var.name])
    return Outcome.GENERIC


_RULES: Final[tuple[Rule, ...]] = (
    schedule_contraction,
    _pointwise,
    _columns,
    _rows,
    _generic,
)
