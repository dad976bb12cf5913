"""Schur's form of one real matrix, in real numbers.

Numpy on the host, in f64.  Eigenvalues that are no real numbers stand as blocks of two rows with equal numbers on
their diagonal and numbers of opposite signs beside it, so that they can be read from them.  Called by the oracle of
`real_schur`.

Source: Golub and Van Loan, Matrix Computations, sections 7.4 and 7.5; for the blocks, LAPACK Users' Guide,
"Eigenvalues, Eigenvectors and Schur Factorization".
"""

from __future__ import annotations

import math

import numpy as np

from tilewright.compiler.ops.reflections import (
    TRIPS_PER_ROW,
    hessenberg_form,
    magnitude,
    reflect_columns,
    reflect_rows,
    reflection,
    undivided,
)


def real_schur(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """T of blocks of one and two rows and orthogonal Q of x = Q T Q', and how many eigenvalues were not found."""
    count = len(x)
    if not np.isfinite(x).all():
        return np.full_like(x, np.nan), np.full_like(x, np.nan), count
    scale = magnitude(x)
    form = hessenberg_form((x / scale).astype(np.complex128))
    t, q = (np.array(np.real(found)) for found in form)
    last, trips = count - 1, 0
    while last > 0 and trips < TRIPS_PER_ROW * count:
        start = undivided(t, last)
        if last - start > 1:
            trips += 1
            _doubly_shifted_step(t, q, start, last, exceptional=trips % 10 == 0)
            continue
        if start < last:
            _part(t, q, start)
        last, trips = start - 1, 0
    return t * scale, q, max(last, 0)


def eigenvalues(t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Real and imaginary parts of the eigenvalues of such a form, or of a batch of them; of a pair the one above the real axis is first."""
    count = t.shape[-1]
    real = np.diagonal(t, axis1=-2, axis2=-1).copy()
    imaginary = np.zeros_like(real)
    below = np.diagonal(t, -1, -2, -1) if count > 1 else real[..., :0]
    above = np.diagonal(t, 1, -2, -1) if count > 1 else below
    size = np.where(below == 0, 0, np.sqrt(abs(above)) * np.sqrt(abs(below)))
    imaginary[..., :-1] += size
    imaginary[..., 1:] -= size
    return real, imaginary


def _doubly_shifted_step(
    t: np.ndarray, q: np.ndarray, start: int, last: int, *, exceptional: bool
) -> None:
    """Francis' step: two shifts at once, which together are real, chased down the diagonal."""
    corner = t[last - 1 : last + 1, last - 1 : last + 1]
    total = corner[0, 0] + corner[1, 1]
    product = corner[0, 0] * corner[1, 1] - corner[0, 1] * corner[1, 0]
    if exceptional:
        size = abs(corner[1, 0]) + abs(t[last - 1, last - 2])
        total, product = 1.5 * size, size * size
    head = t[start : start + 3, start : start + 3]
    line = np.array(
        [
            head[0, 0] * (head[0, 0] - total) + head[0, 1] * head[1, 0] + product,
            head[1, 0] * (head[0, 0] + head[1, 1] - total),
            head[1, 0] * head[2, 1],
        ]
    )
    for k in range(start, last):
        rows = slice(k, min(k + 3, last + 1))
        reflected_line = line[: rows.stop - k].astype(np.complex128)
        tau = reflection(reflected_line)[1].real
        vector = np.real(reflected_line)
        # Before column k everything below is zero already, but for what the step before pushed down.
        reflect_rows(t[rows, max(k - 1, start) :], vector, tau)
        reflect_columns(t[: min(k + 4, last + 1), rows], vector, tau)
        reflect_columns(q[:, rows], vector, tau)
        if k > start:
            t[k + 1 : rows.stop, k - 1] = 0
        line = t[k + 1 : k + 4, k].copy()


def _part(t: np.ndarray, q: np.ndarray, k: int) -> None:
    """Turn two rows so that they have their eigenvalues on the diagonal, or equal numbers there."""
    block, turn = _standard(t[k : k + 2, k : k + 2])
    t[k : k + 2, k + 2 :] = turn.T @ t[k : k + 2, k + 2 :]
    t[:k, k : k + 2] = t[:k, k : k + 2] @ turn
    q[:, k : k + 2] = q[:, k : k + 2] @ turn
    # Not by the rotation, whose rounding would stand where a number is far smaller than those beside it.
    t[k : k + 2, k : k + 2] = block


def _standard(block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The form of two rows, and the rotation that makes it."""
    (a, b), (c, d) = block.tolist()
    if c == 0 or (a == d and _opposite(b, c)):
        return block.copy(), np.eye(2)
    if b == 0:
        return np.array([[d, -c], [0, a]]), _rotation(0, 1)
    half = (a - d) / 2
    scale = max(abs(half), abs(b), abs(c))
    found = (half / scale) ** 2 + (b / scale) * (c / scale)
    if found < 4 * np.finfo(np.float64).eps:
        return _of_equal_diagonal(block)
    # Two real eigenvalues far enough apart: an eigenvector of the one that is farther from d.
    away = half + math.copysign(math.sqrt(found) * scale, half)
    near = d - b / away * c
    return np.array([[d + away, b - c], [0, near]]), _rotation(away, c)


def _of_equal_diagonal(block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same where no two real eigenvalues are far apart: the diagonal is made equal before anything is split."""
    (a, b), (c, d) = block.tolist()
    angle = math.atan2(math.copysign(1, b + c) * (d - a), abs(b + c)) / 2
    turn = _rotation(math.cos(angle), math.sin(angle))
    (a, b), (c, d) = (turn.T @ block @ turn).tolist()
    mean = (a + d) / 2
    if c == 0 or _opposite(b, c):
        return np.array([[mean, b], [c, mean]]), turn
    x, y = math.sqrt(abs(b)), math.sqrt(abs(c))
    apart = math.copysign(x * y, c)
    split = np.array([[mean + apart, b - c], [0, mean - apart]])
    return split, turn @ _rotation(x, y)


def _opposite(b: float, c: float) -> bool:
    """Not by their product, which may be too small for a number."""
    return (b < 0 < c) or (c < 0 < b)


def _rotation(x: float, y: float) -> np.ndarray:
    """What turns the first axis into the direction of (x, y)."""
    size = math.hypot(x, y)
    return np.array([[x / size, -y / size], [y / size, x / size]])
