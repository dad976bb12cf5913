"""Row for the pool that stops at a mask: the largest element of a window, row by row, up to the first that is masked.

Source: onnxruntime ContribOperators.md (MaxpoolWithMask), in the meaning of its CPU kernel: a row of a window, along
the last axis, ends at the first 0 of the mask (of pictures and volumes the very first element is not masked); where
nothing is left stands the lowest number, and NaN is passed over.
"""

from __future__ import annotations

from typing import Final

from tilewright.base import dtypes, symbolic
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.convolution import spatial_sizes, window
from tilewright.compiler.frontends.onnx.movement import pad
from tilewright.compiler.frontends.onnx.row import MICROSOFT, Row, row

_LOWEST: Final = -3.4028234663852886e38


def _max_pool_with_mask(call: Call) -> Tensor:
    e, x = call.maker, call.tensor(0)
    found = window(call, spatial_sizes(x), call.integers("kernel_shape"))
    rank = len(found.kernel)
    lowest, last = e.scalar(_LOWEST, x.dtype), x.rank - 1
    begin, end = found.pads[rank - 1], found.pads[-1]
    edges: list[Dim] = [0] * (2 * x.rank)
    edges[last], edges[-1] = begin, end
    # What lies beside the input is passed over, and ends nothing.
    padded = pad(e, x, edges, "constant", lowest)
    mask = pad(e, _mask(call, x), edges, "constant", e.scalar(1, dtypes.i32))
    step, kernel = found.strides[-1], found.kernel[-1]
    count = symbolic.floordiv(padded.shape[last] - kernel, step) + 1
    best = e.full(_LOWEST, x.dtype, (*x.shape[:last], count))
    going: Tensor | None = None
    for place in range(kernel):
        own, seen = (e.slice(t, last, place, count, step) for t in (padded, mask))
        seen = e.op("not_equal", seen, e.scalar(0, dtypes.i32))
        going = seen if going is None else e.op("logical_and", going, seen)
        better = e.op("logical_and", going, e.op("greater", own, best))
        best = e.op("where", better, own, best)
    if rank == 1:
        return best
    rest = (*found.pads[: rank - 1], 0, *found.pads[rank:-1], 0)
    if not all(isinstance(p, int) and p >= 0 for p in rest):
        amounts = (0, 0, *rest[:rank], 0, 0, *rest[rank:])
        best, rest = pad(e, best, amounts, "constant", lowest), (0,) * (2 * rank)
    return e.op(
        "max_pool", best, kernel=(*found.kernel[:-1], 1), strides=(*found.strides[:-1], 1),
        pads=rest, dilations=(1,) * rank, ceil_mode=False,
    )  # fmt: skip


def _mask(call: Call, x: Tensor) -> Tensor:
    """The mask, which is the same for all images and channels."""
    mask = call.tensor(1)
    if mask.rank != x.rank:
        raise ModelError(f"mask {mask.type} for an input {x.type}")
    if mask.shape[:2] != (1, 1):
        # onnxruntime reads those of other channels from places that mean nothing.
        raise UnsupportedError(f"a mask for each channel ({mask.type}) is not supported")
    for size, expected in zip(mask.shape[2:], x.shape[2:], strict=True):
        call.maker.assume(size, expected)
    return call.maker.broadcast_to(_with_first(call.maker, mask), x.shape)


def _with_first(e: NodeMaker, mask: Tensor) -> Tensor:
    """The mask as kernels of two axes and more read it: the very first element is never masked."""
    if mask.rank < 4:
        return mask
    zero = e.scalar(0, dtypes.i64)
    is_first: Tensor | None = None
    for axis in range(2, mask.rank):
        size = [1] * axis + [mask.shape[axis]] + [1] * (mask.rank - axis - 1)
        own = e.op("equal", e.iota(size, axis), zero)
        is_first = own if is_first is None else e.op("logical_and", is_first, own)
    return e.op("where", is_first, e.scalar(1, mask.dtype), mask)


ROWS: Final[tuple[Row, ...]] = (
    row("MaxpoolWithMask", _max_pool_with_mask, domain=MICROSOFT),
)
