"""Elementwise ops: arithmetic, comparison, logic, selection, conversion.

Activations and special functions are in `activations.py` and `functions.py`.
"""

from __future__ import annotations

from typing import Any, Final, cast

import numpy as np

from tilewright.base import dtypes
from tilewright.base.dtypes import ANY, INTEGERS, NUMERIC, DType, bool_
from tilewright.base.errors import ModelError
from tilewright.compiler.graph.contents import Follow
from tilewright.compiler.graph.schema import Attributes, Ranges, TensorType, Trait
from tilewright.compiler.kernel import numerics
from tilewright.compiler.kernel.builder import KernelBuilder, compute_dtype
from tilewright.compiler.kernel.expressions import bitcast
from tilewright.compiler.kernel.ir import Const, Expression
from tilewright.compiler.ops import contents, ranges
from tilewright.compiler.ops.bodies import (
    Operands,
    Results,
    given,
    pointwise,
    safe_quotient,
)
from tilewright.compiler.ops.declaration import (
    Body,
    OpDecl,
    Types,
    attr,
    declare,
    operand,
    optional,
)
from tilewright.compiler.ops.shapes import (
    broadcast_result,
    broadcast_shapes,
    first,
    like_broadcast,
    like_first_as_dtype,
    need,
)

_ARITHMETIC_CASES: Final = (
    "[3,5] [3,5]",
    "[4,1,3] [5,1]",
    "[] [7]",
    "[0,3] [1,3]",
    "[17] []",
)


def _oracle(op: str) -> Any:
    """`op` of the kernel IR on whole arrays (one definition of wrap-around and rounding)."""

    def evaluate(x: np.ndarray, y: np.ndarray, **_: object) -> np.ndarray:
        dtype = dtypes.from_numpy(x.dtype)
        wide = compute_dtype(dtype)
        left, right = numerics.cast(x, wide), numerics.cast(y, wide)
        if dtype.is_integer and op in ("div", "mod", "floormod"):
            safe = np.where(right == 0, np.ones_like(right), right)
            return np.where(right == 0, 0, numerics.binary(op, left, safe, wide))
        return numerics.binary(op, left, right, wide)

    return evaluate


def _binary(  # noqa: PLR0913 - the columns of a row
    name: str, summary: str, op: str, allowed: tuple[DType, ...], traits: Trait = Trait.NONE,
    body: Body | None = None, *, cases: tuple[str, ...] = _ARITHMETIC_CASES,
    rule: Ranges | None = None, follow: Follow | None = None,
) -> OpDecl:  # fmt: skip
    return declare(
        name=name,
        summary=summary,
        operands=(operand("x", allowed), operand("y", allowed, like="x")),
        infer=like_broadcast,
        evaluate=_oracle(op),
        body=body or pointwise(lambda b, x, y: b.binary(op, x, y)),
        traits=Trait.PURE | traits,
        cases=cases,
        source=f"ONNX {name}",
        ranges=rule,
        contents=follow,
    )


def _compare(
    name: str, summary: str, op: str, follow: Follow, traits: Trait = Trait.NONE
) -> OpDecl:
    return declare(
        name=name,
        summary=summary,
        operands=(operand("x", ANY), operand("y", ANY, like="x")),
        infer=broadcast_result(bool_),
        evaluate=lambda x, y: numerics.compare(op, x, y),
        body=pointwise(lambda b, x, y: b.compare(op, x, y)),
        traits=Trait.PURE | traits,
        cases=_ARITHMETIC_CASES,
        contents=follow,
    )


def _logical(
    name: str,
    summary: str,
    op: str,
    allowed: tuple[DType, ...],
    follow: Follow | None = None,
) -> OpDecl:
    return _binary(name, summary, op, allowed, Trait.COMMUTATIVE, follow=follow)


# --- arithmetic ------------------------------------------------------------------------------

add: Final = _binary(
    "add",
    "Sum of two tensors",
    "add",
    NUMERIC,
    Trait.COMMUTATIVE,
    rule=ranges.total,
    follow=contents.SUM,
)
sub: Final = _binary(
    "sub",
    "Difference of two tensors",
    "sub",
    NUMERIC,
    rule=ranges.difference,
    follow=contents.DIFFERENCE,
)
mul: Final = _binary(
    "mul",
    "Product of two tensors",
    "mul",
    NUMERIC,
    Trait.COMMUTATIVE,
    rule=ranges.product,
    follow=contents.PRODUCT,
)
div: Final = _binary(
    "div",
    "Quotient; integers truncate, an integer division by zero gives 0",
    "div",
    NUMERIC,
    body=pointwise(lambda b, x, y: safe_quotient(b, "div", x, y)),
    follow=contents.QUOTIENT,
)
maximum: Final = _binary(
    "max",
    "Larger of two; NaN wins",
    "max",
    NUMERIC,
    Trait.COMMUTATIVE,
    rule=ranges.larger,
    follow=contents.LARGER,
)
minimum: Final = _binary(
    "min",
    "Smaller of two; NaN wins",
    "min",
    NUMERIC,
    Trait.COMMUTATIVE,
    rule=ranges.smaller,
    follow=contents.SMALLER,
)


def _mod_body(b: KernelBuilder, x: Expression, y: Expression, *, fmod: bool) -> Expression:
    return safe_quotient(b, "mod" if fmod else "floormod", x, y)


mod: Final = declare(
    name="mod",
    summary="Remainder with the sign of the divisor, or of the dividend if `fmod`; 0 for x % 0",
    operands=(operand("x", NUMERIC), operand("y", NUMERIC, like="x")),
    attributes=(attr("fmod", "bool", default=False),),
    infer=like_broadcast,
    evaluate=lambda x, y, *, fmod: _oracle("mod" if fmod else "floormod")(x, y),
    body=pointwise(_mod_body, use_attributes=True),
    contents=contents.remainder,
    ranges=ranges.remainder,
    cases=(*_ARITHMETIC_CASES, "[3,5] [3,5]; fmod=True"),
    source="ONNX Mod, opset 13",
)


def _pow_oracle(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if np.issubdtype(x.dtype, np.integer) and np.issubdtype(y.dtype, np.integer):
        dtype = dtypes.from_numpy(x.dtype)
        return numerics.binary("pow", x, numerics.cast(y, dtype), dtype)
    base, exponent = x.astype(np.float64), y.astype(np.float64)
    result = np.power(base, exponent)
    # numpy takes the square root where the exponent does not vary, which is NaN of -inf.
    result = np.where((base == -np.inf) & (exponent == 0.5), np.inf, result)
    dtype = dtypes.from_numpy(x.dtype)
    return numerics.cast(result, dtype)


def _pow_body(b: KernelBuilder, x: Expression, y: Expression) -> Expression:
    """Small constant exponents become products: exact, and a fraction of the cost."""
    if isinstance(y, Const):
        known = _POWERS.get(float(y.value))
        if known is not None:
            return known(b, x)
    return b.pow(x, b.cast(y, x.dtype))


def _square_root(b: KernelBuilder, x: Expression) -> Expression:
    """`pow(x, 0.5)`: like sqrt except that -inf gives +inf and -0 gives +0."""
    lowest = b.eq(x, float("-inf"))
    return b.select(lowest, float("inf"), b.add(b.sqrt(x), 0.0))


_POWERS: Final[dict[float, Any]] = {
    0.0: lambda b, x: b.const(1, x.dtype),
    0.5: _square_root,
    1.0: lambda _b, x: x,
    2.0: lambda b, x: b.mul(x, x),
    3.0: lambda b, x: b.mul(b.mul(x, x), x),
    -1.0: lambda b, x: b.div(b.const(1, x.dtype), x),
}

power: Final = declare(
    name="pow",
    summary="Power; an integer base gives an integer, exponents may have another type",
    operands=(operand("x", NUMERIC), operand("y", NUMERIC)),
    infer=like_broadcast,
    evaluate=_pow_oracle,
    contents=contents.POWER,
    body=pointwise(_pow_body, lambda types, _: all(t.dtype.is_float for t in types if t)),
    cases=("[3,5]:positive [3,5]", "[4,1,3] [5,1]", "[9] []:=2.0", "[9]:positive []:=0.5"),
    source="ONNX Pow, opset 15",
)

# --- comparison, logic, bits -----------------------------------------------------------------

equal: Final = _compare("equal", "x == y", "eq", contents.EQUAL, Trait.COMMUTATIVE)
not_equal: Final = _compare(
    "not_equal", "x != y; true on NaN", "ne", contents.NOT_EQUAL, Trait.COMMUTATIVE
)
less: Final = _compare("less", "x < y", "lt", contents.LESS)
less_equal: Final = _compare("less_equal", "x <= y", "le", contents.LESS_EQUAL)
greater: Final = _compare("greater", "x > y", "gt", contents.GREATER)
greater_equal: Final = _compare("greater_equal", "x >= y", "ge", contents.GREATER_EQUAL)

_BOOL: Final = (bool_,)
logical_and: Final = _logical("logical_and", "Both true", "and", _BOOL, contents.BOTH)
logical_or: Final = _logical(
    "logical_or", "At least one true", "or", _BOOL, contents.EITHER
)
logical_xor: Final = _logical("logical_xor", "Exactly one true", "xor", _BOOL, contents.ONE)
bitwise_and: Final = _logical("bitwise_and", "Bits set in both", "and", INTEGERS)
bitwise_or: Final = _logical("bitwise_or", "Bits set in at least one", "or", INTEGERS)
bitwise_xor: Final = _logical("bitwise_xor", "Bits set in exactly one", "xor", INTEGERS)


def _shift_body(op: str) -> Body:
    """Shifts by the width or more give 0 (or the sign), like shifting bit by bit."""

    def shift(b: KernelBuilder, x: Expression, y: Expression) -> Expression:
        top = x.dtype.bits - 1
        outside = b.gt(y, top) if not y.dtype.is_signed else b.or_(b.lt(y, 0), b.gt(y, top))
        shifted = b.binary(op, x, b.select(outside, 0, y))
        rest: Expression = b.const(0, x.dtype)
        if op == "shr" and x.dtype.is_signed:
            rest = b.shr(x, top)
        return b.select(outside, rest, shifted)

    return pointwise(shift)


def _shift_oracle(op: str) -> Any:
    def evaluate(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        dtype = dtypes.from_numpy(x.dtype)
        outside = (y < 0) | (y >= dtype.bits)
        if not outside.any():
            return numerics.binary(op, x, y, dtype)
        shifted = numerics.binary(op, x, np.where(outside, 0, y).astype(y.dtype), dtype)
        signed = op == "shr" and dtype.is_signed
        rest = np.where(x < 0, -1, 0) if signed else np.zeros_like(x)
        return np.where(outside, rest, shifted)

    return evaluate


def _shift(name: str, summary: str, op: str) -> OpDecl:
    return declare(
        name=name,
        summary=summary,
        operands=(operand("x", INTEGERS), operand("y", INTEGERS, like="x")),
        infer=like_broadcast,
        evaluate=_shift_oracle(op),
        body=_shift_body(op),
        cases=("[3,5] [3,5]:index(7)", "[5]:index(100) [5]:=0,1,7,40,100"),
        source="ONNX BitShift, opset 11",
    )


shift_left: Final = _shift("shift_left", "x << y; 0 when y is the width or more", "shl")
shift_right: Final = _shift("shift_right", "x >> y, with the sign kept", "shr")


def _unary_not(
    name: str, summary: str, allowed: tuple[DType, ...], follow: Follow | None = None
) -> OpDecl:
    return declare(
        name=name,
        summary=summary,
        operands=(operand("x", allowed),),
        infer=lambda types, _: (first(types),),
        evaluate=lambda x: ~x,
        body=pointwise(lambda b, x: b.not_(x)),
        contents=follow,
        cases=("[3,5]", "[]", "[0]"),
    )


logical_not: Final = _unary_not("logical_not", "True where x is false", _BOOL, contents.NOT)
bitwise_not: Final = _unary_not("bitwise_not", "Every bit flipped", INTEGERS)

# --- selection -------------------------------------------------------------------------------


def _infer_where(types: Types, _: Attributes) -> tuple[TensorType, ...]:
    shapes = [need(types, i).shape for i in range(3)]
    return (TensorType(need(types, 1).dtype, broadcast_shapes(*shapes)),)


where: Final = declare(
    name="where",
    summary="Elements of x where the condition holds, else of y",
    operands=(operand("condition", _BOOL), operand("x"), operand("y", like="x")),
    infer=_infer_where,
    evaluate=np.where,
    body=pointwise(lambda b, c, x, y: b.select(c, x, y)),
    ranges=ranges.either(1, 2),
    contents=contents.chosen,
    cases=("[3,5] [3,5] [3,5]", "[4,1] [] [1,5]", "[] [3] []", "[0] [0] [1]"),
    source="ONNX Where, opset 16",
)


def _clip_body(
    b: KernelBuilder, x: Expression, low: Expression | None, high: Expression | None
) -> Expression:
    """Written as selects so that NaN passes and each bound is one machine instruction."""
    if low is not None:
        x = b.select(b.lt(x, low), low, x)
    if high is not None:
        x = b.select(b.gt(x, high), high, x)
    return x


def _clip_oracle(
    x: np.ndarray, low: np.ndarray | None, high: np.ndarray | None
) -> np.ndarray:
    if low is not None:
        x = np.where(x < low, low, x)
    return x if high is None else np.where(x > high, high, x)


clip: Final = declare(
    name="clip",
    summary="x limited to the range from low to high (either may be absent)",
    operands=(
        operand("x", NUMERIC), optional("low", NUMERIC, like="x"),
        optional("high", NUMERIC, like="x"),
    ),
    infer=lambda types, _: (first(types),),
    evaluate=_clip_oracle,
    body=pointwise(
        lambda b, x, low=None, high=None: _clip_body(b, x, low, high)
    ),
    ranges=ranges.clamped,
    contents=contents.clamped,
    cases=("[3,5] []:=1 []:=3", "[7] _ []:=2", "[7] []:=2", "[2,3]"),
    source="ONNX Clip, opset 13",
)  # fmt: skip

prelu: Final = declare(
    name="prelu",
    summary="x where positive, else slope * x",
    operands=(operand("x", NUMERIC), operand("slope", NUMERIC, like="x")),
    infer=lambda types, _: (first(types),),
    evaluate=lambda x, slope: np.where(x < 0, _oracle("mul")(x, slope), x),
    body=pointwise(lambda b, x, slope: b.select(b.lt(x, 0), b.mul(x, slope), x)),
    cases=("[3,5] [5]", "[2,3,4] [3,1]", "[4] [1]"),
    source="ONNX PRelu, opset 16",
)

# --- conversion ------------------------------------------------------------------------------


def _cast_body(b: KernelBuilder, x: Expression, *, dtype: DType) -> Expression:
    return b.cast(x, dtype)


convert: Final = declare(
    name="cast",
    summary="Conversion of value; float to integer truncates and saturates, NaN gives 0",
    operands=(operand("x", dtypes.ALL),),
    attributes=(attr("dtype", "dtype"),),
    infer=like_first_as_dtype,
    evaluate=numerics.cast,
    body=pointwise(_cast_body, use_attributes=True),
    ranges=ranges.converted,
    contents=contents.converted,
    cases=(
        *(f"[3,7]; dtype={t.name}" for t in dtypes.ALL),
        *(f"{t.name}[3,7]; dtype=f32" for t in dtypes.ALL if t not in ANY),
    ),
    source="ONNX Cast, opset 25",
)


_WITH_BITS: Final = tuple(t for t in dtypes.ALL if not t.is_bool)


def _same_bits_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    x, dtype = first(types), cast("DType", attributes["dtype"])
    if dtype.is_bool or dtype.bits != x.dtype.bits:
        raise ModelError(f"op 'bitcast': {x} has no bits of elements of type {dtype}")
    return (x.with_dtype(dtype),)


def _same_bits_body(
    b: KernelBuilder, _: Attributes, operands: Operands, results: Results
) -> None:
    """Stored as loaded: a 16-bit float that is widened on the way has other bits."""
    x, (result,) = given(operands, 0), results
    with b.nest(result.shape) as indices:
        value = b.load(x, indices)
        same = result.dtype is x.dtype
        b.store(result, indices, value if same else bitcast(value, result.dtype))


same_bits: Final = declare(
    name="bitcast",
    summary="The bits of every element as one of another type of the same width",
    operands=(operand("x", _WITH_BITS),),
    attributes=(attr("dtype", "dtype"),),
    infer=_same_bits_infer,
    evaluate=numerics.bitcast,
    body=Body(_same_bits_body),
    cases=(
        "f32[3,7]; dtype=i32",
        "f64[5]; dtype=u64",
        "f16[3,1]; dtype=u16",
        "bf16[9]; dtype=i16",
        "i16[9]; dtype=bf16",
        "u32[]; dtype=f32",
        "i8[0,3]; dtype=u8",
        "u8[7]:count(255); dtype=f8e8m0fnu",
        "f8e5m2[7]; dtype=u8",
        "f32[4]; dtype=f32",
    ),
    source="StableHLO specification, bitcast_convert",
)

identity: Final = declare(
    name="identity",
    summary="The operand itself",
    operands=(operand("x", dtypes.ALL),),
    infer=lambda types, _: (first(types),),
    evaluate=lambda x: x,
    body=pointwise(lambda _b, x: x),
    traits=Trait.PURE | Trait.IDEMPOTENT,
    ranges=ranges.same,
    contents=contents.SAME,
    cases=("[3,5]", "[]", "[0,2]"),
)

OPS: Final = (
    add, sub, mul, div, mod, power, maximum, minimum, equal, not_equal, less, less_equal, greater,
    greater_equal, logical_and, logical_or, logical_xor, bitwise_and, bitwise_or, bitwise_xor,
    shift_left, shift_right, logical_not, bitwise_not, where, clip, prelu, convert, identity,
    same_bits,
)  # fmt: skip
