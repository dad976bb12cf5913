"""Discrete Fourier transforms along an axis, as products with the matrix of the transform.

A product of parts in f64; who asks rounds it.  Called by the rows of front ends.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor

# A transform is a product with its matrix, which the artifact holds.
MAX_LENGTH: Final = 2048


def matrix(rows: int, columns: int, sign: int) -> Any:
    """The factors of a transform (sign -1) or of an inverse one, whose sums are divided by their length.

    Angles are reduced before they are multiplied by a turn.

    Raises: UnsupportedError for more elements than `MAX_LENGTH`.
    """
    if rows > MAX_LENGTH:
        raise UnsupportedError(f"a transform of {rows} elements is not supported")
    turns = np.outer(np.arange(rows), np.arange(columns)) % rows
    angles = turns * (2 * np.pi / rows)
    scale = 1 / rows if sign > 0 else 1.0
    return scale * (np.cos(angles) + sign * 1j * np.sin(angles))


def from_half(size: int) -> Any:
    """The real result of half a spectrum: what is left out is the conjugate of what is there."""
    found = matrix(size, size, 1)[: size // 2 + 1]
    weights = np.full((size // 2 + 1, 1), 2.0)
    weights[0] = 1.0
    if size % 2 == 0:
        weights[-1] = 1.0
    return weights * found


def along(
    e: NodeMaker, pair: tuple[Tensor, Tensor], axis: int, factors: Any
) -> tuple[Tensor, Tensor]:
    """The product of one axis with a matrix."""
    order = [i for i in range(pair[0].rank) if i != axis]
    order.append(axis)
    back = sorted(range(len(order)), key=lambda i: order[i])
    re, im = (e.transpose(x, order) for x in pair)
    cosine, sine = (
        e.constant(np.ascontiguousarray(part)) for part in (factors.real, factors.imag)
    )
    found = (
        e.op("sub", e.op("matmul", re, cosine), e.op("matmul", im, sine)),
        e.op("add", e.op("matmul", re, sine), e.op("matmul", im, cosine)),
    )
    return e.transpose(found[0], back), e.transpose(found[1], back)
