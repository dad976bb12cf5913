"""Rounding to whole numbers by a rule that no op of the graph has.

Called by the rows of front ends.
"""

from __future__ import annotations

from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.tensor import Tensor


def away_from_zero(e: NodeMaker, x: Tensor) -> Tensor:
    """The nearest whole number of floats; halves go away from zero: the fraction, which is exact, decides."""
    size = e.op("abs", x)
    whole = e.op("floor", size)
    half = e.op("greater_equal", e.op("sub", size, whole), e.scalar(0.5, x.dtype))
    up = e.op("where", half, e.op("add", whole, e.scalar(1, x.dtype)), whole)
    return e.op("where", e.op("less", x, e.scalar(0, x.dtype)), e.op("neg", up), up)
