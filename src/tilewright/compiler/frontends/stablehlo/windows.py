"""Rows for convolution and for reductions of windows.

Source: StableHLO specification, "convolution", "reduce_window", "select_and_scatter".
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Final

from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.stablehlo.call import Call, real
from tilewright.compiler.frontends.stablehlo.held import Complex, Held
from tilewright.compiler.frontends.stablehlo.movement import pad, reverse, sizes_of
from tilewright.compiler.frontends.stablehlo.reduction import lifted
from tilewright.compiler.frontends.stablehlo.row import Row, row
from tilewright.compiler.frontends.stablehlo.tree import Labels

# Every place of a window is a slice of its own.
MAX_WINDOW: Final = 1024


def _reduce_window(call: Call) -> list[Tensor]:
    """The slices of what each place of the window sees, combined by the region."""
    tensors = call.tensors()
    count = len(tensors) // 2
    inputs, starts = tensors[:count], tensors[count:]
    rank = inputs[0].rank
    ones = (1,) * rank
    window = call.integers("window_dimensions")
    strides = call.integers("window_strides", ones)
    dilations = call.integers("window_dilations", ones)
    spread = [n - 1 for n in call.integers("base_dilations", ones)]
    edges = call.pairs("padding", rank)
    if not len(window) == len(strides) == len(dilations) == len(spread) == rank:
        raise ModelError(f"the window does not fit {inputs[0].type}")
    if math.prod(window) > MAX_WINDOW:
        raise UnsupportedError(f"a window of {math.prod(window)} places is not supported")
    e, shape = call.maker, call.shape()
    total = [e.broadcast_to(start, shape) for start in starts]
    if 0 in shape:
        return total
    padded = [pad(e, x, s, edges, spread) for x, s in zip(inputs, starts, strict=True)]
    reach = [(n - 1) * d for n, d in zip(window, dilations, strict=True)]
    for axis, size in enumerate(sizes_of(padded[0])):
        if (size - reach[axis] - 1) // strides[axis] + 1 != shape[axis]:
            raise ModelError("the result does not fit the window")
    for place in itertools.product(*map(range, window)):
        seen = padded
        for axis, index in enumerate(place):
            begin = index * dilations[axis]
            seen = [e.slice(x, axis, begin, shape[axis], strides[axis]) for x in seen]
        total = lifted(call, [*total, *seen])
    return total


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
    left, right = call.held(0), call.held(1)
    if not (isinstance(left, Complex) and isinstance(right, Complex)):
        return _convolved(call, real(left), real(right))
    e = call.maker
    return Complex(
        e.op("sub", _convolved(call, left.real, right.real),
             _convolved(call, left.imaginary, right.imaginary)),
        e.op("add", _convolved(call, left.real, right.imaginary),
             _convolved(call, left.imaginary, right.real)),
    )  # fmt: skip


def _convolved(call: Call, x: Tensor, kernel: Tensor) -> Tensor:
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
    edges = [(0, 0), (0, 0), *call.pairs("padding", space)]
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
)
