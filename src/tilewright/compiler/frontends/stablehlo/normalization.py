"""Rows for batch normalization and for operations that newer modules write otherwise.

Source: StableHLO specification, "batch_norm_grad", "batch_norm_inference", "batch_norm_training", "broadcast", "torch_index_select".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.kit.wide import Wide
from tilewright.compiler.frontends.stablehlo.call import Call
from tilewright.compiler.frontends.stablehlo.demands import (
    ANY,
    elements,
    keeps,
    one_element,
    one_shape,
    rank,
    takes,
)
from tilewright.compiler.frontends.stablehlo.held import Held, dims_of, on_parts
from tilewright.compiler.frontends.stablehlo.indexing import indices_of
from tilewright.compiler.frontends.stablehlo.movement import broadcast_in, sizes_of
from tilewright.compiler.frontends.stablehlo.row import Row, row
from tilewright.compiler.frontends.stablehlo.tree import Number


def _epsilon(call: Call) -> float:
    found = call.attribute("epsilon")
    if not isinstance(found, Number):
        raise ModelError("attribute 'epsilon' is no number")
    return float(found.value)


def _feature(call: Call, x: Tensor) -> int:
    axis = call.integer("feature_index")
    if not 0 <= axis < x.rank:
        raise ModelError(f"feature_index {axis} does not fit {x.type}")
    return axis


def _wide(call: Call, x: Tensor, axis: int, shape: Sequence[Dim]) -> Wide:
    """A vector of features beside every element."""
    return Wide.of(call.maker, broadcast_in(call.maker, x, (axis,), shape))


def _normalized(call: Call, x: Tensor, vectors: Sequence[Tensor], axis: int) -> Tensor:
    scale, offset, mean, variance = (_wide(call, v, axis, x.shape) for v in vectors)
    centred = Wide.of(call.maker, x) - mean
    deviation = (variance + _epsilon(call)).apply("sqrt")
    return (centred / deviation * scale + offset).rounded(x.dtype)


def _inference(call: Call) -> Tensor:
    x = call.tensor(0)
    return _normalized(call, x, [call.tensor(i) for i in (1, 2, 3, 4)], _feature(call, x))


def _training(call: Call) -> list[Tensor]:
    e, x = call.maker, call.tensor(0)
    axis, sizes = _feature(call, x), sizes_of(x)
    others = tuple(i for i in range(x.rank) if i != axis)
    count = math.prod(sizes[i] for i in others)
    if not count:
        raise UnsupportedError("the mean of nothing is not supported")
    wide = Wide.of(e, x)

    def mean_of(value: Wide) -> Tensor:
        total = e.op("reduce_sum", value.tensor, axes=others, keepdims=False)
        return (Wide(e, total) / float(count)).tensor

    mean = mean_of(wide)
    centred = wide - _wide(call, mean, axis, sizes)
    variance = mean_of(centred * centred)
    vectors = [call.tensor(1), call.tensor(2), mean, variance]
    found = _normalized(call, x, vectors, axis)
    return [found, e.cast(mean, x.dtype), e.cast(variance, x.dtype)]


def _gradient(call: Call) -> list[Tensor]:
    """What a loss changes by with the operand, the scale and the offset of a normalization."""
    e, x = call.maker, call.tensor(0)
    axis, sizes = _feature(call, x), sizes_of(x)
    others = tuple(i for i in range(x.rank) if i != axis)
    count = float(math.prod(sizes[i] for i in others))

    def total(value: Wide) -> Wide:
        found = e.op("reduce_sum", value.tensor, axes=others, keepdims=False)
        return _wide(call, found, axis, sizes)

    def vector(value: Wide) -> Tensor:
        found = e.op("reduce_sum", value.tensor, axes=others, keepdims=False)
        return e.cast(found, x.dtype)

    scale, mean, variance = (_wide(call, call.tensor(i), axis, sizes) for i in (1, 2, 3))
    gradient = Wide.of(e, call.tensor(4))
    centred, spread = Wide.of(e, x) - mean, variance + _epsilon(call)
    deviation = spread.apply("sqrt")
    along = total(gradient * centred) * centred / spread
    rest = gradient * count - total(gradient) - along
    found = scale / deviation / max(count, 1.0) * rest
    return [
        found.rounded(x.dtype),
        vector(gradient * (centred / deviation)),
        vector(gradient),
    ]


def _index_select(call: Call) -> Held:
    """Slices of an axis by indices, the same for all places of the axes before, or others for each of a batch."""
    axis, batch = call.integer("dim"), call.integer("batch_dims", 0)
    indices, held, e = call.tensor(1), call.held(0), call.maker
    rank = len(dims_of(held))
    if not 0 <= batch <= min(axis, indices.rank) or axis >= rank:
        raise ModelError(f"dim {axis} and batch_dims {batch} do not fit {rank} dimensions")
    first = [*range(batch), axis]
    order = [*first, *(i for i in range(batch, rank) if i != axis)]
    own = indices.rank - batch
    # The axes of the indices stand behind the batch; they go where the axis was.
    middle = range(batch + own, batch + own + axis - batch)
    places = [*range(batch), *middle, *range(batch, batch + own)]
    places += range(len(places), rank + own - 1)
    wide = e.unsqueeze(indices_of(e, indices), (indices.rank,))

    def selected(x: Tensor) -> Tensor:
        found = e.op("gather_nd", e.transpose(x, order), wide, batch_dims=batch)
        return e.transpose(found, places)

    return on_parts(selected, held)


def _broadcast(call: Call) -> Tensor:
    x, sizes = call.tensor(0), call.integers("broadcast_sizes")
    return call.maker.broadcast_to(x, (*sizes, *x.shape))


ROWS: Final[tuple[Row, ...]] = (
    row(
        "batch_norm_grad",
        _gradient,
        demands=(
            takes(5, 3),
            elements("fq"),
            one_element(),
            rank(1, 1, 2, 3),
            one_shape(0, 4, results=False),
        ),
    ),
    row(
        "batch_norm_inference",
        _inference,
        demands=(takes(5), elements("fq"), one_element(), rank(1, 1, 2, 3, 4)),
    ),
    row(
        "batch_norm_training",
        _training,
        demands=(takes(3, 3), elements("fq"), one_element(), rank(1, 1, 2)),
    ),
    row(
        "broadcast",
        _broadcast,
        by_parts=True,
        keeps=True,
        demands=(takes(1), elements(ANY), keeps()),
    ),
    row(
        "torch_index_select",
        _index_select,
        keeps=True,
        demands=(takes(2), keeps(0), elements("su", 1)),
    ),
)
