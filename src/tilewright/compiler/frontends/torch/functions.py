"""Rows for functions of one number.

Halves are computed in f32 and rounded once, as torch does on CPUs.

Source: the operators of ATen by name; formulas as in the functions' docstrings.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np

from tilewright.base import dtypes
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.torch.call import Call
from tilewright.compiler.frontends.torch.elementwise import truncated
from tilewright.compiler.frontends.torch.row import Build, Row, row

Formula = Callable[[NodeMaker, Tensor], Tensor]


def in_float(formula: Formula) -> Build:
    """A formula in the type of the result, f32 for halves; integers become floats first."""

    def build(call: Call) -> Tensor:
        dtype = call.dtype()
        wide = dtypes.f32 if dtype in dtypes.HALVES else dtype
        return call.finish(formula(call.maker, call.operand("self", wide)))

    return build


def in_double(formula: Formula) -> Build:
    """A formula in f64, rounded once, where it loses digits that torch keeps."""

    def build(call: Call) -> Tensor:
        name = "self" if "self" in call.operation.arguments else "a"
        wide = call.operand(name, dtypes.f64)
        return call.finish(formula(call.maker, wide))

    return build


def _plain(op: str) -> Build:
    return in_float(lambda e, x: e.op(op, x))


def _rounding(op: str) -> Build:
    """An op that makes floats whole and leaves integers as they are."""

    def build(call: Call) -> Tensor:
        x = call.tensor()
        return call.op(op, x) if x.dtype.is_float else x

    return build


def expm1(e: NodeMaker, x: Tensor) -> Tensor:
    """e^x - 1 without the loss of digits near zero (Kahan's correction of the rounded power)."""
    one = e.scalar(1, x.dtype)
    power = e.op("exp", x)
    less = e.op("sub", power, one)
    found = e.op("mul", less, e.op("div", x, e.op("log", power)))
    found = e.op("where", e.op("equal", less, e.scalar(-1, x.dtype)), less, found)
    found = e.op("where", e.op("is_inf", power), power, found)
    return e.op("where", e.op("equal", power, one), x, found)


def log1p(e: NodeMaker, x: Tensor) -> Tensor:
    """log(1 + x) without the loss of digits near zero (Kahan's correction of the rounded sum)."""
    one = e.scalar(1, x.dtype)
    total = e.op("add", one, x)
    log = e.op("log", total)
    found = e.op("mul", log, e.op("div", x, e.op("sub", total, one)))
    found = e.op("where", e.op("is_inf", total), log, found)
    return e.op("where", e.op("equal", total, one), x, found)


def _times(op: str, factor: float, *, before: bool = False) -> Formula:
    def formula(e: NodeMaker, x: Tensor) -> Tensor:
        number = e.scalar(factor, x.dtype)
        if before:
            return e.op(op, e.op("mul", x, number))
        return e.op("mul", e.op(op, x), number)

    return formula


def _exp2(e: NodeMaker, x: Tensor) -> Tensor:
    return e.op("pow", e.scalar(2, x.dtype), x)


def _erfc(e: NodeMaker, x: Tensor) -> Tensor:
    """1 - erf(x), for large x by the continued fraction of its tail."""
    zero, one = e.scalar(0, x.dtype), e.scalar(1, x.dtype)
    near = e.op("sub", one, e.op("erf", x))
    size = e.op("max", e.op("abs", x), e.scalar(1.5, x.dtype))
    fraction = size
    for step in range(60, 0, -1):
        fraction = e.op("add", size, e.op("div", e.scalar(step / 2, x.dtype), fraction))
    tail = e.op("exp", e.op("neg", e.op("mul", size, size)))
    scale = e.scalar(1 / math.sqrt(math.pi), x.dtype)
    tail = e.op("mul", scale, e.op("div", tail, fraction))
    tail = e.op("where", e.op("is_inf", size), zero, tail)
    return e.op("where", e.op("greater", x, e.scalar(1.5, x.dtype)), tail, near)


# Acklam's coefficients of rational approximations of the normal quantile; two steps of Newton finish it.
_CENTRE: Final = (
    (-3.969683028665376e01, 2.209460984245205e02, -2.759285104469687e02,
     1.383577518672690e02, -3.066479806614716e01, 2.506628277459239e00),
    (-5.447609879822406e01, 1.615858368580409e02, -1.556989798598866e02,
     6.680131188771972e01, -1.328068155288572e01, 1.0),
)  # fmt: skip
_TAIL: Final = (
    (-7.784894002430293e-03, -3.223964580411365e-01, -2.400758277161838e00,
     -2.549732539343734e00, 4.374664141464968e00, 2.938163982698783e00),
    (7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e00,
     3.754408661907416e00, 1.0),
)  # fmt: skip


def polynomial(e: NodeMaker, x: Tensor, coefficients: tuple[float, ...]) -> Tensor:
    """A polynomial by Horner's rule, the highest power first."""
    found = e.scalar(coefficients[0], x.dtype)
    for number in coefficients[1:]:
        found = e.op("add", e.op("mul", found, x), e.scalar(number, x.dtype))
    return found


def _erfinv(e: NodeMaker, x: Tensor) -> Tensor:
    one, half = e.scalar(1, x.dtype), e.scalar(0.5, x.dtype)
    size = e.op("abs", x)
    # The tail 1 - |x| is exact; the quantile of its half has the sign turned around.
    tail = e.op("mul", half, e.op("sub", one, size))
    r = e.op("mul", e.op("mul", half, size), e.op("mul", half, size))
    over, under = (polynomial(e, r, c) for c in _CENTRE)
    centre = e.op("div", e.op("mul", e.op("mul", half, size), over), under)
    q = e.op("sqrt", e.op("mul", e.scalar(-2, x.dtype), e.op("log", tail)))
    over, under = (polynomial(e, q, c) for c in _TAIL)
    outer = e.op("neg", e.op("div", over, under))
    is_tail = e.op("less", tail, e.scalar(0.02425, x.dtype))
    y = e.op("div", e.op("where", is_tail, outer, centre), e.scalar(math.sqrt(2), x.dtype))
    wanted = e.op("sub", one, size)
    for _ in range(2):
        # erfc falls with slope -2/sqrt(pi) exp(-y^2).
        over = e.op("sub", _erfc(e, y), wanted)
        slope = e.op("exp", e.op("neg", e.op("mul", y, y)))
        slope = e.op("mul", e.scalar(2 / math.sqrt(math.pi), x.dtype), slope)
        y = e.op("add", y, e.op("div", over, slope))
    y = e.op("where", e.op("equal", size, one), e.scalar(np.inf, x.dtype), y)
    y = e.op("where", e.op("less", x, e.scalar(0, x.dtype)), e.op("neg", y), y)
    y = e.op("where", e.op("equal", x, e.scalar(0, x.dtype)), x, y)
    return e.op("where", e.op("greater", size, one), e.scalar(np.nan, x.dtype), y)


def _sign(call: Call) -> Tensor:
    x = call.tensor()
    if x.dtype.is_bool:
        return x
    found = call.op("sign", x)
    if not x.dtype.is_float:
        return found
    zero = call.maker.scalar(0, x.dtype)
    return call.op("where", call.op("is_nan", x), zero, found)


def _abs(call: Call) -> Tensor:
    x = call.tensor()
    return x if x.dtype.is_bool else call.op("abs", x)


def _is_nan(call: Call) -> Tensor:
    x = call.tensor()
    return call.op("is_nan", x) if x.dtype.is_float else _never(call)


def _is_inf(positive: bool, negative: bool) -> Build:
    def build(call: Call) -> Tensor:
        x = call.tensor()
        if not x.dtype.is_float:
            return _never(call)
        return call.op("is_inf", x, detect_positive=positive, detect_negative=negative)

    return build


def _never(call: Call) -> Tensor:
    return call.maker.full(0, dtypes.bool_, call.shape())


def _is_finite(call: Call) -> Tensor:
    x = call.tensor()
    if not x.dtype.is_float:
        return call.maker.full(1, dtypes.bool_, call.shape())
    bad = call.op("logical_or", call.op("is_nan", x), call.op("is_inf", x))
    return call.op("logical_not", bad)


def _round(call: Call) -> Tensor:
    x, digits = call.tensor(), call.integer("decimals", 0)
    if not x.dtype.is_float:
        if digits:
            raise UnsupportedError("integers are not rounded to decimals")
        return x
    if not digits:
        return call.op("round", x)
    e = call.maker
    wide = e.cast(x, dtypes.f32) if x.dtype in dtypes.HALVES else x
    scale = e.scalar(10.0 ** abs(digits), wide.dtype)
    there, back = ("mul", "div") if digits > 0 else ("div", "mul")
    return call.finish(e.op(back, e.op("round", e.op(there, wide, scale)), scale))


def _trunc(call: Call) -> Tensor:
    x = call.tensor()
    return truncated(call.maker, x) if x.dtype.is_float else x


def _nan_to_num(call: Call) -> Tensor:
    e, x = call.maker, call.tensor()
    limits = (call.number("nan", 0.0), call.argument("posinf"), call.argument("neginf"))
    if not x.dtype.is_float:
        return x
    nan, most, least = limits
    largest = _LARGEST[x.dtype]
    high = largest if most is None else call.number("posinf")
    low = -largest if least is None else call.number("neginf")
    found = e.op("where", e.op("is_nan", x), e.scalar(nan, x.dtype), x)
    up = e.op("is_inf", x, detect_negative=False)
    down = e.op("is_inf", x, detect_positive=False)
    found = e.op("where", up, e.scalar(high, x.dtype), found)
    return e.op("where", down, e.scalar(low, x.dtype), found)


_LARGEST: Final = {
    dtypes.f16: 65504.0, dtypes.bf16: 3.3895313892515355e38,
    dtypes.f32: float(np.finfo(np.float32).max), dtypes.f64: float(np.finfo(np.float64).max),
}  # fmt: skip


def _angle(call: Call) -> Tensor:
    e, dtype = call.maker, call.dtype()
    x = call.operand("self", dtype)
    zero = e.scalar(0, dtype)
    found = e.op("where", e.op("less", x, zero), e.scalar(np.pi, dtype), zero)
    return e.op("where", e.op("is_nan", x), x, found)


# Lanczos' approximation of the gamma function with g = 7 and nine terms.
_LANCZOS: Final = (
    0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313,
    -176.61502916214059, 12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6,
    1.5056327351493116e-7,
)  # fmt: skip


def _lgamma(e: NodeMaker, x: Tensor) -> Tensor:
    """The logarithm of the absolute value of the gamma function; below 1/2 by reflection."""
    one, half = e.scalar(1, x.dtype), e.scalar(0.5, x.dtype)
    below = e.op("less", x, half)
    z = e.op("sub", e.op("where", below, e.op("sub", one, x), x), one)
    total = e.scalar(_LANCZOS[0], x.dtype)
    for step, number in enumerate(_LANCZOS[1:], 1):
        term = e.op("add", z, e.scalar(step, x.dtype))
        total = e.op("add", total, e.op("div", e.scalar(number, x.dtype), term))
    t = e.op("add", z, e.scalar(7.5, x.dtype))
    found = e.op("mul", e.op("add", z, half), e.op("log", t))
    found = e.op("add", e.op("sub", found, t), e.op("log", total))
    found = e.op("add", found, e.scalar(0.5 * math.log(2 * math.pi), x.dtype))
    # sin(pi x), by the distance to the nearest whole number.
    apart = e.op("sub", x, e.op("round", x))
    sine = e.op("abs", e.op("sin", e.op("mul", apart, e.scalar(math.pi, x.dtype))))
    mirrored = e.op("log", e.op("div", e.scalar(math.pi, x.dtype), sine))
    found = e.op("where", below, e.op("sub", mirrored, found), found)
    infinite = e.op("is_inf", x)
    return e.op("where", infinite, e.scalar(np.inf, x.dtype), found)


def _neg(call: Call) -> Tensor:
    e, x = call.maker, call.tensor()
    if x.dtype.is_bool:
        raise UnsupportedError("truth values are not supported here")
    return e.op("neg", x) if x.dtype.is_signed else e.op("sub", e.scalar(0, x.dtype), x)


def _logit(call: Call) -> Tensor:
    e, dtype = call.maker, call.dtype()
    wide = dtypes.f32 if dtype in dtypes.HALVES else dtype
    x = call.operand("self", wide)
    if call.has("eps"):
        eps = call.number("eps")
        x = e.op("min", e.op("max", x, e.scalar(eps, wide)), e.scalar(1 - eps, wide))
    odds = e.op("div", x, e.op("sub", e.scalar(1, wide), x))
    return call.finish(e.op("log", odds))


_RECIPROCAL_LOG_2: Final = 1 / math.log(2)

ROWS: Final[tuple[Row, ...]] = (
    *(
        row(name, _plain(op))
        for name, op in (
            ("acos", "acos"), ("acosh", "acosh"), ("asin", "asin"), ("asinh", "asinh"),
            ("atan", "atan"), ("atanh", "atanh"), ("cos", "cos"), ("cosh", "cosh"),
            ("erf special_erf", "erf"), ("exp", "exp"), ("log", "log"),
            ("reciprocal", "reciprocal"), ("rsqrt", "rsqrt"),
            ("sigmoid special_expit", "sigmoid"), ("sin", "sin"), ("sinh", "sinh"),
            ("sqrt", "sqrt"), ("tan", "tan"), ("tanh", "tanh"),
        )
    ),
    row("expm1 special_expm1", in_float(expm1)),
    row("log1p special_log1p", in_float(log1p)),
    row("log2", in_double(_times("log", _RECIPROCAL_LOG_2))),
    row("log10", in_double(_times("log", 1 / math.log(10)))),
    row("exp2 special_exp2", in_float(_exp2)),
    row("erfc special_erfc", in_double(_erfc)),
    row("erfinv special_erfinv prims::erf_inv", in_double(_erfinv)),
    row("lgamma special_gammaln prims::lgamma", in_double(_lgamma)),
    row("angle", _angle),
    row("abs", _abs),
    row("neg _neg_view", _neg),
    row("ceil", _rounding("ceil")),
    row("floor", _rounding("floor")),
    row("round round.decimals", _round),
    row("trunc fix", _trunc),
    row("sign sgn", _sign),
    row("isnan", _is_nan),
    row("isinf", _is_inf(positive=True, negative=True)),
    row("isposinf", _is_inf(positive=True, negative=False)),
    row("isneginf", _is_inf(positive=False, negative=True)),
    row("isfinite", _is_finite),
    row("nan_to_num", _nan_to_num),
    row("logit special_logit", _logit),
)  # fmt: skip
