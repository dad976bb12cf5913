"""Decide what bounds decide: conditions, masks, selections, empty and single-step loops.

Requires: bounded symbols (`flatten`).  Ensures: no conditional with a known condition, no loop
that runs less than twice except on the grid.  Values never change.  Called by `machine`; its
`fold` also by `unroll` and `vectorize` on the nodes they make.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tilewright.base import dtypes, symbolic
from tilewright.base.symbolic import Dim
from tilewright.compiler.kernel import expressions as e
from tilewright.compiler.kernel import ir
from tilewright.compiler.kernel.grid import GRID_KINDS, THREAD_KINDS
from tilewright.compiler.kernel.lanes import uniform_index
from tilewright.compiler.kernel.rewrite import Rewriter, substitute, with_body


def simplify(kernel: ir.Kernel) -> ir.Kernel:
    """The kernel with everything decided that bounds decide."""
    return with_body(kernel, simplify_body(kernel.body))


def simplify_body(body: Sequence[ir.Statement]) -> ir.Body:
    """The same for a list of statements."""
    return Rewriter(expression=fold, statement=fold_statement).body(body)


# --- statements --------------------------------------------------------------------------------


def fold_statement(statement: ir.Statement) -> Sequence[ir.Statement]:
    """A statement whose parts are simplified, as what remains of it."""
    if isinstance(statement, ir.If):
        return _fold_if(statement)
    if isinstance(statement, ir.For):
        return _fold_for(statement)
    if isinstance(statement, ir.Store) and isinstance(statement.mask, ir.Const):
        if not statement.mask.value:
            return ()
        return (
            ir.Store(
                statement.buffer, statement.indices, statement.value, statement.stride
            ),
        )
    return (statement,)


def _fold_if(statement: ir.If) -> Sequence[ir.Statement]:
    if not statement.body:
        return ()
    if isinstance(statement.condition, ir.Const):
        return statement.body if statement.condition.value else ()
    return (statement,)


def _fold_for(loop: ir.For) -> Sequence[ir.Statement]:
    if loop.kind in (*GRID_KINDS, *THREAD_KINDS):
        return (loop,)
    low, high = symbolic.bounds(loop.extent)
    if not loop.body or (high is not None and high <= 0):
        return ()
    if low == high == 1:
        return simplify_body(substitute(loop.body, {loop.var.name: 0}))
    return (loop,)


# --- expressions -------------------------------------------------------------------------------


def fold(value: ir.Expression) -> ir.Expression:
    """A node whose operands are simplified, as what remains of it."""
    rule = _FOLDS.get(type(value))
    return value if rule is None else rule(value)


def _fold_select(value: ir.Select) -> ir.Expression:
    condition = value.condition
    if not isinstance(condition, ir.Const):
        return value
    return value.if_true if condition.value else value.if_false


def _fold_cast(value: ir.Cast) -> ir.Expression:
    known = isinstance(value.operand, ir.Const)
    return e.cast(value.operand, value.dtype) if known else value


def _fold_bitcast(value: ir.Bitcast) -> ir.Expression:
    known = isinstance(value.operand, ir.Const) and value.operand.lanes == value.lanes
    return e.bitcast(value.operand, value.dtype) if known else value


def _fold_unary(value: ir.Unary) -> ir.Expression:
    known = isinstance(value.operand, ir.Const)
    return e.unary(value.op, value.operand) if known else value


def _fold_splat(value: ir.Splat) -> ir.Expression:
    operand = value.operand
    if not isinstance(operand, ir.Const):
        return value
    return ir.Const(operand.value, value.dtype, value.lanes)


def _fold_index(value: ir.Index) -> ir.Expression:
    if not isinstance(value.dim, int) or (value.lanes > 1 and value.stride):
        return value
    return e.const(value.dim, value.dtype, value.lanes)


def _fold_load(value: ir.Load) -> ir.Expression:
    if not isinstance(value.mask, ir.Const):
        return value
    if not value.mask.value:
        return e.const(0, value.dtype, value.lanes)
    return ir.Load(value.buffer, value.indices, value.lanes, value.stride)


def _fold_binary(value: ir.Binary) -> ir.Expression:
    known = isinstance(value.left, ir.Const) or isinstance(value.right, ir.Const)
    if known and value.left.lanes == value.right.lanes:
        return _changed(value, e.binary(value.op, value.left, value.right))
    if value.op == "and" and value.dtype.is_bool and value.left is value.right:
        return value.left
    return value


def _changed(old: ir.Binary | ir.Compare, new: ir.Expression) -> ir.Expression:
    """`new`, or `old` itself when they are the same, so that sharing survives."""
    same = (
        isinstance(new, ir.Binary | ir.Compare)
        and new.left is old.left
        and new.right is old.right
        and new.op == old.op
    )
    return old if same else new


def _interval(value: ir.Expression) -> tuple[Dim, int] | None:
    """First lane and the distance to the last lane of an i64 index."""
    if isinstance(value, ir.Index) and value.dtype is dtypes.i64 and value.lanes > 1:
        return value.dim, (value.lanes - 1) * value.stride
    uniform = uniform_index(value) if value.dtype is dtypes.i64 else None
    return None if uniform is None else (uniform, 0)


def _fold_compare(value: ir.Compare) -> ir.Expression:
    if value.lanes == 1:
        if value.left.lanes == value.right.lanes == 1:
            return _changed(value, e.compare(value.op, value.left, value.right))
        return value
    left, right = _interval(value.left), _interval(value.right)
    if left is None or right is None:
        return value
    low, high = symbolic.bounds(left[0] - right[0])
    first = min(left[1], 0) - max(right[1], 0)
    last = max(left[1], 0) - min(right[1], 0)
    known = e.decide(
        value.op,
        (None if low is None else low + first, None if high is None else high + last),
    )
    return value if known is None else ir.Const(known, dtypes.bool_, value.lanes)


_FOLDS: Final[dict[type[ir.Expression], Callable[..., ir.Expression]]] = {
    ir.Binary: _fold_binary, ir.Compare: _fold_compare, ir.Select: _fold_select, ir.Load: _fold_load,
    ir.Cast: _fold_cast, ir.Bitcast: _fold_bitcast, ir.Unary: _fold_unary, ir.Splat: _fold_splat,
    ir.Index: _fold_index,
}  # fmt: skip
"""By kind; others stay as they are."""
