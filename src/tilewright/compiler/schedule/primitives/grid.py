"""Primitives that make workgroups: bind an outermost loop to the grid, join nests in one loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.base.errors import ScheduleError
from tilewright.compiler.analysis import dependence
from tilewright.compiler.analysis.accesses import accesses
from tilewright.compiler.kernel.expressions import Expressions
from tilewright.compiler.kernel.ir import Body, For, If, Kernel, LoopKind, Statement
from tilewright.compiler.kernel.rewrite import substitute
from tilewright.compiler.schedule import tree
from tilewright.compiler.schedule.handles import LoopName
from tilewright.compiler.schedule.trace import primitive

E = Expressions


@primitive
def bind(kernel: Kernel, loop: str, axis: str) -> Kernel:
    """Run the iterations of an outermost loop as workgroups along a grid axis.

    rewrite:
        for i in n: S(i)
        ->
        grid.x i in n: S(i)

    Raises: ScheduleError if anything stands beside or around the loop except grid loops, if the
    axis is taken, or if the iterations are not independent.
    """
    old = tree.find(kernel, loop)
    kinds = {"x": LoopKind.GRID_X, "y": LoopKind.GRID_Y, "z": LoopKind.GRID_Z}
    if axis not in kinds:
        raise ScheduleError(f"grid axes are x, y and z, got '{axis}'")
    path = tree.path_to(kernel.body, old) or ()
    level: Sequence[Statement] = kernel.body
    for statement in (*path, old):
        if len(level) != 1:
            raise ScheduleError(f"'{loop}' is not alone at the top of '{kernel.name}'")
        if statement is old:
            break
        if not isinstance(statement, For) or statement.kind not in kinds.values():
            raise ScheduleError(f"'{loop}' is inside other code, not outermost")
        level = statement.body
    if any(isinstance(s, For) and s.kind is kinds[axis] for s in path):
        raise ScheduleError(f"grid axis '{axis}' is taken")
    met = dependence.carried(old, scope=kernel.body, updates_commute=False)
    if met is not None:
        raise ScheduleError(f"iterations of '{loop}' meet in '{met.name}'")
    return tree.rewrite(kernel, old, (replace(old, kind=kinds[axis]),))


@primitive
def join(kernel: Kernel, loop: str, into: str) -> tuple[Kernel, LoopName]:
    """Make one loop of everything at the top of a kernel: the iterations of `loop`, then the rest.

    For kernels of several nests that do not depend on each other, so that all of them become
    workgroups of one grid.

    rewrite:
        for i in n: A(i)
        B
        ->
        for j in n + 1:
            if j < n: A(j)
            if j == n: B

    Raises: ScheduleError if `loop` is not at the top or the parts touch the same elements.
    """
    old = tree.find(kernel, loop)
    if old not in kernel.body:
        raise ScheduleError(f"'{loop}' is not at the top of '{kernel.name}'")
    rest = tuple(s for s in kernel.body if s is not old)
    if not rest:
        return kernel, LoopName(loop)
    dependence.check_fixed((old,), old.body)
    both = dependence.overlap(accesses((old,)), accesses(rest))
    if both is not None:
        raise ScheduleError(f"'{loop}' and the code beside it both touch '{both.name}'")
    joined = tree.make_loop(tree.free_name(kernel, into), old.extent + 1, ())
    index = tree.reference(joined.var)
    narrow = tree.loop_symbol(into, old.extent)
    first = substitute(old.body, {loop: tree.reference(narrow)})
    body: Body = (
        If(E.compare("lt", E.index(index), E.index(old.extent)), first),
        If(E.compare("eq", E.index(index), E.index(old.extent)), rest),
    )
    return replace(kernel, body=(tree.with_inner(joined, body),)), LoopName(into)
