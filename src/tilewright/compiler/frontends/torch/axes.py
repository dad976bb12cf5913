"""Axes as operators of torch name them: negative ones count from the end, none means all.

Called by the rows of every family that has axes.
"""

from __future__ import annotations

from tilewright.base import symbolic
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.torch.call import Call
from tilewright.formats.plan.size_relations import at_least, at_most, unlike


def normal(axis: int, rank: int) -> int:
    """An axis counted from the front; a scalar has the axes 0 and -1.  Raises: ModelError for no axis."""
    bound = max(rank, 1)
    if not -bound <= axis < bound:
        raise ModelError(f"axis {axis} of a tensor with {rank} axes")
    return axis % bound


def axis_of(call: Call, rank: int, name: str = "dim", default: int | None = None) -> int:
    """One axis."""
    return normal(call.integer(name, default), rank)


def axes_of(call: Call, rank: int, name: str = "dim") -> tuple[int, ...]:
    """Some axes; all where none is named."""
    given = call.integers(name) if call.has(name) else ()
    if not given:
        return tuple(range(rank))
    return tuple(sorted({normal(axis, rank) for axis in given})) if rank else ()


def from_front(place: Dim, size: Dim) -> Dim:
    """A place of an axis, counted from the end where it is negative, as one counted from the front; it is not checked."""
    low, high = symbolic.bounds(place)
    if low is not None and low >= 0:
        return place
    if high is not None and high < 0:
        return place + size
    is_negative = 1 - symbolic.minimum(1, symbolic.maximum(0, place + 1))
    return place + size * is_negative


def is_within(start: Dim, count: Dim, size: Dim) -> bool:
    """Whether `count` places from `start` on surely are places of an axis."""
    low, room = symbolic.bounds(start)[0], symbolic.bounds(size - start - count)[0]
    return low is not None and low >= 0 and room is not None and room >= 0


def keep_within(e: NodeMaker, start: Dim, count: Dim, size: Dim) -> None:
    """Have a call fail where `count` places from `start` on are not all places of an axis."""
    if is_within(start, count, size):
        return
    e.assume(*at_least(start, 0))
    e.assume(*at_most(start + count, size))


def keep_filled(e: NodeMaker, size: Dim) -> None:
    """Have a call fail where an axis has no element."""
    low = symbolic.bounds(size)[0]
    if low is None or low < 1:
        e.assume(*at_least(size, 1))


def keep_unlike_one(e: NodeMaker, size: Dim) -> None:
    """Have a call fail where a size is 1 that torch has taken for another."""
    low = symbolic.bounds(size)[0]
    if low is None or low < 2:
        e.assume(*unlike(size, 1))


def slice_start(start: Dim, size: Dim) -> Dim:
    """Where a slice begins, counted from the front; not before the axis, and not behind it where that is known."""
    low = symbolic.bounds(start)[0]
    if low is None or low < 0:
        start = symbolic.minimum(symbolic.maximum(0, from_front(start, size)), size)
    if isinstance(start, int) and isinstance(size, int):
        return min(start, size)
    return start
