"""Turn sums of products in reduction loops into fused multiply-adds.

    T[i] = T[i] + a*b   inside a loop marked `reduction`   ->   T[i] = fma(a, b, T[i])

The kernel IR permits it there (`kernel.ir`, numeric semantics); elsewhere products are rounded.
Requires: linear indices.  Called by `machine` for targets that have the instruction.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.compiler.kernel.ir import (
    Binary,
    Body,
    Expression,
    Fma,
    For,
    If,
    Kernel,
    Load,
    Statement,
    Store,
)
from tilewright.compiler.kernel.rewrite import with_body


def contract(kernel: Kernel) -> Kernel:
    """The kernel with fused reductions."""
    return with_body(kernel, _body(kernel.body, reducing=False))


def _body(body: Sequence[Statement], *, reducing: bool) -> Body:
    return tuple(_statement(s, reducing=reducing) for s in body)


def _statement(statement: Statement, *, reducing: bool) -> Statement:
    if isinstance(statement, For):
        inside = _body(statement.body, reducing=reducing or statement.reduction)
        return For(
            statement.var, statement.extent, inside, statement.kind, statement.reduction
        )
    if isinstance(statement, If):
        return If(statement.condition, _body(statement.body, reducing=reducing))
    if reducing and isinstance(statement, Store):
        return Store(
            statement.buffer,
            statement.indices,
            _fuse(statement),
            statement.stride,
            statement.mask,
        )
    return statement


def _fuse(store: Store) -> Expression:
    value = store.value
    if not isinstance(value, Binary) or value.op != "add" or not value.dtype.is_float:
        return value
    for total, product in ((value.left, value.right), (value.right, value.left)):
        if not isinstance(product, Binary) or product.op != "mul":
            continue
        if not isinstance(total, Load) or total.buffer is not store.buffer:
            continue
        if total.indices == store.indices:
            return Fma(product.left, product.right, total, value.dtype, value.lanes)
    return value
