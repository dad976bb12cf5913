"""Normalizations that models spell out: layer norm, RMS norm, their scale and bias, and softmax.

Works on what `simplify` leaves: the division by a root is `mul` by `rsqrt`.  Guards around a softmax
(`where(is_nan(s), 0, s)`) are fused as its epilogue.
"""

from __future__ import annotations

from typing import ClassVar, final

from tilewright.base.record import record
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.passes import Emitter, Rewrites, attempt, given, need
from tilewright.compiler.transforms.matching import (
    either_way,
    fixed,
    last_axes,
    made,
    maker,
    splat_of,
)
from tilewright.compiler.transforms.rewrite_pass import RewritePass
from tilewright.compiler.transforms.spelled_softmax import (
    log_softmax_of_shifted,
    softmax_of_logarithms,
    softmax_of_powers,
    softmax_of_shifted,
)


@final
@record(kw_only=True)
class RecognizeNorms(RewritePass):
    """Write spelled-out normalizations as one op, scale and bias included.

    Requires: simplified.  Ensures: `layer_norm` and `rms_norm` of trailing axes, `softmax` and `log_softmax`
    stand for their spelled-out forms; results change in the last digits.
    """

    requires: ClassVar[frozenset[str]] = frozenset({"simplified"})

    def rewrites(self) -> Rewrites:
        """The product with the inverse deviation, then scale, then bias."""
        return {
            "mul": (normalized, absorb_scale),
            "add": (absorb_bias,),
            "reshape": (normalized_groups,),
            "div": (softmax_of_powers,),
            "sub": (log_softmax_of_shifted,),
            "softmax": (softmax_of_shifted,),
            "exp": (softmax_of_logarithms,),
        }


def normalized(node: Node, emit: Emitter) -> Value | None:
    """`d * rsqrt(mean(d * d) + eps)` for d = x - mean(x) or any d."""
    for value, factor in either_way(node):
        found = attempt(_norm_of, value, factor, emit)
        if found is not None and found.type == node.result.type:
            return found
    return None


def normalized_groups(node: Node, emit: Emitter) -> Value | None:
    """Groups of channels folded into rows, normalized as instances and unfolded again, are a `group_norm`."""
    norm = made(node.operand(), "instance_norm")
    fold = made(norm.operand(), "reshape")
    need(norm.attributes["layout"] == "NCHW")
    x, rows = fold.operand(), norm.operand().type
    need(x.type == node.result.type and x.type.rank >= 3 and rows.rank == 3)
    batch, groups, channels = rows.shape[0], fixed(rows.shape[1]), fixed(x.type.shape[1])
    parameters = zip(norm.operands[1:], (1, 0), strict=True)
    need(all(v is None or splat_of(v) == unit for v, unit in parameters))
    need(batch == x.type.shape[0] and groups and not channels % groups)
    attributes = {"groups": groups, "epsilon": norm.real("epsilon")}
    return emit.op("group_norm", [x, None, None], attributes)


def _norm_of(d: Value, inverse_root: Value, emit: Emitter) -> Value:
    """`d * inverse_root` as one op."""
    shifted = made(made(inverse_root, "rsqrt").operand(), "add")
    epsilon = given(splat_of(shifted.operand(1)))
    mean = made(shifted.operand(0), "reduce_mean")
    need(d.type.dtype.is_float and not epsilon < 0 and mean.flag("keepdims"))
    axis = given(last_axes(d.type, mean.ints("axes")))
    need(_squared(mean.operand()) is d)
    centred = attempt(_centred, d, axis)
    attributes = {"axis": axis, "epsilon": float(epsilon)}
    if centred is not None:
        return emit.op("layer_norm", [centred], attributes)
    return emit.op("rms_norm", [d], attributes)


def _squared(value: Value) -> Value | None:
    product = maker(value, "mul")
    if product is not None and product.operand(0) is product.operand(1):
        return product.operand(0)
    power = maker(value, "pow")
    if power is not None and splat_of(power.operand(1)) == 2:
        return power.operand(0)
    return None


def _centred(d: Value, axis: int) -> Value:
    """`x` when d is x - mean(x) over the same axes."""
    difference = made(d, "sub")
    x, mean = difference.operand(0), made(difference.operand(1), "reduce_mean")
    need(mean.operand() is x and mean.flag("keepdims"))
    need(last_axes(x.type, mean.ints("axes")) == axis)
    return x


def _parameter(node: Node, norm: Node, value: Value) -> bool:
    """Whether `value` has exactly the normalized shape (leading unit axes aside)."""
    x = norm.operand()
    axis = norm.number("axis") % x.type.rank
    shape = value.type.shape
    while len(shape) > x.type.rank - axis and shape[0] == 1:
        shape = shape[1:]
    return shape == x.type.shape[axis:] and node.result.type == norm.result.type


def _as_parameter(norm: Node, value: Value, emit: Emitter) -> Value:
    x = norm.operand()
    return emit.reshape(value, x.type.shape[norm.number("axis") % x.type.rank :])


def _norm_operand(node: Node, emit: Emitter) -> tuple[Node, Value] | None:
    """The norm that only this node uses, and the other operand."""
    for value, other in either_way(node):
        norm = maker(value, "layer_norm", "rms_norm")
        if norm is not None and emit.edit.sole_user(value) is node:
            return norm, other
    return None


def absorb_scale(node: Node, emit: Emitter) -> Value | None:
    """norm(x) * scale, for a scale of the normalized shape, is norm(x, scale)."""
    norm, scale = given(_norm_operand(node, emit))
    need(all(v is None for v in norm.operands[1:]))
    need(_parameter(node, norm, scale))
    attributes = {"axis": norm.number("axis"), "epsilon": norm.real("epsilon")}
    return emit.op(norm.op, [norm.operand(), _as_parameter(norm, scale, emit)], attributes)


def absorb_bias(node: Node, emit: Emitter) -> Value | None:
    """layer_norm(x, scale) + bias, for a bias of the normalized shape."""
    found = given(_norm_operand(node, emit))
    need(found[0].op == "layer_norm")
    norm, bias = found
    need(len(norm.present_operands) <= 2 and _parameter(node, norm, bias))
    need(len(norm.operands) <= 2 or norm.operands[2] is None)
    attributes = {"axis": norm.number("axis"), "epsilon": norm.real("epsilon")}
    scale = norm.operands[1] if len(norm.operands) > 1 else None
    parameters = [norm.operand(), scale, _as_parameter(norm, bias, emit)]
    return emit.op("layer_norm", parameters, attributes)
