"""Rows for convolution and for reductions of windows.

Source: StableHLO specification, "convolution", "reduce_window", "select_and_scatter".
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, final

from tilewright.base import dtypes
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim, maximum
from tilewright.compiler.frontends.kit import control
from tilewright.compiler.frontends.kit.complex_parts import product
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.stablehlo.assumed_sizes import assumed_equal
from tilewright.compiler.frontends.stablehlo.attribute_demands import (
    precision,
    window,
)
from tilewright.compiler.frontends.stablehlo.call import Call, real
from tilewright.compiler.frontends.stablehlo.contraction import summed_in
from tilewright.compiler.frontends.stablehlo.demands import (
    ANY,
    elements,
    one_element,
    one_shape,
    rank,
    takes,
    takes_some,
)
from tilewright.compiler.frontends.stablehlo.held import (
    Complex,
    Held,
    dims_of,
    flattened,
    on_parts,
    restored,
)
from tilewright.compiler.frontends.stablehlo.movement import pad, reverse
from tilewright.compiler.frontends.stablehlo.quantized_demands import (
    kernel_fits,
)
from tilewright.compiler.frontends.stablehlo.reduction import (
    inputs_and_starts,
    lifted,
    promoted,
)
from tilewright.compiler.frontends.stablehlo.region_demands import (
    combines,
    elements_of,
    region,
    starts_fit,
)
from tilewright.compiler.frontends.stablehlo.regions import combination
from tilewright.compiler.frontends.stablehlo.row import Row, row
from tilewright.compiler.frontends.stablehlo.scattering import scatter_flat
from tilewright.compiler.frontends.stablehlo.tree import Labels, Region
from tilewright.compiler.ops.shapes import element_count

# Every place of a window that selects is a slice of its own.
MAX_SELECTING: Final = 1024
# So many slices are one kernel, which combines them in the order of the reference interpreter; more are
# combined in rounds.
_FEW_PLACES: Final = 64
_RUNNING: Final = {"add": "cumsum", "mul": "cumprod"}


@final
@dataclass(frozen=True, slots=True)
class Window:
    """Sizes, strides and dilations along every axis, and how the operand is widened before."""

    sizes: tuple[Dim, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    spread: tuple[int, ...]
    edges: tuple[tuple[Dim, Dim], ...]

    def __post_init__(self) -> None:
        """Raise ModelError for parts that are of different ranks, or windows of nothing."""
        each = (self.strides, self.dilations, self.spread, self.edges)
        least = min((1, *self.strides, *self.dilations))
        empty = any(isinstance(n, int) and n < 1 for n in self.sizes)
        if any(len(part) != len(self.sizes) for part in each) or least < 1 or empty:
            raise ModelError(f"the window does not fit {len(self.sizes)} dimensions")

    def counts(self, dims: Sequence[Dim]) -> tuple[Dim, ...]:
        """How many windows an operand of `dims` has along every axis.  Raises: ModelError for another rank."""
        if len(dims) != len(self.sizes):
            raise ModelError(f"the window does not fit {len(dims)} dimensions")
        return tuple(self._count(axis, size) for axis, size in enumerate(dims))

    def _count(self, axis: int, size: Dim) -> Dim:
        low, high = self.edges[axis]
        wide = size + maximum(size - 1, 0) * self.spread[axis] + low + high
        room = wide - (self.sizes[axis] - 1) * self.dilations[axis]
        return maximum(0, (room - 1) // self.strides[axis] + 1)

    def padded(self, e: NodeMaker, x: Tensor, value: Tensor) -> Tensor:
        """The operand with `value` around it and between its elements."""
        return pad(e, x, value, self.edges, self.spread)

    def seen(
        self, e: NodeMaker, x: Tensor, place: Sequence[int], shape: Sequence[Dim]
    ) -> Tensor:
        """What one place of every window sees of a padded operand."""
        for axis, index in enumerate(place):
            start = index * self.dilations[axis]
            x = e.slice(x, axis, start, shape[axis], self.strides[axis])
        return x

    @property
    def places(self) -> int | None:
        """How many places it has; None where a call decides."""
        found = element_count(self.sizes)
        return found if isinstance(found, int) else None

    def each_place(self) -> Iterator[tuple[int, ...]]:
        """Every place of a window of known sizes, in order."""
        return itertools.product(*(range(n) for n in self.sizes if isinstance(n, int)))


def _window(call: Call, rank: int) -> Window:
    """The window that the attributes of an operation describe."""
    ones = (1,) * rank
    return Window(
        call.integers("window_dimensions", ones),
        call.integers("window_strides", ones),
        call.integers("window_dilations", ones),
        tuple(n - 1 for n in call.integers("base_dilations", ones)),
        call.pairs("padding", rank),
    )


def _reduce_window(call: Call) -> list[Held]:
    window = _window(call, len(dims_of(call.held(0))))
    return reduced_windows(call, window, call.region(0))


def reduced_windows(call: Call, window: Window, region: Region) -> list[Held]:
    """The elements of every window combined by a region, whose order the specification leaves open."""
    inputs, starts = inputs_and_starts(call, region)
    e, dims = call.maker, dims_of(inputs[0])
    shape = window.counts(dims)
    total = [on_parts(lambda x: e.broadcast_to(x, shape), start) for start in starts]
    if 0 in shape:
        return total
    if window.places is not None and window.places <= _FEW_PLACES:
        found = [_padded(e, window, x, s) for x, s in zip(inputs, starts, strict=True)]
        for place in window.each_place():
            seen = [_seen(e, window, x, place, shape) for x in found]
            total = lifted(call, [*total, *seen], region)
        return total
    running = _running(e, inputs, dims, window, region)
    if running is not None:
        return lifted(call, [*total, running], region)
    found = [_padded(e, window, x, s) for x, s in zip(inputs, starts, strict=True)]
    for axis, size in enumerate(window.sizes):
        combine = _along if isinstance(size, int) else _along_open
        found = combine(call, window, found, axis, shape[axis], region)
    return lifted(call, [*total, *found], region)


def _running(
    e: NodeMaker,
    inputs: Sequence[Held],
    dims: Sequence[Dim],
    window: Window,
    region: Region,
) -> Held | None:
    """Windows that each hold all elements up to theirs, or from theirs on, where their sum or product is an op."""
    op = _RUNNING.get(combination(region))
    plain = {*window.strides, *window.dilations} == {1} and not any(window.spread)
    long = [axis for axis, size in enumerate(window.sizes) if size != 1]
    held = inputs[0]
    if op is None or not plain or len(long) != 1 or not isinstance(held, Tensor):
        return None
    (axis,) = long
    size = window.sizes[axis]
    rest = [edges for other, edges in enumerate(window.edges) if other != axis]
    is_whole = size == dims[axis] and all(edges == (0, 0) for edges in rest)
    if not is_whole or held.dtype.is_bool or len(inputs) > 1:
        return None
    if window.edges[axis] == (size - 1, 0):
        return e.op(op, held, axis=axis)
    if window.edges[axis] == (0, size - 1):
        return e.op(op, held, axis=axis, reverse=True)
    return None


def _along(
    call: Call,
    window: Window,
    held: Sequence[Held],
    axis: int,
    count: Dim,
    region: Region,
) -> list[Held]:
    """Windows along one axis: those of twice the size are two of them side by side, and a size is a sum of such."""
    e, size, step = call.maker, window.sizes[axis], window.dilations[axis]
    assert isinstance(size, int), "asked for by `places`"

    def cut(parts: Sequence[Held], start: int, length: Dim, stride: int = 1) -> list[Held]:
        return [
            on_parts(lambda x: e.slice(x, axis, start, length, stride), h) for h in parts
        ]

    def beside(left: Sequence[Held], right: Sequence[Held], distance: int) -> list[Held]:
        """What begins at every place, and `distance` places further on."""
        length = dims_of(right[0])[axis] - distance
        return lifted(call, [*cut(left, 0, length), *cut(right, distance, length)], region)

    power, have = list(held), 1
    found: list[Held] | None = None
    done = 0
    while done < size:
        if size & have:
            found = power if found is None else beside(found, power, done * step)
            done += have
        if done < size:
            power, have = beside(power, power, have * step), 2 * have
    assert found is not None, "a window has a place"
    return cut(found, 0, count, window.strides[axis])


def _along_open(
    call: Call,
    window: Window,
    held: Sequence[Held],
    axis: int,
    count: Dim,
    region: Region,
) -> list[Held]:
    """As `_along`, of a size that a call decides: a loop over the powers of two that it is a sum of."""
    e, step = call.maker, window.dilations[axis]
    size = e.dim(window.sizes[axis])
    zero, one, two = (e.scalar(n, dtypes.i64) for n in (0, 1, 2))
    forms, number = list(held), len(flattened(held))
    last = e.dim(dims_of(held[0])[axis] - 1)
    line = e.iota((dims_of(held[0])[axis],), 0)

    def beside(
        left: Sequence[Tensor], right: Sequence[Tensor], distance: Tensor
    ) -> list[Tensor]:
        """What begins at every place, and `distance` places further on; nobody reads what would lie behind the end."""
        moved = e.op("add", line, e.op("mul", distance, e.scalar(step, dtypes.i64)))
        places = e.op("min", moved, last)
        further = [e.op("gather", x, places, axis=axis) for x in right]
        pair = [*restored(forms, left), *restored(forms, further)]
        return flattened(lifted(call, pair, region))

    def go_on(state: list[Tensor]) -> Tensor:
        return e.op("less_equal", state[0], size)

    def trip(state: list[Tensor]) -> list[Tensor]:
        have, done, *parts = state
        power, found = parts[:number], parts[number:]
        taken = e.op("equal", e.op("mod", e.op("div", size, have), two), one)
        is_first = e.op("equal", done, zero)
        longer = beside(found, power, done)
        chosen = [
            e.op("where", taken, e.op("where", is_first, x, y), z)
            for x, y, z in zip(power, longer, found, strict=True)
        ]
        counted = e.op("where", taken, e.op("add", done, have), done)
        doubled = beside(power, power, have)
        return [e.op("mul", have, two), counted, *doubled, *chosen]

    tensors = flattened(held)
    state = control.loop(e, [one, zero, *tensors, *tensors], go_on, trip)
    found = restored(forms, state[2 + number :])
    stride = window.strides[axis]
    return [on_parts(lambda x: e.slice(x, axis, 0, count, stride), h) for h in found]


def _padded(e: NodeMaker, window: Window, x: Held, start: Held) -> Held:
    if isinstance(x, Complex) and isinstance(start, Complex):
        return Complex(
            window.padded(e, x.real, start.real),
            window.padded(e, x.imaginary, start.imaginary),
        )
    return window.padded(e, real(x), real(start))


def _seen(
    e: NodeMaker, window: Window, x: Held, place: Sequence[int], shape: Sequence[Dim]
) -> Held:
    return on_parts(lambda tensor: window.seen(e, tensor, place, shape), x)


def _select_and_scatter(call: Call) -> Tensor:
    """Every window finds the offset of the element that it selects; the sources are scattered there.

    Padding is never selected: its offset is that of one more element, which is dropped.
    """
    e, x, source, start = call.maker, call.tensor(0), call.tensor(1), call.tensor(2)
    window, count = _window(call, x.rank), element_count(x.shape)
    shape = window.counts(x.shape)
    if len(shape) != source.rank or not all(
        assumed_equal(e, *pair) for pair in zip(shape, source.shape, strict=True)
    ):
        raise ModelError(f"the window of {x.type} does not fit {source.type}")
    if 0 in shape or count == 0:
        (start,) = promoted(call, [start], call.region(1))
        return e.broadcast_to(real(start), x.shape)
    if window.places is None or window.places > MAX_SELECTING:
        raise UnsupportedError(f"a window of {window.places} places is not supported")
    nothing = e.dim(count)
    values = window.padded(e, x, start)
    offsets = e.reshape(e.iota((count,), 0), x.shape)
    offsets = window.padded(e, offsets, nothing)
    value = e.broadcast_to(start, shape)
    found = e.broadcast_to(nothing, shape)
    for place in window.each_place():
        candidate = window.seen(e, values, place, shape)
        there = window.seen(e, offsets, place, shape)
        stays = real(lifted(call, [value, candidate])[0])
        stays = e.op("logical_and", stays, e.op("not_equal", found, nothing))
        stays = e.op("logical_or", stays, e.op("equal", there, nothing))
        value = e.op("where", stays, value, candidate)
        found = e.op("where", stays, found, there)
    start, source = promoted(call, [start, source], call.region(1))
    begin = on_parts(lambda x: e.broadcast_to(x, (count,)), start)
    (flat,) = scatter_flat(call, call.region(1), [begin], found, [source])
    return e.reshape(real(flat), x.shape)


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
    space = len(dims_of(call.held(0))) - 2
    return convolution(call, call.pairs("padding", max(space, 0)))


def convolution(call: Call, padding: Sequence[tuple[Dim, Dim]]) -> Held:
    """A convolution whose operand has `padding` around it."""
    left, right = call.held(0), call.held(1)
    if not (isinstance(left, Complex) and isinstance(right, Complex)):
        return _convolved(call, real(left), real(right), padding)

    def part(x: Tensor, kernel: Tensor) -> Tensor:
        return _convolved(call, x, kernel, padding)

    return product(call.maker, left, right, part)


def _convolved(
    call: Call, x: Tensor, kernel: Tensor, padding: Sequence[tuple[Dim, Dim]]
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
    edges: list[tuple[Dim, Dim]] = [(0, 0), (0, 0), *padding]
    flips = call.flags("window_reversal", space)
    groups = call.integer("feature_group_count", 1)
    batches = call.integer("batch_group_count", 1)
    own = summed_in(dtype, x, kernel)
    x = e.cast(_placed(call, x, labels.input, "b", "f"), own)
    kernel = e.cast(_placed(call, kernel, labels.kernel, "o", "i"), own)
    for axis, flip in enumerate(flips):
        kernel = reverse(e, kernel, axis + 2) if flip else kernel
    x = pad(e, x, e.scalar(0, own), edges, spread)
    if batches > 1:
        x = _batches_as_features(call, x, batches)
    if call.is_empty or 0 in x.shape or 0 in kernel.shape:
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
    return e.transpose(e.cast(found, dtype), order)


def _batches_as_features(call: Call, x: Tensor, batches: int) -> Tensor:
    """Groups of the batch as groups of features: each sees kernels of its own."""
    sizes = x.shape
    if isinstance(sizes[0], int) and sizes[0] % batches:
        raise ModelError(f"a batch of {sizes[0]} is not {batches} groups")
    e, each = call.maker, sizes[0] // batches
    apart = e.reshape(x, (batches, each, *sizes[1:]))
    order = [1, 0, *range(2, apart.rank)]
    return e.reshape(e.transpose(apart, order), (each, batches * sizes[1], *sizes[2:]))


def _selects(call: Call) -> None:
    """The first region chooses between two elements."""
    region(0, lambda c: elements_of(c)[:1] * 2, "i1")(call)


ROWS: Final[tuple[Row, ...]] = (
    row(
        "convolution",
        _convolution,
        demands=(takes(2), kernel_fits, window, precision),
    ),
    row(
        "reduce_window",
        _reduce_window,
        demands=(takes_some(2, 1), elements(ANY), starts_fit, combines(starts=True)),
    ),
    row(
        "select_and_scatter",
        _select_and_scatter,
        demands=(
            takes(3, 1, 2),
            elements(ANY),
            one_element(results=False),
            one_shape(0),
            rank(0, 2),
            _selects,
            combines(1, count=1),
        ),
    ),
)
