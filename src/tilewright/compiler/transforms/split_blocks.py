"""`col2im` of a stride as ones of stride 1, one for every class of phases.

With a stride, most taps of a block meet no column at a given place; looked for one by one they take
as many times longer as there are phases, and no lanes run along such places.  Places of one phase
meet the same taps, at columns that lie side by side: a `col2im` of stride 1 with a channel for each
phase, or nothing but a move where each place is in one block.  The phases are interleaved.

Called by `legalize_convolution`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np

from tilewright.base.record import record
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.ops.shapes import element_count, window_count, window_steps
from tilewright.compiler.passes import Emitter, need
from tilewright.compiler.transforms.matching import fixed
from tilewright.compiler.transforms.movement_rewrites import Cut, emit_slice
from tilewright.compiler.transforms.phases import Axis, Run, are_few, interleaved, phases_of


def split_blocks(node: Node, emit: Emitter) -> Value | None:
    """A `col2im` with a stride as ones without, whose results are interleaved."""
    block = node.ints("block")
    rank = len(block)
    strides, pads, dilations = window_steps(node.attributes, rank)
    need(any(stride != 1 for stride in strides))
    need(all(d != 0 for d in (*node.operand().type.shape, *node.result.type.shape)))
    image = node.dims("image")
    axes: list[Axis] = []
    counts: list[int] = []
    for i in range(rank):
        ends = (pads[i], pads[rank + i])
        window = (block[i], strides[i], dilations[i])
        counts.append(fixed(window_count(image[i], *window, ceil_mode=False, pads=ends)))
        axes.append(phases_of(counts[-1], image[i], *window, pads[i]))
    need(are_few(axes))
    return _Blocks(node, axes, counts, emit).interleaved()


@final
@record
class _Side:
    """What the columns of a run make of one axis.

    front, back: wanted places before and behind those that columns meet.
    begin, end: places that columns meet and nobody wants.
    extent: the others; none or less where columns meet no wanted place.
    """

    front: int
    back: int
    begin: int
    end: int
    extent: int

    @classmethod
    def of(cls, axis: Axis, run: Run, count: int) -> _Side:
        """The places of `count` columns of `run`."""
        met = count + (run.count - 1) * axis.step if run.count else 0
        before = run.shift - axis.first
        behind = axis.places - before - met
        assert isinstance(behind, int), "the number of columns is known"
        begin, end = max(0, -before), max(0, -behind)
        return cls(max(0, before), max(0, behind), begin, end, met - begin - end)


@final
class _Blocks:
    """The parts of one node, [N, C, phases…, places…] each."""

    def __init__(
        self, node: Node, axes: Sequence[Axis], counts: Sequence[int], emit: Emitter
    ) -> None:
        self.node: Node = node
        self.axes: tuple[Axis, ...] = tuple(axes)
        self.counts: tuple[int, ...] = tuple(counts)
        self.emit: Emitter = emit
        self.batch, self.channels = node.result.type.shape[:2]
        shape = (self.batch, self.channels, *node.ints("block"), *counts)
        self.x: Value = emit.reshape(node.operand(), shape)

    def interleaved(self) -> Value:
        """The image: places of all phases in turn, cut to size."""
        shape, places = self.node.result.type.shape, 2 + len(self.axes)
        return interleaved(self._one, self.axes, 2, places, shape, self.emit)

    def _one(self, runs: tuple[Run, ...]) -> Value:
        phases = tuple(run.phases for run in runs)
        shape = (self.batch, self.channels, *phases, *(axis.places for axis in self.axes))
        sides = [_Side.of(*each) for each in zip(self.axes, runs, self.counts, strict=True)]
        if any(side.extent <= 0 for side in sides):
            zero = self.emit.constant(np.zeros((), self.x.type.dtype.numpy))
            return self.emit.op("broadcast_to", [zero], {"shape": shape})
        columns = self._columns(runs)
        if all(run.count == 1 for run in runs):
            total = self._moved(columns, phases, sides)
        else:
            total = self._summed(columns, runs, sides)
        front, back = ([getattr(s, name) for s in sides] for name in ("front", "back"))
        if any(front) or any(back):
            amounts = (0, 0, *front, 0, 0, *back)
            total = self.emit.op("pad", [total], {"pads": amounts})
        return self.emit.reshape(total, shape)

    def _moved(
        self, columns: Value, phases: tuple[int, ...], sides: Sequence[_Side]
    ) -> Value:
        """Columns with one tap each are the places."""
        shape = (self.batch, self.channels * element_count(phases), *self.counts)
        image = self.emit.reshape(columns, shape)
        cuts: dict[int, Cut] = {
            i: (side.begin, side.extent, 1) for i, side in enumerate(sides, 2)
        }
        return emit_slice(self.emit, image, cuts)

    def _summed(
        self, columns: Value, runs: tuple[Run, ...], sides: Sequence[_Side]
    ) -> Value:
        """[N, channels and phases, places…]: the sums of the taps of each phase."""
        phases = element_count(tuple(run.phases for run in runs))
        block = tuple(run.count for run in runs)
        rows = self.channels * phases * element_count(block)
        shape = (self.batch, rows, element_count(self.counts))
        table = self.emit.reshape(columns, shape)
        attributes = {
            "image": tuple(side.extent for side in sides),
            "block": block,
            "pads": (*(side.begin for side in sides), *(side.end for side in sides)),
            "dilations": tuple(axis.step for axis in self.axes),
        }
        return self.emit.op("col2im", [table], attributes)

    def _columns(self, runs: tuple[Run, ...]) -> Value:
        """[N, C, taps…, columns…] as [N, C, phases…, taps of a phase…, columns…]."""
        x, rank = self.x, len(runs)
        for i, run in enumerate(runs):
            taps = np.array([phase[::-1] for phase in run.taps], np.int64)
            axis = 2 + 2 * i
            if taps.size == x.type.shape[axis] and (np.diff(taps.ravel()) == 1).all():
                shape = (*x.type.shape[:axis], *taps.shape, *x.type.shape[axis + 1 :])
                x = self.emit.reshape(x, shape)
            else:
                x = self.emit.op("gather", [x, self.emit.constant(taps)], {"axis": axis})
        phases, taps_ = range(2, 2 + 2 * rank, 2), range(3, 3 + 2 * rank, 2)
        columns = range(2 + 2 * rank, 2 + 3 * rank)
        return self.emit.op("transpose", [x], {"perm": (0, 1, *phases, *taps_, *columns)})
