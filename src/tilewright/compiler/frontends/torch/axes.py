"""Axes as operators of torch name them: negative ones count from the end, none means all.

Called by the rows of every family that has axes.
"""

from __future__ import annotations

from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.torch.call import Call


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
