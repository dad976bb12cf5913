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
from tilewright.compiler.kernel.grid import GRID_KINDS, THREAD_KINDS
from tilewright.compiler.kernel.ir import (
    Binary,
    Bitcast,
    Body,
    Cast,
    Compare,
    Const,
    Expression,
    For,
    If,
    Index,
    Kernel,
    Load,
    Select,
    Splat,
    Statement,
    Store,
    Unary,
)
from tilewright.compiler.kernel.lanes import uniform_index
from tilewright.compiler.kernel.rewrite import Rewriter, substitute, with_body


def simplify(kernel: Kernel) -> Kernel:
    """The kernel with everything decided that bounds decide."""
    return with_body(kernel, simplify_body(kernel.body))


def simplify_body(body: Sequence[Statement]) -> Body:
    """The same for a list of statements."""
    return Rewriter(expression=fold, statement=fold_statement).body(body)


# --- statements --------------------------------------------------------------------------------


def fold_statement(statement: Statement) -> Sequence[Statement]:
    """A statement whose parts are simplified, as what remains of it."""
    if isinstance(statement, If):
        return _fold_if(statement)
    if isinstance(statement, For):
        return _fold_for(statement)
    if isinstance(statement, Store) and isinstance(statement.mask, Const):
        if not statement.mask.value:
            return ()
        return (
            Store(statement.buffer, statement.indices, statement.value, statement.stride),
        )
    return (statement,)


def _fold_if(statement: If) -> Sequence[Statement]:
    if not statement.body:
        return ()
    if isinstance(statement.condition, Const):
        return statement.body if statement.condition.value else ()
    return (statement,)


def _fold_for(loop: For) -> Sequence[Statement]:
    if loop.kind in (*GRID_KINDS, *THREAD_KINDS):
        return (loop,)
    low, high = symbolic.bounds(loop.extent)
    if not loop.body or (high is not None and high <= 0):
        return ()
    if low == high == 1:
        return simplify_body(substitute(loop.body, {loop.var.name: 0}))
    return (loop,)


# --- expressions -------------------------------------------------------------------------------


def fold(value: Expression) -> Expression:
    """A node whose operands are simplified, as what remains of it."""
    rule = _FOLDS.get(type(value))
    return value if rule is None else rule(value)


def _fold_select(value: Select) -> Expression:
    condition = value.condition
    if not isinstance(condition, Const):
        return value
    return value.if_true if condition.value else value.if_false


def _fold_cast(value: Cast) -> Expression:
    known = isinstance(value.operand, Const)
    return e.cast(value.operand, value.dtype) if known else value


def _fold_bitcast(value: Bitcast) -> Expression:
    known = isinstance(value.operand, Const) and value.operand.lanes == value.lanes
    return e.bitcast(value.operand, value.dtype) if known else value


def _fold_unary(value: Unary) -> Expression:
    known = isinstance(value.operand, Const)
    return e.unary(value.op, value.operand) if known else value


def _fold_splat(value: Splat) -> Expression:
    operand = value.operand
    if not isinstance(operand, Const):
        return value
    return Const(operand.value, value.dtype, value.lanes)


def _fold_index(value: Index) -> Expression:
    if not isinstance(value.dim, int) or (value.lanes > 1 and value.stride):
        return value
    return e.const(value.dim, value.dtype, value.lanes)


def _fold_load(value: Load) -> Expression:
    if not isinstance(value.mask, Const):
        return value
    if not value.mask.value:
        return e.const(0, value.dtype, value.lanes)
    return Load(value.buffer, value.indices, value.lanes, value.stride)


def _fold_binary(value: Binary) -> Expression:
    known = isinstance(value.left, Const) or isinstance(value.right, Const)
    if known and value.left.lanes == value.right.lanes:
        return _changed(value, e.binary(value.op, value.left, value.right))
    if value.op == "and" and value.dtype.is_bool and value.left is value.right:
        return value.left
    return value


def _changed(old: Binary | Compare, new: Expression) -> Expression:
    """`new`, or `old` itself when they are the same, so that sharing survives."""
    same = (
        isinstance(new, Binary | Compare)
        and new.left is old.left
        and new.right is old.right
        and new.op == old.op
    )
    return old if same else new


def _interval(value: Expression) -> tuple[Dim, int] | None:
    """First lane and the distance to the last lane of an i64 index."""
    if isinstance(value, Index) and value.dtype is dtypes.i64 and value.lanes > 1:
        return value.dim, (value.lanes - 1) * value.stride
    uniform = uniform_index(value) if value.dtype is dtypes.i64 else None
    return None if uniform is None else (uniform, 0)


def _fold_compare(value: Compare) -> Expression:
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
    return value if known is None else Const(known, dtypes.bool_, value.lanes)


_FOLDS: Final[dict[type[Expression], Callable[..., Expression]]] = {
    Binary: _fold_binary, Compare: _fold_compare, Select: _fold_select, Load: _fold_load,
    Cast: _fold_cast, Bitcast: _fold_bitcast, Unary: _fold_unary, Splat: _fold_splat,
    Index: _fold_index,
}  # fmt: skip
"""By kind; others stay as they are."""
