"""The grid of a kernel is read off its outermost loops."""

from __future__ import annotations

from tilewright.base.dtypes import f32
from tilewright.base.symbolic import Dim, Expr, Symbol, symbol
from tilewright.compiler.kernel.grid import grid_extents, grid_loops
from tilewright.compiler.kernel.ir import (
    AccessMode,
    Body,
    Buffer,
    Const,
    For,
    Kernel,
    LoopKind,
    Parameter,
    Store,
)

N = symbol("n", 1)


def kernel(*loops: tuple[str, Dim, LoopKind]) -> Kernel:
    y = Buffer("y", f32, (64,))
    index: Dim = 0
    for name, _, _ in loops:
        index = index + Expr.of_atom(Symbol(name))
    body: Body = (Store(y, (index,), Const(1.0, f32)),)
    for name, extent, kind in reversed(loops):
        body = (For(Symbol(name), extent, body, kind),)
    return Kernel("k", (Parameter(y, AccessMode.WRITE),), (), (), body)


def test_axes_without_a_loop_have_one_workgroup() -> None:
    assert grid_extents(kernel()) == (1, 1, 1)
    assert grid_extents(kernel(("i", 4, LoopKind.SERIAL))) == (1, 1, 1)
    assert grid_extents(kernel(("i", 4, LoopKind.GRID_X))) == (4, 1, 1)
    assert grid_extents(kernel(("i", 4, LoopKind.GRID_Z))) == (1, 1, 4)


def test_axes_come_in_any_order_and_sizes_may_depend_on_the_call() -> None:
    made = kernel(
        ("a", 2, LoopKind.GRID_Z),
        ("b", (N + 3) // 4, LoopKind.GRID_X),
        ("c", 5, LoopKind.GRID_Y),
    )
    assert grid_extents(made) == ((N + 3) // 4, 5, 2)
    assert [loop.var.name for loop in grid_loops(made)] == ["a", "b", "c"]


def test_only_outermost_loops_count() -> None:
    made = kernel(
        ("a", 2, LoopKind.GRID_X), ("b", 3, LoopKind.SERIAL), ("c", 5, LoopKind.GRID_Y)
    )
    assert grid_extents(made) == (2, 1, 1)
    assert [loop.var.name for loop in grid_loops(made)] == ["a"]
