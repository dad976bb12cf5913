"""Group norms in terms of what has a schedule in lanes, whichever axis channels are.

Channels first, a group lies in one piece of memory: its positions are one long row, normalized as an instance of its
own.  It is the form in which torch exports group norms.  Channels last, lanes are channels: each has its mean and
variance, and those of a group follow from them.  In both the scale is a product and the bias a sum, elementwise, which
fuse with what follows.

Source: Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979,
for the variance of a group of equal parts.
"""

from __future__ import annotations

from typing import ClassVar, final

from tilewright.base import dtypes, symbolic
from tilewright.base.record import record
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.ops.shapes import element_count
from tilewright.compiler.passes import Emitter, Rewrites, need
from tilewright.compiler.transforms.rewrite_pass import RewritePass


@final
@record(kw_only=True)
class DecomposeNorms(RewritePass):
    """Write `group_norm` as norms or means of its channels, a product and a sum.

    Requires: channels-last, that groups of images stand as they run.  Ensures: no `group_norm` is left; types unchanged.
    """

    requires: ClassVar[frozenset[str]] = frozenset({"channels-last"})

    def rewrites(self) -> Rewrites:
        """One rewrite."""
        return {"group_norm": (decompose_groups,)}


def decompose_groups(node: Node, emit: Emitter) -> Value | None:
    """group_norm(x, s, b) is normal(x) · s + b, in f32 at least."""
    x, groups, layout = node.operand(), node.number("groups"), node.attributes["layout"]
    need(groups)
    if layout == "NHWC" and x.type.shape[-1] == groups:
        same = {"epsilon": node.attributes["epsilon"], "layout": layout}
        return emit.op("instance_norm", node.operands, same)
    wide = emit.cast(x, dtypes.f32) if x.type.dtype.bits < dtypes.f32.bits else x
    form = _channels_first if layout == "NCHW" else _channels_last
    return emit.cast(form(node, wide, emit), x.type.dtype)


def _channels_first(node: Node, x: Value, emit: Emitter) -> Value:
    """The groups as instances of one long row each."""
    groups = node.number("groups")
    batch, channels, *places = x.type.shape
    row = symbolic.floordiv(channels, groups) * element_count(places)
    folded = emit.reshape(x, (batch, groups, row))
    epsilon = node.attributes["epsilon"]
    normal = emit.op("instance_norm", [folded, None, None], {"epsilon": epsilon})
    result = emit.reshape(normal, x.type.shape)
    spread = (channels, *([1] * len(places)))
    for op, vector in _parameters(node, x, emit):
        result = emit.op(op, [result, emit.reshape(vector, spread)])
    return result


def _channels_last(node: Node, x: Value, emit: Emitter) -> Value:
    """Mean and variance of every channel make those of its group."""
    groups = {"groups": node.number("groups")}
    positions = {"axes": tuple(range(1, x.type.rank - 1)), "keepdims": True}

    def square(value: Value, around: Value) -> Value:
        centred = emit.op("sub", [value, around])
        return emit.op("mul", [centred, centred])

    centre = emit.op("reduce_mean", [x], positions)
    spread = emit.op("reduce_mean", [square(x, centre)], positions)
    middle = emit.op("mean_of_groups", [centre], groups)
    whole = emit.op("add", [spread, square(centre, middle)])
    variance = emit.op("mean_of_groups", [whole], groups)
    epsilon = emit.scalar(node.real("epsilon"), variance)
    factor = emit.op("rsqrt", [emit.op("add", [variance, epsilon])])
    result = emit.op("sub", [x, middle])
    parameters = dict(_parameters(node, x, emit))
    if "mul" in parameters:
        factor = emit.op("mul", [factor, parameters["mul"]])
    result = emit.op("mul", [result, factor])
    return emit.op("add", [result, parameters["add"]]) if "add" in parameters else result


def _parameters(node: Node, x: Value, emit: Emitter) -> list[tuple[str, Value]]:
    """What is done with the normal values, channel by channel, and the vector of it in the type of `x`."""
    found: list[tuple[str, Value]] = []
    for op, place in (("mul", 1), ("add", 2)):
        vector = node.optional_operand(place)
        if vector is not None:
            found.append((op, emit.cast(vector, x.type.dtype)))
    return found
