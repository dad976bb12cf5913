"""Workgroups: outer loops of a nest in blocks, bound to the grid.

Called by every rule, and by `schedule` when a kernel has several nests.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.compiler.kernel.ir import For
from tilewright.compiler.schedule.primitives import bind, fuse, join, split
from tilewright.compiler.schedule.rules.structure import estimate, top_nests, trip_count
from tilewright.compiler.schedule.trace import Schedule
from tilewright.compiler.schedule.tree import find


def fuse_all(s: Schedule, names: Sequence[str]) -> str:
    """One loop of perfectly nested ones."""
    name = names[0]
    for inner in names[1:]:
        into = s.fresh(f"{name}_f")
        s.apply(fuse, name, inner, into)
        name = into
    return name


def block(s: Schedule, name: str, size: int) -> tuple[list[str], str]:
    """Cut a loop into workgroups of `size` iterations: (grid loops, the loop inside)."""
    extent = find(s.kernel, name).extent
    if isinstance(extent, int) and extent <= size:
        return [], name
    if size == 1:
        return [name], name
    names = (s.fresh(f"{name}_b"), s.fresh(f"{name}_n"))
    s.apply(split, name, size, "tight", names)
    return [names[0]], names[1]


def bind_all(s: Schedule, grid: Sequence[str]) -> None:
    """Workgroups for the outermost loops: the innermost of them along x."""
    names = list(grid)
    while len(names) > 2:
        names = [fuse_all(s, names[:2]), *names[2:]]
    for name, axis in zip(reversed(names), "xy", strict=False):
        s.attempt(bind, name, axis)


def join_nests(s: Schedule, grids: Sequence[Sequence[str]]) -> None:
    """One grid for several nests: that of the largest, the others beside it."""
    nests = {nest.var.name: nest for nest in top_nests(s.kernel)}
    mains = [grid for grid in grids if grid and grid[0] in nests]
    if not mains:
        return
    main = max(mains, key=lambda grid: _size(nests[grid[0]]))
    into = s.fresh("workgroup")
    before = s.kernel
    if s.attempt(join, fuse_all(s, main), into) and s.attempt(bind, into, "x"):
        s.note(f"{len(nests)} nests in one grid")
    else:
        s.kernel = before
        s.note(f"{len(nests)} nests depend on each other: one workgroup runs them in order")


def _size(nest: For) -> int:
    def count(loop: For) -> int:
        inner = [s for s in loop.body if isinstance(s, For)]
        return max(1, estimate(loop.extent)) * (1 + sum(count(s) for s in inner))

    return count(nest)


def iterations(s: Schedule, names: Sequence[str]) -> int:
    """How often the body of nested loops runs, estimated."""
    return trip_count(find(s.kernel, name) for name in names)
