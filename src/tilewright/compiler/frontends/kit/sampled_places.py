"""What samples pixels at computed places: positions inside an image, where they lie, weights of neighbours.

Called by front ends whose operators read images at places that are data (grids, moved taps, crops).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.base import dtypes
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.tensor import Tensor

_CUBIC: Final = -0.75


def number_like(e: NodeMaker, value: float, like: Tensor) -> Tensor:
    """A number of the type of another."""
    return e.scalar(value, like.dtype)


def existing(x: Tensor | None) -> Tensor:
    """What a loop that is never empty has made."""
    assert x is not None
    return x


def size_like(e: NodeMaker, size: Dim, like: Tensor, offset: float = 0) -> Tensor:
    """`size + offset` as a float."""
    whole = e.cast(e.dim(size), like.dtype)
    return e.op("add", whole, number_like(e, offset, like)) if offset else whole


def clamped(e: NodeMaker, place: Tensor, size: Dim) -> Tensor:
    """Positions outside of an image moved to its border."""
    return e.op("clip", place, number_like(e, 0, place), size_like(e, size, place, -1))


def lie_inside(e: NodeMaker, places: Sequence[Tensor], sizes: Sequence[Dim]) -> Tensor:
    """Which whole positions lie in the image."""
    inside: Tensor | None = None
    for place, size in zip(places, sizes, strict=True):
        low = e.op("greater_equal", place, number_like(e, 0, place))
        high = e.op("less_equal", place, size_like(e, size, place, -1))
        ok = e.op("logical_and", low, high)
        inside = ok if inside is None else e.op("logical_and", inside, ok)
    return existing(inside)


def flat_index(
    e: NodeMaker,
    places: Sequence[Tensor],
    sizes: Sequence[Dim],
    image: Tensor | None = None,
) -> Tensor:
    """Where pixels at whole positions, those outside moved to the border, lie in an image, or in a row of images."""
    index = image
    for place, size in zip(places, sizes, strict=True):
        whole = e.cast(clamped(e, place, size), dtypes.i64)
        if index is not None:
            whole = e.op("add", e.op("mul", index, e.dim(size)), whole)
        index = whole
    return existing(index)


def _cubic_weights(e: NodeMaker, t: Tensor) -> list[Tensor]:
    """Weights of the four taps around a place with fraction `t`."""

    def polynomial(x: Tensor, coefficients: Sequence[float]) -> Tensor:
        total = number_like(e, coefficients[0], x)
        for c in coefficients[1:]:
            total = e.op("add", e.op("mul", total, x), number_like(e, c, x))
        return total

    a = _CUBIC
    near, far = (a + 2, -(a + 3), 0.0, 1.0), (a, -5 * a, 8 * a, -4 * a)
    one, two = number_like(e, 1, t), number_like(e, 2, t)
    rest = e.op("sub", one, t)
    return [
        polynomial(e.op("add", t, one), far),
        polynomial(t, near),
        polynomial(rest, near),
        polynomial(e.op("sub", two, t), far),
    ]


def neighbours(
    e: NodeMaker, place: Tensor, mode: str
) -> list[tuple[Tensor, Tensor | None]]:
    """Whole positions and weights along one axis."""
    if mode == "nearest":
        return [(e.op("round", place), None)]
    base = e.op("floor", place)
    fraction = e.op("sub", place, base)
    one = number_like(e, 1, place)
    if mode == "linear":
        weights = [e.op("sub", one, fraction), fraction]
        return [(base, weights[0]), (e.op("add", base, one), weights[1])]
    offsets = (-1, 0, 1, 2)
    return [
        (e.op("add", base, number_like(e, o, place)), w)
        for o, w in zip(offsets, _cubic_weights(e, fraction), strict=True)
    ]
