"""The workgroup grid of a kernel, read off its outermost loops.

And the threads of a workgroup.  Called by the program (dispatch counts), code generators (workgroup ids), the
evaluator and lowering.
"""

from __future__ import annotations

from typing import Final

from tilewright.base.symbolic import Dim
from tilewright.compiler.kernel import ir
from tilewright.compiler.kernel.rewrite import only_statement

GRID_KINDS: Final = (ir.LoopKind.GRID_X, ir.LoopKind.GRID_Y, ir.LoopKind.GRID_Z)
THREAD_KINDS: Final = (ir.LoopKind.THREAD_X, ir.LoopKind.THREAD_Y, ir.LoopKind.THREAD_Z)


def grid_loops(kernel: ir.Kernel) -> tuple[ir.For, ...]:
    """The loops bound to the grid, outermost first."""
    loops: list[ir.For] = []
    body = kernel.body
    while len(body) == 1 and isinstance(body[0], ir.For) and body[0].kind in GRID_KINDS:
        loops.append(body[0])
        body = body[0].body
    return tuple(loops)


def thread_chain(outer: ir.For) -> tuple[ir.For, ...]:
    """A loop over threads and those directly inside of it."""
    loops, inner = [outer], only_statement(outer.body)
    while isinstance(inner, ir.For) and inner.kind in THREAD_KINDS:
        loops.append(inner)
        inner = only_statement(inner.body)
    return tuple(loops)


def has_barrier(statement: ir.Statement) -> bool:
    """Whether threads wait for each other somewhere in a statement."""
    return any(isinstance(s, ir.Barrier) for s in ir.walk((statement,)))


def grid_extents(kernel: ir.Kernel) -> tuple[Dim, Dim, Dim]:
    """Workgroups along x, y and z; axes without a loop have 1."""
    extents: dict[ir.LoopKind, Dim] = {
        loop.kind: loop.extent for loop in grid_loops(kernel)
    }
    x, y, z = (extents.get(kind, 1) for kind in GRID_KINDS)
    return (x, y, z)
