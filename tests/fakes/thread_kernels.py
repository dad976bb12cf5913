"""Kernels whose workgroups have threads: rows that are turned round, sums over a tree."""

from __future__ import annotations

import numpy as np

from tilewright.base import symbolic
from tilewright.base.dtypes import f32, i64
from tilewright.base.symbolic import Symbol
from tilewright.compiler.kernel import expressions as e
from tilewright.compiler.kernel.ir import (
    AccessMode,
    Barrier,
    Buffer,
    Compare,
    For,
    If,
    Index,
    Kernel,
    Load,
    LoopKind,
    Parameter,
    Space,
    Statement,
    Store,
)

THREADS = 8
X, Y = Buffer("x", f32, (3, THREADS)), Buffer("y", f32, (3, THREADS))
SHARED = Buffer("shared", f32, (THREADS,), Space.WORKGROUP)
OWN = Buffer("own", f32, (1,), Space.REGISTER)
G, T = (symbolic.symbol(name, 0) for name in ("g", "t"))
LAST = THREADS - 1


def loop(name: str, extent: int, *body: Statement, kind: LoopKind = LoopKind.SERIAL) -> For:
    return For(Symbol(name, 0, extent - 1), extent, body, kind)


def workgroups(*body: Statement) -> Kernel:
    """Three workgroups of eight threads."""
    threads = loop("t", THREADS, *body, kind=LoopKind.THREAD_X)
    grid = loop("g", 3, threads, kind=LoopKind.GRID_X)
    parameters = (Parameter(X, AccessMode.READ), Parameter(Y, AccessMode.READ_WRITE))
    return Kernel("turned", parameters, (), (SHARED, OWN), (grid,))


def turned(*between: Statement) -> Kernel:
    """Every workgroup turns its row round, by way of shared memory."""
    fill = Store(SHARED, (T,), Load(X, (G, T)))
    return workgroups(fill, *between, Store(Y, (G, T), Load(SHARED, (LAST - T,))))


def rows() -> list[np.ndarray]:
    x = np.arange(3 * THREADS, dtype=np.float32).reshape(3, THREADS)
    return [x, np.zeros_like(x)]


def summed() -> Kernel:
    """A tree over the threads: halves are added, with a barrier in a loop."""
    step = symbolic.symbol("s", 0, 2)
    half = e.binary("shr", e.const(THREADS // 2, i64), Index(step))
    reach = e.as_index(half)
    add = e.binary("add", Load(SHARED, (T,)), Load(SHARED, (T + reach,)))
    inside = If(Compare("lt", Index(T), half), (Store(SHARED, (T,), add),))
    return workgroups(
        Store(SHARED, (T,), Load(X, (G, T))),
        Barrier(),
        loop("s", 3, inside, Barrier()),
        Store(Y, (G, T), Load(SHARED, (0,))),
    )
