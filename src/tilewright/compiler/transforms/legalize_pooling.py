"""Poolings in the forms that kernels are written for.

Taps that never meet the input go, so a window larger than the image costs what the image holds; a
window that holds the whole image is a reduction; a large window slides along one axis after the
other, which takes the sum of its sides instead of their product, unless there may be one that holds an open picture.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Self, final

import numpy as np

from tilewright.base.dtypes import HALVES, f32
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.ops.pooling import FEW_TAPS
from tilewright.compiler.ops.shapes import spatial_axes, window_count, window_steps
from tilewright.compiler.passes import Emitter, Rewrites, given, need
from tilewright.compiler.transforms.matching import fixed
from tilewright.compiler.transforms.rewrite_pass import RewritePass

_POOLS: Final = ("max_pool", "average_pool", "lp_pool")
_WHOLE: Final = {"max_pool": "reduce_max", "average_pool": "reduce_mean"}
_PASS: Final = 4
"""Writing and reading a result in between takes the time of about so many taps."""
_PICKED: Final = 3
"""A tap along an innermost axis with a stride takes the time of about so many."""

_SHORT: Final = 6
"""Elements up to which rows of windows are picked out of vectors, or fill none."""


@final
@record(kw_only=True)
class LegalizePooling(RewritePass):
    """Write poolings with no tap outside the input for good, and one axis at a time if that pays.

    Requires: nothing.  Ensures: along axes of known size every tap meets the input in some window;
    a pooling of the whole image is a reduction.
    """

    def rewrites(self) -> Rewrites:
        """The same three for every kind of pooling."""
        return dict.fromkeys(_POOLS, (clip_window, whole_image, one_axis_at_a_time))


@final
@record
class _Side:
    """The window along one spatial axis.  `begin`, `end`: padding; `count`: windows."""

    size: Dim
    kernel: int
    stride: int
    dilation: int
    begin: int
    end: int
    count: Dim

    @property
    def is_idle(self) -> bool:
        """Whether pooling along this axis changes nothing."""
        return (self.kernel, self.stride, self.begin, self.end) == (1, 1, 0, 0)

    @property
    def holds_all(self) -> bool:
        """Whether there is one window, of exactly the elements of the axis."""
        exact = self.size == self.kernel and not self.begin and not self.end
        return self.count == 1 and exact and (self.dilation == 1 or self.kernel == 1)

    def clipped(self) -> Self:
        """The same windows without the taps that meet the input in none, and without rounding up.

        Raises: NoMatchError where padding cannot say so, and for open sizes.
        """
        size, count = fixed(self.size), fixed(self.count)
        first, last = self._met(size, count)
        # Windows do not begin inside the input: padding is never negative.
        low = min(first, self.begin // self.dilation)
        kernel, begin = last - low + 1, self.begin - low * self.dilation
        reach = (count - 1) * self.stride + (kernel - 1) * self.dilation
        end = max(0, reach + 1 - size - begin)
        windows = (size, kernel, self.stride, self.dilation)
        need(window_count(*windows, ceil_mode=False, pads=(begin, end)) == count)
        return replace(self, kernel=kernel, begin=begin, end=end)

    def _met(self, size: int, count: int) -> tuple[int, int]:
        """The first and the last tap that meet the input in some window, whatever the size of the window."""
        before = self.begin - (count - 1) * self.stride  # of the last window
        behind = (self.begin + size - 1) // self.dilation  # of the first window
        taps = range(max(0, -(-before // self.dilation)), min(self.kernel - 1, behind) + 1)

        def meets(tap: int) -> bool:
            first = tap * self.dilation - self.begin
            # The first window that is not in front of the input.
            window = max(0, -(first // self.stride))
            return window < count and first + window * self.stride < size

        first, last = (next(filter(meets, way), None) for way in (taps, taps[::-1]))
        return given(first), given(last)

    def averaged(self, *, include_pad: bool) -> np.ndarray:
        """For every window the number of its taps that a mean divides by."""
        size, count = fixed(self.size), fixed(self.count)
        starts = np.arange(count) * self.stride - self.begin
        places = starts[:, None] + np.arange(self.kernel) * self.dilation
        low, high = (-self.begin, size + self.end) if include_pad else (0, size)
        return ((places >= low) & (places < high)).sum(1)


def _sides(node: Node) -> tuple[_Side, ...]:
    x = node.operand().type
    axes = spatial_axes(x.rank, node.word("layout"))
    rank, shape = len(axes), node.result.type.shape
    strides, pads, dilations = window_steps(node.attributes, rank)
    return tuple(
        _Side(
            x.shape[axis], node.ints("kernel")[i], strides[i], dilations[i],
            pads[i], pads[rank + i], shape[axis],
        )
        for i, axis in enumerate(axes)
    )  # fmt: skip


def clip_window(node: Node, emit: Emitter) -> Value | None:
    """Taps that meet the input in no window take no part; a mean may still count them."""
    sides = _sides(node)
    clipped = [side.clipped() for side in sides]
    need(not all(new.kernel == old.kernel for new, old in zip(clipped, sides, strict=True)))
    attributes = {**_pooled_attributes(node, clipped), "ceil_mode": False}
    if not (node.op == "average_pool" and node.flag("count_include_pad")):
        return emit.op(node.op, [node.operand()], attributes)
    # The mean of padding is 0, of nothing it is none.
    need(not any((side.averaged(include_pad=False) == 0).any() for side in sides))
    # From here the mean is over elements of the input; the ratio of the counts is a constant.
    attributes["count_include_pad"] = False
    inside = emit.op(node.op, [node.operand()], attributes)
    return emit.op("mul", [inside, _ratio(node, sides, emit)])


def _pooled_attributes(node: Node, sides: Sequence[_Side]) -> dict[str, object]:
    return {
        **node.attributes,
        "kernel": tuple(s.kernel for s in sides),
        "strides": tuple(s.stride for s in sides),
        "dilations": tuple(s.dilation for s in sides),
        "pads": (*(s.begin for s in sides), *(s.end for s in sides)),
    }


def _ratio(node: Node, sides: Sequence[_Side], emit: Emitter) -> Value:
    """For every window the share of what its mean counts that lies inside the input."""
    rank = node.operand().type.rank
    axes = spatial_axes(rank, node.word("layout"))
    ratio = np.ones((1,) * rank)
    for axis, side in zip(axes, sides, strict=True):
        shares = side.averaged(include_pad=False) / side.averaged(include_pad=True)
        ratio = ratio * shares.reshape([-1 if a == axis else 1 for a in range(rank)])
    return emit.constant(ratio.astype(node.operand().type.dtype.numpy))


def whole_image(node: Node, emit: Emitter) -> Value | None:
    """A window that holds every element is a reduction over the spatial axes."""
    op = given(_WHOLE.get(node.op))
    need(all(side.holds_all for side in _sides(node)))
    axes = spatial_axes(node.operand().type.rank, node.word("layout"))
    return emit.op(op, [node.operand()], {"axes": axes, "keepdims": True})


def one_axis_at_a_time(node: Node, emit: Emitter) -> Value | None:
    """A large window slides along one axis, then along the next.

    The largest of the largest is the largest, the norm of norms is the norm; the mean of means is
    the mean since the number of elements in a window is a product of one number per axis.  Sums of
    16-bit floats are rounded behind the last axis.
    """
    sides = _sides(node)
    busy = [i for i, side in enumerate(sides) if not side.is_idle]
    need(len(busy) >= 2)
    # What lies a stride apart in memory is picked out of vectors, element by element of a tap.
    picked = node.word("layout") == "NCHW" and sides[-1].stride > 1
    together = math.prod(side.kernel for side in sides) * (_PICKED if picked else 1)
    apart = 0
    for i in busy:
        # The first axes run at all places of those that follow.
        places = math.prod(min(sides[j].stride, sides[j].kernel) for j in busy if j > i)
        taps = sides[i].kernel * (_PICKED if picked and i == len(sides) - 1 else 1)
        apart += (taps + (_PASS if i != busy[-1] else 0)) * places
    need(together > apart and not _may_be_one(sides))
    value = node.operand()
    dtype = value.type.dtype
    if dtype in HALVES and node.op != "max_pool":
        value = emit.cast(value, f32)
    for i in busy:
        alone = tuple(s if j == i else _idle(s) for j, s in enumerate(sides))
        value = emit.op(node.op, [value], _pooled_attributes(node, alone))
    return emit.cast(value, dtype)


def _may_be_one(sides: Sequence[_Side]) -> bool:
    """Whether windows share nothing, their rows are vectors, and only a call knows if there is more than one.

    Along the last axis alone such a window would have one lane, behind a pass whose rows fill no vector.
    """
    return (
        not isinstance(sides[-1].count, int)
        and _SHORT < sides[-1].kernel <= FEW_TAPS
        and all(side.stride >= side.kernel for side in sides)
    )


def _idle(side: _Side) -> _Side:
    return _Side(side.size, 1, 1, 1, 0, 0, side.size)
