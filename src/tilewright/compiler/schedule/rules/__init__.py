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
from tilewright.compiler.schedule.rules.columns import schedule_columns
from tilewright.compiler.schedule.rules.contraction import schedule_contraction
from tilewright.compiler.schedule.rules.pointwise import schedule_pointwise
from tilewright.compiler.schedule.rules.prepare import prepare
from tilewright.compiler.schedule.rules.rows import schedule_rows
from tilewright.compiler.schedule.rules.structure import parallel_chain, top_nests
from tilewright.compiler.schedule.rules.tiles import contraction_panel
from tilewright.compiler.schedule.rules.workgroups import bind_all, block, join_nests
from tilewright.compiler.schedule.trace import Schedule
from tilewright.compiler.schedule.tree import find

__all__ = ["contraction_panel", "schedule"]

Rule = Callable[[Schedule, str, Target, int], "list[str] | None"]


def schedule(kernel: Kernel, target: Target, *, threads: int = 1) -> Kernel:
    """The kernel as it shall run on `target`, with trace and notes.

    `threads` sizes workgroups; what is computed does not depend on it.
    """
    s = Schedule(kernel)
    prepare(s)
    grids = [
        _schedule_nest(s, name, target, threads)
        for name in [nest.var.name for nest in top_nests(s.kernel)]
    ]
    if len(s.kernel.body) == 1:
        for grid in grids:
            bind_all(s, grid)
    else:
        join_nests(s, grids)
    return s.kernel


def _schedule_nest(s: Schedule, nest: str, target: Target, threads: int) -> list[str]:
    if all(other.var.name != nest for other in top_nests(s.kernel)):
        return []
    for rule in _RULES:
        before = s.kernel
        try:
            grid = rule(s, nest, target, threads)
        except UserError as error:
            s.kernel = before
            s.note(f"{rule.__name__.strip('_')} does not apply: {error.message}")
            continue
        if grid is not None:
            return grid
        s.kernel = before
    return []


def _pointwise(s: Schedule, nest: str, target: Target, threads: int) -> list[str] | None:
    del threads
    return schedule_pointwise(s, nest, target)


def _columns(s: Schedule, nest: str, target: Target, threads: int) -> list[str] | None:
    del threads
    return schedule_columns(s, nest, target)


def _rows(s: Schedule, nest: str, target: Target, threads: int) -> list[str] | None:
    del threads
    return schedule_rows(s, nest, target)


def _generic(s: Schedule, nest: str, target: Target, threads: int) -> list[str] | None:
    """Share out the outermost loop, if its iterations are independent; nothing else."""
    del target, threads
    chain = parallel_chain(find(s.kernel, nest))
    s.note("generic: serial code")
    return block(s, chain[0].var.name, 1)[0] if chain else []


_RULES: Final[tuple[Rule, ...]] = (
    schedule_contraction,
    _pointwise,
    _columns,
    _rows,
    _generic,
)
