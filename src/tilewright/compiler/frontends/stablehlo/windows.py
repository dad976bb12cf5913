"""Rows for convolution and for reductions of windows.

Source: StableHLO specification, "convolution", "reduce_window", "select_and_scatter".
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.stablehlo.call import Call, real
from tilewright.compiler.frontends.stablehlo.held import Complex, Held, on_parts, shape_of
from tilewright.compiler.frontends.stablehlo.indexing import scatter_flat, update_mode
from tilewright.compiler.frontends.stablehlo.movement import pad, reverse, sizes_of
from tilewright.compiler.frontends.stablehlo.reduction import inputs_and_starts, lifted
from tilewright.compiler.frontends.stablehlo.row import Row, row
from tilewright.compiler.frontends.stablehlo.tree import Labels

# Every place of a window is a slice of its own.
MAX_WINDOW: Final = 1024


@final
@dataclass(frozen=True, slots=True)
class _Window:
    """Sizes, strides and dilations along every axis, and how the operand is widened before."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    spread: tuple[int, ...]
    edges: tuple[tuple[int, int], ...]

    def padded(self, e: NodeMaker, x: Tensor, value: Tensor) -> Tensor:
        """The operand with `value` around it and between its elements."""
        return pad(e, x, value, self.edges, self.spread)

    def seen(
        self, e: NodeMaker, x: Tensor, place: Sequence[int], shape: Sequence[int]
    ) -> Tensor:
        """What one place of every window sees of a padded operand."""
        for axis, index in enumerate(place):
            start = index * self.dilations[axis]
            x = e.slice(x, axis, start, shape[axis], self.strides[axis])
        return x

    def places(self) -> Iterator[tuple[int, ...]]:
        """Every place of the window, in order."""
        return itertools.product(*map(range, self.sizes))


def _window(call: Call, sizes: Sequence[int], shape: Sequence[int]) -> _Window:
    """The window of an operation that gives `shape` (takes it, as a source) of an operand of `sizes`.

    Raises: ModelError if that does not fit; UnsupportedError for one of too many places.
    """
    rank = len(sizes)
    ones = (1,) * rank
    found = _Window(
        call.integers("window_dimensions", ones),
        call.integers("window_strides", ones),
        call.integers("window_dilations", ones),
        tuple(n - 1 for n in call.integers("base_dilations", ones)),
        call.pairs("padding", rank),
    )
    each = (found.sizes, found.strides, found.dilations, found.spread, found.edges, shape)
    if any(len(part) != rank for part in each) or min((1, *found.strides)) < 1:
        raise ModelError(f"the window does not fit {rank} dimensions")
    if math.prod(found.sizes) > MAX_WINDOW:
        raise UnsupportedError(
            f"a window of {math.prod(found.sizes)} places is not supported"
        )
    for axis in range(rank):
        size = sizes[axis] + max(sizes[axis] - 1, 0) * found.spread[axis]
        room = (
            size + sum(found.edges[axis]) - (found.sizes[axis] - 1) * found.dilations[axis]
        )
        if max(0, (room - 1) // found.strides[axis] + 1) != shape[axis]:
            raise ModelError(
                f"dimension {axis} of the window does not fit {shape[axis]} windows"
            )
    return found


def _reduce_window(call: Call) -> list[Held]:
    """The slices of what each place of the window sees, combined by the region."""
    inputs, starts = inputs_and_starts(call)
    e, shape = call.maker, call.shape()
    window = _window(call, shape_of(inputs[0]), shape)
    total = [on_parts(lambda x: e.broadcast_to(x, shape), start) for start in starts]
    if 0 in shape:
        return total
    padded = [_padded(e, window, x, s) for x, s in zip(inputs, starts, strict=True)]
    for place in window.places():
        seen = [_seen(e, window, x, place, shape) for x in padded]
        total = lifted(call, [*total, *seen])
    return total


def _padded(e: NodeMaker, window: _Window, x: Held, start: Held) -> Held:
    if isinstance(x, Complex) and isinstance(start, Complex):
        return Complex(
            window.padded(e, x.real, start.real),
            window.padded(e, x.imaginary, start.imaginary),
        )
    return window.padded(e, real(x), real(start))


def _seen(
    e: NodeMaker, window: _Window, x: Held, place: Sequence[int], shape: Sequence[int]
) -> Held:
    return on_parts(lambda tensor: window.seen(e, tensor, place, shape), x)


def _select_and_scatter(call: Call) -> Tensor:
    """Every window finds the offset of the element that it selects; the sources are scattered there.

    Padding is never selected: its offset is that of one more element, which is dropped.
    """
    e, x, source, start = call.maker, call.tensor(0), call.tensor(1), call.tensor(2)
    shape, count = sizes_of(source), math.prod(sizes_of(x))
    mode = update_mode(call.region(1), x.dtype)
    window = _window(call, sizes_of(x), shape)
    if 0 in shape or not count:
        return e.broadcast_to(start, x.shape)
    nothing = e.scalar(count, dtypes.i64)
    values = window.padded(e, x, start)
    offsets = e.constant(np.arange(count).reshape(sizes_of(x)))
    offsets = window.padded(e, offsets, nothing)
    value = e.broadcast_to(start, shape)
    found = e.broadcast_to(nothing, shape)
    for place in window.places():
        candidate = window.seen(e, values, place, shape)
        there = window.seen(e, offsets, place, shape)
        stays = real(lifted(call, [value, candidate])[0])
        stays = e.op("logical_and", stays, e.op("not_equal", found, nothing))
        stays = e.op("logical_or", stays, e.op("equal", there, nothing))
        value = e.op("where", stays, value, candidate)
        found = e.op("where", stays, found, there)
    flat = scatter_flat(e, e.broadcast_to(start, (count,)), found, source, mode)
    return e.reshape(flat, x.shape)


def _placed(
    call: Call, x: Tensor, labels: Sequence[str], first: str, second: str
) -> Tensor:
    """The axes in the order: two by letter, then those of space."""
    if len(labels) != x.rank or first not in labels or second not in labels:
        raise ModelError(f"dimension labels {list(labels)} do not fit {x.type}")
    space = sorted((label for label in labels if label.isdigit()), key=int)
    order = [labels.index(label) for label in (first, second, *space)]
    if sorted(order) != list(range(x.rank)):
        raise ModelError(f"dimension labels {list(labels)} do not fit {x.type}")
    return call.maker.transpose(x, order)


def _convolution(call: Call) -> Held:
    space = len(shape_of(call.held(0))) - 2
    return convolution(call, call.pairs("padding", max(space, 0)))


def convolution(call: Call, padding: Sequence[tuple[int, int]]) -> Held:
    """A convolution whose operand has `padding` around it."""
    left, right = call.held(0), call.held(1)
    if not (isinstance(left, Complex) and isinstance(right, Complex)):
        return _convolved(call, real(left), real(right), padding)
    e = call.maker

    def part(x: Tensor, kernel: Tensor) -> Tensor:
        return _convolved(call, x, kernel, padding)

    return Complex(
        e.op("sub", part(left.real, right.real), part(left.imaginary, right.imaginary)),
        e.op("add", part(left.real, right.imaginary), part(left.imaginary, right.real)),
    )


def _convolved(
    call: Call, x: Tensor, kernel: Tensor, padding: Sequence[tuple[int, int]]
) -> Tensor:
    e, dtype = call.maker, call.dtype()
    labels = call.attribute("dimension_numbers")
    if not isinstance(labels, Labels):
        raise ModelError("attribute 'dimension_numbers' is missing")
    space = x.rank - 2
    if dtype.is_bool:
        raise UnsupportedError("a convolution of truth values is not supported")
    ones = (1,) * space
    strides = call.integers("window_strides", ones)
    spread = [0, 0, *(n - 1 for n in call.integers("lhs_dilation", ones))]
    dilations = call.integers("rhs_dilation", ones)
    edges = [(0, 0), (0, 0), *padding]
    flips = call.flags("window_reversal", space)
    groups = call.integer("feature_group_count", 1)
    batches = call.integer("batch_group_count", 1)
    x = e.cast(_placed(call, x, labels.input, "b", "f"), dtype)
    kernel = e.cast(_placed(call, kernel, labels.kernel, "o", "i"), dtype)
    for axis, flip in enumerate(flips):
        kernel = reverse(e, kernel, axis + 2) if flip else kernel
    x = pad(e, x, e.scalar(0, dtype), edges, spread)
    if batches > 1:
        x = _batches_as_features(call, x, batches)
    if 0 in call.shape() or 0 in sizes_of(x) or 0 in sizes_of(kernel):
        return e.full(0, dtype, call.shape())
    if not space:
        x, kernel = e.unsqueeze(x, (2,)), e.unsqueeze(kernel, (2,))
        strides = dilations = (1,)
    found = e.op(
        "conv", x, kernel, strides=strides, dilations=dilations, groups=max(groups, batches)
    )
    found = found if space else e.squeeze(found, (2,))
    order = [
        {"b": 0, "f": 1}.get(label, 2 + int(label) if label.isdigit() else 0)
        for label in labels.output
    ]
    return e.transpose(found, order)


def _batches_as_features(call: Call, x: Tensor, batches: int) -> Tensor:
    """Groups of the batch as groups of features: each sees kernels of its own."""
    sizes = sizes_of(x)
    if sizes[0] % batches:
        raise ModelError(f"a batch of {sizes[0]} is not {batches} groups")
    e, each = call.maker, sizes[0] // batches
    apart = e.reshape(x, (batches, each, *sizes[1:]))
    order = [1, 0, *range(2, apart.rank)]
    return e.reshape(e.transpose(apart, order), (each, batches * sizes[1], *sizes[2:]))


ROWS: Final[tuple[Row, ...]] = (
    row("convolution", _convolution, ignores=("precision_config",)),
    row("reduce_window", _reduce_window),
    row("select_and_scatter", _select_and_scatter),
)
