"""Phases of one axis onto which windows are added, a stride apart.

An output place `o` that windows of stride `s` reach has the phase `r = (o + pad) mod s`.  Places of
one phase see the same taps of the window, `s / gcd(s, dilation)` apart, at consecutive places of
the input.

Called by `split_phases` and `split_blocks`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, final

from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.ir import Value
from tilewright.compiler.passes import Emitter, need
from tilewright.compiler.transforms.movement_rewrites import Cut, emit_slice

_MOST_PLACES: Final = 1 << 16
"""Phases, or taps, of one axis: far more than any network has, and looked at in no time."""
_MOST_PARTS: Final = 256
"""Four phases on each of three axes make 64."""


@final
@record
class Run:
    """Neighbouring phases of one axis that read the input alike.

    taps: for every phase the places in the filter, in the order of the input they meet.
    shift: how far before the output's place (in strides) the last tap reads.
    """

    taps: tuple[tuple[int, ...], ...]
    shift: int

    @property
    def phases(self) -> int:
        return len(self.taps)

    @property
    def count(self) -> int:
        return len(self.taps[0])


@final
@record
class Axis:
    """One axis that windows are added onto.

    step: how far apart neighbouring taps of a phase read.
    first, places: the range of output places, in strides, that are computed.
    begin, end: padding of the input so that no tap of any run reads outside (negative: unread).
    drop: output elements in front of the first that is wanted.
    """

    stride: int
    step: int
    runs: tuple[Run, ...]
    first: int
    places: Dim
    begin: int
    end: int
    drop: int

    def start(self, run: Run) -> int:
        """Where in the padded input `run` begins to read."""
        return self.first - run.shift - (run.count - 1) * self.step + self.begin

    @staticmethod
    def of_places(places: Dim, stride: int) -> Axis:
        """So many places of each phase, which is an image of its own."""
        run = Run(((),) * stride, 0)
        return Axis(stride, 1, (run,), first=0, places=places, begin=0, end=0, drop=0)

    def one_phase_each(self) -> Axis:
        """The same with a run for every phase."""
        runs = tuple(Run((taps,), run.shift) for run in self.runs for taps in run.taps)
        return replace(self, runs=runs)


def phases_of(
    size: Dim, result: Dim, kernel: int, stride: int, dilation: int, pad: int
) -> Axis:
    """The phases of `result` places, made of windows of `kernel` taps around `size` inputs.

    Raises: NoMatchError where phases or taps are too many to be looked at one by one.
    """
    need(max(stride, kernel) <= _MOST_PLACES)
    common = math.gcd(stride, dilation)
    step = dilation // common
    runs = _runs(kernel, stride, dilation)
    first = pad // stride
    # The last place in strides, counted from the end of the input: known for any size.
    beyond = (result - 1 + pad - (size - 1) * stride) // stride
    assert isinstance(beyond, int), "the result grows by one stride with the input"
    places = size + beyond - first
    reading = [run for run in runs if run.count]
    return Axis(
        stride=stride,
        step=step,
        runs=runs,
        first=first,
        places=places,
        begin=max(run.shift + (run.count - 1) * step for run in reading) - first,
        end=beyond - min(run.shift for run in reading),
        drop=pad - first * stride,
    )


def are_few(axes: Sequence[Axis]) -> bool:
    """Whether a part for each combination of runs is worth its place in the graph."""
    return math.prod(len(axis.runs) for axis in axes) <= _MOST_PARTS


def interleaved(
    part: Callable[[tuple[Run, ...]], Value],
    axes: Sequence[Axis],
    phases: int,
    places: int,
    shape: Sequence[Dim],
    emit: Emitter,
) -> Value:
    """The places of all phases in turn, cut to an image of `shape`.

    Args:
        part: makes what a run of each axis gives.
        axes: all of them.
        phases: where those of the first axis stand in a part.
        places: the same of its places; axes of the image stand where the first of both do.
        shape: of the image.
        emit: puts parts together.
    """
    whole = _joined(axes, part, phases, emit)
    pairs = [axis for i in range(len(axes)) for axis in (places + i, phases + i)]
    first = min(pairs)
    behind = [axis for axis in range(first, whole.type.rank) if axis not in pairs]
    moved = emit.op("transpose", [whole], {"perm": (*range(first), *pairs, *behind)})
    sizes = (axis.places * axis.stride for axis in axes)
    image = emit.reshape(moved, (*shape[:first], *sizes, *shape[first + len(axes) :]))
    cuts: dict[int, Cut] = {
        i: (axis.drop, shape[i], 1) for i, axis in enumerate(axes, first)
    }
    return emit_slice(emit, image, cuts)


def _joined(
    axes: Sequence[Axis],
    part: Callable[[tuple[Run, ...]], Value],
    first: int,
    emit: Emitter,
    runs: tuple[Run, ...] = (),
) -> Value:
    """All phases, from axis `first` of parts on, of the axes behind those that `runs` stands for, in order."""
    at = len(runs)
    if at == len(axes):
        return part(runs)
    parts = [_joined(axes, part, first, emit, (*runs, run)) for run in axes[at].runs]
    return emit.concat(parts, first + at)


def _runs(kernel: int, stride: int, dilation: int) -> tuple[Run, ...]:
    meeting: dict[int, list[int]] = {}
    for tap in range(kernel):
        meeting.setdefault(tap * dilation % stride, []).append(tap)
    phases: list[tuple[int, tuple[int, ...]]] = []
    for phase in range(stride):
        taps = tuple(meeting.get(phase, ()))
        shift = (taps[0] * dilation - phase) // stride if taps else 0
        phases.append((shift, taps[::-1]))
    found: list[Run] = []
    alike = itertools.groupby(phases, lambda phase: (phase[0], len(phase[1])))
    for (shift, _), members in alike:
        found.append(Run(tuple(taps for _, taps in members), shift))
    return tuple(found)
