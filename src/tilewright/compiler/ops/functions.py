"""Unary mathematical functions: exponentials, roots, rounding, trigonometry, predicates."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from tilewright.base.dtypes import FLOATS, NUMERIC, SIGNED_INTEGERS, DType, bool_
from tilewright.compiler.graph.contents import Follow
from tilewright.compiler.graph.schema import Infer, Ranges, TensorType, Trait
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.ir import Expression
from tilewright.compiler.ops import contents, formulas, ranges
from tilewright.compiler.ops.bodies import Scalar, pointwise
from tilewright.compiler.ops.declaration import OpDecl, attr, declare, operand
from tilewright.compiler.ops.shapes import first

SIGNED: Final = (*FLOATS, *SIGNED_INTEGERS)
CASES: Final = ("[3,17]", "[]", "[0]", "[1]")
Numpy = Callable[..., Any]


def unary(  # noqa: PLR0913 - the columns of a row
    name: str,
    summary: str,
    oracle: Numpy,
    body: Scalar,
    *,
    allowed: tuple[DType, ...] = FLOATS,
    traits: Trait = Trait.NONE,
    infer: Infer | None = None,
    rule: Ranges | None = None,
    follow: Follow | None = None,
) -> OpDecl:
    """One elementwise function without attributes."""
    return declare(
        name=name,
        summary=summary,
        operands=(operand("x", allowed),),
        infer=infer,
        evaluate=oracle,
        body=pointwise(body),
        traits=Trait.PURE | traits,
        cases=CASES,
        source=f"ONNX {name}",
        ranges=rule,
        contents=follow,
    )


def _to_bool(types: Any, _: object) -> tuple[TensorType, ...]:
    return (first(types).with_dtype(bool_),)


def _sign(b: KernelBuilder, x: Expression) -> Expression:
    rest = b.select(b.lt(x, 0), -1, x) if x.dtype.is_signed else x
    return b.select(b.gt(x, 0), 1, rest)


def _sign_oracle(x: np.ndarray) -> np.ndarray:
    one = np.ones_like(x)
    return np.where(x > 0, one, np.where(x < 0, -one, x))


neg: Final = unary(
    "neg",
    "Negative",
    np.negative,
    lambda b, x: b.neg(x),
    allowed=SIGNED,
    follow=contents.NEGATIVE,
)
absolute: Final = unary(
    "abs", "Absolute value", np.abs, lambda b, x: b.abs(x), allowed=NUMERIC,
    traits=Trait.IDEMPOTENT, follow=contents.ABSOLUTE,
)  # fmt: skip
sign: Final = unary(
    "sign", "-1, 0 or 1; NaN stays", _sign_oracle, _sign, allowed=NUMERIC,
    traits=Trait.IDEMPOTENT, follow=contents.SIGN,
)  # fmt: skip
exp: Final = unary("exp", "e to the power of x", np.exp, lambda b, x: b.exp(x))
log: Final = unary("log", "Natural logarithm", np.log, lambda b, x: b.log(x))
sqrt: Final = unary("sqrt", "Square root", np.sqrt, lambda b, x: b.sqrt(x))
rsqrt: Final = unary(
    "rsqrt", "1 / square root", lambda x: 1 / np.sqrt(x), lambda b, x: b.rsqrt(x)
)
reciprocal: Final = unary(
    "reciprocal", "1 / x", lambda x: 1 / x, lambda b, x: b.div(b.const(1, x.dtype), x)
)
floor: Final = unary(
    "floor",
    "Round down",
    np.floor,
    lambda b, x: b.floor(x),
    traits=Trait.IDEMPOTENT,
    rule=ranges.same,
    follow=contents.FLOOR,
)
ceil: Final = unary(
    "ceil",
    "Round up",
    np.ceil,
    lambda b, x: b.ceil(x),
    traits=Trait.IDEMPOTENT,
    rule=ranges.same,
    follow=contents.CEILING,
)
rint: Final = unary(
    "round",
    "Round half to even",
    np.rint,
    lambda b, x: b.round(x),
    traits=Trait.IDEMPOTENT,
    rule=ranges.same,
    follow=contents.ROUNDED,
)
sin: Final = unary("sin", "Sine", np.sin, lambda b, x: b.sin(x))
cos: Final = unary("cos", "Cosine", np.cos, lambda b, x: b.cos(x))
tan: Final = unary("tan", "Tangent", np.tan, formulas.tan)
asin: Final = unary("asin", "Arc sine", np.arcsin, formulas.asin)
acos: Final = unary("acos", "Arc cosine", np.arccos, formulas.acos)
atan: Final = unary("atan", "Arc tangent", np.arctan, formulas.atan)
sinh: Final = unary("sinh", "Hyperbolic sine", np.sinh, formulas.sinh)
cosh: Final = unary("cosh", "Hyperbolic cosine", np.cosh, formulas.cosh)
tanh: Final = unary("tanh", "Hyperbolic tangent", np.tanh, lambda b, x: b.tanh(x))
asinh: Final = unary("asinh", "Inverse hyperbolic sine", np.arcsinh, formulas.asinh)
acosh: Final = unary("acosh", "Inverse hyperbolic cosine", np.arccosh, formulas.acosh)
atanh: Final = unary("atanh", "Inverse hyperbolic tangent", np.arctanh, formulas.atanh)
_erf: Final = np.frompyfunc(math.erf, 1, 1)
erf: Final = unary(
    "erf",
    "Gauss error function",
    lambda x: np.asarray(_erf(x), np.float64),
    lambda b, x: b.erf(x),
)
is_nan: Final = unary(
    "is_nan",
    "Whether x is not a number",
    np.isnan,
    lambda b, x: b.is_nan(x),
    infer=_to_bool,
)


def _is_inf_body(
    b: KernelBuilder, x: Expression, *, detect_positive: bool, detect_negative: bool
) -> Expression:
    found: Expression = b.const(False, bool_)
    if detect_positive:
        found = b.or_(b.eq(x, math.inf), found)
    return b.or_(b.eq(x, -math.inf), found) if detect_negative else found


is_inf: Final = declare(
    name="is_inf",
    summary="Whether x is infinite, of the signs asked for",
    operands=(operand("x", FLOATS),),
    attributes=(
        attr("detect_positive", "bool", default=True),
        attr("detect_negative", "bool", default=True),
    ),
    infer=_to_bool,
    evaluate=lambda x, *, detect_positive, detect_negative: (
        (detect_positive & (x == np.inf)) | (detect_negative & (x == -np.inf))
    ),
    body=pointwise(_is_inf_body, use_attributes=True),
    cases=("[3,17]", "[9]; detect_positive=False", "[9]; detect_negative=False"),
    source="ONNX IsInf, opset 20",
)

OPS: Final = (
    neg, absolute, sign, exp, log, sqrt, rsqrt, reciprocal, floor, ceil, rint, sin, cos, tan, asin,
    acos, atan, sinh, cosh, tanh, asinh, acosh, atanh, erf, is_nan, is_inf,
)  # fmt: skip
