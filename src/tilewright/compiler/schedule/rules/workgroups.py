"""Workgroups: outer loops of a nest in blocks, bound to the grid.

Called by every rule, and by `schedule` when a kernel has several nests.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from tilewright.base import symbolic
from tilewright.compiler.kernel.ir import For, Kernel
from tilewright.compiler.kernel.rewrite import loops
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
    most = symbolic.bounds(find(s.kernel, name).extent)[1]
    if most is not None and most <= size:
        return [], name
    if size == 1:
        return [name], name
    names = (s.fresh(f"{name}_b"), s.fresh(f"{name}_n"))
    s.apply(split, name, size, "tight", names)
    return [names[0]], names[1]


@final
@dataclass(frozen=True, slots=True)
class Grid:
    """Where a rule hands in the loops of a nest that shall become workgroups.

    It does so as soon as they stand outermost, before the inside is rewritten: what is private to
    an iteration is easy to prove then.
    """

    s: Schedule
    main: bool = True

    def commit(self, names: Sequence[str]) -> None:
        """Bind `names` (outermost first), with the other nests of the kernel beside them."""
        if not names or not self.main:
            return
        if len(self.s.kernel.body) == 1:
            self._bind(list(names))
        else:
            self._join(names)

    def _bind(self, names: list[str]) -> None:
        s = self.s
        if len(names) > 2:
            names = [fuse_all(s, names[:-1]), names[-1]]
        for name, axis in zip(names, "yx" if len(names) == 2 else "x", strict=True):
            if not s.attempt(bind, name, axis):
                s.note(f"iterations of '{name}' depend on each other: not shared out")

    def _join(self, names: Sequence[str]) -> None:
        s = self.s
        count = len(s.kernel.body)
        before = s.kernel
        into = s.fresh("workgroup")
        if s.attempt(join, fuse_all(s, names), into) and s.attempt(bind, into, "x"):
            s.note(f"{count} parts in one grid")
            return
        s.kernel = before
        s.note(f"{count} parts depend on each other: one workgroup runs them in order")


def largest_nest(kernel: Kernel) -> str | None:
    """The nest at the top that does most."""
    nests = top_nests(kernel)
    return max(nests, key=_size).var.name if nests else None


def _size(nest: For) -> int:
    def count(loop: For) -> int:
        inner = [s for s in loop.body if isinstance(s, For)]
        return max(1, estimate(loop.extent)) * (1 + sum(count(s) for s in inner))

    return count(nest)


def iterations(s: Schedule, names: Sequence[str]) -> int:
    """How often the body of nested loops runs, estimated."""
    return trip_count(find(s.kernel, name) for name in names)


def fresh_stem(s: Schedule, base: str) -> str:
    """A name that neither a loop nor a numbered copy of a loop has."""
    names = [loop.var.name for loop in loops(s.kernel.body)]
    stem = base
    while any(re.fullmatch(rf"{re.escape(stem)}(_\d+)?", name) for name in names):
        stem += "x"
    return stem


def copies(s: Schedule, stem: str) -> list[For]:
    """The loops called `stem` and their numbered copies."""
    pattern = re.compile(rf"{re.escape(stem)}(_\d+)?")
    return [loop for loop in loops(s.kernel.body) if pattern.fullmatch(loop.var.name)]
