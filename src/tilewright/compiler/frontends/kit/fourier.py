"""Discrete Fourier transforms along an axis, as products with matrices of transforms.

Short ones are one product.  A longer one of `a * b` elements is a transform of `a`, a turn of every element and
a transform of `b`; one whose length has no factors is a convolution, which transforms of another length make.
Products are in f64; who asks rounds them.  Called by the rows of front ends.

Source: Cooley and Tukey, "An Algorithm for the Machine Calculation of Complex Fourier Series", 1965; Bluestein,
"A Linear Filtering Approach to the Computation of Discrete Fourier Transform", 1970.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from tilewright.base import dtypes
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.tensor import Tensor

Parts = tuple[Tensor, Tensor | None]
"""Both parts of numbers; None: they are real."""
Pair = tuple[Tensor, Tensor]

_DIRECT: Final = 64
"""Elements up to which one product costs less than two shorter ones and a turn between them."""
_DIRECT_PRIME: Final = 512
"""The same where the length has no factors."""
_BY_SUMS: Final = (1, 2, 4)
"""Lengths whose turns are those onto an axis."""


def transform(
    e: NodeMaker, parts: Parts, axis: int, size: int, sign: int, scale: float = 1.0
) -> Pair:
    """The transform (sign -1) or the inverse one (sign 1) of `size` elements, times `scale`.

    Of real numbers, elements that are their own conjugates have no imaginary part, nor NaN as one.
    """
    found = _transformed(e, parts, axis, size, sign, scale)
    if parts[1] is not None or size in _BY_SUMS:
        return found
    return found[0], _without_own(e, found[1], axis, size, size)


def _transformed(
    e: NodeMaker, parts: Parts, axis: int, size: int, sign: int, scale: float
) -> Pair:
    if size in _BY_SUMS:
        return _by_sums(e, parts, axis, size, sign, scale)
    factor = _factor(size)
    if size <= _DIRECT or (factor == 1 and size <= _DIRECT_PRIME):
        return _along(e, parts, axis, scale * _matrix(size, size, sign))
    if factor == 1:
        return _by_convolution(e, parts, axis, size, sign, scale)
    return _by_factors(e, parts, axis, (factor, size // factor), sign, scale)


def of_real(e: NodeMaker, x: Tensor, axis: int, size: int, count: int) -> Pair:
    """The first `count` elements of the transform of real numbers."""
    factor = _factor(size)
    if size in _BY_SUMS:
        found = _by_sums(e, (x, None), axis, size, -1, 1.0)
        real, imaginary = (e.slice(part, axis, 0, count) for part in found)
        return real, imaginary
    if size <= _DIRECT:
        found = _along(e, (x, None), axis, _matrix(size, count, -1))
    elif factor > 1:
        found = _of_real_by_factors(e, x, axis, (factor, size // factor), count)
    else:
        found = _transformed(e, (x, None), axis, size, -1, 1.0)
    first = e.slice(found[1], axis, 0, count)
    return e.slice(found[0], axis, 0, count), _without_own(e, first, axis, size, count)


def _by_sums(
    e: NodeMaker, parts: Parts, axis: int, size: int, sign: int, scale: float
) -> Pair:
    """Of one, two or four elements, whose turns are exact: nothing is multiplied, so that 0 times infinity is nowhere."""
    x, y = parts
    y = e.full(0, x.dtype, x.shape) if y is None else y
    if size > 1:
        first, second = (
            _sums_of(e, [e.slice(part, axis, n, 1) for n in range(size)]) for part in (x, y)
        )
        if size == _BY_SUMS[-1]:
            first, second = _quarter_turns(e, first, second, sign)
        x, y = e.concat(first, axis), e.concat(second, axis)
    if scale == 1.0:
        return x, y
    factor = e.scalar(scale, x.dtype)
    return e.op("mul", x, factor), e.op("mul", y, factor)


def _sums_of(e: NodeMaker, parts: list[Tensor]) -> list[Tensor]:
    """Sum and difference of two; of four x0 + x2 + x1 + x3, x0 - x2, x0 + x2 - x1 - x3, x1 - x3."""
    half = len(parts) // 2
    sums = [e.op("add", x, y) for x, y in zip(parts[:half], parts[half:], strict=True)]
    differences = [
        e.op("sub", x, y) for x, y in zip(parts[:half], parts[half:], strict=True)
    ]
    if half == 1:
        return [*sums, *differences]
    return [
        e.op("add", *sums), differences[0], e.op("sub", *sums), differences[1],
    ]  # fmt: skip


def _quarter_turns(
    e: NodeMaker, x: list[Tensor], y: list[Tensor], sign: int
) -> tuple[list[Tensor], list[Tensor]]:
    """Elements 1 and 3 of four, from the differences that stand in their places: b + sign i d and b - sign i d."""
    (b_x, d_x), (b_y, d_y) = ((part[1], part[3]) for part in (x, y))
    one = e.op("sub", b_x, d_y), e.op("add", b_y, d_x)
    other = e.op("add", b_x, d_y), e.op("sub", b_y, d_x)
    if sign < 0:
        one, other = other, one
    return [x[0], one[0], x[2], other[0]], [y[0], one[1], y[2], other[1]]


def _without_own(
    e: NodeMaker, imaginary: Tensor, axis: int, size: int, count: int
) -> Tensor:
    """The first `count` imaginary parts of a spectrum of real numbers, 0 where elements are their own conjugates."""
    own = (2 * np.arange(count) % size == 0).reshape(-1, *[1] * (imaginary.rank - 1 - axis))
    return e.op("where", e.constant(own), e.scalar(0.0, dtypes.f64), imaginary)


def to_real(e: NodeMaker, half: Pair, axis: int, size: int, scale: float = 1.0) -> Tensor:
    """The inverse transform of a spectrum of which the first half is there; the rest is its conjugate."""
    if size <= _DIRECT:
        return _along(e, half, axis, scale * _from_half(size))[0]
    return transform(e, _whole(e, half, axis, size), axis, size, 1, scale)[0]


def _factor(size: int) -> int:
    """The largest divisor up to the root; 1: there is none."""
    return next(d for d in range(math.isqrt(size), 0, -1) if size % d == 0)


def _turned(steps: Any, size: int, sign: int) -> Any:
    """1 after so many steps around a circle of `size` steps, as complex numbers.

    Whole turns are taken off before anything is rounded, and on an axis the other part is 0, not what a rounded
    angle leaves of it: what is real stays real.
    """
    steps = steps % size
    angles = steps * (2 * np.pi / size)
    cosine, sine = np.cos(angles), sign * np.sin(angles)
    cosine[(4 * steps) % (2 * size) == size] = 0.0
    sine[(2 * steps) % size == 0] = 0.0
    return cosine + 1j * sine


def _matrix(rows: int, columns: int, sign: int) -> Any:
    return _turned(np.outer(np.arange(rows), np.arange(columns)), rows, sign)


def _from_half(size: int) -> Any:
    """The factors of elements that stand for their conjugates, too, but for those that are their own."""
    weights = np.full((size // 2 + 1, 1), 2.0)
    weights[0] = 1.0
    if size % 2 == 0:
        weights[-1] = 1.0
    return weights * _matrix(size, size, 1)[: size // 2 + 1]


def _whole(e: NodeMaker, half: Pair, axis: int, size: int) -> Pair:
    """A spectrum of real numbers; elements that are their own conjugates have no imaginary part."""
    mirrored = np.arange((size - 1) // 2, 0, -1)
    imaginary = _without_own(e, half[1], axis, size, size // 2 + 1)
    back = e.constant(mirrored)
    parts = (half[0], imaginary)
    real, turned = (e.op("gather", x, back, axis=axis) for x in parts)
    return (
        e.concat([half[0], real], axis),
        e.concat([imaginary, e.op("neg", turned)], axis),
    )


def _each(parts: Parts, function: Callable[[Tensor], Tensor]) -> Parts:
    real, imaginary = parts
    return function(real), None if imaginary is None else function(imaginary)


def _product(e: NodeMaker, op: str, parts: Parts, factors: Pair) -> Pair:
    """The product of complex numbers by an op that multiplies."""
    (x, y), (cosine, sine) = parts, factors
    if y is None:
        return e.op(op, x, cosine), e.op(op, x, sine)
    return (
        e.op("sub", e.op(op, x, cosine), e.op(op, y, sine)),
        e.op("add", e.op(op, x, sine), e.op(op, y, cosine)),
    )


def _along(e: NodeMaker, parts: Parts, axis: int, factors: Any) -> Pair:
    """The product of one axis with a matrix."""
    if parts[0].rank == 1:
        lifted = _each(parts, lambda x: e.unsqueeze(x, (0,)))
        real, imaginary = _along(e, lifted, 1, factors)
        return e.squeeze(real, (0,)), e.squeeze(imaginary, (0,))
    order = [i for i in range(parts[0].rank) if i != axis]
    order.append(axis)
    back = sorted(range(len(order)), key=lambda i: order[i])
    turned = _each(parts, lambda x: e.transpose(x, order))
    cosine, sine = (
        e.constant(np.ascontiguousarray(part)) for part in (factors.real, factors.imag)
    )
    found = _product(e, "matmul", turned, (cosine, sine))
    return e.transpose(found[0], back), e.transpose(found[1], back)


def _by_factors(
    e: NodeMaker, parts: Parts, axis: int, sizes: tuple[int, int], sign: int, scale: float
) -> Pair:
    """Elements `b n + m` are a grid; place `k` of a column and `l` of a row is element `k + a l`."""
    a, b = sizes
    shape = parts[0].shape
    grid = (*shape[:axis], a, b, *shape[axis + 1 :])
    columns = transform(e, _each(parts, lambda x: e.reshape(x, grid)), axis, a, sign)
    steps = _turned(np.outer(np.arange(a), np.arange(b)), a * b, sign)
    behind = [1] * (len(shape) - 1 - axis)
    turns = tuple(
        e.constant(np.ascontiguousarray(x).reshape(a, b, *behind))
        for x in (steps.real, steps.imag)
    )
    turned = _product(e, "mul", columns, (turns[0], turns[1]))
    rows = transform(e, turned, axis + 1, b, sign, scale)
    order = [*range(len(grid))]
    order[axis : axis + 2] = axis + 1, axis
    first, second = (e.reshape(e.transpose(x, order), shape) for x in rows)
    return first, second


def _of_real_by_factors(
    e: NodeMaker, x: Tensor, axis: int, sizes: tuple[int, int], count: int
) -> Pair:
    """As `_by_factors`, of real numbers: element `size - i` is the conjugate of element i.

    So only half of the columns are turned and transformed, and column `a - k` is column k of the other end.  At
    least the first `count` elements are there.
    """
    (a, b), shape = sizes, x.shape
    half, lines = a // 2 + 1, -(-count // a)
    columns = of_real(
        e, e.reshape(x, (*shape[:axis], a, b, *shape[axis + 1 :])), axis, a, half
    )
    steps = _turned(np.outer(np.arange(half), np.arange(b)), a * b, -1)
    behind = [1] * (len(shape) - 1 - axis)
    cosine, sine = (
        e.constant(np.ascontiguousarray(f).reshape(half, b, *behind))
        for f in (steps.real, steps.imag)
    )
    rows = transform(e, _product(e, "mul", columns, (cosine, sine)), axis + 1, b, -1)
    order = [*range(len(shape) + 1)]
    order[axis : axis + 2] = axis + 1, axis

    def whole(part: Tensor, *, is_turned: bool) -> Tensor:
        first = e.slice(part, axis + 1, 0, lines)
        other = e.slice(
            e.slice(part, axis, a - half, a - half, -1), axis + 1, b - 1, lines, -1
        )
        other = e.op("neg", other) if is_turned else other
        found = e.transpose(e.concat([first, other], axis), order)
        return e.reshape(found, (*shape[:axis], lines * a, *shape[axis + 1 :]))

    return whole(rows[0], is_turned=False), whole(rows[1], is_turned=True)


def _by_convolution(
    e: NodeMaker, parts: Parts, axis: int, size: int, sign: int, scale: float
) -> Pair:
    """As twice `n k` is the sum of both squares without that of their difference."""
    steps = np.arange(size, dtype=np.int64) ** 2
    chirp = _turned(steps, 2 * size, sign)
    length = 1 << (2 * size - 2).bit_length()
    answer = np.zeros(length, np.complex128)
    answer[:size] = chirp.conj()
    answer[length - size + 1 :] = chirp.conj()[:0:-1]
    behind = [1] * (parts[0].rank - 1 - axis)

    def times(given: Parts, factors: Any) -> Pair:
        pair = (
            e.constant(np.ascontiguousarray(x).reshape(-1, *behind))
            for x in (factors.real, factors.imag)
        )
        return _product(e, "mul", given, (next(pair), next(pair)))

    def padded(x: Tensor) -> Tensor:
        missing = (*x.shape[:axis], length - size, *x.shape[axis + 1 :])
        return e.concat([x, e.full(0, dtypes.f64, missing)], axis)

    given = _each(times(parts, chirp), padded)
    spectrum = times(transform(e, given, axis, length, -1), np.fft.fft(answer))
    found = transform(e, spectrum, axis, length, 1, scale / length)
    return times(_each(found, lambda x: e.slice(x, axis, 0, size)), chirp)
