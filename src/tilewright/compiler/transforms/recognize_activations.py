"""Activation functions that models spell out: GELU in its forms, SiLU, mish, hard swish.

Exporters write these as products of x with something of x.  The matcher takes a product apart
into factors, whatever its association, and compares what is inside `erf` or `tanh` as a
polynomial in x, so that every arrangement of constants is found.  Tolerances allow for constants
that were rounded to f16.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, final

from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.passes import Emitter, Rewrite, attempt, given, need
from tilewright.compiler.transforms.matching import is_splat, made, maker, splat_of
from tilewright.compiler.transforms.rewrite_pass import RewritePass

_TOLERANCE: Final = 2e-3
_MOST_FACTORS: Final = 8
_ROOT_HALF: Final = math.sqrt(0.5)
_TANH_LINEAR: Final = math.sqrt(2 / math.pi)
_TANH_CUBIC: Final = _TANH_LINEAR * 0.044715


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RecognizeActivations(RewritePass):
    """Write products that are a known activation of x as that op.

    Requires: simplified (constants to the right).  Ensures: `gelu`, `silu`, `mish` and
    `hard_swish` stand for their spelled-out forms; results change in the last digits.
    """

    requires: ClassVar[frozenset[str]] = frozenset({"simplified"})

    def rewrites(self) -> Mapping[str, Sequence[Rewrite]]:
        """Products, and quotients that end one."""
        return {"mul": (known_product,), "div": (known_product,)}


@dataclass(slots=True)
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


@dataclass(slots=True)
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
        need(_close(terms, {1: _ROOT_HALF}))
        return _Match("gelu", 2.0, {})
    need(_close(terms, {1: _TANH_LINEAR, 3: _TANH_CUBIC}))
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
    need(_close(polynomial(inner.operand(), x), {0: 3.0, 1: 1.0}))
    return _Match("hard_swish", 6.0, {})


_RECOGNIZERS: Final[tuple[Callable[[Value, Value], _Match], ...]] = (
    _gelu, _silu, _mish, _hard_swish,
)  # fmt: skip

# --- polynomials -----------------------------------------------------------------------------

Terms = dict[int, float]


def polynomial(value: Value, x: Value, depth: int = 8) -> Terms:
    """`value` as coefficients by power of `x`.  Raises: NoMatchError when it is none."""
    if value is x:
        return {1: 1.0}
    known = splat_of(value)
    if known is not None:
        return {0: float(known)}
    node = made(value)
    need(depth and len(node.operands) in (1, 2))
    combine = given(_COMBINE.get(node.op))
    return combine([polynomial(v, x, depth - 1) for v in node.present_operands])


def _add(parts: Sequence[Terms]) -> Terms:
    return {p: sum(t.get(p, 0.0) for t in parts) for p in {p for t in parts for p in t}}


def _negate(parts: Sequence[Terms]) -> Terms:
    return {power: -factor for power, factor in parts[0].items()}


def _subtract(parts: Sequence[Terms]) -> Terms:
    return _add([parts[0], {p: -f for p, f in parts[1].items()}])


def _multiply(parts: Sequence[Terms]) -> Terms:
    result: Terms = {}
    for left, a in parts[0].items():
        for right, b in parts[1].items():
            result[left + right] = result.get(left + right, 0.0) + a * b
    return result


def _divide(parts: Sequence[Terms]) -> Terms:
    divisor = parts[1].get(0, 0.0) if set(parts[1]) == {0} else 0.0
    need(divisor)
    return {p: f / divisor for p, f in parts[0].items()}


def _power(parts: Sequence[Terms]) -> Terms:
    exponent = parts[1].get(0, 0.0) if set(parts[1]) == {0} else 0.0
    need(exponent in (1.0, 2.0, 3.0))
    result = parts[0]
    for _ in range(int(exponent) - 1):
        result = _multiply([result, parts[0]])
    return result


_COMBINE: Final[dict[str, Callable[[Sequence[Terms]], Terms]]] = {
    "add": _add, "sub": _subtract, "neg": _negate, "mul": _multiply, "div": _divide,
    "pow": _power,
}  # fmt: skip


def _near(value: float, expected: float) -> bool:
    return abs(value - expected) <= _TOLERANCE * abs(expected)


def _close(terms: Terms, expected: Terms) -> bool:
    found = {power: factor for power, factor in terms.items() if factor}
    return found.keys() == expected.keys() and all(
        _near(found[p], expected[p]) for p in found
    )
