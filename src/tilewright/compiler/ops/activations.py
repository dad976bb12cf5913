"""Activation functions of neural networks, elementwise."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from tilewright.base.dtypes import FLOATS, NUMERIC
from tilewright.compiler.graph.schema import AttributeSpec
from tilewright.compiler.kernel import numerics
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.ir import Expression
from tilewright.compiler.ops import contents, formulas, ranges
from tilewright.compiler.ops.bodies import Scalar, pointwise
from tilewright.compiler.ops.declaration import OpDecl, attr, declare, operand
from tilewright.compiler.ops.functions import CASES, Numpy, unary

_erfc: Final = np.frompyfunc(math.erfc, 1, 1)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(numerics.unary("sigmoid", x, numerics.dtypes.f64))


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(x, 0)


def _with_parameters(
    name: str,
    summary: str,
    oracle: Numpy,
    body: Scalar,
    *attributes: AttributeSpec,
    cases: tuple[str, ...] = (),
) -> OpDecl:
    """One activation with attributes, which both functions take as keywords."""
    return declare(
        name=name,
        summary=summary,
        operands=(operand("x", FLOATS),),
        attributes=attributes,
        evaluate=oracle,
        body=pointwise(body, use_attributes=True),
        cases=(*CASES, *cases),
        source=f"ONNX {name}",
    )


sigmoid: Final = unary("sigmoid", "1 / (1 + exp(-x))", _sigmoid, lambda b, x: b.sigmoid(x))
# As a select, which is one instruction and keeps NaN.
relu: Final = unary(
    "relu",
    "x where positive, else 0",
    lambda x: np.where(x < 0, np.zeros_like(x), x),
    lambda b, x: b.select(b.lt(x, 0), 0, x),
    allowed=NUMERIC,
    rule=ranges.rectified,
    follow=contents.RECTIFIED,
)
silu: Final = unary(
    "silu", "x * sigmoid(x)", lambda x: x * _sigmoid(x), lambda b, x: b.mul(x, b.sigmoid(x))
)
softplus: Final = unary(
    "softplus", "Smooth rectifier log(1 + exp(x))", _softplus, formulas.softplus
)
softsign: Final = unary(
    "softsign",
    "x / (1 + |x|)",
    lambda x: x / (1 + np.abs(x)),
    lambda b, x: b.div(x, b.add(b.abs(x), 1)),
)
mish: Final = unary(
    "mish",
    "x * tanh(softplus(x))",
    lambda x: x * np.tanh(_softplus(x)),
    lambda b, x: b.mul(x, b.tanh(formulas.softplus(b, x))),
)
hard_swish: Final = unary(
    "hard_swish",
    "x * clip(x / 6 + 1/2, 0, 1)",
    lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    lambda b, x: b.mul(x, formulas.clamp(b, b.add(b.mul(x, 1 / 6), 0.5), 0, 1)),
)


def _gelu_oracle(x: np.ndarray, *, approximate: str) -> Any:
    # Neither as 1 + f: that is a difference where f is near -1.
    if approximate == "tanh":
        return x * _sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
    return 0.5 * x * np.asarray(_erfc(-x * math.sqrt(0.5)), np.float64)


def _gelu_body(b: KernelBuilder, x: Expression, *, approximate: str) -> Expression:
    return formulas.gelu_tanh(b, x) if approximate == "tanh" else formulas.gelu(b, x)


gelu: Final = _with_parameters(
    "gelu",
    "x * Phi(x), exact or with the tanh approximation",
    _gelu_oracle,
    _gelu_body,
    attr("approximate", "string", "none"),
    cases=("[3,17]; approximate=tanh",),
)


def _leaky_body(b: KernelBuilder, x: Expression, *, alpha: float) -> Expression:
    return b.select(b.lt(x, 0), b.mul(x, alpha), x)


leaky_relu: Final = _with_parameters(
    "leaky_relu",
    "x where positive, else alpha * x",
    lambda x, *, alpha: np.where(x < 0, alpha * x, x),
    _leaky_body,
    attr("alpha", "float", 0.01),
    cases=("[9]; alpha=0.3",),
)


def _elu_body(b: KernelBuilder, x: Expression, *, alpha: float) -> Expression:
    return b.select(b.lt(x, 0), b.mul(formulas.expm1(b, x), alpha), x)


elu: Final = _with_parameters(
    "elu",
    "x where positive, else alpha (exp(x) - 1)",
    lambda x, *, alpha: np.where(x < 0, alpha * np.expm1(x), x),
    _elu_body,
    attr("alpha", "float", 1.0),
    cases=("[9]; alpha=2.5",),
)


def _celu_body(b: KernelBuilder, x: Expression, *, alpha: float) -> Expression:
    return b.select(b.lt(x, 0), b.mul(formulas.expm1(b, b.div(x, alpha)), alpha), x)


celu: Final = _with_parameters(
    "celu",
    "x where positive, else alpha (exp(x / alpha) - 1)",
    lambda x, *, alpha: np.where(x < 0, alpha * np.expm1(x / alpha), x),
    _celu_body,
    attr("alpha", "float", 1.0),
    cases=("[9]; alpha=2.5",),
)


def _selu_body(
    b: KernelBuilder, x: Expression, *, alpha: float, gamma: float
) -> Expression:
    low = b.mul(formulas.expm1(b, x), alpha)
    return b.mul(b.select(b.lt(x, 0), low, x), gamma)


selu: Final = _with_parameters(
    "selu",
    "gamma * elu(x, alpha)",
    lambda x, *, alpha, gamma: gamma * np.where(x < 0, alpha * np.expm1(x), x),
    _selu_body,
    attr("alpha", "float", 1.6732632423543772),
    attr("gamma", "float", 1.0507009873554805),
)


def _hard_sigmoid_body(
    b: KernelBuilder, x: Expression, *, alpha: float, beta: float
) -> Expression:
    return formulas.clamp(b, b.add(b.mul(x, alpha), beta), 0, 1)


hard_sigmoid: Final = _with_parameters(
    "hard_sigmoid",
    "clip(alpha * x + beta, 0, 1)",
    lambda x, *, alpha, beta: np.clip(alpha * x + beta, 0, 1),
    _hard_sigmoid_body,
    attr("alpha", "float", 0.2),
    attr("beta", "float", 0.5),
)


def _threshold_body(b: KernelBuilder, x: Expression, *, alpha: float) -> Expression:
    return b.select(b.gt(x, alpha), x, 0)


thresholded_relu: Final = _with_parameters(
    "thresholded_relu",
    "x where it exceeds alpha, else 0",
    lambda x, *, alpha: np.where(x > alpha, x, np.zeros_like(x)),
    _threshold_body,
    attr("alpha", "float", 1.0),
)


def _shrink_body(
    b: KernelBuilder, x: Expression, *, bias: float, lambd: float
) -> Expression:
    above = b.select(b.gt(x, lambd), b.sub(x, bias), 0)
    return b.select(b.lt(x, -lambd), b.add(x, bias), above)


def _shrink_oracle(x: np.ndarray, *, bias: float, lambd: float) -> np.ndarray:
    above = np.where(x > lambd, x - bias, np.zeros_like(x))
    return np.where(x < -lambd, x + bias, above)


shrink: Final = _with_parameters(
    "shrink",
    "x moved toward 0 by `bias` where |x| exceeds `lambd`, else 0",
    _shrink_oracle,
    _shrink_body,
    attr("bias", "float", 0.0),
    attr("lambd", "float", 0.5),
    cases=("[3,17]; bias=1.5 lambd=1.5",),
)

OPS: Final = (
    sigmoid, relu, silu, softplus, softsign, mish, hard_swish, gelu, leaky_relu, elu, celu, selu,
    hard_sigmoid, thresholded_relu, shrink,
)  # fmt: skip
