"""Rows for operations that move elements: reshape, broadcast, slice, pad, concatenate, reverse.

Source: StableHLO specification, per operation in the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim, ceildiv, maximum, minimum
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.stablehlo.assumed_sizes import (
    assumed_equal,
    assumed_inside,
)
from tilewright.compiler.frontends.stablehlo.call import Call
from tilewright.compiler.frontends.stablehlo.demands import (
    ANY,
    SAME_SHAPE,
    axes,
    elements,
    gives,
    keeps,
    rank,
    takes,
    takes_some,
)
from tilewright.compiler.frontends.stablehlo.held import Complex, Held, dims_of, shape_of
from tilewright.compiler.frontends.stablehlo.quantized_demands import (
    axis_is_broadcast,
    axis_is_moved,
    axis_is_reshaped,
)
from tilewright.compiler.frontends.stablehlo.row import Row, row
from tilewright.compiler.frontends.stablehlo.tree import ComplexType, TensorType


def sizes_of(x: Tensor) -> tuple[int, ...]:
    """The sizes of a tensor, all of which are numbers."""
    return shape_of(x)


def _reshape(call: Call) -> Tensor:
    return call.maker.reshape(call.tensor(0), call.shape())


def _transpose(call: Call) -> Tensor:
    x, order = call.tensor(0), call.integers("permutation")
    if sorted(order) != list(range(x.rank)):
        raise ModelError(f"permutation {list(order)} does not fit {x.type}")
    return call.maker.transpose(x, order)


def broadcast_in(
    e: NodeMaker, x: Tensor, axes: Sequence[int], shape: Sequence[Dim]
) -> Tensor:
    """`x` whose axes are the `axes` of the result, repeated along the others.

    Raises: ModelError for axes that do not fit.
    """
    sizes = x.shape
    if len(axes) != x.rank or len(set(axes)) != x.rank:
        raise ModelError(f"dimensions {list(axes)} do not fit {x.type}")
    if any(not 0 <= axis < len(shape) for axis in axes):
        raise ModelError(f"dimensions {list(axes)} do not fit {len(shape)} dimensions")
    pairs = [(size, shape[axis]) for size, axis in zip(sizes, axes, strict=True)]
    if not all(size == 1 or assumed_equal(e, size, wide) for size, wide in pairs):
        raise ModelError(f"{x.type} does not broadcast to {list(shape)} by {list(axes)}")
    order = sorted(range(x.rank), key=lambda i: axes[i])
    placed = e.transpose(x, order)
    wide: list[Dim] = [1] * len(shape)
    for axis in order:
        # As long as the result, unless it is repeated: they are one size from here on.
        wide[axes[axis]] = 1 if sizes[axis] == 1 else shape[axes[axis]]
    return e.broadcast_to(e.reshape(placed, wide), shape)


def _broadcast_in_dim(call: Call) -> Tensor:
    axes = call.integers("broadcast_dimensions")
    return broadcast_in(call.maker, call.tensor(0), axes, call.shape())


def _slice(call: Call) -> Tensor:
    x = call.tensor(0)
    starts, limits = call.integers("start_indices"), call.integers("limit_indices")
    steps = call.integers("strides", (1,) * x.rank)
    return sliced(call.maker, x, starts, limits, steps)


def sliced(
    e: NodeMaker,
    x: Tensor,
    starts: Sequence[Dim],
    limits: Sequence[Dim],
    steps: Sequence[int],
) -> Tensor:
    """Every `step`-th element from a start up to a limit, along every axis.

    Raises: ModelError for a range that does not lie inside.
    """
    if not len(starts) == len(limits) == len(steps) == x.rank:
        raise ModelError(f"the range of a slice does not fit {x.type}")
    for axis, (start, limit, step) in enumerate(zip(starts, limits, steps, strict=True)):
        size = x.shape[axis]
        ordered = all(assumed_inside(e, *p) for p in ((0, start), (start, limit)))
        if not (ordered and step > 0 and assumed_inside(e, limit, size)):
            raise ModelError(f"range {start}:{limit}:{step} does not fit a size of {size}")
        x = e.slice(x, axis, start, ceildiv(limit - start, step), step)
    return x


def pad(
    e: NodeMaker,
    x: Tensor,
    value: Tensor,
    edges: Sequence[tuple[Dim, Dim]],
    interior: Sequence[Dim] = (),
) -> Tensor:
    """`x` with `value` around it and between its elements; a negative edge takes elements away."""
    for axis, gap in enumerate(interior):
        x = _spread(e, x, value, axis, gap)
    low, high = zip(*edges, strict=True) if edges else ((), ())
    amounts = [maximum(n, 0) for n in (*low, *high)]
    if any(n != 0 for n in amounts):
        x = e.op("pad", x, value, pads=tuple(amounts))
    for axis, (first, last) in enumerate(edges):
        size = x.shape[axis] + minimum(first, 0) + minimum(last, 0)
        x = e.slice(x, axis, maximum(0 - first, 0), maximum(size, 0))
    return x


def checked_pad(
    e: NodeMaker,
    x: Tensor,
    value: Tensor,
    edges: Sequence[tuple[Dim, Dim]],
    interior: Sequence[Dim],
) -> Tensor:
    """As `pad`, where edges may not take away more than there is.

    Raises: ModelError where that is known to be so; else a call with such edges fails.
    """
    for size, gap, (low, high) in zip(x.shape, interior, edges, strict=True):
        left = size + maximum(size - 1, 0) * gap + low + high
        if not assumed_inside(e, 0, left):
            raise ModelError(f"the padding takes {low} and {high} from {size} elements")
    return pad(e, x, value, edges, interior)


def _spread(e: NodeMaker, x: Tensor, value: Tensor, axis: int, gap: Dim) -> Tensor:
    """`gap` times the value between neighbours of one axis."""
    sizes = x.shape
    if isinstance(gap, int) and gap < 0:
        raise ModelError(f"interior padding is {gap}, expected 0 or more")
    if gap == 0 or sizes[axis] in (0, 1):
        return x
    wide = e.unsqueeze(x, (axis + 1,))
    amounts: list[Dim] = [0] * (2 * wide.rank)
    amounts[wide.rank + axis + 1] = gap
    wide = e.op("pad", wide, value, pads=tuple(amounts))
    merged = [*sizes[:axis], sizes[axis] * (gap + 1), *sizes[axis + 1 :]]
    return e.slice(e.reshape(wide, merged), axis, 0, merged[axis] - gap)


def _pad(call: Call) -> Tensor:
    x, value = call.tensor(0), call.tensor(1)
    low, high = call.integers("edge_padding_low"), call.integers("edge_padding_high")
    interior = call.integers("interior_padding", (0,) * x.rank)
    if not len(low) == len(high) == len(interior) == x.rank:
        raise ModelError(f"the padding does not fit {x.type}")
    return checked_pad(call.maker, x, value, list(zip(low, high, strict=True)), interior)


def _concatenate(call: Call) -> Tensor:
    axis, first = call.integer("dimension"), call.tensor(0)
    if not 0 <= axis < first.rank:
        raise ModelError(
            f"dimension {axis} does not fit {first.type}, expected 0 to {first.rank - 1}"
        )
    return call.maker.concat(call.tensors(), axis)


def reverse(e: NodeMaker, x: Tensor, axis: int) -> Tensor:
    """One axis from its end."""
    size = x.shape[axis]
    if size in (0, 1):
        return x
    last = e.dim(size - 1)
    return e.op("gather", x, e.op("sub", last, e.iota((size,), 0)), axis=axis)


def _reverse(call: Call) -> Tensor:
    x = call.tensor(0)
    for axis in call.integers("dimensions"):
        if not 0 <= axis < x.rank:
            raise ModelError(f"dimension {axis} does not fit {x.type}")
        x = reverse(call.maker, x, axis)
    return x


def _iota(call: Call) -> Held:
    return iota(call, call.shape())


def iota(call: Call, shape: Sequence[Dim]) -> Held:
    """The index along one axis, in the element type of the result."""
    e, dtype = call.maker, call.dtype()
    axis = call.integer("iota_dimension")
    if not 0 <= axis < len(shape):
        raise ModelError(f"dimension {axis} does not fit {len(shape)} dimensions")
    found = e.cast(e.iota(shape, axis), dtype)
    result = call.operation.results[0].type
    if isinstance(result, TensorType) and isinstance(result.element, ComplexType):
        return Complex(found, e.full(0, dtype, shape))
    return found


def _get_dimension_size(call: Call) -> Tensor:
    shape, axis, e = dims_of(call.held(0)), call.integer("dimension"), call.maker
    if not 0 <= axis < len(shape):
        raise ModelError(f"dimension {axis} does not fit {len(shape)} dimensions")
    return e.cast(e.dim(shape[axis]), call.dtype())


ROWS: Final[tuple[Row, ...]] = (
    row(
        "broadcast_in_dim",
        _broadcast_in_dim,
        by_parts=True,
        keeps=True,
        demands=(takes(1), keeps(turns=True), axis_is_broadcast),
    ),
    row(
        "concatenate",
        _concatenate,
        by_parts=True,
        keeps=True,
        demands=(takes_some(), elements(ANY), keeps()),
    ),
    row("get_dimension_size", _get_dimension_size, demands=(takes(1), gives("s"))),
    row("iota", _iota, demands=(takes(0), gives("sufcq"))),
    row(
        "pad",
        _pad,
        by_parts=True,
        keeps=True,
        demands=(takes(2), elements(ANY), keeps(), rank(0, 1)),
    ),
    row(
        "reshape",
        _reshape,
        by_parts=True,
        keeps=True,
        demands=(takes(1), keeps(turns=True), axis_is_reshaped),
    ),
    row(
        "reverse",
        _reverse,
        by_parts=True,
        keeps=True,
        demands=(takes(1), elements(ANY), keeps(), SAME_SHAPE, axes("dimensions")),
    ),
    row(
        "slice",
        _slice,
        by_parts=True,
        keeps=True,
        demands=(takes(1), elements(ANY), keeps()),
    ),
    row(
        "transpose",
        _transpose,
        by_parts=True,
        keeps=True,
        demands=(takes(1), keeps(turns=True), axis_is_moved),
    ),
)
