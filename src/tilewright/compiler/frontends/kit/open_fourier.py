"""Discrete Fourier transforms of a length that a call decides, as one product with a matrix that the call computes.

Quadratic in the length, unlike `fourier`, which has the factors of a length that is known.  Products are in f64; who asks
rounds them.  An infinity among the elements makes all of a row what is not a number.  Called by the rows of front ends.

Source: the definition, `X[k] = sum over n of x[n] exp(-2 pi i k n / N)`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.base import dtypes, symbolic
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.tensor import Tensor

Pair = tuple[Tensor, Tensor]


def transform(
    e: NodeMaker, parts: tuple[Tensor, Tensor | None], axis: int, size: Dim, sign: int
) -> Pair:
    """The transform (sign -1) or the inverse one (sign 1) of `size` elements, at least one, as sums."""
    return _along(e, parts, axis, _matrix(e, size, size, size, sign))


def of_real(e: NodeMaker, x: Tensor, axis: int, size: Dim, count: Dim) -> Pair:
    """The first `count` elements of the transform of real numbers; those that are their own conjugates are real."""
    real, imaginary = _along(e, (x, None), axis, _matrix(e, size, count, size, -1))
    behind = [1] * (x.rank - 1 - axis)
    places = e.iota((count, *behind), 0)
    doubled = e.op("add", places, places)
    own = _either(e, doubled, (e.scalar(0, dtypes.i64), e.dim(size)))
    return real, e.op("where", own, e.scalar(0.0, dtypes.f64), imaginary)


def to_real(e: NodeMaker, half: Pair, axis: int, size: Dim) -> Tensor:
    """The inverse transform, as sums, of a spectrum of which the first half is there; the rest is its conjugate."""
    count = half[0].shape[axis]
    places = e.iota((count, 1), 0)
    doubled = e.op("add", places, places)
    alone = _either(e, doubled, (e.scalar(0, dtypes.i64), e.dim(size)))
    weight = e.op("where", alone, e.scalar(1.0, dtypes.f64), e.scalar(2.0, dtypes.f64))
    cosine, sine = (e.op("mul", m, weight) for m in _matrix(e, count, size, size, 1))
    return _along(e, half, axis, (cosine, sine))[0]


def _either(e: NodeMaker, x: Tensor, numbers: Sequence[Tensor]) -> Tensor:
    """Where elements are one of two numbers."""
    first, second = (e.op("equal", x, number) for number in numbers)
    return e.op("logical_or", first, second)


def _matrix(e: NodeMaker, rows: Dim, columns: Dim, size: Dim, sign: int) -> Pair:
    """Cosine and sine of `sign 2 pi r c / size`, from tables of whole steps: what is real stays real."""
    steps = e.iota((size,), 0)
    doubled = e.op("add", steps, steps)
    total = e.dim(size)
    share = e.op("div", e.cast(steps, dtypes.f64), e.cast(total, dtypes.f64))
    angle = e.op("mul", share, e.scalar(sign * 2 * np.pi, dtypes.f64))
    zero = e.scalar(0.0, dtypes.f64)
    quarters = e.op("add", doubled, doubled)
    upright = _either(e, quarters, (total, e.dim(3 * size)))
    level = _either(e, doubled, (e.scalar(0, dtypes.i64), total))
    cosine = e.op("where", upright, zero, e.op("cos", angle))
    sine = e.op("where", level, zero, e.op("sin", angle))
    turns = e.op("mul", e.iota((rows, 1), 0), e.iota((1, columns), 1))
    places = _remainder(e, turns, total)
    return e.op("gather", cosine, places, axis=0), e.op("gather", sine, places, axis=0)


def _remainder(e: NodeMaker, x: Tensor, divisor: Tensor) -> Tensor:
    """`x mod divisor` of whole numbers from 0 up to 2^53.

    The rounded quotient has the whole part of the true one, which lies at least 1 / divisor from the next whole number
    unless it is one.
    """
    quotient = e.op("div", e.cast(x, dtypes.f64), e.cast(divisor, dtypes.f64))
    return e.op("sub", x, e.op("mul", e.cast(quotient, dtypes.i64), divisor))


def _along(
    e: NodeMaker, parts: tuple[Tensor, Tensor | None], axis: int, factors: Pair
) -> Pair:
    """The product of one axis with a matrix."""
    x, y = parts
    rank = x.rank
    # A vector is a matrix of one row, for its product is one, too.
    order = [i for i in range(rank) if i != axis] + [axis]
    back = sorted(range(rank), key=order.__getitem__)

    def turned(part: Tensor) -> Tensor:
        part = e.transpose(part, order) if rank > 1 else part
        return e.unsqueeze(part, (0,)) if rank == 1 else part

    def finished(part: Tensor) -> Tensor:
        return e.squeeze(part, (0,)) if rank == 1 else e.transpose(part, back)

    real, imaginary = (e.op("matmul", turned(x), factor) for factor in factors)
    if y is not None:
        cosine, sine = (e.op("matmul", turned(y), factor) for factor in factors)
        real, imaginary = e.op("sub", real, sine), e.op("add", imaginary, cosine)
    return finished(real), finished(imaginary)


def half_of(size: Dim) -> Dim:
    """How many elements of a spectrum of real numbers are not conjugates of others."""
    return symbolic.floordiv(size, 2) + 1
