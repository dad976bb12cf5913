"""Rows for mixtures of experts: every row of the input goes through the few experts that its router prefers.

Weights of a model stay where they are: an expert's are a view.

Source: onnxruntime ContribOperators.md (MoE, QMoE), in the meaning of its CPU kernels where it has one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, final

from tilewright.base import dtypes
from tilewright.base.errors import ModelError
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.mixtures import mixture
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.packed_integers import unpacked
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.contraction import swap_last
from tilewright.compiler.frontends.onnx.row import MICROSOFT, Row, row

_ACTIVATIONS: Final = ("relu", "gelu", "silu", "swiglu", "identity")
_INTERLEAVED: Final = 1
# The number of an expert -> its weights [out, in], and its bias.
Layer = Callable[[int], tuple[Tensor, Tensor | None]]


@final
@record
class _Experts:
    """The layers of all experts; `gate` is what the first one is multiplied by."""

    first: Layer
    second: Layer
    gate: Layer | None


def _own(e: NodeMaker, x: Tensor, number: int) -> Tensor:
    """What belongs to one expert; of weights that the model holds it is a view."""
    if x.array is not None:
        return e.constant(x.array[number], f"{x.name}.{number}" if x.name else "")
    return e.squeeze(e.slice(x, 0, number, 1), (0,))


def _routed(call: Call, count: int, given: Tensor | None) -> tuple[Tensor, Tensor]:
    """The experts of every row, i64[rows, count], and the weights of what they give: those of `given`, if it is there."""
    e, logits = call.maker, _wide(call, call.tensor(1))
    if call.flag("use_sparse_mixer"):
        raise UnsupportedError("attribute 'use_sparse_mixer' is not supported")
    # Where weights have few bits onnxruntime always takes them from the experts that were chosen.
    always = call.node.op_type == "QMoE" and given is None
    normalized = call.flag("normalize_routing_weights") or always
    _, chosen = e.ops("top_k", logits, k=(count,), axis=1)
    scores = e.op("softmax", logits, axis=1) if given is None else _wide(call, given)
    weights = e.op("gather_elements", scores, chosen, axis=1)
    if normalized:
        total = e.op("reduce_sum", weights, axes=(1,), keepdims=True)
        weights = e.op("div", weights, total)
    return chosen, weights


def _wide(call: Call, x: Tensor) -> Tensor:
    """A tensor of the router as f32."""
    return call.maker.cast(x, dtypes.f32)


def _activated(call: Call, x: Tensor, linear: Tensor | None) -> Tensor:
    """What the first layer gives, activated, times `linear`; two halves of it may be both."""
    e, name = call.maker, call.choice("activation_type", "relu", _ACTIVATIONS)
    fusion = call.integer("swiglu_fusion", 0)
    alpha, beta = call.float("activation_alpha", 1.0), call.float("activation_beta", 0.0)
    limit = call.attributes.float("swiglu_limit")
    if call.flag("swiglu_limit_after_activation"):
        raise UnsupportedError("attribute 'swiglu_limit_after_activation' is not supported")
    if name != "swiglu":
        if name == "gelu":
            x = e.op(name, x, approximate="tanh")
        elif name != "identity":
            x = e.op(name, x)
        return x if linear is None else e.op("mul", x, linear)
    if fusion:
        half = x.shape[1] // 2
        if fusion == _INTERLEAVED:
            x, linear = (e.slice(x, 1, start, half, 2) for start in (0, 1))
        else:
            x, linear = (e.slice(x, 1, start, half) for start in (0, half))
    if linear is None:
        raise ModelError("swiglu needs two products: no operand 7, nor are they fused")
    return _gated(e, x, linear, (alpha, beta, limit))


def _gated(
    e: NodeMaker,
    gate: Tensor,
    linear: Tensor,
    numbers: tuple[float, float, float | None],
) -> Tensor:
    """`g sigmoid(alpha g) (l + beta)`, where g is at most the limit and l not beyond it."""
    alpha, beta, limit = numbers
    if limit is not None:
        high = e.scalar(limit, gate.dtype)
        gate = e.op("min", gate, high)
        linear = e.op("clip", linear, e.scalar(-limit, gate.dtype), high)
    scaled = gate if alpha == 1 else e.op("mul", gate, e.scalar(alpha, gate.dtype))
    value = e.op("mul", gate, e.op("sigmoid", scaled))
    if beta:
        linear = e.op("add", linear, e.scalar(beta, linear.dtype))
    return e.op("mul", value, linear)


def _layer(e: NodeMaker, x: Tensor, layer: Layer, number: int) -> Tensor:
    weights, bias = layer(number)
    product = e.op("matmul", x, swap_last(e, weights))
    return product if bias is None else e.op("add", product, bias)


def _expert(call: Call, experts: _Experts, rows: Tensor, number: int) -> Tensor:
    e, gate = call.maker, experts.gate
    linear = None if gate is None else _layer(e, rows, gate, number)
    first = _activated(call, _layer(e, rows, experts.first, number), linear)
    return _layer(e, first, experts.second, number)


def _mixed(call: Call, experts: _Experts, given_weights: Tensor | None = None) -> Tensor:
    """The sum over the experts of their rows' results, weighted."""
    e, given, count = call.maker, call.tensor(0), call.integer("k", 1)
    rows, number = call.tensor(1).shape
    if not isinstance(number, int) or not 0 < count <= number:
        raise ModelError(f"{count} of {number} experts")
    x = e.reshape(given, (rows, given.shape[-1]))
    chosen, weights = _routed(call, count, given_weights)
    total = mixture(
        e, x, chosen, weights, number, lambda own, index: _expert(call, experts, own, index)
    )
    return e.reshape(e.cast(total, given.dtype), given.shape)


def _plain(call: Call, weights: int, bias: int) -> Layer:
    held, added = call.tensor(weights), call.optional(bias)

    def layer(number: int) -> tuple[Tensor, Tensor | None]:
        e = call.maker
        return _own(e, held, number), None if added is None else _own(e, added, number)

    return layer


def _mixture(call: Call) -> Tensor:
    gate = None if call.optional(6) is None else _plain(call, 6, 7)
    return _mixed(call, _Experts(_plain(call, 2, 3), _plain(call, 4, 5), gate))


# --- weights of few bits


def _bits(call: Call, layer: str) -> int:
    common = call.integer("expert_weight_bits", 4)
    bits = call.integer(f"{layer}_expert_weight_bits", common)
    if bits not in (4, 8):
        raise UnsupportedError(f"weights of {bits} bits, expected 4 or 8")
    return bits


def _quantized(call: Call, first: int, zero: int, layer: str) -> Layer:
    """Weights, scales and bias begin at operand `first`; zero points are operand `zero`."""
    e, stored, scale = call.maker, call.tensor(first), call.tensor(first + 1)
    bias, shift, bits = call.optional(first + 2), call.optional(zero), _bits(call, layer)
    columns = stored.shape[1]
    depth = stored.shape[2] * (8 // bits)
    block = call.integer("block_size", 0)

    def whole_zero(number: int, shape: Sequence[Dim]) -> Tensor:
        if shift is None:
            return e.broadcast_to(e.scalar(1 << (bits - 1), dtypes.u8), shape)
        found = unpacked(e, _own(e, shift, number), bits)
        return e.slice(found, found.rank - 1, 0, shape[-1])

    def weights_of(number: int) -> tuple[Tensor, Tensor | None]:
        values = unpacked(e, _own(e, stored, number), bits)
        own = e.cast(_own(e, scale, number), dtypes.f32)
        if block:
            held = e.op(
                "dequantize_linear",
                values,
                own,
                whole_zero(number, own.shape),
                axis=1,
                block_size=block,
            )
        else:
            own = e.reshape(own, (columns,))
            held = e.op(
                "dequantize_linear", values, own, whole_zero(number, (columns,)), axis=0
            )
        held = e.cast(e.reshape(held, (columns, depth)), call.tensor(0).dtype)
        return held, None if bias is None else _own(e, bias, number)

    return weights_of


def _quantized_mixture(call: Call) -> Tensor:
    call.integer("accuracy_level", 0)  # how coarse sums may be: ours are those of f32
    kind = call.string("quant_type", "int")
    packed = call.integer("weights_prepacked", 0)
    if kind != "int" or packed == 1:
        raise UnsupportedError(f"weights of quant_type '{kind}', prepacked {packed}")
    for index in range(15, 21):
        if call.optional(index) is not None:
            raise UnsupportedError(f"operand {index + 1} is not supported")
    given = call.optional(8)
    gate = None if given is None else _quantized(call, 8, 13, "fc3")
    first, second = _quantized(call, 2, 11, "fc1"), _quantized(call, 5, 12, "fc2")
    return _mixed(call, _Experts(first, second, gate), call.optional(14))


ROWS: Final[tuple[Row, ...]] = (
    row("MoE", _mixture, domain=MICROSOFT),
    row("QMoE", _quantized_mixture, domain=MICROSOFT, ignores=("fc3_expert_weight_bits",)),
)
