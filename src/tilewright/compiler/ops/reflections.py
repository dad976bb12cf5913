"""Householder's reflections of one complex matrix, and what factors are made with them.

Numpy on the host, in complex128; matrices of real numbers stay real.  A reflection is I - tau v v*, where v
begins with one; its other elements are kept below the entry that they made zero.  Called by the oracles of
`complex_linear_algebra`.

Source: LAPACK Users' Guide, section "QR Factorization"; routines larfg, geqp3, gehrd, hetrd, unmqr.
"""

from __future__ import annotations

import math

import numpy as np

from tilewright.compiler.ops.elimination import substituted

TRIPS_PER_ROW = 30


def reflection(line: np.ndarray) -> tuple[float, complex]:
    """Let `line` become v; what its first element is after the reflection's adjoint, and tau."""
    # Against the largest part, so that no square is beyond the range of numbers.
    scale = float(np.abs(np.stack((np.real(line), np.imag(line)))).max())
    if np.isfinite(scale) and scale > 0:
        # Part by part: a complex quotient multiplies by 1 / scale, which may be beyond the range.
        parts = line.view(np.float64)
        parts /= scale
    else:
        scale = 1.0
    first = complex(line[0])
    rest = float(np.linalg.norm(line[1:]))
    line[0] = 1
    if rest == 0 and first.imag == 0:
        line[1:] = 0
        return first.real * scale, 0j
    beta = -math.copysign(math.hypot(abs(first), rest), first.real)
    line[1:] /= first - beta
    return beta * scale, complex((beta - first.real) / beta, -first.imag / beta)


def reflect_rows(x: np.ndarray, vector: np.ndarray, tau: complex) -> None:
    """Let x become (I - tau v v*) x."""
    x -= tau * np.outer(vector, vector.conj() @ x)


def reflect_columns(x: np.ndarray, vector: np.ndarray, tau: complex) -> None:
    """Let x become x (I - tau v v*)."""
    x -= tau * np.outer(x @ vector, vector.conj())


def reflected(
    vectors: np.ndarray, scales: np.ndarray, x: np.ndarray, *, left: bool, adjoint: bool
) -> np.ndarray:
    """Q x, or x Q, or the same with Q's adjoint, of Q that is the product of reflections in their order.

    Matrices lie in the last two axes.  Q is I - V T V* with the inverse of T that has 1 / tau on its diagonal and
    the products of vectors above it.

    Source: Joffrain et al., "Accumulating Householder Transformations, Revisited", 2006.
    """
    if not left:
        found = reflected(vectors, scales, _adjoint(x), left=True, adjoint=not adjoint)
        return _adjoint(found)
    is_idle = scales == 0
    v = np.tril(vectors[..., : scales.shape[-1]], -1)
    np.einsum("...ii->...i", v[..., : scales.shape[-1], :])[:] = 1
    v = np.where(is_idle[..., None, :], 0, v)
    inverse = np.triu(_adjoint(v) @ v, 1)
    np.einsum("...ii->...i", inverse)[:] = 1 / np.where(is_idle, 1, scales)
    inverse = _adjoint(inverse) if adjoint else inverse
    along = _adjoint(v) @ x
    return x - v @ substituted(inverse, along, lower=adjoint, unit=False)


def _adjoint(x: np.ndarray) -> np.ndarray:
    return np.swapaxes(x, -1, -2).conj()


def pivoted(x: np.ndarray, places: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """R, vectors and scales of x with its columns exchanged, the longest one first; which column stands where, from 1.

    Columns whose `places` are not zero stay in front.
    """
    a, (rows, columns) = x.copy(), x.shape
    order = np.arange(columns)
    fixed: list[int] = np.flatnonzero(places).tolist()
    for to, place in enumerate(fixed):
        a[:, [to, place]] = a[:, [place, to]]
        order[[to, place]] = order[[place, to]]
    scales = np.zeros(min(rows, columns), np.complex128)
    for k in range(len(scales)):
        if k >= len(fixed):
            longest = k + int(np.argmax(np.linalg.norm(a[k:, k:], axis=0)))
            a[:, [k, longest]] = a[:, [longest, k]]
            order[[k, longest]] = order[[longest, k]]
        vector = a[k:, k].copy()
        beta, scales[k] = reflection(vector)
        reflect_rows(a[k:, k + 1 :], vector, np.conj(scales[k]))
        a[k, k], a[k + 1 :, k] = beta, vector[1:]
    return a, (order + 1).astype(np.int32), scales


def hessenberg(x: np.ndarray, low: int, high: int) -> tuple[np.ndarray, np.ndarray]:
    """A similar matrix without entries below the one under the diagonal, with vectors there; and their scales.

    Only rows and columns `low .. high`, counted from 1, are not yet in that form.
    """
    a = x.copy()
    scales = np.zeros(max(len(a) - 1, 0), np.complex128)
    for k in range(low - 1, high - 1):
        vector = a[k + 1 : high, k].copy()
        beta, scales[k] = reflection(vector)
        reflect_columns(a[:high, k + 1 : high], vector, scales[k])
        reflect_rows(a[k + 1 : high, k + 1 :], vector, np.conj(scales[k]))
        a[k + 1, k], a[k + 2 : high, k] = beta, vector[1:]
    return a, scales


def _hermitian(beside: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The whole matrix of one side of its diagonal, which is real."""
    return beside + beside.conj().T + np.diag(np.real(np.diag(x)))


def tridiagonal(x: np.ndarray, *, lower: bool) -> tuple[np.ndarray, ...]:
    """Vectors, diagonal, the diagonal beside it and scales of a Hermitian matrix of which one triangle is read.

    Of the upper one from the last column on; vectors end with one.
    """
    if not lower:
        packed, *lines = tridiagonal(x[::-1, ::-1], lower=True)
        return packed[::-1, ::-1], *(line[::-1] for line in lines)
    a = _hermitian(np.tril(x, -1), x)
    packed, count = x.copy(), len(x)
    beside, scales = np.zeros(max(count - 1, 0)), np.zeros(max(count - 1, 0), np.complex128)
    for k in range(count - 1):
        vector = a[k + 1 :, k].copy()
        beside[k], scales[k] = reflection(vector)
        reflect_rows(a[k + 1 :, k + 1 :], vector, np.conj(scales[k]))
        reflect_columns(a[k + 1 :, k + 1 :], vector, scales[k])
        packed[k + 1, k], packed[k + 2 :, k] = beside[k], vector[1:]
    diagonal = np.real(np.diag(a)).copy()
    np.fill_diagonal(packed, diagonal)
    return packed, diagonal, beside, scales


def hessenberg_form(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Zeros under the first diagonal below the main one, and the unitary matrix that made them."""
    count = len(x)
    t, scales = hessenberg(x, 1, count)
    q = np.eye(count, dtype=np.complex128)
    q[1:, 1:] = reflected(t[1:, :-1], scales, q[1:, 1:], left=True, adjoint=False)
    return np.triu(t, -1), q


def schur(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Upper triangular T and unitary Q of x = Q T Q*, and how many eigenvalues were not found.

    Steps of QR on a Hessenberg matrix, each shifted by an eigenvalue of its last two rows.
    """
    count = len(x)
    if not np.isfinite(x).all():
        return np.full_like(x, np.nan), np.full_like(x, np.nan), count
    scale = magnitude(x)
    t, q = hessenberg_form(x / scale)
    last, trips = count - 1, 0
    while last > 0 and trips < TRIPS_PER_ROW * count:
        start = undivided(t, last)
        if start == last:
            last, trips = last - 1, 0
            continue
        trips += 1
        _shifted_step(t, q, start, last, exceptional=trips % 10 == 0)
    return np.triu(t) * scale, q, max(last, 0)


def magnitude(x: np.ndarray) -> float:
    """A power of two as large as the largest number, so that no square of the others leaves the range of numbers."""
    largest = float(abs(x).max()) if x.size else 0.0
    return math.ldexp(1.0, math.frexp(largest)[1] - 1) if largest else 1.0


def undivided(t: np.ndarray, last: int) -> int:
    """Where the rows up to `last` begin that no zero under the diagonal parts; what vanishes becomes zero."""
    for k in range(last, 0, -1):
        beside = abs(t[k - 1, k - 1]) + abs(t[k, k])
        limit = np.finfo(np.float64).eps * (beside or float(np.linalg.norm(t)))
        if abs(t[k, k - 1]) <= limit:
            t[k, k - 1] = 0
            return k
    return 0


def _shifted_step(
    t: np.ndarray, q: np.ndarray, start: int, last: int, *, exceptional: bool
) -> None:
    corner = t[last - 1 : last + 1, last - 1 : last + 1]
    values = np.linalg.eigvals(corner)
    shift = values[np.argmin(abs(values - corner[1, 1]))]
    if exceptional:
        shift = shift + abs(corner[1, 0])
    rotations: list[np.ndarray] = []
    diagonal = np.arange(start, last + 1)
    t[diagonal, diagonal] -= shift
    for k in range(start, last):
        a, b = t[k, k], t[k + 1, k]
        size = np.hypot(abs(a), abs(b)) or 1.0
        turn = np.array([[np.conj(a), np.conj(b)], [-b, a]]) / size
        t[k : k + 2, k:] = turn @ t[k : k + 2, k:]
        rotations.append(turn.conj().T)
    for k, turn in enumerate(rotations, start):
        t[: k + 2, k : k + 2] = t[: k + 2, k : k + 2] @ turn
        q[:, k : k + 2] = q[:, k : k + 2] @ turn
    t[diagonal, diagonal] += shift
