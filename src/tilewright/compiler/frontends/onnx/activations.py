"""Activations that nodes name in an attribute: recurrent layers, and products and convolutions with one fused in.

Source: ONNX operator reference (RNN, LSTM, GRU: activations); onnxruntime ContribOperators.md (FusedConv, FusedGemm).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor

Function = Callable[[Tensor], Tensor]
# ONNX name -> graph op, and the attributes that activation_alpha and activation_beta set.
ACTIVATIONS: Final[dict[str, tuple[str, tuple[tuple[str, float], ...]]]] = {
    "affine": ("", (("alpha", 1.0), ("beta", 0.0))),
    "elu": ("elu", (("alpha", 1.0),)),
    "hardsigmoid": ("hard_sigmoid", (("alpha", 0.2), ("beta", 0.5))),
    "leakyrelu": ("leaky_relu", (("alpha", 0.01),)),
    "parametricsoftplus": ("", (("alpha", 1.0), ("beta", 1.0))),
    "relu": ("relu", ()),
    "scaledtanh": ("", (("alpha", 1.0), ("beta", 1.0))),
    "sigmoid": ("sigmoid", ()),
    "softplus": ("softplus", ()),
    "softsign": ("softsign", ()),
    "tanh": ("tanh", ()),
    "thresholdedrelu": ("thresholded_relu", (("alpha", 1.0),)),
}


# alpha f(beta x)
_SCALED: Final = {"parametricsoftplus": "softplus", "scaledtanh": "tanh"}


def activation(e: NodeMaker, name: str, values: Mapping[str, float]) -> Function:
    """The function that a node calls by name, in lower case, with numbers that it gives.

    Raises: UnsupportedError for a name that is not in the table.
    """
    if name not in ACTIVATIONS:
        raise UnsupportedError(f"activation '{name}' is not supported")
    op, parameters = ACTIVATIONS[name]
    attributes = {key: values.get(key, default) for key, default in parameters}
    if op:
        return lambda x: e.op(op, x, **attributes)

    def composed(x: Tensor) -> Tensor:
        alpha, beta = (e.scalar(attributes[key], x.dtype) for key in ("alpha", "beta"))
        if name in _SCALED:
            return e.op("mul", alpha, e.op(_SCALED[name], e.op("mul", beta, x)))
        return e.op("add", e.op("mul", x, alpha), beta)

    return composed


def fused_activation(
    e: NodeMaker, x: Tensor, name: str, numbers: Sequence[float]
) -> Tensor:
    """The activation that is fused into another operator; none where the name is empty."""
    low = name.lower()
    if not name:
        return x
    if low == "clip" and len(numbers) == 2:
        return e.op("clip", x, *(e.scalar(number, x.dtype) for number in numbers))
    keys = [key for key, _ in ACTIVATIONS[low][1]] if low in ACTIVATIONS else []
    return activation(e, low, dict(zip(keys, numbers, strict=False)))(x)
