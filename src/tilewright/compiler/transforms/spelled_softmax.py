"""Softmax that models spell out, as programs of JAX and modules written by hand do.

    d = x - max(x);  exp(d) / sum(exp(d))      ->  softmax(x)
    d = x - max(x);  d - log(sum(exp(d)))      ->  log_softmax(x)
    d = x - max(x);  softmax(d)                ->  softmax(x)
                     exp(log_softmax(x))       ->  softmax(x)

The largest and the sum may lose their axis and get it back by a reshape, and the largest may be held above
-inf.  A quotient of powers from which the largest is not taken off stays as it is: its powers may overflow, and those of
`softmax` do not.  Called by `recognize_norms` and, for what stands beside the powers, by `recognize_attention`.
"""

from __future__ import annotations

import math

from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.passes import Emitter, need
from tilewright.compiler.transforms.matching import either_way, made, maker, splat_of


def softmax_of_powers(node: Node, emit: Emitter) -> Value:
    """`exp(d) / sum(exp(d))`, whose powers nothing else reads."""
    powers = node.operand(0)
    power = made(powers, "exp")
    need(powers.type == node.result.type)
    axis = _reduced_axis(node.operand(1), "reduce_sum", powers)
    need(emit.edit.use_count(powers) == 2)
    return emit.op("softmax", [_before_shift(power.operand(), axis)], {"axis": axis})


def softmax_beside(node: Node, emit: Emitter) -> tuple[Node, int, float]:
    """`exp(d) / (sum(exp(d)) + 1)`: what makes `d` of scores, the axis, and what stands beside the powers.

    That is 0 for `exp(-t)` where `d = x - t` and `t = max(max(x), 0)`: the power of a score of 0.  Nothing else reads
    the powers, `d`, or the scores.
    """
    powers = node.operand(0)
    power = made(powers, "exp")
    need(powers.type == node.result.type and emit.edit.use_count(powers) == 2)
    total = made(node.operand(1), "add")
    shifted = made(power.operand(), "sub")
    x, top = shifted.operand(0), shifted.operand(1)
    need(emit.edit.sole_user(shifted.result) is power and emit.edit.use_count(x) == 2)
    rest = splat_of(total.operand(1))
    summed, more = total.operand(0), total.operand(1)
    if rest is None:
        ways = [way for way in either_way(total) if maker(way[1], "exp") is not None]
        need(ways)
        (summed, more), rest = ways[0], 0
        need(made(made(more, "exp").operand(), "neg").operand() is top)
        need(emit.edit.use_count(top) == 2)
        top = _above_zero(top)
    else:
        need(0 < float(rest) < math.inf and emit.edit.sole_user(top) is shifted)
    need(summed.type == total.result.type)
    axis = _reduced_axis(summed, "reduce_sum", powers)
    need(x.type == powers.type and _reduced_axis(top, "reduce_max", x) == axis)
    return shifted, axis, float(rest)


def _above_zero(value: Value) -> Value:
    """`x` where `value` is the larger of it and 0."""
    node = made(value, "max", "relu", "clip")
    x, *bounds = node.present_operands
    need(node.op == "relu" or (node.operands[1] and [splat_of(v) for v in bounds] == [0]))
    return x


def softmax_of_shifted(node: Node, emit: Emitter) -> Value:
    """`softmax(x - max(x))`, which takes the largest off by itself."""
    x = _before_shift(node.operand(), node.number("axis") % node.result.type.rank)
    return emit.op("softmax", [x], node.attributes)


def softmax_of_logarithms(node: Node, emit: Emitter) -> Value:
    """`exp(log_softmax(x))`, whose logarithms nothing else reads."""
    inner = made(node.operand(), "log_softmax")
    need(emit.edit.sole_user(inner.result) is node)
    return emit.op("softmax", [inner.operand()], inner.attributes)


def log_softmax_of_shifted(node: Node, emit: Emitter) -> Value:
    """`d - log(sum(exp(d)))`, where nothing else reads the powers."""
    shifted = node.operand(0)
    need(shifted.type == node.result.type)
    logarithm = made(_restored(node.operand(1)), "log")
    found = made(_restored(logarithm.operand()), "reduce_sum")
    power = made(found.operand(), "exp")
    need(power.operand() is shifted)
    axis = _axis(found, node.operand(1), shifted)
    need(emit.edit.sole_user(power.result) is found)
    return emit.op("log_softmax", [_before_shift(shifted, axis)], {"axis": axis})


def _before_shift(d: Value, axis: int) -> Value:
    """`x` when `d` is x less its largest along `axis`."""
    difference = made(d, "sub")
    x, top = difference.operand(0), difference.operand(1)
    need(x.type == d.type and _reduced_axis(top, "reduce_max", x) == axis)
    return x


def _reduced_axis(value: Value, op: str, x: Value) -> int:
    """The one axis along which `value` is reduced from `x`, beside which it broadcasts."""
    node = made(_restored(value), op)
    source = node.operand()
    if source is x:
        return _axis(node, value, x)
    # The last axis of a view with as long rows is that of the same numbers.
    need(_viewed(source) is _viewed(x) and x.type.rank and source.type.rank)
    need(source.type.shape[-1] == x.type.shape[-1])
    last = source.type.rank - 1
    need([axis % source.type.rank for axis in node.ints("axes")] == [last])
    need(value.type.shape == (*x.type.shape[:-1], 1))
    return x.type.rank - 1


def _axis(node: Node, value: Value, x: Value) -> int:
    """The one axis of a reduction of `x`, in whose place `value` has one element."""
    axes = node.ints("axes")
    need(len(axes) == 1)
    axis = axes[0] % x.type.rank
    kept = tuple(1 if i == axis else d for i, d in enumerate(x.type.shape))
    need(value.type.shape == kept)
    return axis


def _restored(value: Value) -> Value:
    """`value` without reshapes, and without a bound of -inf."""
    while True:
        node = maker(value, "reshape", "max")
        if node is None:
            return value
        if node.op == "max":
            is_bound = splat_of(node.operand(1)) == -math.inf
            if not is_bound or node.operand().type != value.type:
                return value
        value = node.operand()


def _viewed(value: Value) -> Value:
    """What a value is a view of."""
    node = maker(value, "reshape")
    return value if node is None else _viewed(node.operand())
