"""Identities of elementwise arithmetic, as rewrites for `simplify`.

Each keeps the value exactly, except where its first line says what rounds differently.  Signs of
zero are not kept (`x + 0`).  Rewrites return the replacement or None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.dtypes import DType, Kind
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.graph.schema import Range, TensorType, Trait
from tilewright.compiler.ops.ranges import is_at_least
from tilewright.compiler.passes import Emitter, Rewrite, Rewrites, given, need
from tilewright.compiler.transforms.matching import (
    either_way,
    is_constant,
    is_splat,
    made,
    maker,
    splat_of,
)
from tilewright.compiler.transforms.movement_rewrites import drop_same_type
from tilewright.compiler.transforms.value_ranges import ValueRanges

_MANTISSA: Final = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53}
_NEAR: Final = 8  # ops that are followed back for a comparison
_EXPONENT: Final = {"f16": 5, "bf16": 8, "f32": 8, "f64": 11}


def _stands_for(node: Node, value: Value, emit: Emitter) -> Value | None:
    """`value`, repeated where need be, if it is of the type that the result has."""
    wanted = node.result.type
    if value.type == wanted:
        return value
    need(value.type.dtype == wanted.dtype)
    return emit.op("broadcast_to", [value], {"shape": wanted.shape})


def drop_neutral_right(neutral: float) -> Rewrite:
    """`x op neutral` is x (add 0, sub 0, mul 1, div 1, pow 1)."""

    def drop_neutral(node: Node, emit: Emitter) -> Value | None:
        need(is_splat(node.operand(1), neutral))
        return _stands_for(node, node.operand(0), emit)

    return drop_neutral


def constant_to_the_right(node: Node, emit: Emitter) -> Value | None:
    """Constants stand on the right of commutative ops, where other rewrites look for them."""
    if not node.has(Trait.COMMUTATIVE):
        return None
    left, right = node.operand(0), node.operand(1)
    need(_is_known(left) and not _is_known(right))
    return emit.op(node.op, [right, left], node.attributes)


def _is_known(value: Value) -> bool:
    return is_constant(value) or splat_of(value) is not None


def pow_to_products(node: Node, emit: Emitter) -> Value | None:
    """pow(x, 2), pow(x, 3) and pow(x, -1) without a logarithm; x**3 rounds twice."""
    x, exponent = node.operand(0), splat_of(node.operand(1))
    need(exponent in (2, 3, -1) and x.type == node.result.type)
    if exponent == -1:
        return emit.op("reciprocal", [x]) if x.type.dtype.is_float else None
    square = emit.op("mul", [x, x])
    return square if exponent == 2 else emit.op("mul", [square, x])


def divide_by_power_of_two(node: Node, emit: Emitter) -> Value | None:
    """`x / 2**n` is x * 2**-n, exactly."""
    x, divisor = node.operand(0), given(splat_of(node.operand(1)))
    need(x.type.dtype.is_float and math.isfinite(divisor))
    mantissa, exponent = math.frexp(abs(divisor))
    need(mantissa == 0.5 and abs(exponent) <= 14 and x.type == node.result.type)
    return emit.op("mul", [x, emit.scalar(1.0 / divisor, x)])


def divide_by_root(node: Node, emit: Emitter) -> Value | None:
    """`y / sqrt(x)` is y * rsqrt(x) where the root is the smaller tensor; rounds once more."""
    y, root = node.operand(0), made(node.operand(1), "sqrt")
    need(y.type.dtype.is_float)
    need(root.result.type.element_count != node.result.type.element_count)
    return emit.op("mul", [y, emit.op("rsqrt", [root.operand()])])


def one_over(node: Node, emit: Emitter) -> Value | None:
    """1 / x is reciprocal(x)."""
    one, x = node.operand(0), node.operand(1)
    need(x.type.dtype.is_float and is_splat(one, 1.0) and x.type == node.result.type)
    return emit.op("reciprocal", [x])


def reciprocal_of_root(node: Node, emit: Emitter) -> Value | None:
    """1 / sqrt(x) is rsqrt(x)."""
    root = maker(node.operand(), "sqrt")
    return None if root is None else emit.op("rsqrt", [root.operand()])


def times_reciprocal(node: Node, emit: Emitter) -> Value | None:
    """`y * reciprocal(x)` is y / x where both have the same size; rounds once less."""
    for value, inverse in either_way(node):
        inner = maker(inverse, "reciprocal")
        if inner is None or emit.edit.sole_user(inverse) is not node:
            continue
        if inverse.type == node.result.type:
            return emit.op("div", [value, inner.operand()])
    return None


def undo_itself(node: Node, _: Emitter) -> Value | None:
    """f(f(x)) is x for negation and not."""
    inner = maker(node.operand(), node.op)
    return None if inner is None else inner.operand()


def repeat_idempotent(node: Node, _: Emitter) -> Value | None:
    """f(f(x)) is f(x) for idempotent f."""
    if not node.has(Trait.IDEMPOTENT) or not node.has(Trait.ELEMENTWISE):
        return None
    need(len(node.operands) == 1)
    inner = maker(node.operand(), node.op)
    same = inner is not None and repr(inner.attributes) == repr(node.attributes)
    return node.operand() if same else None


def drop_identity(node: Node, _: Emitter) -> Value | None:
    """identity(x) is x."""
    return node.operand()


def sub_of_negated(node: Node, emit: Emitter) -> Value | None:
    """`x + (-y)` is x - y, x - (-y) is x + y."""
    inner = made(node.operand(1), "neg")
    return emit.op("sub" if node.op == "add" else "add", [node.operand(0), inner.operand()])


def merge_scales(node: Node, emit: Emitter) -> Value | None:
    """(x * c) * d is x * (c * d) for scalars of ordinary size; rounds once less."""
    inner = made(node.operand(0), "mul")
    x = inner.operand(0)
    scales = [given(splat_of(each.operand(1))) for each in (node, inner)]
    need(x.type == node.result.type and x.type.dtype.is_float)
    need(emit.edit.sole_user(inner.result) is node)
    need(all(1e-4 < abs(scale) < 1e4 for scale in scales))
    return emit.op("mul", [x, emit.scalar(math.prod(scales), x)])


def max_with_zero(node: Node, emit: Emitter) -> Value | None:
    """max(x, 0) is relu(x)."""
    x = node.operand(0)
    need(is_splat(node.operand(1), 0) and x.type == node.result.type)
    return emit.op("relu", [x])


# --- selection and conversion ----------------------------------------------------------------


def where_decided(node: Node, emit: Emitter) -> Value | None:
    """A `where` whose condition is known, or whose branches are the same, is a branch."""
    condition, x, y = (node.operand(i) for i in range(3))
    known = splat_of(condition)
    need(known is not None or x is y)
    return _stands_for(node, x if known is None or known else y, emit)


def logic_decided(node: Node, emit: Emitter) -> Value | None:
    """`x and True`, `x or False` are x; `x and False`, `x or True` are False and True."""
    known = given(splat_of(node.operand(1)))
    is_neutral = bool(known) == (node.op == "logical_and")
    chosen = node.operand(0) if is_neutral else emit.constant(np.asarray(bool(known)))
    return _stands_for(node, chosen, emit)


def where_negated(node: Node, emit: Emitter) -> Value | None:
    """where(not c, x, y) is where(c, y, x)."""
    inner = made(node.operand(0), "logical_not")
    return emit.op("where", [inner.operand(), node.operand(2), node.operand(1)])


def cast_of_cast(node: Node, emit: Emitter) -> Value | None:
    """A cast through a type that holds every value of x is a cast of x."""
    inner = made(node.operand(), "cast")
    x = inner.operand()
    need(holds_exactly(inner.result.type.dtype, x.type.dtype))
    return emit.op("cast", [x], node.attributes)


def cast_of_lookup(node: Node, emit: Emitter) -> Value | None:
    """A cast of what only it reads of a known table is of another table."""
    found = made(node.operand(), "table_lookup")
    need(emit.edit.sole_user(found.result) is not None)
    x, table = found.present_operands
    need(is_constant(table))
    return emit.op(found.op, [x, emit.op("cast", [table], node.attributes)])


def holds_exactly(wide: DType, narrow: DType) -> bool:
    """Whether every value of `narrow` is one of `wide`."""
    if wide == narrow or narrow.is_bool:
        return True
    if wide.is_bool:
        return False
    if narrow.is_float:
        return (
            wide.is_float
            and wide.name in _MANTISSA
            and narrow.name in _MANTISSA
            and _MANTISSA[wide.name] >= _MANTISSA[narrow.name]
            and _EXPONENT[wide.name] >= _EXPONENT[narrow.name]
        )
    digits = narrow.bits - (narrow.kind is Kind.SINT)
    if wide.is_float:
        return _MANTISSA.get(wide.name, 0) >= digits and wide is not dtypes.f16
    if narrow.kind is Kind.SINT and wide.kind is Kind.UINT:
        return False
    return wide.bits - (wide.kind is Kind.SINT) >= digits


def _broadcasts(node: Node) -> bool:
    """Whether elements of operands meet as numpy broadcasts them; scales of an axis do not."""
    layout = node.schema.layout
    return node.has(Trait.ELEMENTWISE) and layout is not None and layout.aligned


def drop_broadcast(node: Node, emit: Emitter) -> Value | None:
    """An elementwise op broadcasts by itself: an explicit broadcast of an operand can go."""
    if not _broadcasts(node) or len(node.operands) < 2:
        return None
    operands = list(node.operands)
    for index, value in enumerate(operands):
        spread = maker(value, "broadcast_to")
        if spread is None:
            continue
        candidate = [*operands[:index], spread.operand(), *operands[index + 1 :]]
        types = [None if v is None else v.type for v in candidate]
        if node.schema.infer(types, node.attributes) == (node.result.type,):
            operands = candidate
    need(operands != node.operands)
    return emit.op(node.op, operands, node.attributes)


def raise_broadcast(node: Node, emit: Emitter) -> Value | None:
    """An elementwise op of repeated values is the repeated op of those values."""
    if not _broadcasts(node) or len(node.results) != 1:
        return None
    types: list[TensorType | None] = []
    for value in node.operands:
        type_ = None if value is None else _bare_type(value)
        if type_ is not None and type_.shape == node.result.type.shape:
            return None  # beside it nothing becomes smaller
        types.append(type_)
    need(node.schema.infer(types, node.attributes) != (node.result.type,))
    bare = [None if value is None else _bare(value, emit) for value in node.operands]
    small = emit.op(node.op, bare, node.attributes)
    return emit.op("broadcast_to", [small], {"shape": node.result.type.shape})


def _bare_type(value: Value) -> TensorType:
    """The type of what is repeated in a value."""
    spread = maker(value, "broadcast_to")
    if spread is not None:
        return spread.operand().type
    return value.type if splat_of(value) is None else value.type.with_shape(())


def _bare(value: Value, emit: Emitter) -> Value:
    """What is repeated in a value."""
    spread, splat = maker(value, "broadcast_to"), splat_of(value)
    if spread is not None:
        return spread.operand()
    return value if splat is None else emit.scalar(splat, value)


def comparison_decided(node: Node, emit: Emitter) -> Value | None:
    """A comparison of integers whose ranges do not meet has one answer everywhere."""
    left, right = node.operand(0), node.operand(1)
    need(left.type.dtype.is_integer and right.type.dtype.is_integer)
    need(_is_known(left) or _is_known(right))
    ranges = ValueRanges()
    a, b = ranges.of(left, _NEAR), ranges.of(right, _NEAR)
    answer = given(_ANSWERS[node.op](a, b))
    return _stands_for(node, emit.constant(np.asarray(answer)), emit)


def _is_greater(a: Range, b: Range) -> bool | None:
    """Whether every number of `a`, or none, is greater than every number of `b`."""
    if a.low is not None and b.high is not None and is_at_least(a.low, b.high + 1):
        return True
    return False if is_at_least(b.low, a.high) else None


def _is_less(a: Range, b: Range) -> bool | None:
    return _is_greater(b, a)


def _not(answer: bool | None) -> bool | None:
    return None if answer is None else not answer


_ANSWERS: Final[Mapping[str, Callable[[Range, Range], bool | None]]] = {
    "greater": _is_greater,
    "less": _is_less,
    "less_equal": lambda a, b: _not(_is_greater(a, b)),
    "greater_equal": lambda a, b: _not(_is_less(a, b)),
}

REWRITES: Final[Rewrites] = {
    "add": (drop_neutral_right(0), sub_of_negated),
    "sub": (drop_neutral_right(0), sub_of_negated),
    "mul": (drop_neutral_right(1), merge_scales, times_reciprocal),
    "div": (drop_neutral_right(1), divide_by_power_of_two, divide_by_root, one_over),
    "pow": (drop_neutral_right(1), pow_to_products),
    "max": (max_with_zero,),
    "neg": (undo_itself,),
    "logical_not": (undo_itself,),
    "bitwise_not": (undo_itself,),
    "reciprocal": (reciprocal_of_root,),
    "where": (where_decided, where_negated),
    "logical_and": (logic_decided,),
    "logical_or": (logic_decided,),
    **dict.fromkeys(_ANSWERS, (comparison_decided,)),
    "cast": (drop_same_type, cast_of_cast, cast_of_lookup),
    "identity": (drop_identity,),
    "*": (constant_to_the_right, repeat_idempotent, drop_broadcast, raise_broadcast),
}
