"""The workgroup grid of a kernel, read off its outermost loops.

Called by the program (dispatch counts) and by code generators (workgroup ids).
"""

from __future__ import annotations

from typing import Final

from tilewright.base.symbolic import Dim
from tilewright.compiler.kernel.ir import For, Kernel, LoopKind

GRID_KINDS: Final = (LoopKind.GRID_X, LoopKind.GRID_Y, LoopKind.GRID_Z)


def grid_loops(kernel: Kernel) -> tuple[For, ...]:
    """The loops bound to the grid, outermost first."""
    loops: list[For] = []
    body = kernel.body
    while len(body) == 1 and isinstance(body[0], For) and body[0].kind in GRID_KINDS:
        loops.append(body[0])
        body = body[0].body
    return tuple(loops)


def grid_extents(kernel: Kernel) -> tuple[Dim, Dim, Dim]:
    """Workgroups along x, y and z; axes without a loop have 1."""
    extents: dict[LoopKind, Dim] = {loop.kind: loop.extent for loop in grid_loops(kernel)}
    x, y, z = (extents.get(kind, 1) for kind in GRID_KINDS)
    return (x, y, z)
