"""Special functions composed from the operators of the kernel IR.

Accuracy is stated per function in units in the last place (ulp) of f32, measured against f64
over the full range with kernel operators of 1 ulp; the f64 versions are good to about 4 ulp.
Bodies of ops call these; nothing else does.
"""

from __future__ import annotations

import math
from typing import Final

from tilewright.base.dtypes import f64
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.ir import Expression
from tilewright.compiler.ops.bodies import polynomial

_INFINITY: Final = math.inf
# (atan(x) / x - 1) / x**2 in x**2, 0 <= x <= 1, as exact as f32 needs it: minimax (Remez), 2**-25.9 of atan.
_ATAN: Final = (
    -0.33333075046539307, 0.19992618262767792, -0.1420365571975708, 0.10640962421894073,
    -0.07504341006278992, 0.042692214250564575, -0.016069119796156883, 0.002849993295967579,
)  # fmt: skip
_ASIN: Final = (
    1.6666752422e-1,
    7.4953002686e-2,
    4.5470025998e-2,
    2.4181311049e-2,
    4.2163199048e-2,
)
"""(asin(x) - x) / x**3 in x**2, for x of at most 1/2."""


def _terms(x: Expression, single: int, double: int) -> int:
    """How many series terms the type of `x` needs."""
    return double if x.dtype is f64 else single


def _with_sign(b: KernelBuilder, magnitude: Expression, x: Expression) -> Expression:
    """`magnitude` with the sign of `x`; zeros of both signs stay as they are."""
    signed = b.select(b.lt(x, 0), b.neg(magnitude), magnitude)
    return b.select(b.eq(x, 0), x, signed)


def log1p(b: KernelBuilder, x: Expression) -> Expression:
    """log(1 + x), 2 ulp: the rounding error of `1 + x` cancels in the quotient."""
    u = b.add(x, 1)
    exact = b.mul(b.log(u), b.div(x, b.sub(u, 1)))
    plain = b.or_(b.eq(u, 1), b.eq(x, _INFINITY))
    return b.select(plain, x, exact)


def expm1(b: KernelBuilder, x: Expression) -> Expression:
    """exp(x) - 1, 4 ulp: by tanh(x / 2) below 1, where the difference would cancel."""
    t = b.tanh(b.mul(x, 0.5))
    small = b.div(b.mul(t, 2), b.sub(b.const(1, x.dtype), t))
    return b.select(b.gt(x, 1), b.sub(b.exp(x), 1), small)


def softplus(b: KernelBuilder, x: Expression) -> Expression:
    """log(1 + exp(x)) without overflow, 3 ulp."""
    tail = log1p(b, b.exp_nonpositive(b.neg(b.abs(x))))
    return b.add(b.select(b.lt(x, 0), 0, x), tail)


def sinh(b: KernelBuilder, x: Expression) -> Expression:
    """4 ulp; finite up to the edge of overflow because exp(|x| / 2) is squared late."""
    square = b.mul(x, x)
    series = [1 / math.factorial(2 * i + 1) for i in range(_terms(x, 6, 11))]
    small = b.mul(x, polynomial(b, square, series))
    magnitude = b.abs(x)
    half = b.exp(b.mul(magnitude, 0.5))
    big = b.sub(
        b.mul(b.mul(half, 0.5), half), b.div(b.div(b.const(0.5, x.dtype), half), half)
    )
    return b.select(b.le(magnitude, 1), small, _with_sign(b, big, x))


def cosh(b: KernelBuilder, x: Expression) -> Expression:
    """4 ulp; finite up to the edge of overflow."""
    half = b.exp(b.mul(b.abs(x), 0.5))
    down = b.div(b.div(b.const(0.5, x.dtype), half), half)
    return b.add(b.mul(b.mul(half, 0.5), half), down)


def tan(b: KernelBuilder, x: Expression) -> Expression:
    """Sin / cos, 3 ulp away from the poles."""
    return b.div(b.sin(x), b.cos(x))


def _atan_unit(b: KernelBuilder, x: Expression) -> Expression:
    """Arc tangent of 0 <= x <= 1: a polynomial; in f64 two half-angle steps, then the odd series."""
    if x.dtype is not f64:
        square = b.mul(x, x)
        return b.add(x, b.mul(b.mul(x, square), polynomial(b, square, _ATAN)))
    one = b.const(1, x.dtype)
    for _ in range(2):
        x = b.div(x, b.add(b.sqrt(b.add(b.mul(x, x), one)), 1))
    series = [(-1) ** i / (2 * i + 1) for i in range(13)]
    return b.mul(b.mul(x, polynomial(b, b.mul(x, x), series)), 4)


def atan(b: KernelBuilder, x: Expression) -> Expression:
    """Arc tangent, 4 ulp: arguments above 1 by the complement of that of the reciprocal."""
    one, magnitude = b.const(1, x.dtype), b.abs(x)
    big = b.gt(magnitude, 1)
    reduced = b.div(b.select(big, one, magnitude), b.select(big, magnitude, one))
    angle = _atan_unit(b, reduced)
    angle = b.select(big, b.sub(b.const(math.pi / 2, x.dtype), angle), angle)
    return _with_sign(b, angle, x)


def _asin_of_magnitude(
    b: KernelBuilder, magnitude: Expression
) -> tuple[Expression, Expression]:
    """Whether a magnitude in f32 is above 1/2, and the arc sine: of it, or else of sqrt((1 - magnitude) / 2); no division.

    Source: Cephes, asinf.c.
    """
    one = b.const(1, magnitude.dtype)
    big, rest = b.gt(magnitude, 0.5), b.mul(b.sub(one, magnitude), 0.5)
    square = b.select(big, rest, b.mul(magnitude, magnitude))
    root = b.select(big, b.sqrt(rest), magnitude)
    return big, b.add(root, b.mul(b.mul(root, square), polynomial(b, square, _ASIN)))


def asin(b: KernelBuilder, x: Expression) -> Expression:
    """Arc sine, 3 ulp; in f64, 6 ulp, as atan(x / sqrt((1 - x) (1 + x))); NaN outside [-1, 1]."""
    if x.dtype is f64:
        one = b.const(1, x.dtype)
        return atan(b, b.div(x, b.sqrt(b.mul(b.sub(one, x), b.add(one, x)))))
    big, angle = _asin_of_magnitude(b, b.abs(x))
    quarter = b.const(math.pi / 2, x.dtype)
    return _with_sign(b, b.select(big, b.sub(quarter, b.mul(angle, 2)), angle), x)


def acos(b: KernelBuilder, x: Expression) -> Expression:
    """Arc cosine, 2 ulp; in f64, 6 ulp, as 2 atan(sqrt((1 - x) / (1 + x))); NaN outside [-1, 1]."""
    if x.dtype is f64:
        one = b.const(1, x.dtype)
        return b.mul(atan(b, b.sqrt(b.div(b.sub(one, x), b.add(one, x)))), 2)
    big, angle = _asin_of_magnitude(b, b.abs(x))
    near = b.mul(angle, 2)
    near = b.select(b.lt(x, 0), b.sub(b.const(math.pi, x.dtype), near), near)
    quarter = b.const(math.pi / 2, x.dtype)
    return b.select(big, near, b.sub(quarter, _with_sign(b, angle, x)))


def _log_of_twice(b: KernelBuilder, x: Expression) -> Expression:
    return b.add(b.log(x), math.log(2))


def asinh(b: KernelBuilder, x: Expression) -> Expression:
    """4 ulp; log(2|x|) where the square would overflow."""
    magnitude = b.abs(x)
    square = b.mul(magnitude, magnitude)
    root = b.sqrt(b.add(square, 1))
    near = log1p(b, b.add(magnitude, b.div(square, b.add(root, 1))))
    far = b.gt(magnitude, _far(x))
    return _with_sign(b, b.select(far, _log_of_twice(b, magnitude), near), x)


def _far(x: Expression) -> float:
    """Where x * x still is finite and 1 is lost beside it."""
    return 1e150 if x.dtype is f64 else 1e18


def acosh(b: KernelBuilder, x: Expression) -> Expression:
    """4 ulp; NaN below 1."""
    t = b.select(b.lt(x, 1), math.nan, b.sub(x, 1))
    near = log1p(b, b.add(t, b.sqrt(b.add(b.mul(t, 2), b.mul(t, t)))))
    return b.select(b.gt(x, _far(x)), _log_of_twice(b, x), near)


def atanh(b: KernelBuilder, x: Expression) -> Expression:
    """log((1 + |x|) / (1 - |x|)) / 2 through log1p, 4 ulp; NaN outside [-1, 1]."""
    magnitude = b.abs(x)
    ratio = b.div(b.mul(magnitude, 2), b.sub(b.const(1, x.dtype), magnitude))
    return _with_sign(b, b.mul(log1p(b, ratio), 0.5), x)


def gelu(b: KernelBuilder, x: Expression) -> Expression:
    """X * Phi(x), 2e-7 |x| absolute: far below 0 it is a difference."""
    return b.mul(x, b.normal_cdf(x))


def gelu_tanh(b: KernelBuilder, x: Expression) -> Expression:
    """X * Phi(x) with the tanh approximation of Hendrycks and Gimpel.

    As (1 + tanh(u)) / 2 = sigmoid(2u), which keeps its digits where tanh is near -1.
    """
    cube = b.mul(b.mul(b.mul(x, x), x), 0.044715)
    return b.mul(x, b.sigmoid(b.mul(b.add(x, cube), 2 * math.sqrt(2 / math.pi))))


def clamp(b: KernelBuilder, x: Expression, low: float, high: float) -> Expression:
    """`x` limited to [low, high]; NaN passes."""
    x = b.select(b.lt(x, low), low, x)
    return b.select(b.gt(x, high), high, x)
