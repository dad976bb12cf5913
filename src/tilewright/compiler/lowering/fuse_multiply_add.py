"""Turn sums of products in reduction loops into fused multiply-adds.

    T[i] = T[i] + a*b   inside a loop marked `reduction`   ->   T[i] = fma(a, b, T[i])

The kernel IR permits it there (`kernel.ir`, numeric semantics); elsewhere products are rounded.
Sums of products of bytes become the instruction that adds them to a total, wherever they stand: nothing is rounded.
Requires: linear indices.  Called by the back ends; `floats` for targets that have the instruction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeGuard

from tilewright.compiler.kernel import ir
from tilewright.compiler.kernel.dot_products import ADDING, parts_of_words
from tilewright.compiler.kernel.expressions import const
from tilewright.compiler.kernel.fields import with_inner
from tilewright.compiler.kernel.rewrite import (
    Rewriter,
    is_target,
    subexpressions,
    with_body,
)


def fuse_multiply_add(kernel: ir.Kernel, *, floats: bool = True) -> ir.Kernel:
    """The kernel with fused reductions: those of bytes and, where the machine fuses them, of `floats`."""
    return with_body(kernel, _body(kernel.body, floats, reducing=False))


def _body(body: Sequence[ir.Statement], floats: bool, *, reducing: bool) -> ir.Body:
    return tuple(_statement(s, floats, reducing=reducing) for s in body)


def _statement(statement: ir.Statement, floats: bool, *, reducing: bool) -> ir.Statement:
    if isinstance(statement, ir.For | ir.If):
        reduces = isinstance(statement, ir.For) and statement.reduction
        inside = _body(statement.body, floats, reducing=reducing or reduces)
        return with_inner(statement, inside)
    if not isinstance(statement, ir.Store):
        return statement
    store = replace(statement, value=_with_sums_of_bytes(statement.value))
    return replace(store, value=_fuse(store, floats)) if reducing else store


def _fuse(store: ir.Store, floats: bool) -> ir.Expression:
    value = store.value
    if not isinstance(value, ir.Binary) or value.op != "add":
        return value
    for total, product in ((value.left, value.right), (value.right, value.left)):
        if _is_product_of_words(product):
            return _added(total, product)
        if not (floats and value.dtype.is_float):
            continue
        if not isinstance(product, ir.Binary) or product.op != "mul":
            continue
        if is_target(total, store):
            left, right = _summed(product.left), _summed(product.right)
            return ir.Fma(left, right, total, value.dtype, value.lanes)
    return value


def _is_product_of_words(value: ir.Expression) -> TypeGuard[ir.Call]:
    return isinstance(value, ir.Call) and value.function.name in ADDING


def _added(total: ir.Expression, product: ir.Call) -> ir.Expression:
    """The instruction that adds a product of words to a total, once for every part of long words."""
    row = ADDING[product.function.name]
    for words in parts_of_words(row, product.operands):
        total = ir.Intrinsic(row, (total, *words), product.lanes)
    return total


def _with_sums_of_bytes(value: ir.Expression) -> ir.Expression:
    """The same with integer products of words, wherever they stand, as instructions that add them up in turn."""
    if not any(
        _is_product_of_words(part) and part.dtype.is_integer
        for part in subexpressions(value)
    ):
        return value
    return Rewriter(expression=_in_turn).expression(value)


def _in_turn(value: ir.Expression) -> ir.Expression:
    if _is_product_of_words(value) and value.dtype.is_integer:
        return _added(const(0, value.dtype, value.lanes), value)
    if isinstance(value, ir.Binary) and value.op == "add" and value.dtype.is_integer:
        for total, chain in ((value.left, value.right), (value.right, value.left)):
            if (image := _begun_with(total, chain)) is not None:
                return image
    return value


def _begun_with(total: ir.Expression, chain: ir.Expression) -> ir.Expression | None:
    """What adds to `total` what `chain`, instructions that each add to the one before, adds to zero."""
    links: list[ir.Intrinsic] = []
    while isinstance(chain, ir.Intrinsic) and chain.instruction in ADDING.values():
        links.append(chain)
        chain = chain.operands[0]
    if not links or not isinstance(chain, ir.Const) or chain.value != 0:
        return None
    for link in reversed(links):
        total = ir.Intrinsic(link.instruction, (total, *link.operands[1:]), link.lanes)
    return total


def _summed(value: ir.Expression) -> ir.Expression:
    """A step that is itself a sum of products, each added in one instruction."""
    if not isinstance(value, ir.Binary) or value.op != "add" or not value.dtype.is_float:
        return value
    product = value.right
    if not isinstance(product, ir.Binary) or product.op != "mul":
        return value
    rest = _summed(value.left)
    return ir.Fma(product.left, product.right, rest, value.dtype, value.lanes)
