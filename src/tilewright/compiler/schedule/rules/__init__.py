"""The rules: which primitives a kernel gets on a target, chosen by its structure.

One file per class of nest; `schedule` is the only door.  No rule knows an op or a model.  A rule
that meets something it cannot prove leaves the nest as it was, and the next one tries; the last
one only looks for an outer loop to share out, so every kernel gets a correct schedule.  Called by
the pipeline.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tilewright.base.errors import UserError
from tilewright.base.target import Target
from tilewright.compiler.kernel.ir import Kernel
from tilewright.compiler.kernel.rewrite import loops
from tilewright.compiler.schedule.rules.columns import schedule_columns
from tilewright.compiler.schedule.rules.contraction import schedule_contraction
from tilewright.compiler.schedule.rules.pointwise import schedule_pointwise
from tilewright.compiler.schedule.rules.prepare import prepare
from tilewright.compiler.schedule.rules.rows import schedule_rows
from tilewright.compiler.schedule.rules.structure import parallel_chain, top_nests
from tilewright.compiler.schedule.rules.tiles import contraction_panel
from tilewright.compiler.schedule.rules.workgroups import Grid, largest_nest
from tilewright.compiler.schedule.trace import Schedule
from tilewright.compiler.schedule.tree import find

__all__ = ["contraction_panel", "schedule"]

Rule = Callable[[Schedule, str, Target, int, Grid], bool]


def schedule(kernel: Kernel, target: Target, *, threads: int = 1) -> Kernel:
    """The kernel as it shall run on `target`, with trace and notes.

    `threads` sizes workgroups; what is computed does not depend on it.
    """
    s = Schedule(kernel)
    prepare(s)
    names = [nest.var.name for nest in top_nests(s.kernel)]
    main = largest_nest(s.kernel)
    if main is not None:
        _schedule_nest(s, main, target, threads, Grid(s))
    for name in names:
        if name != main and any(loop.var.name == name for loop in loops(s.kernel.body)):
            _schedule_nest(s, name, target, threads, Grid(s, main=False))
    return s.kernel


def _schedule_nest(
    s: Schedule, nest: str, target: Target, threads: int, grid: Grid
) -> None:
    for rule in _RULES:
        before = s.kernel
        try:
            if rule(s, nest, target, threads, grid):
                return
        except UserError as error:
            s.kernel = before
            s.note(f"{rule.__name__.strip('_')} does not apply: {error.message}")
            continue
        s.kernel = before


def _pointwise(s: Schedule, nest: str, target: Target, threads: int, grid: Grid) -> bool:
    del threads
    return schedule_pointwise(s, nest, target, grid)


def _columns(s: Schedule, nest: str, target: Target, threads: int, grid: Grid) -> bool:
    del threads
    return schedule_columns(s, nest, target, grid)


def _rows(s: Schedule, nest: str, target: Target, threads: int, grid: Grid) -> bool:
    del threads
    return schedule_rows(s, nest, target, grid)


def _generic(s: Schedule, nest: str, target: Target, threads: int, grid: Grid) -> bool:
    """Share out the outermost loop, if its iterations are independent; nothing else."""
    del target, threads
    chain = parallel_chain(find(s.kernel, nest))
    s.note("generic: serial code")
    if chain:
        grid.commit([chain[0].var.name])
    return True


_RULES: Final[tuple[Rule, ...]] = (
    schedule_contraction,
    _pointwise,
    _columns,
    _rows,
    _generic,
)
