"""Activation functions that models spell out: GELU in its forms, SiLU, mish, hard swish.

Exporters write these as products of x with something of x.  The matcher takes a product apart
into factors, whatever its association, and compares what is inside `erf` or `tanh` as a
polynomial in x, so that every arrangement of constants is found.  Tolerances allow for constants
that were rounded to f16.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Mapping
from typing import ClassVar, Final, final

import numpy as np
from numpy.polynomial import Polynomial

from tilewright.base.record import record
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.passes import Emitter, Rewrites, attempt, need
from tilewright.compiler.transforms.matching import is_splat, made, maker, splat_of
from tilewright.compiler.transforms.rewrite_pass import RewritePass

_TOLERANCE: Final = 2e-3
_MOST_FACTORS: Final = 8
_ROOT_HALF: Final = math.sqrt(0.5)
_TANH_LINEAR: Final = math.sqrt(2 / math.pi)
_TANH_CUBIC: Final = _TANH_LINEAR * 0.044715


@final
@record(kw_only=True)
class RecognizeActivations(RewritePass):
    """Write products that are a known activation of x as that op.

    Requires: simplified (constants to the right).  Ensures: `gelu`, `silu`, `mish` and
    `hard_swish` stand for their spelled-out forms; results change in the last digits.
    """

    requires: ClassVar[frozenset[str]] = frozenset({"simplified"})

    def rewrites(self) -> Rewrites:
        """Products, and quotients that end one."""
        return {"mul": (known_product,), "div": (known_product,)}


@record(frozen=False)
class _Product:
    """A product taken apart: `scale * factors[0] * factors[1] …`."""

    scale: float
    factors: list[Value]


def known_product(node: Node, emit: Emitter) -> Value | None:
    """A product with a pair of factors (x, f(x)) that make an activation."""
    need(node.result.type.dtype.is_float and not _feeds_product(node, emit))
    product = _Product(1.0, [])
    _take_apart(node.result, product, emit, 0)
    need(len(product.factors) <= _MOST_FACTORS)
    for gate, x in itertools.permutations(product.factors, 2):
        for recognize in _RECOGNIZERS if x.type == gate.type else ():
            found = attempt(recognize, x, gate)
            if found is not None:
                return _rebuild(node, product, (x, gate), found, emit)
    return None


def _feeds_product(node: Node, emit: Emitter) -> bool:
    """Whether the node is an inner part of a larger product."""
    user = emit.edit.sole_user(node.result)
    return user is not None and (
        user.op == "mul" or (user.op == "div" and user.operands[0] is node.result)
    )


def _take_apart(value: Value, product: _Product, emit: Emitter, depth: int) -> None:
    scale = splat_of(value)
    if scale is not None:
        product.scale *= float(scale)
        return
    node = maker(value, "mul", "div")
    inner = node is not None and (depth == 0 or emit.edit.sole_user(value) is not None)
    if node is None or not inner or depth > _MOST_FACTORS:
        product.factors.append(value)
        return
    if node.op == "mul":
        for part in node.present_operands:
            _take_apart(part, product, emit, depth + 1)
        return
    divisor = splat_of(node.operand(1))
    if not divisor:
        product.factors.append(value)
        return
    product.scale /= float(divisor)
    _take_apart(node.operand(0), product, emit, depth + 1)


@record(frozen=False)
class _Match:
    """`scale` times the op of x replaces x times the gate."""

    op: str
    scale: float
    attributes: Mapping[str, object]


def _rebuild(
    node: Node, product: _Product, pair: tuple[Value, Value], match: _Match, emit: Emitter
) -> Value | None:
    x, gate = pair
    result = emit.op(match.op, [x], match.attributes)
    rest = list(product.factors)
    rest.remove(x)
    rest.remove(gate)
    scale = product.scale * match.scale
    if abs(scale - 1) > _TOLERANCE / 10:
        result = emit.op("mul", [result, emit.scalar(scale, result)])
    for factor in rest:
        result = emit.op("mul", [result, factor])
    return result if result.type == node.result.type else None


# --- the functions ---------------------------------------------------------------------------


def _gelu(x: Value, gate: Value) -> _Match:
    """`x * (1 + erf(x / sqrt 2))` and `x * (1 + tanh(…))` are twice a GELU."""
    one_plus = made(gate, "add")
    need(is_splat(one_plus.operand(1), 1.0))
    inner = made(one_plus.operand(0), "erf", "tanh")
    terms = polynomial(inner.operand(), x)
    if inner.op == "erf":
        need(_close(terms, 0.0, _ROOT_HALF))
        return _Match("gelu", 2.0, {})
    need(_close(terms, 0.0, _TANH_LINEAR, 0.0, _TANH_CUBIC))
    return _Match("gelu", 2.0, {"approximate": "tanh"})


def _silu(x: Value, gate: Value) -> _Match:
    """`x * sigmoid(x)`."""
    need(made(gate, "sigmoid").operand() is x)
    return _Match("silu", 1.0, {})


def _mish(x: Value, gate: Value) -> _Match:
    """`x * tanh(softplus(x))`."""
    need(made(made(gate, "tanh").operand(), "softplus").operand() is x)
    return _Match("mish", 1.0, {})


def _hard_swish(x: Value, gate: Value) -> _Match:
    """`x * clip(x + 3, 0, 6)` is six times hard swish; `x * hard_sigmoid(x)` is it."""
    inner = made(gate, "hard_sigmoid", "clip")
    if inner.op == "hard_sigmoid":
        slope, offset = inner.real("alpha"), inner.real("beta")
        need(_near(slope, 1 / 6) and _near(offset, 0.5) and inner.operand() is x)
        return _Match("hard_swish", 1.0, {})
    low, high = inner.optional_operand(1), inner.optional_operand(2)
    need(is_splat(low, 0.0) and is_splat(high, 6.0))
    need(_close(polynomial(inner.operand(), x), 3.0, 1.0))
    return _Match("hard_swish", 6.0, {})


_RECOGNIZERS: Final[tuple[Callable[[Value, Value], _Match], ...]] = (
    _gelu, _silu, _mish, _hard_swish,
)  # fmt: skip

# --- polynomials -----------------------------------------------------------------------------


def polynomial(value: Value, x: Value, depth: int = 8) -> Polynomial:
    """`value` as a polynomial in `x`.  Raises: NoMatchError when it is none."""
    if value is x:
        return Polynomial([0.0, 1.0])
    known = splat_of(value)
    if known is not None:
        return Polynomial([float(known)])
    node = made(value, *_COMBINE)
    need(depth)
    parts = [polynomial(v, x, depth - 1) for v in node.present_operands]
    with np.errstate(all="ignore"):
        return _COMBINE[node.op](*parts)


def _divide(left: Polynomial, right: Polynomial) -> Polynomial:
    need(right.degree() == 0 and right.coef[0])
    return left / right.coef[0]


def _power(base: Polynomial, exponent: Polynomial) -> Polynomial:
    need(exponent.degree() == 0 and exponent.coef[0] in (1.0, 2.0, 3.0))
    return base ** int(exponent.coef[0])


_COMBINE: Final[Mapping[str, Callable[..., Polynomial]]] = {
    "add": operator.add, "sub": operator.sub, "neg": Polynomial.__neg__, "mul": operator.mul, "div": _divide,
    "pow": _power,
}  # fmt: skip


def _near(value: float, expected: float) -> bool:
    return bool(abs(value - expected) <= _TOLERANCE * abs(expected))


def _close(found: Polynomial, *expected: float) -> bool:
    """Whether the coefficients, from that of power 0 on, are these."""
    return len(found.coef) == len(expected) and all(map(_near, found.coef, expected))
