"""The diagonal of matrices, as one run of their elements in order: places a row and one element apart.

Nothing is added up, so that a zero keeps its sign.  Called by rows of every front end.
"""

from __future__ import annotations

from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.tensor import Tensor


def diagonal(e: NodeMaker, x: Tensor, count: Dim, offset: int = 0) -> Tensor:
    """The first `count` elements at `[i, i + offset]`, or `[i - offset, i]` where that is negative.

    Shapes: x: [..., M, N] → [..., count].
    """
    rows, columns = x.shape[-2:]
    if count == 0:
        return e.full(0, x.dtype, (*x.shape[:-2], 0))
    start = offset if offset >= 0 else -offset * columns
    flat = e.reshape(x, (*x.shape[:-2], rows * columns))
    if not isinstance(columns, int) or not isinstance(count, int):
        steps = e.op("mul", e.iota((count,), 0), e.dim(columns + 1))
        places = e.op("add", steps, e.dim(start))
        return e.op("gather", flat, places, axis=flat.rank - 1, from_end=False)
    return e.op(
        "slice", flat, axes=(flat.rank - 1,), starts=(start,), sizes=(count,),
        steps=(columns + 1,),
    )  # fmt: skip
