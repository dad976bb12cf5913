"""Logarithms, roots and powers.  Called by `expand`."""

from __future__ import annotations

import math
from typing import Final

from tilewright.base import dtypes
from tilewright.compiler.kernel import expressions
from tilewright.compiler.kernel.ir import Expression
from tilewright.compiler.lowering.math.exponentials import exp, exp_near
from tilewright.compiler.lowering.math.pieces import (
    Means,
    bit_pattern,
    bits_of,
    bounded,
    copy_sign,
    exponent_bias,
    polynomial,
    product_with_error,
    scaled,
    split_exponent,
    sum_with_error,
    table_of,
)
from tilewright.compiler.lowering.math.tables import F64, LN2_PARTS, TWO_THIRDS, Table

E = expressions.Expressions

MAX_SMALL_POWER: Final = 4
"""Constant integer exponents up to this become products."""


def rsqrt(x: Expression, _: Means) -> Expression:
    """1 / sqrt(x)."""
    return E.div(1.0, E.sqrt(x))


# --- logarithm ---------------------------------------------------------------------------------


def _mantissa(x: Expression) -> tuple[Expression, Expression]:
    """F and e with x = (1 + f) * 2**e, sqrt(1/2) <= 1 + f < sqrt(2), for finite x > 0."""
    t = table_of(x)
    tiny = E.lt(x, t.least_normal)
    lift = t.mantissa + 1
    normal = E.select(tiny, E.mul(x, 2.0**lift), x)
    bits = bits_of(normal)
    offset = E.sub(bits, bit_pattern(math.sqrt(0.5), t))
    exponent = E.shr(offset, t.mantissa)
    mantissa = E.sub(bits, E.shl(exponent, t.mantissa))
    f = E.sub(E.bitcast(mantissa, t.dtype), 1.0)
    e = E.cast(E.cast(exponent, dtypes.i32), t.dtype)
    return f, E.select(tiny, E.sub(e, float(lift)), e)


def log(x: Expression, _: Means) -> Expression:
    """Natural logarithm, as the one of 1 + f plus e times that of 2."""
    t = table_of(x)
    f, e = _mantissa(x)
    return _log_special(x, _log_f32(f, e, t) if t.bits == 32 else _log_f64(f, e, t))


def _log_f32(f: Expression, e: Expression, t: Table) -> Expression:
    square = E.mul(f, f)
    tail = E.mul(E.mul(square, f), polynomial(f, t.log))
    tail = E.fma(e, t.ln2[1], tail)
    tail = E.fma(square, -0.5, tail)
    return E.fma(e, t.ln2[0], E.add(f, tail))


def _log_f64(f: Expression, e: Expression, t: Table) -> Expression:
    s = E.div(f, E.add(f, 2.0))
    square = E.mul(s, s)
    series = E.mul(square, polynomial(square, t.log))
    half = E.mul(E.mul(f, f), 0.5)
    tail = E.fma(s, E.add(half, series), E.mul(e, t.ln2[1]))
    tail = E.sub(E.sub(half, tail), f)
    return E.sub(E.mul(e, t.ln2[0]), tail)


def _log_special(x: Expression, result: Expression) -> Expression:
    """`result` for finite x > 0, and what IEEE 754 has for others."""
    below = E.select(E.lt(x, 0.0), E.const(math.nan, x.dtype, x.lanes), x)
    special = E.select(E.eq(x, 0.0), E.const(-math.inf, x.dtype, x.lanes), below)
    usual = E.and_(E.gt(x, 0.0), E.lt(x, math.inf))
    return E.select(usual, result, special)


# --- powers ------------------------------------------------------------------------------------


def constant_power(x: Expression, exponent: float) -> Expression | None:
    """`x ** exponent` by products or a root; None when that does not apply."""
    if exponent == 0.5:
        root = E.add(E.sqrt(x), 0.0)
        infinity = E.const(math.inf, x.dtype, x.lanes)
        return E.select(E.eq(x, -math.inf), infinity, root)
    size = abs(exponent)
    if not (exponent.is_integer() and 1 <= size <= MAX_SMALL_POWER):
        return None
    square = E.mul(x, x)
    products = {1: x, 2: square, 3: E.mul(square, x), 4: E.mul(square, square)}
    result = products[int(size)]
    return result if exponent > 0 else E.div(1.0, result)


def power(x: Expression, y: Expression, means: Means) -> Expression:
    """`x ** y` as e**(y log|x|), the product in twice the precision; signs and special cases."""
    size = E.abs(x)
    if x.dtype is dtypes.f32:
        wide = E.mul(E.cast(y, dtypes.f64), log(E.cast(size, dtypes.f64), means))
        result = E.cast(exp(wide, means), dtypes.f32)
    else:
        result = _power_f64(size, y, means)
    return _power_special(x, y, result)


def _power_f64(size: Expression, y: Expression, means: Means) -> Expression:
    high, low = _log_pair(size, means)
    special = _log_special(size, high)
    usual = E.eq(special, high)
    product = E.mul(y, special)
    _, error = product_with_error(y, high, means)
    error = E.fma(y, low, error)
    small = E.lt(E.abs(product), 2000.0)
    keep = E.and_(E.and_(usual, small), E.not_(E.is_nan(error)))
    error = E.select(keep, error, 0.0)
    n, shifted, r = split_exponent(bounded(product, *F64.exp_range), 2 * exponent_bias(F64))
    return scaled(exp_near(E.add(r, error), means), n, shifted, means)


def _log_pair(x: Expression, means: Means) -> tuple[Expression, Expression]:
    """log(x) as the sum of two f64, about 64 bits, for finite x > 0."""
    f, e = _mantissa(x)
    bottom = E.add(f, 2.0)
    bottom_low = E.sub(f, E.sub(bottom, 2.0))
    s = E.div(f, bottom)
    back, back_low = product_with_error(s, bottom, means)
    left = E.sub(E.sub(E.sub(f, back), back_low), E.mul(s, bottom_low))
    s_low = E.div(left, bottom)
    z, z_low = product_with_error(s, s, means)
    z_low = E.fma(E.add(s, s), s_low, z_low)
    inner = E.mul(z, polynomial(z, F64.log[1:]))
    v, v_low = sum_with_error(E.const(TWO_THIRDS[0], f.dtype, f.lanes), inner)
    v_low = E.add(v_low, TWO_THIRDS[1])
    w, w_low = product_with_error(z, v, means)
    w_low = E.fma(z, v_low, E.fma(z_low, v, w_low))
    q, q_low = product_with_error(s, w, means)
    q_low = E.fma(s, w_low, E.fma(s_low, w, q_low))
    high, low = sum_with_error(E.add(s, s), q)
    low = E.add(E.add(low, E.add(s_low, s_low)), q_low)
    whole, rest = sum_with_error(E.mul(e, LN2_PARTS[0]), high)
    second, third = product_with_error(e, E.const(LN2_PARTS[1], f.dtype, f.lanes), means)
    low = E.add(E.add(rest, low), E.fma(e, LN2_PARTS[2], third))
    whole, rest = sum_with_error(whole, second)
    return sum_with_error(whole, E.add(rest, low))


def _power_special(x: Expression, y: Expression, result: Expression) -> Expression:
    whole = E.eq(E.trunc(y), y)
    half = E.mul(y, 0.5)
    even = E.eq(E.trunc(half), half)
    odd = E.and_(whole, E.not_(even))
    result = E.select(odd, copy_sign(result, x), result)
    negative = E.and_(E.lt(x, 0.0), E.ne(x, -math.inf))
    # An infinite exponent counts as even; of NaN `whole` is false and the result NaN anyway.
    undefined = E.and_(negative, E.not_(whole))
    result = E.select(undefined, E.const(math.nan, x.dtype, x.lanes), result)
    endless = E.eq(E.abs(y), math.inf)
    unit = E.eq(E.abs(x), 1.0)
    trivial = E.or_(E.eq(y, 0.0), E.and_(unit, endless))
    trivial = E.or_(trivial, E.eq(x, 1.0))
    return E.select(trivial, 1.0, result)
