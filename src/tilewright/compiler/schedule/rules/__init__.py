"""The rules: which primitives a kernel gets on a target, chosen by its structure.

One file per class of nest; `schedule` is the only door.  No rule knows an op or a model.  Called
by the pipeline.
"""

from __future__ import annotations

from tilewright.base.target import Target
from tilewright.compiler.kernel.ir import Kernel
from tilewright.compiler.schedule.primitives import bind, fuse
from tilewright.compiler.schedule.rules.contraction import schedule_contraction
from tilewright.compiler.schedule.rules.prepare import prepare
from tilewright.compiler.schedule.rules.structure import top_nests
from tilewright.compiler.schedule.rules.tiles import contraction_panel
from tilewright.compiler.schedule.trace import Schedule

__all__ = ["contraction_panel", "schedule"]


def schedule(kernel: Kernel, target: Target, *, threads: int = 1) -> Kernel:
    """The kernel as it shall run on `target`, with trace and notes.

    `threads` sizes workgroups; what is computed does not depend on it.
    """
    s = Schedule(kernel)
    prepare(s)
    for nest in top_nests(s.kernel):
        grid = schedule_contraction(s, nest.var.name, target, threads)
        if grid is not None:
            _bind(s, grid)
    return s.kernel


def _bind(s: Schedule, grid: list[str]) -> None:
    """Workgroups for the outermost loops: the innermost of them along x."""
    while len(grid) > 2:
        into = s.fresh(f"{grid[0]}_f")
        s.apply(fuse, grid[0], grid[1], into)
        grid = [into, *grid[2:]]
    for name, axis in zip(reversed(grid), "xy", strict=False):
        s.attempt(bind, name, axis)
