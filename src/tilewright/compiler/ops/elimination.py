"""Elimination and substitution by blocks: most of the work are products of matrices.

Numpy on the host, of f64 or complex128.  Called by the oracles of `linear_algebra`, `complex_linear_algebra`
and `reflections`.

Source: Toledo, "Locality of Reference in LU Decomposition with Partial Pivoting", 1997.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

_NARROW: Final = 32
"""Columns up to which one after another is eliminated."""
_BLOCK: Final = 64
"""Rows that are substituted by one call."""
_LEAST: Final = float(np.finfo(np.float64).tiny) * 4
"""Diagonals whose reciprocals are numbers."""


def eliminated(a: np.ndarray, size: Callable[[Any], Any]) -> tuple[np.ndarray, int]:
    """Let a matrix become its factors; the row exchanged at each step and the first pivot that is 0, both from 1.

    `size` says of which number of a column the row comes first.  A pivot of 0 eliminates nothing.
    """
    pivots = np.array(_eliminated_halves(a, size), np.int32) + 1
    zeros = np.flatnonzero(np.diagonal(a) == 0)
    return pivots, int(zeros[0]) + 1 if len(zeros) else 0


def _eliminated_halves(a: np.ndarray, size: Callable[[Any], Any]) -> list[int]:
    """The left half first; the right one is what is left of it then."""
    count = min(a.shape)
    # What is no number times 0 is not 0: it stays where steps of their own leave it.
    if count <= _NARROW or not np.isfinite(a).all():
        # Columns become rows: what a step reads lies side by side.
        turned = a.T.copy()
        chosen = [_eliminated_column(turned, k, size) for k in range(count)]
        a[:] = turned.T
        return chosen
    half = count // 2
    left, right = a[:, :half], a[:, half:]
    upper = _eliminated_halves(left, size)
    _exchange(right, upper)
    right[:half] = substituted(left[:half], right[:half], lower=True, unit=True)
    right[half:] -= left[half:] @ right[:half]
    lower = _eliminated_halves(right[half:], size)
    _exchange(left[half:], lower)
    return [*upper, *(half + chosen for chosen in lower)]


def _eliminated_column(turned: np.ndarray, k: int, size: Callable[[Any], Any]) -> int:
    """Only column k and the rest of row k become what all steps so far leave of them."""
    column = turned[k, k:]
    column -= turned[k, :k] @ turned[:k, k:]
    step = int(size(column).argmax())
    if step:
        other = turned[:, k + step].copy()
        turned[:, k + step] = turned[:, k]
        turned[:, k] = other
    if column[0] != 0:
        column[1:] /= column[0]
    turned[k + 1 :, k] -= turned[k + 1 :, :k] @ turned[:k, k]
    return k + step


def _exchange(a: np.ndarray, pivots: Sequence[int]) -> None:
    order = list(range(len(a)))
    for k, chosen in enumerate(pivots):
        order[k], order[chosen] = order[chosen], order[k]
    a[:] = a[order]


def substituted(a: np.ndarray, b: np.ndarray, *, lower: bool, unit: bool) -> np.ndarray:
    """X of `a x = b`, of one triangle of matrices in the last two axes, `unit` with ones on its diagonal."""
    found, count = b.copy(), a.shape[-1]
    blocks = [slice(k, min(k + _BLOCK, count)) for k in range(0, count, _BLOCK)]
    for block in blocks if lower else reversed(blocks):
        known = slice(0, block.start) if lower else slice(block.stop, None)
        found[..., block, :] -= a[..., block, known] @ found[..., known, :]
        corner, rest = a[..., block, block], found[..., block, :]
        rest[:] = _substituted_block(corner, rest, lower=lower, unit=unit)
    return found


def _substituted_block(
    a: np.ndarray, b: np.ndarray, *, lower: bool, unit: bool
) -> np.ndarray:
    """An upper triangle has no row to exchange and nothing to eliminate: solving is substitution alone."""
    # Backwards, a lower triangle is an upper one.
    triangle = np.triu(a[..., ::-1, ::-1] if lower else a, 1)
    diagonal = np.einsum("...ii->...i", a)[..., :: -1 if lower else 1]
    np.einsum("...ii->...i", triangle)[:] = 1 if unit else diagonal
    is_plain = np.isfinite(triangle).all() and np.isfinite(b).all()
    if not is_plain or not (unit or (abs(diagonal) >= _LEAST).all()):
        return _substituted_rows(a, b, lower=lower, unit=unit)
    if lower:
        return np.linalg.solve(triangle, b[..., ::-1, :])[..., ::-1, :]
    return np.linalg.solve(triangle, b)


def _substituted_rows(
    a: np.ndarray, b: np.ndarray, *, lower: bool, unit: bool
) -> np.ndarray:
    found, rows = b.copy(), range(a.shape[-1])
    for i in rows if lower else reversed(rows):
        known = slice(0, i) if lower else slice(i + 1, None)
        line = a[..., i, known][..., None, :]
        found[..., i, :] -= (line @ found[..., known, :])[..., 0, :]
        if not unit:
            found[..., i, :] /= a[..., i, i][..., None]
    return found
