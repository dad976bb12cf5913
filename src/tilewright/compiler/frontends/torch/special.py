"""Rows for special functions: gamma, error and Bessel functions, orthogonal polynomials.

All are computed in f64 and rounded once.

Source: the operators of ATen by name, `torch.special` reference pages.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.compiler.frontends.kit import bessel, iterated, special_functions
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.kit.wide import Wide
from tilewright.compiler.frontends.torch.call import Call
from tilewright.compiler.frontends.torch.elementwise import is_negative
from tilewright.compiler.frontends.torch.row import Build, Row, row


def _of_one(function: Callable[[Wide], Wide]) -> Build:
    """A function of one number, whatever its schema calls it."""

    def build(call: Call) -> Tensor:
        (name,) = (n for n in ("self", "x", "a") if n in call.operation.arguments)
        x = Wide(call.maker, call.operand(name, dtypes.f64))
        return function(x).rounded(call.dtype())

    return build


def _pair(call: Call, first: str, second: str) -> tuple[Wide, Wide]:
    """Two operands in f64, both in the shape of the result."""
    e, shape = call.maker, call.shape()
    x, y = (
        Wide(e, e.broadcast_to(call.operand(name, dtypes.f64), shape))
        for name in (first, second)
    )
    return x, y


def _digamma(x: Wide) -> Wide:
    found = special_functions.digamma(x)
    pole = x.number(math.inf).where(x.is_negative(), -math.inf)
    return pole.where(x.equal(0.0), found)


def _polygamma(call: Call) -> Tensor:
    order = call.integer("n")
    x = Wide(call.maker, call.operand("self", dtypes.f64))
    if not order:
        return _digamma(x).rounded(call.dtype())
    scale = math.factorial(order) * (1.0 if order % 2 else -1.0)
    degree = x.number(order + 1.0).where(x.equal(x), order + 1.0)
    return (iterated.zeta_of_any(degree, x) * scale).rounded(call.dtype())


def _zeta(call: Call) -> Tensor:
    x, q = _pair(call, "self", "other")
    return iterated.zeta_of_any(x, q).rounded(call.dtype())


def _incomplete(*, upper: bool) -> Build:
    def build(call: Call) -> Tensor:
        a, x = _pair(call, "self", "other")
        return iterated.incomplete_gamma(a, x, upper=upper).rounded(call.dtype())

    return build


# --- orthogonal polynomials ---------------------------------------------------------------------

# Beyond these degrees of Hermite's polynomials torch gives no number.
_HERMITE_LIMITS: Final = {dtypes.f32: 128, dtypes.f64: 512}


def _chebyshev(x: Wide, k: Wide, last: Wide, before: Wide) -> Wide:
    del k
    return x * 2.0 * last - before


def _hermite(x: Wide, k: Wide, last: Wide, before: Wide) -> Wide:
    return (x * last - k * before) * 2.0


def _hermite_of_probability(x: Wide, k: Wide, last: Wide, before: Wide) -> Wide:
    return x * last - k * before


def _laguerre(x: Wide, k: Wide, last: Wide, before: Wide) -> Wide:
    return ((k * 2.0 + 1.0 - x) * last - k * before) / (k + 1.0)


def _legendre(x: Wide, k: Wide, last: Wide, before: Wide) -> Wide:
    return ((k * 2.0 + 1.0) * x * last - k * before) / (k + 1.0)


def _degrees(
    first: Callable[[Wide], Wide],
    following: iterated.Next,
    *,
    shifted: bool = False,
    limits: dict[DType, int] | None = None,
) -> Build:
    """A family of polynomials; `shifted` ones are those of 2x - 1."""

    def build(call: Call) -> Tensor:
        x, n = _pair(call, "x", "n")
        x = x * 2.0 - 1.0 if shifted else x
        degree = call.maker.cast(n.tensor, dtypes.i64)
        found = iterated.polynomial_of_degree(x, degree, first(x), following)
        if limits is not None:
            too_large = x.number(limits[call.dtype()]).less(n)
            found = x.number(math.nan).where(too_large, found)
        return found.rounded(call.dtype())

    return build


def _polynomial_rows() -> tuple[Row, ...]:
    kinds: tuple[tuple[str, Callable[[Wide], Wide]], ...] = (
        ("t", lambda x: x),
        ("u", lambda x: x * 2.0),
        ("v", lambda x: x * 2.0 - 1.0),
        ("w", lambda x: x * 2.0 + 1.0),
    )
    found = [
        row(_overloads(f"{prefix}chebyshev_polynomial_{letter}"),
            _degrees(first, _chebyshev, shifted=bool(prefix)))
        for prefix in ("", "shifted_")
        for letter, first in kinds
    ]  # fmt: skip
    hermite = _degrees(lambda x: x * 2.0, _hermite, limits=_HERMITE_LIMITS)
    of_probability = _degrees(lambda x: x, _hermite_of_probability, limits=_HERMITE_LIMITS)
    return (
        *found,
        row(_overloads("hermite_polynomial_h"), hermite),
        row(_overloads("hermite_polynomial_he"), of_probability),
        row(_overloads("laguerre_polynomial_l"), _degrees(lambda x: 1.0 - x, _laguerre)),
        row(_overloads("legendre_polynomial_p"), _degrees(lambda x: x, _legendre)),
    )


def _overloads(name: str) -> str:
    return f"special_{name} special_{name}.x_scalar special_{name}.n_scalar"


# --- whole numbers and bits ---------------------------------------------------------------------


def _gcd(call: Call) -> Tensor:
    e, dtype, shape = call.maker, call.dtype(), call.shape()
    names = ("self", "other") if "other" in call.operation.arguments else ("a", "b")
    x, y = (e.broadcast_to(call.operand(name, dtype), shape) for name in names)
    return iterated.greatest_common_divisor(e, x, y)


def _lcm(call: Call) -> Tensor:
    e, dtype, shape = call.maker, call.dtype(), call.shape()
    x, y = (e.broadcast_to(call.operand(n, dtype), shape) for n in ("self", "other"))
    common = e.op("max", iterated.greatest_common_divisor(e, x, y), e.scalar(1, dtype))
    found = e.op("mul", e.op("div", x, common), y)
    return e.op("abs", found) if dtype.is_signed else found


_BITS: Final = {
    dtypes.f16: (dtypes.i16, 10, 15), dtypes.bf16: (dtypes.i16, 7, 127),
    dtypes.f32: (dtypes.i32, 23, 127), dtypes.f64: (dtypes.i64, 52, 1023),
}  # fmt: skip


def _next_after(call: Call) -> Tensor:
    """The neighbour in the order of floats: one more or one less of the bits as a number."""
    e, dtype, shape = call.maker, call.dtype(), call.shape()
    word = _BITS[dtype][0]
    x, y = (e.broadcast_to(call.operand(n, dtype), shape) for n in ("self", "other"))
    bits = e.op("bitcast", x, dtype=word)
    one, zero = e.scalar(1, word), e.scalar(0, dtype)
    grows = e.op("equal", e.op("less", x, y), e.op("less", zero, x))
    moved = e.op("where", grows, e.op("add", bits, one), e.op("sub", bits, one))
    smallest = e.op("bitcast", e.full(1, word, shape), dtype=dtype)
    smallest = e.op("where", is_negative(e, y), e.op("neg", smallest), smallest)
    found = e.op("bitcast", moved, dtype=dtype)
    found = e.op("where", e.op("equal", x, zero), smallest, found)
    found = e.op("where", e.op("equal", x, y), y, found)
    lost = e.op("logical_or", e.op("is_nan", x), e.op("is_nan", y))
    return e.op("where", lost, e.scalar(math.nan, dtype), found)


def _fraction_and_exponent(call: Call) -> list[Tensor]:
    """Write x as fraction * 2^exponent, the fraction in 1/2 .. 1; numbers below the normal ones are scaled up first."""
    e, x = call.maker, call.tensor("self")
    if not x.dtype.is_float:
        raise UnsupportedError("the parts of whole numbers are not supported")
    word, places, bias = _BITS[x.dtype]
    limit = e.scalar(2.0 ** (1 - bias), x.dtype)
    is_small = e.op("less", e.op("abs", x), limit)
    scaled = e.op("where", is_small, e.op("mul", x, e.scalar(2.0**places, x.dtype)), x)
    bits = e.op("bitcast", scaled, dtype=word)
    wide = (1 << (word.bits - 1 - places)) - 1
    mask = e.scalar(wide, word)
    power = e.op(
        "bitwise_and",
        e.op("div", _magnitude(call, bits), e.scalar(1 << places, word)),
        mask,
    )
    exponent = e.op("sub", e.cast(power, dtypes.i32), e.scalar(bias - 1, dtypes.i32))
    lowered = e.op("sub", exponent, e.scalar(places, dtypes.i32))
    exponent = e.op("where", is_small, lowered, exponent)
    rest = e.op("bitwise_and", bits, e.scalar(~(wide << places), word))
    half = e.op("bitwise_or", rest, e.scalar((bias - 1) << places, word))
    fraction = e.op("bitcast", half, dtype=x.dtype)
    whole = e.op("logical_or", e.op("is_nan", x), e.op("is_inf", x))
    whole = e.op("logical_or", whole, e.op("equal", x, e.scalar(0, x.dtype)))
    exponent = e.op("where", whole, e.scalar(0, dtypes.i32), exponent)
    return [e.op("where", whole, x, fraction), exponent]


def _magnitude(call: Call, bits: Tensor) -> Tensor:
    """Bits without the sign, so that a division moves them to the right."""
    largest = (1 << (bits.dtype.bits - 1)) - 1
    return call.op("bitwise_and", bits, call.maker.scalar(largest, bits.dtype))


ROWS: Final[tuple[Row, ...]] = (
    row("digamma", _of_one(_digamma)),
    row("polygamma", _polygamma),
    row("special_zeta special_zeta.other_scalar special_zeta.self_scalar", _zeta),
    row("igamma", _incomplete(upper=False)),
    row("igammac", _incomplete(upper=True)),
    row("special_erfcx", _of_one(special_functions.scaled_complementary_error)),
    row("special_ndtri", _of_one(special_functions.normal_quantile)),
    row("special_airy_ai", _of_one(bessel.airy)),
    row("special_bessel_j0", _of_one(bessel.bessel_j0)),
    row("special_bessel_j1", _of_one(bessel.bessel_j1)),
    row("special_bessel_y0", _of_one(bessel.bessel_y0)),
    row("special_bessel_y1", _of_one(bessel.bessel_y1)),
    row("i0 special_modified_bessel_i0", _of_one(bessel.bessel_i0)),
    row("special_i0e", _of_one(bessel.bessel_i0e)),
    row("special_i1 special_modified_bessel_i1", _of_one(bessel.bessel_i1)),
    row("special_i1e", _of_one(bessel.bessel_i1e)),
    row("special_modified_bessel_k0", _of_one(bessel.bessel_k0)),
    row("special_modified_bessel_k1", _of_one(bessel.bessel_k1)),
    row(
        "special_scaled_modified_bessel_k0",
        _of_one(lambda x: bessel.bessel_k0(x, scaled=True)),
    ),
    row(
        "special_scaled_modified_bessel_k1",
        _of_one(lambda x: bessel.bessel_k1(x, scaled=True)),
    ),
    row("special_spherical_bessel_j0", _of_one(bessel.spherical_bessel_j0)),
    *_polynomial_rows(),
    row("gcd", _gcd),
    row("lcm", _lcm),
    row("nextafter", _next_after),
    row("frexp.Tensor", _fraction_and_exponent),
)
