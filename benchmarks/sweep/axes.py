"""One tensor of four axes, taken along each of them: what models do with every axis, and what only some do.

What it is: rows of the op sweep; a form that is slow along one axis stands beside the others.
What it is not: shapes of published models, which the other tables have.
Who calls it: ``catalogue.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations, product
from typing import Final

from sweep.case import Case, single, word
from sweep.network import ints, w, x

SHAPE: Final = (2, 24, 36, 40)
ODD: Final = (3, 17, 29, 31)
"""Sizes that no vector divides."""
AXES: Final = range(len(SHAPE))
REDUCTIONS: Final = ("ReduceSum", "ReduceMax", "ReduceL2")
ALONG: Final = ("Softmax", "LogSoftmax", "ArgMax")


def resized(axis: int, size: int) -> tuple[int, ...]:
    """Return the shape with another size of an axis."""
    return (*SHAPE[:axis], size, *SHAPE[axis + 1 :])


def transpositions() -> Iterator[Case]:
    """Yield every order of the axes but the one that they have."""
    for shape, order in product((SHAPE, ODD), permutations(AXES)):
        if order != tuple(AXES):
            name = f"axes/Transpose {word(shape)} to {word(order)}"
            yield single(name, "Transpose", x(*shape), perm=order)


def broadcasts() -> Iterator[Case]:
    """Yield additions of tensors that lack some of the axes."""
    for lacks in product((False, True), repeat=len(SHAPE)):
        other = tuple(1 if lack else size for size, lack in zip(SHAPE, lacks, strict=True))
        yield single(f"axes/Add {word(SHAPE, other)}", "Add", x(*SHAPE), x(*other))


def along_axes() -> Iterator[Case]:
    """Yield what goes along an axis, for each of them."""
    for shape, axis in product((SHAPE, ODD), AXES):
        place = f"{word(shape)} axis {axis}"
        for kind in REDUCTIONS:
            yield single(f"axes/{kind} {place}", kind, x(*shape), ints(axis))
        for kind in ALONG:
            yield single(f"axes/{kind} {place}", kind, x(*shape), axis=axis)
        yield single(f"axes/CumSum {place}", "CumSum", x(*shape), ints(axis))
        yield single(f"axes/TopK {place}", "TopK", x(*shape), ints(2), outputs=2, axis=axis)


def moved_along_axes() -> Iterator[Case]:
    """Yield what joins, cuts and picks along an axis, for each of them."""
    whole = x(*SHAPE)
    for axis, size in enumerate(SHAPE):
        place, some, row = f"axis {axis}", size // 2, resized(axis, 1)
        spots = x(*resized(axis, some), t="i64", high=size)
        border = ints(*(int(a == axis) for a in (*AXES, *AXES)))
        twice = ints(*(1 + (a == axis) for a in AXES))
        ends = ints(1), ints(size), ints(axis)
        yield single(
            f"axes/Concat {place}", "Concat", whole, x(*resized(axis, 3)), axis=axis
        )
        yield single(
            f"axes/Gather {place}",
            "Gather",
            whole,
            x(some, t="i64", high=size),
            axis=axis,
        )
        yield single(
            f"axes/GatherElements {place}", "GatherElements", whole, spots, axis=axis
        )
        yield single(
            f"axes/ScatterElements {place}",
            "ScatterElements",
            whole,
            x(*row, t="i64", high=size),
            x(*row),
            axis=axis,
        )
        yield single(
            f"axes/Compress {place}", "Compress", whole, x(size, t="bool"), axis=axis
        )
        yield single(f"axes/Pad {place}", "Pad", whole, border)
        yield single(f"axes/Tile {place}", "Tile", whole, twice)
        yield single(f"axes/Slice {place}", "Slice", whole, *ends)
        yield single(
            f"axes/Split {place}", "Split", whole, outputs=2, axis=axis, num_outputs=2
        )


def norms() -> Iterator[Case]:
    """Yield norms over the last axes, from one to three of them."""
    for axis in AXES[1:]:
        sizes = SHAPE[axis:]
        yield single(
            f"axes/LayerNormalization axis {axis}",
            "LayerNormalization",
            x(*SHAPE),
            w(*sizes),
            w(*sizes),
            axis=axis,
        )


def cases() -> Iterator[Case]:
    """Yield all of them."""
    yield from transpositions()
    yield from broadcasts()
    yield from along_axes()
    yield from moved_along_axes()
    yield from norms()
