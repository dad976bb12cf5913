"""Custom calls of JAX for matrices of which only the elements that are not zero are kept, row by row.

Called by the rows of custom calls.

Source: JAX, `jax.experimental.sparse.BCSR` and its lowering for CPUs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tilewright.base import dtypes
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.stablehlo.call import Call
from tilewright.compiler.frontends.stablehlo.elementwise import product_of
from tilewright.compiler.frontends.stablehlo.held import Held, dims_of, on_parts


def _product(call: Call) -> list[Held]:
    """Rows of a sparse matrix times a dense matrix or vector.

    Elements from the last row's end on are padding, whose columns need not be there.
    """
    e, kept, dense = call.maker, call.held(0), call.held(3)
    ends, columns = call.tensor(1), call.tensor(2)
    ranks = (len(dims_of(kept)), ends.rank, columns.rank, len(dims_of(dense)))
    if ranks not in ((1, 1, 1, 1), (1, 1, 1, 2)) or ends.shape[0] == 0:
        raise ModelError("is no product of rows of elements and a matrix or a vector")
    rows = call.stated()[0]
    if rows is None or ends.shape != (rows + 1,):
        raise ModelError(f"{ends.shape[0]} ends are not those of {rows} rows")
    count, width = dims_of(dense)[0], dims_of(dense)[1:]
    nothing = on_parts(lambda x: e.full(0, x.dtype, (rows, *width)), dense)
    if 0 in (rows, count, *width, *dims_of(kept)):
        return [nothing]
    last = e.op("sub", e.dim(count), e.scalar(1, dtypes.i64))
    inside = e.op("clip", e.cast(columns, dtypes.i64), e.scalar(0, dtypes.i64), last)
    read = on_parts(lambda x: e.op("gather", x, inside, axis=0), dense)
    spread = on_parts(lambda x: _spread(e, x, width), kept)
    terms = product_of(e, spread, read)
    where = e.unsqueeze(_rows_of(e, ends, dims_of(kept)[0], rows), (1,))
    return [_added(e, nothing, where, terms)]


def _spread(e: NodeMaker, x: Tensor, width: tuple[Dim, ...]) -> Tensor:
    if not width:
        return x
    return e.broadcast_to(e.unsqueeze(x, (1,)), (*x.shape, *width))


def _rows_of(e: NodeMaker, ends: Tensor, count: Dim, rows: int) -> Tensor:
    """The row of each element, which is how many rows begin up to it; `rows` where it is in none."""
    begins = e.unsqueeze(e.cast(ends, dtypes.i64), (1,))
    ones = e.full(1, dtypes.i64, ends.shape)
    none = e.full(0, dtypes.i64, (count,))
    counted = e.op("scatter_nd", none, begins, ones, reduction="add", drops=True)
    row = e.op("sub", e.op("cumsum", counted, axis=0), e.scalar(1, dtypes.i64))
    is_before = e.op("less", row, e.scalar(0, dtypes.i64))
    return e.op("where", is_before, e.scalar(rows, dtypes.i64), row)


def _added(e: NodeMaker, nothing: Held, where: Tensor, terms: Held) -> Held:
    """Terms in their rows; what belongs to no row is dropped."""

    def added(x: Tensor) -> Tensor:
        none = e.full(0, x.dtype, dims_of(nothing))
        return e.op("scatter_nd", none, where, x, reduction="add", drops=True)

    return on_parts(added, terms)


CALLS: Final[dict[str, Callable[[Call], list[Held]]]] = {
    "cpu_csr_sparse_dense_ffi": _product
}
