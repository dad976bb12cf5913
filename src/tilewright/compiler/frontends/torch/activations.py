"""Rows for activations.

Source: the operators of ATen by name, `torch.nn.functional` reference pages.
"""

from __future__ import annotations

from typing import Final

from tilewright.base import dtypes
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.torch.call import Call
from tilewright.compiler.frontends.torch.functions import expm1, log1p
from tilewright.compiler.frontends.torch.row import Build, Row, row


def _wide(call: Call) -> Tensor:
    dtype = call.dtype()
    return call.operand("self", dtypes.f32 if dtype in dtypes.HALVES else dtype)


def _plain(op: str) -> Build:
    return lambda call: call.op(op, call.tensor())


def _relu(call: Call) -> Tensor:
    x = call.tensor()
    if x.dtype.is_bool:
        raise UnsupportedError("truth values are not supported here")
    return call.op("relu", x)


def _relu6(call: Call) -> Tensor:
    e, x = call.maker, call.tensor()
    return e.op("clip", x, e.scalar(0, x.dtype), e.scalar(6, x.dtype))


def _gelu(call: Call) -> Tensor:
    return call.op("gelu", call.tensor(), approximate=call.text("approximate", "none"))


def _hard_sigmoid(call: Call) -> Tensor:
    return call.op("hard_sigmoid", call.tensor(), alpha=1 / 6, beta=0.5)


def _hardtanh(call: Call) -> Tensor:
    e, x = call.maker, call.tensor()
    low, high = call.number("min_val", -1.0), call.number("max_val", 1.0)
    if low > high:
        raise UnsupportedError(f"bounds {low} and {high} cross")
    return e.op("clip", x, e.scalar(low, x.dtype), e.scalar(high, x.dtype))


def _leaky_relu(call: Call) -> Tensor:
    slope = float(call.number("negative_slope", 0.01))
    return call.op("leaky_relu", call.tensor(), alpha=slope)


def _elu(call: Call) -> Tensor:
    e, x = call.maker, _wide(call)
    alpha, scale = float(call.number("alpha", 1.0)), float(call.number("scale", 1.0))
    inner = float(call.number("input_scale", 1.0))
    if inner == 1 and scale == 1:
        return call.finish(e.op("elu", x, alpha=alpha))
    zero = e.scalar(0, x.dtype)
    below = expm1(e, e.op("mul", e.op("min", x, zero), e.scalar(inner, x.dtype)))
    below = e.op("mul", below, e.scalar(alpha * scale, x.dtype))
    above = e.op("mul", x, e.scalar(scale, x.dtype))
    found = e.op("where", e.op("greater", x, zero), above, below)
    return call.finish(found)


def _celu(call: Call) -> Tensor:
    return call.finish(call.op("celu", _wide(call), alpha=float(call.number("alpha", 1.0))))


def _softplus(call: Call) -> Tensor:
    e, x = call.maker, _wide(call)
    beta, threshold = float(call.number("beta", 1.0)), float(call.number("threshold", 20.0))
    factor = e.scalar(beta, x.dtype)
    scaled = x if beta == 1 else e.op("mul", x, factor)
    smooth = e.op("softplus", scaled)
    if beta != 1:
        smooth = e.op("div", smooth, factor)
    if threshold == 20 and x.dtype != dtypes.f64:
        # Beyond it log(1 + exp(x)) is x in 24 bits.
        return call.finish(smooth)
    is_large = e.op("greater", scaled, e.scalar(threshold, x.dtype))
    return call.finish(e.op("where", is_large, x, smooth))


def _log_sigmoid(call: Call) -> Tensor:
    e, x = call.maker, _wide(call)
    zero = e.scalar(0, x.dtype)
    tail = log1p(e, e.op("exp", e.op("neg", e.op("abs", x))))
    return call.finish(e.op("sub", e.op("min", x, zero), tail))


def _shrink(*, soft: bool) -> Build:
    def build(call: Call) -> Tensor:
        e, x = call.maker, _wide(call)
        bound = float(call.number("lambd", 0.5))
        found = e.op("shrink", x, bias=bound if soft else 0.0, lambd=bound)
        return call.finish(e.op("where", e.op("is_nan", x), x, found))

    return build


def _threshold(call: Call) -> Tensor:
    e, x = call.maker, call.tensor()
    bound, value = call.operand("threshold", x.dtype), call.operand("value", x.dtype)
    return e.op("where", e.op("less_equal", x, bound), value, x)


def _prelu(call: Call) -> Tensor:
    e, x, weight = call.maker, call.tensor(), call.tensor("weight")
    if weight.rank == 1 and x.rank > 1:
        weight = e.reshape(weight, (weight.shape[0], *[1] * (x.rank - 2)))
    elif not x.rank:
        weight = e.reshape(weight, ())
    return e.op("prelu", x, weight)


def _glu(call: Call) -> Tensor:
    e, x = call.maker, call.tensor()
    axis = call.integer("dim", -1) % max(x.rank, 1)
    half = call.shape()[axis]
    first, second = e.slice(x, axis, 0, half), e.slice(x, axis, half, half)
    return e.op("mul", first, e.op("sigmoid", second))


def _gradient_of_gated(call: Call, *, is_mish: bool) -> Tensor:
    """Of x times a gate: its sigmoid (silu), or the tanh of its softplus (mish).

    Torch's tracer leaves both whole, whatever takes them apart: they are compositions that have kernels, too.
    """
    e, x = call.maker, _wide(call)
    gradient, one = call.operand("grad_output", x.dtype), e.scalar(1, x.dtype)
    sigmoid = e.op("sigmoid", x)
    gate, slope = sigmoid, e.op("mul", sigmoid, e.op("sub", one, sigmoid))
    if is_mish:
        gate = e.op("tanh", e.op("softplus", x))
        slope = e.op("mul", sigmoid, e.op("sub", one, e.op("mul", gate, gate)))
    steepness = e.op("add", gate, e.op("mul", x, slope))
    return call.finish(e.op("mul", gradient, steepness))


def _gradient_of_silu(call: Call) -> Tensor:
    return _gradient_of_gated(call, is_mish=False)


def _gradient_of_mish(call: Call) -> Tensor:
    return _gradient_of_gated(call, is_mish=True)


ROWS: Final[tuple[Row, ...]] = (
    row("relu", _relu),
    row("relu6", _relu6),
    row("gelu", _gelu),
    row("silu", _plain("silu")),
    row("silu_backward", _gradient_of_silu),
    row("mish", _plain("mish")),
    row("mish_backward", _gradient_of_mish),
    row("hardswish", _plain("hard_swish")),
    row("hardsigmoid", _hard_sigmoid),
    row("hardtanh", _hardtanh),
    row("leaky_relu", _leaky_relu),
    row("elu", _elu),
    row("celu", _celu),
    row("selu", _plain("selu")),
    row("softplus", _softplus),
    row("log_sigmoid", _log_sigmoid),
    row("softshrink", _shrink(soft=True)),
    row("hardshrink", _shrink(soft=False)),
    row("threshold", _threshold),
    row("prelu _prelu_kernel", _prelu),
    row("glu", _glu),
)
