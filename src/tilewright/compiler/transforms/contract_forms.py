"""The forms of `contract` that kernels are written for: the names of loops, and where operands lie.

Each function makes the attributes of a node for operands of some shapes.  Called by the passes that pack weights;
loops of kernels have these names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast, final

from tilewright.base import symbolic
from tilewright.base.errors import ModelError
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.ops.contract import IndexMaps, axis
from tilewright.compiler.ops.shapes import broadcast_shapes, ints_or, window_count

Shape = Sequence[Dim]
Attributes = dict[str, object]


def product_in_panels(
    left: Shape, panels: Shape, columns: Dim, **others: object
) -> Attributes:
    """[.., M, K] by `columns` columns in panels [.., P, K, panel], leading axes broadcast; rows may be longer than K."""
    batch = broadcast_shapes(tuple(left[:-2]), tuple(panels[:-3]))
    names = tuple(f"b{i}" for i in range(len(batch)))
    maps = IndexMaps(
        axes=(*names, "m", "p", "l"),
        sums=("k",),
        left=(*_aligned(names, batch, left[:-2]), axis("m"), axis("k")),
        right=(*_aligned(names, batch, panels[:-3]), axis("p"), axis("k"), axis("l")),
        result=(*map(axis, names), axis("m"), _column(panels)),
    )
    return {**maps.attributes(), "shape": (*batch, left[-2], columns), **others}


def _column(panels: Shape) -> Dim:
    """Where a lane of a panel lies in the result."""
    panel = panels[-1]
    if not isinstance(panel, int):
        raise ModelError(f"panels of {panel} columns: their width must be a number")
    return panel * axis("p") + axis("l")


def _aligned(names: Sequence[str], batch: Shape, shape: Shape) -> tuple[Dim, ...]:
    """Where an operand with these leading dimensions is read."""
    behind = len(names) - len(shape)
    pairs = zip(names[behind:], batch[behind:], shape, strict=True)
    return tuple(0 if size == 1 != whole else axis(name) for name, whole, size in pairs)


def convolution_in_panels(
    x: Shape,
    panels: Shape,
    columns: Dim,
    window: Window,
    *,
    groups: int = 1,
    **others: object,
) -> Attributes:
    """Padded [N, spatial…, C] by `columns` filters in panels [G, P, kernel…, C/G, panel]."""
    kernel, channel, column = panels[2:-2], cast("Dim", axis("c")), _column(panels)
    if groups > 1:
        channel = cast("int", panels[-2]) * axis("g") + channel
        column = symbolic.floordiv(columns, groups) * axis("g") + column
    outer, taps = _loops(kernel)
    maps = IndexMaps(
        axes=("n", *outer, "g", "p", "l"),
        sums=(*taps, "c"),
        left=(axis("n"), *window.places(outer, taps), channel),
        right=(axis("g"), axis("p"), *map(axis, taps), axis("c"), axis("l")),
        result=(axis("n"), *map(axis, outer), column),
    )
    shape = (x[0], *window.counts(x[1:-1], kernel), columns)
    return {**maps.attributes(), "shape": shape, **others}


def depthwise_convolution(
    x: Shape, w: Shape, window: Window, **others: object
) -> Attributes:
    """Padded [N, spatial…, C], every channel with its own filter of [kernel…, C]."""
    outer, taps = _loops(w[:-1])
    maps = IndexMaps(
        axes=("n", *outer, "c"),
        sums=taps,
        left=(axis("n"), *window.places(outer, taps), axis("c")),
        right=(*map(axis, taps), axis("c")),
        result=(axis("n"), *map(axis, outer), axis("c")),
    )
    shape = (x[0], *window.counts(x[1:-1], w[:-1]), x[-1])
    return {**maps.attributes(), "shape": shape, **others}


def grouped_convolution(x: Shape, w: Shape, window: Window, **others: object) -> Attributes:
    """Padded [N, spatial…, C] by filters [kernel…, C/G, F], those of all groups side by side.

    Lanes run along the filters of several groups: for groups that would each leave lanes empty.
    """
    *kernel, depth, groups, each = w
    outer, taps = _loops(kernel)
    maps = IndexMaps(
        axes=("n", *outer, "g", "v"),
        sums=(*taps, "c"),
        left=(axis("n"), *window.places(outer, taps), depth * axis("g") + axis("c")),
        right=(*map(axis, taps), axis("c"), axis("g"), axis("v")),
        result=(axis("n"), *map(axis, outer), each * axis("g") + axis("v")),
    )
    shape = (x[0], *window.counts(x[1:-1], kernel), groups * each)
    return {**maps.attributes(), "shape": shape, **others}


def convolution_along_line(
    w: Shape, line: Shape, places: Dim, *, steps: Sequence[int], first: int = 0
) -> Attributes:
    """Images laid out on one axis, [N, C, L], with filters [C, kernel…, F] to the left: [N, F, places].

    Lanes run along the places: for convolutions whose filters would leave lanes empty.  A tap reads
    `steps` of its axis behind the place `first` + p.
    """
    _, taps = _loops(steps)
    place: Dim = axis("p") + first
    for tap, step in zip(taps, steps, strict=True):
        place = place + step * axis(tap)
    maps = IndexMaps(
        axes=("n", "f", "p"),
        sums=("c", *taps),
        left=(axis("c"), *map(axis, taps), axis("f")),
        right=(axis("n"), axis("c"), place),
        result=(axis("n"), axis("f"), axis("p")),
    )
    return {**maps.attributes(), "shape": (line[0], w[-1], places)}


def convolution_along_rows(
    w: Shape, planes: Shape, wanted: Shape, dilations: Sequence[int]
) -> Attributes:
    """Padded images as they lie, [N, C, spatial…], with filters [C, kernel…, F] to the left: [N, F, wanted…].

    Lanes run along a row of the image, row by row: for images whose rows have an open length.
    """
    outer, taps = _loops(w[1:-1])
    places = Window(dilations=tuple(dilations)).places(outer, taps)
    maps = IndexMaps(
        axes=("n", *outer[:-1], "f", outer[-1]),
        sums=("c", *taps),
        left=(axis("c"), *map(axis, taps), axis("f")),
        right=(axis("n"), axis("c"), *places),
        result=(axis("n"), axis("f"), *map(axis, outer)),
    )
    return {**maps.attributes(), "shape": (planes[0], w[-1], *wanted)}


@final
@record
class Window:
    """How a filter moves over padded images: a number for each of their axes, or none for 1."""

    strides: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()

    def places(self, outer: Sequence[str], taps: Sequence[str]) -> tuple[Dim, ...]:
        """Where the taps of the window at `outer` read."""
        pairs = zip(outer, taps, *self._steps(len(outer)), strict=True)
        return tuple(
            axis(at) * stride + axis(tap) * apart for at, tap, stride, apart in pairs
        )

    def counts(self, sizes: Shape, kernel: Shape) -> tuple[Dim, ...]:
        """How many windows there are along each axis."""
        windows = zip(sizes, kernel, *self._steps(len(sizes)), strict=True)
        return tuple(window_count(*each, ceil_mode=False, pads=(0, 0)) for each in windows)

    def _steps(self, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return ints_or(self.strides, (1,) * rank), ints_or(self.dilations, (1,) * rank)


def _loops(kernel: Sequence[object]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of loops over places, and over the taps of a filter."""
    rank = len(kernel)
    letters = ("h", "w") if rank == 2 else tuple(f"s{i}" for i in range(rank))
    return tuple("o" + letter for letter in letters), tuple(
        "k" + letter for letter in letters
    )
