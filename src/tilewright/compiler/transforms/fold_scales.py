"""Batch normalization and other per-channel scales, folded into the weights in front of them.

Works on what the front ends leave of a normalization with known statistics: a multiplication and
an addition per channel.  Products of constants are written as nodes; `fold_constants` computes
them.
"""

from __future__ import annotations

from typing import ClassVar, Final, final

from tilewright.base import dtypes
from tilewright.base.record import record
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.passes import Emitter, Rewrites, given, need
from tilewright.compiler.transforms.matching import is_constant, made, maker, splat_of
from tilewright.compiler.transforms.rewrite_pass import RewritePass

_LARGEST_FACTOR: Final = 1 << 16


@final
@record(kw_only=True)
class FoldScales(RewritePass):
    """Move constant factors per output channel from behind a contraction into its weights.

    Requires: simplified (constants to the right).  Ensures: a convolution or matmul with
    constant weights has its bias as a separate addition; at most one addition per channel
    follows, and no multiplication per channel before anything else.  Rounds differently.
    """

    requires: ClassVar[frozenset[str]] = frozenset({"simplified"})
    ensures: ClassVar[frozenset[str]] = frozenset({"bias-apart"})

    def rewrites(self) -> Rewrites:
        """Bias apart, additions merged, factors moved in."""
        return {
            "conv": (bias_apart,),
            "conv_transpose": (bias_apart,),
            "mul": (
                scale_into_weights,
                scale_before_bias,
                merge_factors,
                distribute_factor,
            ),
            "matmul": (scale_behind_matmul,),
            "add": (merge_biases, merge_terms),
        }


def channel_axis_of(node: Node) -> int:
    """The axis of the output channels of a contraction."""
    rank = node.result.type.rank
    if node.op == "matmul" or node.word("layout") != "NCHW":
        return rank - 1
    return 1


def bias_apart(node: Node, emit: Emitter) -> Value | None:
    """conv(x, w, bias) is conv(x, w) + bias."""
    bias = given(node.optional_operand(2))
    plain = emit.op(node.op, node.operands[:2], node.attributes)
    axis = channel_axis_of(node)
    shape = [1] * (plain.type.rank - axis)
    spread = emit.reshape(bias, (bias.type.shape[0], *shape[1:]))
    return emit.op("add", [plain, spread])


def _weighted(value: Value, emit: Emitter) -> Node:
    """The contraction with constant weights that makes `value` for one user only."""
    node = made(value, "conv", "conv_transpose", "matmul")
    need(emit.edit.sole_user(value) is not None)
    need(node.optional_operand(2) is None and _is_weight(node.operand(1)))
    need(node.op != "conv_transpose" or node.number("groups") == 1)
    need(node.op != "matmul" or node.operand(1).type.rank == 2)
    # Weights narrower than their sums have no room for a factor.
    need(node.operand(1).type.dtype is node.result.type.dtype)
    return node


def _is_weight(value: Value) -> bool:
    """A constant, or one in the making (an earlier scale, not folded yet)."""
    if is_constant(value):
        return True
    node = maker(value, "mul", "reshape", "transpose", "cast")
    return node is not None and all(_is_weight(v) for v in node.present_operands)


def _per_channel(value: Value, like: Value, axis: int) -> bool:
    """Whether `value` is constant and varies along `axis` of `like` only."""
    if not _is_weight(value) or value.type.rank > like.type.rank:
        return False
    offset = like.type.rank - value.type.rank
    shape = value.type.shape
    return all(d == 1 or i + offset == axis for i, d in enumerate(shape)) and (
        axis < offset or shape[axis - offset] in (1, like.type.shape[axis])
    )


def _vector(value: Value, emit: Emitter) -> Value:
    """A per-channel constant as a vector or scalar."""
    count = value.type.element_count
    return emit.reshape(value, () if count == 1 else (count,))


def scale_into_weights(node: Node, emit: Emitter) -> Value | None:
    """conv(x, w) * c is conv(x, w * c) for a factor per output channel."""
    value, scale = node.operand(0), node.operand(1)
    source = _weighted(value, emit)
    axis = channel_axis_of(source)
    need(_per_channel(scale, value, axis) and value.type == node.result.type)
    # A scalar is free in the epilogue.
    need(source.op != "matmul" or scale.type.element_count != 1)
    weights = source.operand(1)
    place = {"conv": 0, "conv_transpose": 1, "matmul": 1}[source.op]
    factor = _vector(scale, emit)
    if factor.type.rank:
        shape = (factor.type.shape[0], *([1] * (weights.type.rank - place - 1)))
        factor = emit.reshape(factor, shape)
    scaled = emit.op("mul", [weights, factor])
    return emit.op(source.op, [source.operand(0), scaled], source.attributes)


def scale_before_bias(node: Node, emit: Emitter) -> Value | None:
    """(conv(x, w) + b) * c is conv(x, w) * c + b * c."""
    product, bias, scale = _biased(node, emit)
    need(product.op != "matmul" or scale.type.element_count != 1)
    scaled = emit.op("mul", [product.result, scale])
    return emit.op("add", [scaled, emit.op("mul", [bias, scale])])


def _biased(node: Node, emit: Emitter) -> tuple[Node, Value, Value]:
    """The contraction, its bias and what `node` does to their sum, if both are vectors of its channels."""
    value, other = node.operand(0), node.operand(1)
    total = made(value, "add")
    need(emit.edit.sole_user(value) is not None)
    source = _weighted(total.operand(0), emit)
    need(value.type == node.result.type)
    axis, bias = channel_axis_of(source), total.operand(1)
    need(_per_channel(bias, value, axis) and _per_channel(other, value, axis))
    return source, bias, other


def scale_behind_matmul(node: Node, emit: Emitter) -> Value | None:
    """(a * s) @ (b * t) is (a @ b) * (s * t) for scalars, where the store multiplies for free."""
    # F16 models scale first to stay in range.
    need(node.result.type.dtype in (dtypes.f32, dtypes.f64))
    for index in (0, 1):
        scaled = maker(node.operand(index), "mul")
        if scaled is None or emit.edit.sole_user(scaled.result) is not node:
            continue
        x, scale = scaled.operand(0), scaled.operand(1)
        factor = splat_of(scale)
        if factor is None or not 1e-4 < abs(factor) < 1e4 or x.type != scaled.result.type:
            continue
        operands = [x if i == index else node.operand(i) for i in (0, 1)]
        product = emit.op("matmul", operands, node.attributes)
        return emit.op("mul", [product, emit.scalar(float(factor), product)])
    return None


def merge_biases(node: Node, emit: Emitter) -> Value | None:
    """(conv(x, w) + a) + b is conv(x, w) + (a + b)."""
    product, first, second = _biased(node, emit)
    return emit.op("add", [product.result, emit.op("add", [first, second])])


# --- scale and shift in a row (normalization, then an affine layer) --------------------------


def _known_factor(value: Value) -> bool:
    """A constant of moderate size, or one in the making."""
    count = value.type.element_count
    return isinstance(count, int) and count <= _LARGEST_FACTOR and _is_weight(value)


def _affine(value: Value, op: str, emit: Emitter) -> Node:
    """The node `x op constant` that makes `value` for one user only."""
    node = made(value, op)
    need(emit.edit.sole_user(value) is not None and value.type.dtype.is_float)
    need(_known_factor(node.operand(1)) and node.operand(0).type == value.type)
    return node


def merge_factors(node: Node, emit: Emitter) -> Value | None:
    """(x * a) * b is x * (a * b) for constants; rounds differently."""
    inner = _affine(node.operand(0), "mul", emit)
    factor = node.operand(1)
    need(_known_factor(factor))
    product = emit.op("mul", [inner.operand(1), factor])
    return _kept(emit.op("mul", [inner.operand(0), product]), node)


def distribute_factor(node: Node, emit: Emitter) -> Value | None:
    """(x * a + b) * c is x * (a * c) + b * c for constants; rounds differently."""
    total = _affine(node.operand(0), "add", emit)
    inner = _affine(total.operand(0), "mul", emit)
    factor = node.operand(1)
    need(_known_factor(factor))
    scaled = emit.op("mul", [inner.operand(0), emit.op("mul", [inner.operand(1), factor])])
    shift = emit.op("mul", [total.operand(1), factor])
    return _kept(emit.op("add", [scaled, shift]), node)


def merge_terms(node: Node, emit: Emitter) -> Value | None:
    """(x * a + b) + c is x * a + (b + c) for constants; rounds differently."""
    total = _affine(node.operand(0), "add", emit)
    _affine(total.operand(0), "mul", emit)
    need(_known_factor(node.operand(1)))
    shift = emit.op("add", [total.operand(1), node.operand(1)])
    return _kept(emit.op("add", [total.operand(0), shift]), node)


def _kept(value: Value, node: Node) -> Value | None:
    return value if value.type == node.result.type else None
