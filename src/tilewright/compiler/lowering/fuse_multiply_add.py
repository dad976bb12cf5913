"""Turn sums of products in reduction loops into fused multiply-adds.

    T[i] = T[i] + a*b   inside a loop marked `reduction`   ->   T[i] = fma(a, b, T[i])

The kernel IR permits it there (`kernel.ir`, numeric semantics); elsewhere products are rounded.
Sums of products of bytes become the instruction that adds them to a total, wherever they stand: nothing is rounded.
Requires: linear indices.  Called by the back ends; `floats` for targets that have the instruction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.compiler.kernel.dot_products import ADDING, parts_of_words
from tilewright.compiler.kernel.fields import with_inner
from tilewright.compiler.kernel.ir import (
    Binary,
    Body,
    Call,
    Expression,
    Fma,
    For,
    If,
    Intrinsic,
    Kernel,
    Load,
    Statement,
    Store,
)
from tilewright.compiler.kernel.rewrite import with_body


def fuse_multiply_add(kernel: Kernel, *, floats: bool = True) -> Kernel:
    """The kernel with fused reductions: those of bytes and, where the machine fuses them, of `floats`."""
    return with_body(kernel, _body(kernel.body, floats, reducing=False))


def _body(body: Sequence[Statement], floats: bool, *, reducing: bool) -> Body:
    return tuple(_statement(s, floats, reducing=reducing) for s in body)


def _statement(statement: Statement, floats: bool, *, reducing: bool) -> Statement:
    if isinstance(statement, For | If):
        reduces = isinstance(statement, For) and statement.reduction
        inside = _body(statement.body, floats, reducing=reducing or reduces)
        return with_inner(statement, inside)
    if isinstance(statement, Store) and (reducing or statement.buffer.dtype.is_integer):
        return replace(statement, value=_fuse(statement, floats))
    return statement


def _fuse(store: Store, floats: bool) -> Expression:
    value = store.value
    if not isinstance(value, Binary) or value.op != "add":
        return value
    for total, product in ((value.left, value.right), (value.right, value.left)):
        if isinstance(product, Call) and product.function.name in ADDING:
            row = ADDING[product.function.name]
            for words in parts_of_words(row, product.operands):
                total = Intrinsic(row, (total, *words), value.lanes)
            return total
        if not (floats and value.dtype.is_float):
            continue
        if not isinstance(product, Binary) or product.op != "mul":
            continue
        if not isinstance(total, Load) or total.buffer is not store.buffer:
            continue
        if total.indices == store.indices:
            left, right = _summed(product.left), _summed(product.right)
            return Fma(left, right, total, value.dtype, value.lanes)
    return value


def _summed(value: Expression) -> Expression:
    """A step that is itself a sum of products, each added in one instruction."""
    if not isinstance(value, Binary) or value.op != "add" or not value.dtype.is_float:
        return value
    product = value.right
    if not isinstance(product, Binary) or product.op != "mul":
        return value
    rest = _summed(value.left)
    return Fma(product.left, product.right, rest, value.dtype, value.lanes)
