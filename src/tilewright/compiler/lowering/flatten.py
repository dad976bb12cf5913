"""Give every access one linear index, and every loop variable the bounds its loop implies.

    C[m, n] with C: [M, N]   ->   C[m*N + n]

Requires: unique loop variables.  Ensures: one index per access; symbols know their interval, so
index algebra decides divisions and comparisons from here on.  Nothing is hoisted or reordered.
Called by `machine`.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.base import symbolic
from tilewright.base.symbolic import Dim, Expr, Symbol
from tilewright.compiler.analysis.strides import linear_index
from tilewright.compiler.kernel.ir import (
    Expression,
    For,
    Kernel,
    Load,
    Prefetch,
    Statement,
    Store,
    walk,
)
from tilewright.compiler.kernel.rewrite import Rewriter, with_body


def flatten(kernel: Kernel) -> Kernel:
    """The kernel with linear indices."""
    rewriter = Rewriter(
        dims=bounded_variables(kernel), expression=_flat_load, statement=_flat_store
    )
    return with_body(kernel, rewriter.body(kernel.body))


def bounded_variables(kernel: Kernel) -> dict[str, Dim]:
    """Every loop variable as a symbol with the bounds of its loop; outer loops first."""
    env: dict[str, Dim] = {s.name: Expr.of_atom(s) for s in kernel.dims}
    for statement in walk(kernel.body):
        if isinstance(statement, For):
            extent = symbolic.substitute(statement.extent, env)
            upper = symbolic.bounds(extent)[1]
            name = statement.var.name
            env[name] = Expr.of_atom(
                Symbol(name, 0, None if upper is None else max(upper - 1, 0))
            )
    return env


def _flat_load(value: Expression) -> Expression:
    if not isinstance(value, Load) or len(value.indices) == len(value.buffer.shape) == 1:
        return value
    if len(value.indices) == 1:
        return value
    return replace(value, indices=(linear_index(value.buffer, value.indices),))


def _flat_store(statement: Statement) -> Statement:
    if not isinstance(statement, Store | Prefetch) or len(statement.indices) == 1:
        return statement
    return replace(statement, indices=(linear_index(statement.buffer, statement.indices),))
