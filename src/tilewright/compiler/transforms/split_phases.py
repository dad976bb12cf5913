"""Transposed convolutions as ordinary ones, one for every class of phases.

An output place `o` of a transposed convolution of stride `s` has the phase `r = (o + pad) mod s`.
Places of one phase see the same taps of the filter, `s / gcd(s, dilation)` apart, at consecutive
places of the input: an ordinary convolution of stride 1.  Phases that see as many taps at the same
places share one convolution, with a filter for each of them; what the convolutions yield is
interleaved.  Nothing is scattered, no product is computed that is not part of a sum, and the
convolutions get whatever schedule convolutions get.

Those of quantized tensors are split early, for the zero points of what a phase sees are one number for each of
its filters, and those of what all phases see are not; what is interleaved then are the bytes behind them.

Called by `legalize_convolution` and `quantize_contractions`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, cast, final

import numpy as np

from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.ops.shapes import window_steps
from tilewright.compiler.passes import Emitter, need
from tilewright.compiler.transforms.convert_layout import attributes_in_2d
from tilewright.compiler.transforms.matching import (
    constant_of,
    made,
    maker,
    to_channels_first,
    to_channels_last,
)
from tilewright.compiler.transforms.movement_rewrites import Cut, emit_slice
from tilewright.compiler.transforms.phases import Axis, Run, are_few, interleaved, phases_of
from tilewright.compiler.transforms.quantized_values import (
    Quantized,
    is_single,
    known,
    quantized,
)

_FEW_FILTERS: Final = 16
"""Filters for every input channel below which a convolution of its own for each phase pays."""

_LEAST_RUN: Final = 16
"""Bytes side by side that are moved as a vector."""


def split_phases(node: Node, emit: Emitter) -> Value | None:
    """A channels-last `conv_transpose` as convolutions whose results are interleaved."""
    need(node.attributes["layout"] == "NHWC" and node.operand().type.dtype.is_float)
    x, w, bias = node.operand(), node.operand(1), node.optional_operand(2)
    return _split(_Transposed(x, w, bias, node.attributes, node.result.type.shape), emit)


def split_quantized(node: Node, emit: Emitter) -> Value | None:
    """A `conv_transpose` of quantized tensors, where nothing quantizes its result."""
    need(_quantizer(node, emit) is None)
    return _of_bytes(node, emit, lambda value: value)


def split_requantized(node: Node, emit: Emitter) -> Value | None:
    """A `conv_transpose` of quantized tensors, and the quantization of its result, which comes before bytes are interleaved."""
    through = maker(node.operand(), "relu")
    source = made((node if through is None else through).operand(), "conv_transpose")
    need(_quantizer(source, emit) is node)

    def finish(value: Value) -> Value:
        value = value if through is None else emit.op("relu", [value])
        return emit.op(node.op, [value, *node.operands[1:]], node.attributes)

    return _of_bytes(source, emit, finish)


def _quantizer(node: Node, emit: Emitter) -> Node | None:
    """What quantizes the result of `node` by one scale, behind a `relu` perhaps, and alone reads it.

    None, too, where bytes of a few filters would be moved one by one, which takes longer than to move floats.
    """
    user = emit.edit.sole_user(node.result)
    if user is not None and user.op == "relu":
        user = emit.edit.sole_user(user.result)
    if user is None or user.op != "quantize_linear":
        return None
    if not all(map(is_single, user.present_operands[1:])):
        return None
    filters, groups = node.operand(1).type.shape[1], node.number("groups")
    is_depthwise = node.operand(1).type.shape[0] == groups
    run = filters * groups if is_depthwise else filters
    return user if isinstance(run, int) and run >= _LEAST_RUN else None


def _of_bytes(node: Node, emit: Emitter, finish: Callable[[Value], Value]) -> Value | None:
    """A `conv_transpose` of known filters of bytes and an image of bytes, by one known scale."""
    x, w = node.operand(), quantized(node.operand(1), emit)
    source = quantized(x, emit)
    need(all(v is None or constant_of(v) is not None for v in (w.values, w.zero, w.scale)))
    need(w.scale is not None and source.scale is not None and is_single(source.scale))
    need(all(v is None or is_single(v) or _is_per_filter(v) for v in (w.zero, w.scale)))
    shape, attributes = node.result.type.shape, node.attributes
    is_last, is_line = node.word("layout") == "NHWC", x.type.rank == 3
    if not is_last:
        x = emit.op("transpose", [x], {"perm": to_channels_last(x.type.rank)})
        shape = (shape[0], *shape[2:], shape[1])
    if is_line:
        x = emit.reshape(x, (x.type.shape[0], 1, *x.type.shape[1:]))
        beside = (v and _in_2d(v, emit) for v in (w.zero, w.scale))
        w = Quantized(_in_2d(w.values, emit), *beside)
        shape, attributes = (shape[0], 1, *shape[1:]), attributes_in_2d(node)
    found = _Transposed(x, w.values, node.optional_operand(2), attributes, shape, w, finish)
    result = _split(found, emit)
    if is_line:
        result = emit.reshape(result, (shape[0], *shape[2:]))
    if not is_last:
        result = emit.op(
            "transpose", [result], {"perm": to_channels_first(result.type.rank)}
        )
    return result


def _in_2d(value: Value, emit: Emitter) -> Value:
    """Weights of a line, or numbers beside them, for one of height 1."""
    if not value.type.rank:
        return value
    *first, taps = value.type.shape
    return known(emit, "reshape", [value], {"shape": (*first, 1, taps)})


def _is_per_filter(value: Value) -> bool:
    """Whether numbers beside weights [C, F, kernel…] differ by filters alone."""
    return all(size == 1 for i, size in enumerate(value.type.shape) if i != 1)


@final
@record
class _Transposed:
    """A transposed convolution of an image with channels last.

    Attributes:
        w: the filters, or the bytes that stand for them, which `quantized` has with what is beside them.
        shape: of the result.
        finish: makes of what each convolution yields what is interleaved.
    """

    x: Value
    w: Value
    bias: Value | None
    attributes: Mapping[str, object]
    shape: Sequence[Dim]
    quantized: Quantized | None = None
    finish: Callable[[Value], Value] | None = None


def _split(found: _Transposed, emit: Emitter) -> Value:
    """The convolutions, interleaved."""
    need(all(d != 0 for d in (*found.x.type.shape, *found.shape)))
    axes = _axes(found)
    need(are_few(axes))
    parts = _PhaseConvolutions(found, axes, _padded(found.x, axes, emit), emit)
    return parts.interleaved(found.shape)


def _axes(of: _Transposed) -> tuple[Axis, ...]:
    x, w = of.x.type, of.w.type
    rank = x.rank - 2
    strides, pads, dilations = window_steps(of.attributes, rank)
    found: list[Axis] = []
    for i in range(rank):
        kernel = w.shape[2 + i]
        assert isinstance(kernel, int), "front ends refuse kernels of unknown size"
        # With one input place the stride moves nothing: one that keeps the taps apart makes a
        # phase of each, and no tap meets padding.
        reach = (kernel - 1) * dilations[i] + 1
        stride = max(strides[i], reach) if x.shape[1 + i] == 1 else strides[i]
        window = (kernel, stride, dilations[i], pads[i])
        size, wanted = x.shape[1 + i], of.shape[1 + i]
        found.append(phases_of(size, wanted, *window))
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
        self, of: _Transposed, axes: Sequence[Axis], padded: Value, emit: Emitter
    ) -> None:
        self.emit: Emitter = emit
        self.x: Value = padded
        self.w: Value = of.w
        self.quantized: Quantized | None = of.quantized
        self.finish: Callable[[Value], Value] = of.finish or (lambda value: value)
        self.bias: Value | None = of.bias
        self.groups: int = cast("int", of.attributes["groups"])
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

    def interleaved(self, shape: Sequence[Dim]) -> Value:
        """All phases of all axes in turn: [N, spatial…, channels] of this shape."""
        phases = 2 + len(self.axes)
        return interleaved(self._one, self.axes, phases, 1, shape, self.emit)

    def _one(self, runs: tuple[Run, ...]) -> Value:
        phases = tuple(run.phases for run in runs)
        outer, inner = self.groups, self.filters
        if self.singly:
            outer, inner = 1, self.groups * self.filters
        places = tuple(axis.places for axis in self.axes)
        shape = (self.x.type.shape[0], *places, outer, *phases, inner)
        if all(run.count for run in runs):
            result = self._convolution(runs, self._filters(runs), self._biases(phases))
            return self.emit.reshape(self.finish(result), shape)
        value = self.finish(self._biases((1,) * len(phases)) or self._zero())
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
            w = known(self.emit, "gather", [w, taps], {"axis": 2 + 2 * i})
        # [C, F, phases 0, taps 0, phases 1, taps 1, …]
        channels, filters, *rest = w.type.shape
        depth = channels // self.groups
        cut = {"shape": (self.groups, depth, filters, *rest)}
        split = known(self.emit, "reshape", [w], cut)
        phases, taps = range(3, 3 + 2 * rank, 2), range(4, 4 + 2 * rank, 2)
        perm = {"perm": (0, *phases, 2, 1, *taps)}
        order = known(self.emit, "transpose", [split], perm)
        count = math.prod(run.phases for run in runs) * filters * self.groups
        shape = (count, depth, *(run.count for run in runs))
        found = known(self.emit, "reshape", [order], {"shape": shape})
        return self._dequantized(found, tuple(run.phases for run in runs))

    def _dequantized(self, bytes_: Value, phases: tuple[int, ...]) -> Value:
        """Filters as what they stand for, if they are bytes."""
        if self.quantized is None:
            return bytes_
        scale, zero = (
            v if v is None or is_single(v) else self._repeated(v, phases)
            for v in (self.quantized.scale, self.quantized.zero)
        )
        if zero is not None:
            zero = known(self.emit, "cast", [zero], {"dtype": bytes_.type.dtype})
        return self.emit.op("dequantize_linear", [bytes_, scale, zero], {"axis": 0})

    def _biases(self, phases: tuple[int, ...]) -> Value | None:
        """One bias for every filter of a convolution."""
        return self._repeated(self.bias, phases)

    def _repeated(self, value: Value | None, phases: tuple[int, ...]) -> Value | None:
        """One number for every filter of a convolution, from one for all, one for each of a group or one for each."""
        if value is None:
            return None
        count = math.prod(phases)
        each = 1 if is_single(value) else self.filters
        groups = self.groups if value.type.element_count == each * self.groups else 1
        shape = (self.groups, count, self.filters)
        value = known(self.emit, "reshape", [value], {"shape": (groups, 1, each)})
        value = known(self.emit, "broadcast_to", [value], {"shape": shape})
        total = count * self.groups * self.filters
        return known(self.emit, "reshape", [value], {"shape": (total,)})
