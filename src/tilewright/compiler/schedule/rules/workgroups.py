"""Workgroups: outer loops of a nest in blocks, bound to the grid.

Called by every rule, and by `schedule` when a kernel has several nests.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import final

from tilewright.base import symbolic
from tilewright.base.record import record
from tilewright.compiler.analysis.dependence import lines_of_an_iteration
from tilewright.compiler.analysis.sizes import estimate, trip_count
from tilewright.compiler.kernel.ir import For, Kernel, Statement
from tilewright.compiler.schedule import primitives as do
from tilewright.compiler.schedule.handles import WHOLE, Piece
from tilewright.compiler.schedule.primitives.tails import guard_of
from tilewright.compiler.schedule.rules.structure import top_nests
from tilewright.compiler.schedule.trace import Schedule
from tilewright.compiler.schedule.tree import find


def fuse_all(s: Schedule, names: Sequence[str]) -> str:
    """One loop of perfectly nested ones."""
    name = names[0]
    for inner in names[1:]:
        into = s.fresh(f"{name}_f")
        s.apply(do.fuse, name, inner, into)
        name = into
    return name


def cut(
    s: Schedule, name: str, size: int, outer: str, inner: str, *tail: str
) -> tuple[str, str]:
    """Split a loop, as `split` does with this `tail`; both loops get free names, made of `outer` and `inner`."""
    return s.apply(do.split, name, size, *tail, into=(s.fresh(outer), s.fresh(inner)))


def divided(s: Schedule, name: str, factor: int) -> tuple[Piece, ...]:
    """Cut off what `factor` does not divide."""
    extent = find(s.kernel, name).extent
    if symbolic.is_multiple(extent, factor):
        return (WHOLE,)
    return s.apply(do.partition, name, symbolic.floordiv(extent, factor) * factor)


def block(
    s: Schedule, name: str, size: int, *, cuts_ones: bool = False
) -> tuple[list[str], str]:
    """Cut a loop into workgroups of `size` iterations: (grid loops, the loop inside).

    Of single iterations the loop itself is the grid's, unless it `cuts_ones`, too: then a loop of one is inside.
    """
    most = symbolic.bounds(find(s.kernel, name).extent)[1]
    if most is not None and most <= size:
        return [], name
    if size == 1 and not cuts_ones:
        return [name], name
    outer, inner = cut(s, name, size, f"{name}_b", f"{name}_n", "tight")
    return [outer], inner


def blocks_of(
    s: Schedule, names: Sequence[str], size: int, counts: Mapping[str, int] | None = None
) -> list[str]:
    """Fuse nested loops and cut them into workgroups of about `size` iterations: the grid loops.

    Only as many loops as it takes: inner ones keep their simple indices.  `counts`: see `iterations`.
    """
    depth = len(names)
    while depth > 1 and iterations(s, names[depth - 1 :], counts) <= size:
        depth -= 1
    inner = iterations(s, names[depth:], counts)
    name = fuse_all(s, names[:depth])
    return block(s, name, max(1, size // max(1, inner)))[0]


def blocks_of_work(
    s: Schedule,
    names: Sequence[str],
    work: int,
    inner: int = 1,
    counts: Mapping[str, int] | None = None,
) -> list[str]:
    """Fuse the outer loops and cut them into workgroups of about `work` elements, `inner` in each iteration: the grid loops.

    An iteration of one element takes as long as four in lanes.  `counts`: see `iterations`.
    """
    size = max(1, work // 4 if inner == 1 else work // max(1, inner))
    return blocks_of(s, names, size, counts) if names else []


@final
@record
class Grid:
    """Where a rule hands in the loops of a nest that shall become workgroups.

    It does so as soon as they stand outermost, before the inside is rewritten: what is private to
    an iteration is easy to prove then.
    """

    s: Schedule
    main: bool = True
    threads: int = 1

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
            if not s.attempt(do.bind, name, axis) and not self._bind_apart(name, axis):
                s.note(f"iterations of '{name}' depend on each other: not shared out")

    def _bind_apart(self, name: str, axis: str) -> bool:
        """Bind a loop whose iterations meet in what each needs alone, where more than one thread gains by it.

        One thread has a line in its cache that all iterations share, and would have to fetch theirs.
        """
        s, before = self.s, self.s.kernel
        if (
            self.threads > 1
            and needs_little(s.kernel, name)
            and s.attempt(do.separate, name)
            and s.attempt(do.bind, name, axis)
        ):
            s.note(f"each iteration of '{name}' has temporaries of its own")
            return True
        s.kernel = before
        return False

    def _join(self, names: Sequence[str]) -> None:
        s = self.s
        count = len(s.kernel.body)
        before = s.kernel
        into = s.fresh("workgroup")
        if s.attempt(do.join, fuse_all(s, names), into) and s.attempt(do.bind, into, "x"):
            s.note(f"{count} parts in one grid")
            return
        s.kernel = before
        s.note(f"{count} parts depend on each other: one workgroup runs them in order")


def needs_little(kernel: Kernel, name: str) -> bool:
    """Whether what iterations of a loop need alone takes, for all of them, no more than what the kernel reads and writes."""
    loop = find(kernel, name)
    own = sum(
        estimate(math.prod(buffer.shape, start=loop.extent)) * buffer.dtype.itemsize
        for buffer in lines_of_an_iteration(kernel, loop)
    )
    tensors = [parameter.buffer for parameter in kernel.parameters]
    return own <= sum(estimate(math.prod(b.shape)) * b.dtype.itemsize for b in tensors)


def largest_nest(kernel: Kernel) -> str | None:
    """The nest at the top that does most."""
    nests = top_nests(kernel)
    return max(nests, key=_size).var.name if nests else None


def _size(nest: For) -> int:
    def count(loop: For) -> int:
        inner = [s for s in loop.body if isinstance(s, For)]
        return max(1, estimate(loop.extent)) * (1 + sum(count(s) for s in inner))

    return count(nest)


def iterations(
    s: Schedule, names: Sequence[str], counts: Mapping[str, int] | None = None
) -> int:
    """How often the body of nested loops runs, estimated; an inner loop as in the first iterations of the others.

    `counts`: of loops by name, as who made them knows it better than their extent tells.
    """
    known = counts or {}
    nest = [find(s.kernel, name) for name in names if name not in known]
    count = math.prod(known[name] for name in names if name in known)
    return count * trip_count(nest, dict.fromkeys(names, 0))


def ends_open(loop: Statement | None) -> bool:
    """Whether it is a loop in which a guard, by a size that only a call knows, decides which of its iterations are there."""
    found = guard_of(loop) if isinstance(loop, For) else None
    return found is not None and not isinstance(found[2], int)


def halved(
    s: Schedule, part: Piece, lane: str, top: str, lanes: int, times: int = 64
) -> list[Piece]:
    """Vectors side by side of which some lanes are left out: half of them, and so on, where a call leaves no more.

    The cases are told apart in front of the loop `top`; `times` is how often a half is halved at most.
    """
    loop = find(s.kernel, part[lane])
    if guard_of(loop) is None or not isinstance(loop.extent, int) or not times:
        return [part]
    half = -(-loop.extent // lanes // 2) * lanes
    if half >= loop.extent:
        return [part]
    long, *short = s.parts(do.shorten, part[lane], half, part[top])
    more = (halved(s, part.then(p), lane, top, lanes, times - 1) for p in short)
    return [part.then(long), *(p for parts in more for p in parts)]


def parts_of(
    s: Schedule, parts: Sequence[Piece], name: str, at: str = "", tail: str = "exact"
) -> list[Piece]:
    """What is left of `parts` when the loop `name` of each has its partial run in code of its own."""
    return [
        part.then(further)
        for part in parts
        for further in s.parts(do.specialize, part[name], part[at] if at else None, tail)
    ]
