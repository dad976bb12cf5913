"""What a `Slice` takes of each axis: positions clamped, steps and axes checked; of kernels and of strings on the host.

Sizes may be numbers or, while a model is imported, expressions.  Called by the rows of `movement` and `moved_strings`.

Source: ONNX operator reference, Slice, opset 13.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from tilewright.base import symbolic
from tilewright.base.errors import ModelError
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.ops.movement import nearest_step
from tilewright.compiler.ops.shapes import normal_axis

HUGE: Final = (1 << 31) - 1
"""From here on a position is behind every element, however long the axis."""


@final
@record
class Cut:
    """Of one axis: the first index, the distance to the next, and how many."""

    axis: int
    first: Dim
    step: int
    count: Dim


def is_known(call: Call) -> bool:
    """Whether positions, steps and axes are known while the model is imported."""
    return call.opset < 10 or call.is_known(1, 2, 3, 4)


def known_operands(
    call: Call,
) -> tuple[Sequence[Dim], Sequence[Dim], Sequence[int] | None, Sequence[int] | None]:
    """Starts, ends, axes and steps; None for what is left out."""
    if call.opset < 10:
        return (
            call.integers("starts"),
            call.integers("ends"),
            call.attributes.integers("axes"),
            None,
        )
    axes = None if call.optional(3) is None else call.numbers(3, "the axes")
    steps = None if call.optional(4) is None else call.numbers(4, "the steps")
    return call.dims(1, "the start"), call.dims(2, "the end"), axes, steps


def cuts(
    shape: Sequence[Dim],
    starts: Sequence[Dim],
    ends: Sequence[Dim],
    axes: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
) -> list[Cut]:
    """What `starts:ends:steps` takes of the named axes of `shape`, else of the first ones.

    Raises: ModelError for lists that differ in length, an axis that is not there or named twice, and a step of 0.
    """
    places = range(len(starts)) if axes is None else axes
    strides = [1] * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(places) == len(strides):
        raise ModelError("starts, ends, axes and steps differ in length")
    check_steps(strides)
    found: list[Cut] = []
    for axis, start, end, given in zip(
        cut_axes(places, len(shape)), starts, ends, strides, strict=True
    ):
        step = nearest_step(given, shape[axis])
        first, count = slice_range(start, end, step, shape[axis])
        found.append(Cut(axis, first, step, count))
    return found


def check_steps(steps: Sequence[int]) -> None:
    """Raises: ModelError for a step of 0, which leads nowhere."""
    if 0 in steps:
        raise ModelError("a step is 0, expected another number")


def cut_axes(axes: Sequence[int], rank: int) -> list[int]:
    """Axes counted from the front, in their order.  Raises: ModelError for one that is not there or named twice."""
    if axes and not rank:
        raise ModelError(f"axis {axes[0]} is out of range for rank 0")
    found = [normal_axis(a, rank) for a in axes]
    if len(set(found)) != len(found):
        raise ModelError(f"axes {found} name one axis twice")
    return found


def _counted(position: Dim, size: Dim) -> Dim:
    """A slice position counted from the front."""
    lower, upper = symbolic.bounds(position)
    if lower is not None and lower >= 0:
        return position
    if upper is not None and upper < 0:
        return position + size
    # Only a call knows the sign: what is added is `size` times 1 below zero, else times 0.
    return position - size * symbolic.maximum(-1, symbolic.minimum(0, position))


def _clamp(position: Dim, low: Dim, high: Dim) -> Dim:
    """`position` between `low` and `high`, in as few words as the bounds allow."""
    if not _at_most(low, position):
        position = symbolic.maximum(low, position)
        # A position only raised to a low end stays below a high end that bounds both.
    below = _at_most(position, high) or _raised_within(position, low, high)
    return position if below else symbolic.minimum(high, position)


def _at_most(left: Dim, right: Dim) -> bool:
    """Whether `left <= right` surely holds."""
    least = symbolic.bounds(right - left)[0]
    return least is not None and least >= 0


def _raised_within(position: Dim, low: Dim, high: Dim) -> bool:
    """Whether `position` is `max(low, p)` with both parts at most `high`."""
    atom = symbolic.only_atom(position)
    if not isinstance(atom, symbolic.Operation):
        return False
    parts = (atom.left, atom.right)
    return atom.op == "max" and low in parts and all(_at_most(p, high) for p in parts)


def _count(first: Dim, stop: Dim, step: int, size: Dim) -> Dim:
    count = symbolic.ceildiv(stop - first, step)
    # `first` lies within the axis, so up to its end there is no negative count.
    return count if stop == size else symbolic.maximum(0, count)


def slice_range(start: Dim, end: Dim, step: int, size: Dim) -> tuple[Dim, Dim]:
    """First index and number of elements of `start:end:step` over an axis of `size`.

    Source: ONNX Slice, opset 13 (clamping of out-of-range positions).
    """
    if step > 0:
        first = _limit(start, size, 0, size)
        stop = _limit(end, size, 0, size)
        return first, _count(first, stop, step, size)
    first = _limit(start, size, 0, size - 1)
    stop = _limit(end, size, -1, size - 1)
    return first, symbolic.maximum(0, symbolic.ceildiv(first - stop, -step))


def _limit(position: Dim, size: Dim, low: Dim, high: Dim) -> Dim:
    if isinstance(position, int) and position >= HUGE:
        return high
    if isinstance(position, int) and position <= -HUGE:
        return symbolic.minimum(low, high)
    return _clamp(_counted(position, size), low, high)
