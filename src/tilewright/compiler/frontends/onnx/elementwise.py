"""Rows for elementwise ops: arithmetic, comparison, logic, activations, selection, casts.

Source: ONNX operator reference (Operators.md), per op in the row.
"""

from __future__ import annotations

from typing import Final

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.kit import computed
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.row import MICROSOFT, Build, Result, Row, row
from tilewright.compiler.frontends.onnx.strings import STRING, cast_to_text
from tilewright.compiler.frontends.onnx.tensors import dtype_of
from tilewright.compiler.frontends.onnx.values import Held

_LEGACY: Final = ("consumed_inputs",)


def _unary(op: str, **floats: float) -> Build:
    """Graph op `op` of the first operand; `floats` are attributes and their defaults."""

    def build(call: Call) -> Tensor:
        attributes = {name: call.float(name, default) for name, default in floats.items()}
        return call.maker.op(op, call.tensor(0), **attributes)

    return build


def _shrink(call: Call) -> Tensor:
    """Integers are shrunk as real numbers, and what is left of them is cut to whole ones."""
    e, x = call.maker, call.tensor(0)
    options = {"bias": call.float("bias", 0.0), "lambd": call.float("lambd", 0.5)}
    if x.dtype.is_float:
        return e.op("shrink", x, **options)
    return e.cast(e.op("shrink", e.cast(x, dtypes.f64), **options), x.dtype)


def legacy_broadcast(call: Call) -> tuple[Tensor, Tensor]:
    """The two operands; before opset 7 `axis` says where the second one's axes belong."""
    left, right = call.tensor(0), call.tensor(1)
    if call.opset >= 7:
        return left, right
    call.integer("broadcast", 0)
    axis = call.attributes.integer("axis")
    if axis is not None and right.rank < left.rank:
        start = axis % max(left.rank, 1)
        after = left.rank - start - right.rank
        if after < 0:
            raise ModelError(f"attribute 'axis' is {axis}, too large for {right.type}")
        right = call.maker.reshape(right, (*right.shape, *([1] * after)))
    return left, right


def _binary(op: str) -> Build:
    def build(call: Call) -> Tensor:
        return call.maker.op(op, *computed.settled(call.maker, *legacy_broadcast(call)))

    return build


def _variadic(op: str) -> Build:
    """Two at a time, from the left."""

    def build(call: Call) -> Tensor:
        first, *rest = call.tensors()
        for other in rest:
            first = call.maker.op(op, *computed.settled(call.maker, first, other))
        return first

    return build


def _mean(call: Call) -> Tensor:
    total = _variadic("add")(call)
    assert isinstance(total, Tensor)
    count = call.maker.scalar(len(call.inputs), total.dtype)
    return call.maker.op("div", total, count)


def _pow(call: Call) -> Tensor:
    base, exponent = legacy_broadcast(call)
    e = call.maker
    if base.dtype.is_float:
        return e.op("pow", base, e.cast(exponent, base.dtype))
    if exponent.dtype.is_float:
        return e.cast(e.op("pow", e.cast(base, exponent.dtype), exponent), base.dtype)
    return e.op("pow", base, e.cast(exponent, base.dtype))


def _mod(call: Call) -> Tensor:
    x, y = call.tensor(0), call.tensor(1)
    fmod = call.flag("fmod")
    return call.maker.op("mod", x, y, fmod=fmod)


def _shift(call: Call) -> Tensor:
    direction = call.choice("direction", "", ("LEFT", "RIGHT"))
    return call.maker.op(f"shift_{direction.lower()}", call.tensor(0), call.tensor(1))


def _prelu(call: Call) -> Tensor:
    x, slope = call.tensor(0), call.tensor(1)
    if call.opset < 7 and slope.rank == 1 and slope.shape[0] != 1:
        # One slope per channel.
        slope = call.maker.reshape(slope, (slope.shape[0], *([1] * (x.rank - 2))))
    return call.maker.op("prelu", x, slope)


def _bound(call: Call, index: int, name: str) -> Tensor | None:
    """A limit of Clip: an attribute before opset 11, an operand since."""
    if call.opset < 11:
        number = call.attributes.float(name)
        return None if number is None else call.maker.scalar(number, call.tensor(0).dtype)
    return call.optional(index)


def _clip(call: Call) -> Tensor:
    e, x = call.maker, call.tensor(0)
    bounds = [_bound(call, 1, "min"), _bound(call, 2, "max")]
    scalars = [None if b is None or not b.rank else e.reshape(b, ()) for b in bounds]
    return e.op(
        "clip",
        x,
        *(s if s is not None else b for s, b in zip(scalars, bounds, strict=True)),
    )


def _relu(call: Call) -> Tensor:
    return call.maker.op("relu", call.tensor(0))


def _gelu(call: Call) -> Tensor:
    form = call.choice("approximate", "none", ("none", "tanh"))
    return call.maker.op("gelu", call.tensor(0), approximate=form)


def _swish(call: Call) -> Tensor:
    e, x = call.maker, call.tensor(0)
    alpha = call.float("alpha", 1.0)
    if alpha == 1.0:
        return e.op("silu", x)
    return e.op("mul", x, e.op("sigmoid", e.op("mul", x, e.scalar(alpha, x.dtype))))


def _is_inf(call: Call) -> Tensor:
    return call.maker.op(
        "is_inf",
        call.tensor(0),
        detect_positive=call.flag("detect_positive", default=True),
        detect_negative=call.flag("detect_negative", default=True),
    )


_LARGEST: Final = {
    dtypes.f8e4m3fn: 448.0,
    dtypes.f8e4m3fnuz: 240.0,
    dtypes.f8e5m2: 57344.0,
    dtypes.f8e5m2fnuz: 57344.0,
}


def convert(
    e: NodeMaker, x: Tensor, dtype: DType, *, saturate: bool = True, rounding: str = "up"
) -> Tensor:
    """`x` as `dtype` by ONNX's rules: integers wrap, 8-bit floats saturate on request."""
    if x.dtype == dtype:
        return x
    if dtype is dtypes.f8e8m0fnu:
        return _exponent(e, e.cast(x, dtypes.f32), saturate=saturate, rounding=rounding)
    largest = _LARGEST.get(dtype)
    if largest is not None and saturate and x.dtype.is_float:
        finite = e.op("clip", e.cast(x, dtypes.f32), e.scalar(-largest, dtypes.f32),
                      e.scalar(largest, dtypes.f32))  # fmt: skip
        return e.cast(finite, dtype)
    if dtype in dtypes.SMALL_INTEGERS and x.dtype.is_float:
        # The low bits of the whole number, not saturation.
        return e.cast(e.cast(x, dtypes.i32), dtype)
    return e.cast(x, dtype)


_FRACTION: Final = 0x7FFFFF
_HALF: Final = 0x400000


def _exponent(e: NodeMaker, x: Tensor, *, saturate: bool, rounding: str) -> Tensor:
    """The exponents of f32 numbers, whatever their sign; infinities and NaN become NaN.

    Source: ONNX Cast, opset 25, `round_mode`; its reference for what the text leaves open.
    """

    def apply(op: str, left: Tensor, right: int) -> Tensor:
        return e.op(op, left, e.scalar(right, dtypes.i32))

    bits = apply("bitwise_and", e.op("bitcast", x, dtype=dtypes.i32), 0x7FFFFFFF)
    exponent = apply("shift_right", bits, 23)
    result = exponent
    if rounding != "down":
        fraction = apply("bitwise_and", bits, _FRACTION)
        least = e.scalar(0, dtypes.i32)
        if rounding == "nearest":
            least = e.op(
                "where",
                apply("greater", exponent, 0),
                e.scalar(_HALF - 1, dtypes.i32),
                e.scalar(_HALF, dtypes.i32),
            )
        upward = e.cast(e.op("greater", fraction, least), dtypes.i32)
        result = apply("min", e.op("add", exponent, upward), 0xFE if saturate else 0xFF)
    is_special = apply("equal", exponent, 0xFF)
    result = e.op("where", is_special, e.scalar(0xFF, dtypes.i32), result)
    return e.op("bitcast", e.cast(result, dtypes.u8), dtype=dtypes.f8e8m0fnu)


def _cast(call: Call) -> Result:
    saturate = call.flag("saturate", default=True)
    rounding = call.choice("round_mode", "up", ("up", "down", "nearest"))
    if call.integer("to") == STRING:
        return cast_to_text(call)
    return convert(
        call.maker,
        call.tensor(0),
        dtype_of(call.integer("to")),
        saturate=saturate,
        rounding=rounding,
    )


def _cast_like(call: Call) -> Tensor:
    saturate = call.flag("saturate", default=True)
    rounding = call.choice("round_mode", "up", ("up", "down", "nearest"))
    return convert(
        call.maker,
        call.tensor(0),
        call.tensor(1).dtype,
        saturate=saturate,
        rounding=rounding,
    )


def _bit_cast(call: Call) -> Tensor:
    e, x, dtype = call.maker, call.tensor(0), dtype_of(call.integer("to"))
    if x.dtype == dtype:
        return x
    # The byte of a truth value is 0 or 1.
    if dtype.is_bool and x.dtype.bits == 8:
        return e.op("not_equal", x, e.scalar(0, x.dtype))
    plain = e.cast(x, dtypes.u8) if x.dtype.is_bool else x
    return plain if plain.dtype == dtype else e.op("bitcast", plain, dtype=dtype)


def _identity(call: Call) -> Held:
    held = call.held(0)
    if held is None:
        raise ModelError("operand 1 is missing")
    return held


def _where(call: Call) -> Tensor:
    return call.maker.op("where", call.tensor(0), call.tensor(1), call.tensor(2))


# --- com.microsoft


def _bias_gelu(form: str) -> Build:
    def build(call: Call) -> Tensor:
        e, x, bias = call.maker, call.tensor(0), call.optional(1)
        return e.op("gelu", x if bias is None else e.op("add", x, bias), approximate=form)

    return build


def _quick_gelu(call: Call) -> Tensor:
    e, x = call.maker, call.tensor(0)
    scaled = e.op("mul", x, e.scalar(call.float("alpha", 1.702), x.dtype))
    return e.op("mul", x, e.op("sigmoid", scaled))


def _complex_mul(*, conjugate: bool) -> Build:
    """Products of numbers whose parts are the last axis; the second ones perhaps conjugate."""

    def build(call: Call) -> Tensor:
        e, a, b = call.maker, call.tensor(0), call.tensor(1)
        (a_re, a_im), (b_re, b_im) = (
            [e.slice(x, x.rank - 1, place, 1) for place in (0, 1)] for x in (a, b)
        )
        if conjugate:
            b_im = e.op("neg", b_im)
        real = e.op("sub", e.op("mul", a_re, b_re), e.op("mul", a_im, b_im))
        imaginary = e.op("add", e.op("mul", a_re, b_im), e.op("mul", a_im, b_re))
        return e.concat([real, imaginary], real.rank - 1)

    return build


_SAME: Final[dict[str, str]] = {
    "Abs": "abs", "Acos": "acos", "Acosh": "acosh", "Asin": "asin", "Asinh": "asinh",
    "Atan": "atan", "Atanh": "atanh", "BitwiseNot": "bitwise_not", "Ceil": "ceil", "Cos": "cos",
    "Cosh": "cosh", "Erf": "erf", "Exp": "exp", "Floor": "floor", "HardSwish": "hard_swish",
    "IsNaN": "is_nan", "Log": "log", "Mish": "mish", "Neg": "neg", "Not": "logical_not",
    "Reciprocal": "reciprocal", "Round": "round", "Sigmoid": "sigmoid", "Sign": "sign",
    "Sin": "sin", "Sinh": "sinh", "Softplus": "softplus", "Softsign": "softsign", "Sqrt": "sqrt",
    "Tan": "tan", "Tanh": "tanh",
}  # fmt: skip
_BINARY: Final[dict[str, str]] = {
    "Add": "add", "And": "logical_and", "BitwiseAnd": "bitwise_and", "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor", "Div": "div", "Equal": "equal", "Greater": "greater",
    "GreaterOrEqual": "greater_equal", "Less": "less", "LessOrEqual": "less_equal", "Mul": "mul",
    "Or": "logical_or", "Sub": "sub", "Xor": "logical_xor",
}  # fmt: skip
_PARAMETRIC: Final[tuple[tuple[str, str, dict[str, float]], ...]] = (
    ("Celu", "celu", {"alpha": 1.0}),
    ("Elu", "elu", {"alpha": 1.0}),
    ("HardSigmoid", "hard_sigmoid", {"alpha": 0.2, "beta": 0.5}),
    ("LeakyRelu", "leaky_relu", {"alpha": 0.01}),
    ("Selu", "selu", {"alpha": 1.6732632423543772, "gamma": 1.0507009873554805}),
    ("ThresholdedRelu", "thresholded_relu", {"alpha": 1.0}),
)

ROWS: Final[tuple[Row, ...]] = (
    *(row(name, _unary(op), ignores=_LEGACY) for name, op in _SAME.items()),
    *(row(name, _binary(op), ignores=_LEGACY) for name, op in _BINARY.items()),
    *(row(name, _unary(op, **floats), ignores=_LEGACY) for name, op, floats in _PARAMETRIC),
    row("BitCast", _bit_cast),
    row("BitShift", _shift),
    row("Cast", _cast),
    row("CastLike", _cast_like),
    row("Clip", _clip, ignores=_LEGACY),
    row("Gelu", _gelu),
    row("Identity", _identity),
    row("IsInf", _is_inf),
    row("Max", _variadic("max"), ignores=_LEGACY),
    row("Mean", _mean, ignores=_LEGACY),
    row("Min", _variadic("min"), ignores=_LEGACY),
    row("Mod", _mod),
    row("PRelu", _prelu, ignores=_LEGACY),
    row("Pow", _pow),
    row("Relu", _relu, ignores=_LEGACY),
    row("Shrink", _shrink),
    row("Sum", _variadic("add"), ignores=_LEGACY),
    row("Swish", _swish),
    row("Where", _where),
    row("BiasGelu", _bias_gelu("none"), domain=MICROSOFT),
    row("ComplexMul", _complex_mul(conjugate=False), domain=MICROSOFT),
    row("ComplexMulConj", _complex_mul(conjugate=True), domain=MICROSOFT),
    row("FastGelu", _bias_gelu("tanh"), domain=MICROSOFT),
    row("Gelu", _bias_gelu("none"), domain=MICROSOFT),
    row("QuickGelu", _quick_gelu, domain=MICROSOFT),
)
