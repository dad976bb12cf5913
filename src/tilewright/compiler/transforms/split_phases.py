"""Transposed convolutions as ordinary ones, one for every class of phases.

An output place `o` of a transposed convolution of stride `s` has the phase `r = (o + pad) mod s`.
Places of one phase see the same taps of the filter, `s / gcd(s, dilation)` apart, at consecutive
places of the input: an ordinary convolution of stride 1.  Phases that see as many taps at the same
places share one convolution, with a filter for each of them; what the convolutions yield is
interleaved.  Nothing is scattered, no product is computed that is not part of a sum, and the
convolutions get whatever schedule convolutions get.

Called by `legalize_convolution`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, final

import numpy as np

from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.ops.shapes import window_steps
from tilewright.compiler.passes import Emitter, given, need
from tilewright.compiler.transforms.matching import number, operand, optional_operand
from tilewright.compiler.transforms.movement_rewrites import Cut, emit_slice
from tilewright.compiler.transforms.phases import Axis, Run, are_few, joined, phases_of

_FEW_FILTERS: Final = 16
"""Filters for every input channel below which a convolution of its own for each phase pays."""


def split_phases(node: Node, emit: Emitter) -> Value | None:
    """A channels-last `conv_transpose` as convolutions whose results are interleaved."""
    x = operand(node)
    need(node.attributes["layout"] == "NHWC" and x.type.dtype.is_float)
    need(all(d != 0 for d in (*x.type.shape, *node.result.type.shape)))
    axes = _axes(node)
    need(are_few(axes))
    padded = _padded(x, axes, emit)
    parts = _PhaseConvolutions(node, axes, padded, emit)
    return _interleaved(parts.joined(), node, axes, emit)


def _axes(node: Node) -> tuple[Axis, ...]:
    x, w = operand(node, 0).type, operand(node, 1).type
    rank = x.rank - 2
    strides, pads, dilations = window_steps(node.attributes, rank)
    found: list[Axis] = []
    for i in range(rank):
        kernel = w.shape[2 + i]
        assert isinstance(kernel, int), "front ends refuse kernels of unknown size"
        # With one input place the stride moves nothing: one that keeps the taps apart makes a
        # phase of each, and no tap meets padding.
        reach = (kernel - 1) * dilations[i] + 1
        stride = max(strides[i], reach) if x.shape[1 + i] == 1 else strides[i]
        window = (kernel, stride, dilations[i], pads[i])
        size, wanted = x.shape[1 + i], node.result.type.shape[1 + i]
        found.append(given(phases_of(size, wanted, *window)))
    return tuple(found)


# --- input -----------------------------------------------------------------------------------


def _padded(x: Value, axes: Sequence[Axis], emit: Emitter) -> Value:
    """The input with every place that some tap reads, and no other."""
    cuts: dict[int, Cut] = {}
    low, high = [0], [0]
    for i, axis in enumerate(axes, 1):
        front, back = max(0, -axis.begin), max(0, -axis.end)
        cuts[i] = (front, x.type.shape[i] - front - back, 1)
        low.append(max(0, axis.begin))
        high.append(max(0, axis.end))
    whole = emit_slice(emit, x, cuts)
    if not any(low) and not any(high):
        return whole
    return emit.op("pad", [whole], {"pads": (*low, 0, *high, 0)})


# --- convolutions ----------------------------------------------------------------------------


@final
class _PhaseConvolutions:
    """The convolutions of one node.

    Their results are [N, places…, outer, phases…, inner]: `outer` and `inner` are groups and
    filters per group, or 1 and all channels where every phase has a convolution of its own.
    """

    def __init__(
        self, node: Node, axes: Sequence[Axis], padded: Value, emit: Emitter
    ) -> None:
        self.emit: Emitter = emit
        self.x: Value = padded
        self.w: Value = operand(node, 1)
        self.bias: Value | None = optional_operand(node, 2)
        self.groups: int = number(node, "groups")
        self.filters: Dim = self.w.type.shape[1]
        self.axes: tuple[Axis, ...] = tuple(axes)
        self.singly: bool = self._has_few_filters()
        if self.singly:
            self.axes = tuple(axis.one_phase_each() for axis in axes)

    def _has_few_filters(self) -> bool:
        phases = math.prod(axis.stride for axis in self.axes)
        filters = self.filters * phases
        few = isinstance(filters, int) and filters < _FEW_FILTERS
        return self.groups > 1 and self.w.type.shape[0] == self.groups and few

    def joined(self) -> Value:
        """All phases of all axes, in order."""
        return joined(self.axes, self._one, 2 + len(self.axes), self.emit)

    def _one(self, runs: tuple[Run, ...]) -> Value:
        phases = tuple(run.phases for run in runs)
        outer, inner = self.groups, self.filters
        if self.singly:
            outer, inner = 1, self.groups * self.filters
        places = tuple(axis.places for axis in self.axes)
        shape = (self.x.type.shape[0], *places, outer, *phases, inner)
        if all(run.count for run in runs):
            result = self._convolution(runs, self._filters(runs), self._biases(phases))
            return self.emit.reshape(result, shape)
        value = self._biases((1,) * len(phases)) or self._zero()
        ends = (1,) * (1 + len(places))
        if self.bias is not None:
            units = (*ends, outer, *((1,) * len(phases)), inner)
            value = self.emit.reshape(value, units)
        return self.emit.op("broadcast_to", [value], {"shape": shape})

    def _zero(self) -> Value:
        return self.emit.constant(np.zeros((), self.x.type.dtype.numpy))

    def _convolution(self, runs: tuple[Run, ...], w: Value, bias: Value | None) -> Value:
        cuts: dict[int, Cut] = {
            i: (axis.start(run), axis.places + (run.count - 1) * axis.step, 1)
            for i, (axis, run) in enumerate(zip(self.axes, runs, strict=True), 1)
        }
        part = emit_slice(self.emit, self.x, cuts)
        attributes = {
            "dilations": tuple(axis.step for axis in self.axes),
            "groups": self.groups,
            "layout": "NHWC",
        }
        return self.emit.op("conv", [part, w, bias], attributes)

    def _filters(self, runs: tuple[Run, ...]) -> Value:
        """Weights [C, F, kernel…] as [groups * phases * F, C / groups, taps…]."""
        w, rank = self.w, len(runs)
        for i, run in enumerate(runs):
            taps = self.emit.constant(np.array(run.taps, np.int64))
            w = self.emit.op("gather", [w, taps], {"axis": 2 + 2 * i})
        # [C, F, phases 0, taps 0, phases 1, taps 1, …]
        channels, filters, *rest = w.type.shape
        depth = channels // self.groups
        split = self.emit.reshape(w, (self.groups, depth, filters, *rest))
        phases, taps = range(3, 3 + 2 * rank, 2), range(4, 4 + 2 * rank, 2)
        order = self.emit.op("transpose", [split], {"perm": (0, *phases, 2, 1, *taps)})
        count = math.prod(run.phases for run in runs) * filters * self.groups
        shape = (count, depth, *(run.count for run in runs))
        return self.emit.reshape(order, shape)

    def _biases(self, phases: tuple[int, ...]) -> Value | None:
        """One bias for every filter of a convolution."""
        if self.bias is None:
            return None
        total, count = self.filters * self.groups, math.prod(phases)
        value = self.bias
        if value.type.shape != (total,):
            value = self.emit.op("broadcast_to", [value], {"shape": (total,)})
        grouped = self.emit.reshape(value, (self.groups, 1, self.filters))
        shape = (self.groups, count, self.filters)
        repeated = self.emit.op("broadcast_to", [grouped], {"shape": shape})
        return self.emit.reshape(repeated, (count * total,))


# --- result ----------------------------------------------------------------------------------


def _interleaved(value: Value, node: Node, axes: Sequence[Axis], emit: Emitter) -> Value:
    """[N, places…, outer, phases…, inner] as [N, places * phases …, channels], cut to size."""
    rank = len(axes)
    pairs = [axis for i in range(rank) for axis in (1 + i, 2 + rank + i)]
    perm = (0, *pairs, 1 + rank, 2 + 2 * rank)
    moved = emit.op("transpose", [value], {"perm": perm})
    shape = node.result.type.shape
    sizes = tuple(axis.places * axis.stride for axis in axes)
    whole = emit.reshape(moved, (shape[0], *sizes, shape[-1]))
    return emit_slice(
        emit, whole, {i: (axis.drop, shape[i], 1) for i, axis in enumerate(axes, 1)}
    )
