"""The workgroup grid of a kernel, read off its outermost loops.

And the threads of a workgroup.  Called by the program (dispatch counts), code generators (workgroup ids), the
evaluator and lowering.
"""

from __future__ import annotations

from typing import Final

from tilewright.base.symbolic import Dim
from tilewright.compiler.kernel.ir import (
    Barrier,
    For,
    Kernel,
    LoopKind,
    Statement,
    walk,
)
from tilewright.compiler.kernel.rewrite import only_statement

GRID_KINDS: Final = (LoopKind.GRID_X, LoopKind.GRID_Y, LoopKind.GRID_Z)
THREAD_KINDS: Final = (LoopKind.THREAD_X, LoopKind.THREAD_Y, LoopKind.THREAD_Z)


def grid_loops(kernel: Kernel) -> tuple[For, ...]:
    """The loops bound to the grid, outermost first."""
    loops: list[For] = []
    body = kernel.body
    while len(body) == 1 and isinstance(body[0], For) and body[0].kind in GRID_KINDS:
        loops.append(body[0])
        body = body[0].body
    return tuple(loops)


def thread_chain(outer: For) -> tuple[For, ...]:
    """A loop over threads and those directly inside of it."""
    loops, inner = [outer], only_statement(outer.body)
    while isinstance(inner, For) and inner.kind in THREAD_KINDS:
        loops.append(inner)
        inner = only_statement(inner.body)
    return tuple(loops)


def has_barrier(statement: Statement) -> bool:
    """Whether threads wait for each other somewhere in a statement."""
    return any(isinstance(s, Barrier) for s in walk((statement,)))


def grid_extents(kernel: Kernel) -> tuple[Dim, Dim, Dim]:
    """Workgroups along x, y and z; axes without a loop have 1."""
    extents: dict[LoopKind, Dim] = {loop.kind: loop.extent for loop in grid_loops(kernel)}
    x, y, z = (extents.get(kind, 1) for kind in GRID_KINDS)
    return (x, y, z)
