"""Sizes that must be related: known to be so, or asked of every call.

Called by rows and by the demands on types.
"""

from __future__ import annotations

from tilewright.base.symbolic import Dim, bounds
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.formats.plan.size_relations import at_least


def assumed_equal(e: NodeMaker, left: Dim, right: Dim) -> bool:
    """Whether two sizes are equal; where a call decides, that is what it must give."""
    if isinstance(left, int) and isinstance(right, int):
        return left == right
    e.assume(left, right)
    return True


def assumed_inside(e: NodeMaker, limit: Dim, size: Dim) -> bool:
    """Whether a limit is at most a size; where a call decides, that is what it must give."""
    room = bounds(size - limit)
    if room[0] is not None and room[0] >= 0:
        return True
    if room[1] is not None and room[1] < 0:
        return False
    e.assume(*at_least(size, limit))
    return True
