"""Give every access one linear index, and every loop variable the bounds its loop implies.

    C[m, n] with C: [M, N]   ->   C[m*N + n]

Requires: unique loop variables.  Ensures: one index per access; symbols know their interval, so
index algebra decides divisions and comparisons from here on; code for one number of a size (`if n == 3`) has that number in
the place of the size, in distances too, unless a divisor would be 0.  Nothing is hoisted or reordered.
Called by `machine`.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.base import symbolic
from tilewright.base.symbolic import Dim, Expr, Symbol
from tilewright.compiler.analysis.accesses import index_sides
from tilewright.compiler.analysis.strides import linear_index
from tilewright.compiler.kernel import ir
from tilewright.compiler.kernel.fields import NodeT, with_inner
from tilewright.compiler.kernel.rewrite import Rewriter, body_if_defined, with_body
from tilewright.compiler.kernel.text import implied_bounds


def flatten(kernel: ir.Kernel) -> ir.Kernel:
    """The kernel with linear indices."""
    rewriter = Rewriter(dims=bounded_variables(kernel), expression=_flat, statement=_flat)
    sizes = frozenset(s.name for s in kernel.dims)
    return with_body(kernel, _settled(rewriter.body(kernel.body), sizes))


def _settled(body: ir.Body, sizes: frozenset[str]) -> ir.Body:
    """`body` with numbers for `sizes` inside of conditions that say which."""
    result: list[ir.Statement] = []
    for statement in body:
        inside = statement
        if isinstance(statement, ir.If):
            known = _known_inside(statement.condition)
            is_size = known.keys() <= sizes and known
            code = body_if_defined(statement.body, known) if is_size else None
            inside = with_inner(
                statement, _settled(statement.body if code is None else code, sizes)
            )
        elif isinstance(statement, ir.For):
            inside = with_inner(statement, _settled(statement.body, sizes))
        result.append(inside)
    return tuple(result)


def _known_inside(condition: ir.Expression) -> dict[str, Dim]:
    """The symbol, and what it is, where a condition says that it is a number."""
    if not isinstance(condition, ir.Compare) or condition.op != "eq":
        return {}
    sides = index_sides(condition)
    size = None if sides is None else symbolic.only_atom(sides[0])
    if sides is None or not isinstance(size, Symbol) or not isinstance(sides[1], int):
        return {}
    return {size.name: sides[1]}


def bounded_variables(kernel: ir.Kernel) -> dict[str, Dim]:
    """Every loop variable as a symbol with the bounds of its loop; outer loops first."""
    env: dict[str, Dim] = {s.name: Expr.of_atom(s) for s in kernel.dims}
    for statement in ir.walk(kernel.body):
        if isinstance(statement, ir.For):
            extent = symbolic.substitute(statement.extent, env)
            name = statement.var.name
            env[name] = Expr.of_atom(Symbol(name, *implied_bounds(extent)))
    return env


def _flat(node: NodeT) -> NodeT:
    if not isinstance(node, ir.Load | ir.Store | ir.Prefetch) or len(node.indices) == 1:
        return node
    return replace(node, indices=(linear_index(node.buffer, node.indices),))
