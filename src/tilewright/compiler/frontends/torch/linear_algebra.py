"""Rows for factors of matrices and triangular systems; `decompositions` builds on them.

A matrix that has no factors (not positive definite, singular) gives what is not a number, or infinities, where
torch raises an error.

Source: the operators of ATen by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.torch.call import Call
from tilewright.compiler.frontends.torch.row import Row, row

_SILENT: Final = ("check_errors",)


def _turned(e: NodeMaker, x: Tensor) -> Tensor:
    """The last two axes exchanged."""
    return e.transpose(x, [*range(x.rank - 2), x.rank - 1, x.rank - 2])


def _cholesky(call: Call) -> Sequence[Tensor]:
    e, x = call.maker, call.tensor()
    if not call.flag("upper"):
        return e.ops("cholesky", x)
    factor, info = e.ops("cholesky", _turned(e, x))
    return _turned(e, factor), info


def _lu(call: Call) -> Sequence[Tensor]:
    pivot = call.flag("pivot", default=True)
    return call.maker.ops("lu", call.tensor("A"), pivot=pivot)


def _unpacked(call: Call) -> Sequence[Tensor | None]:
    """P, L and U of the factors in one matrix."""
    e, packed, pivots = call.maker, call.tensor("LU_data"), call.tensor("LU_pivots")
    *batch, rows, _ = packed.shape
    lower = upper = permutation = None
    if call.flag("unpack_data", default=True):
        lower, upper = _triangles(e, packed, call.shape(1), call.shape(2))
    if call.flag("unpack_pivots", default=True):
        order = e.op("exchanged_rows", pivots, rows=(rows,))
        found = e.unsqueeze(order, (order.rank - 1,))
        places = e.iota((*batch, rows, rows), len(batch))
        permutation = e.cast(e.op("equal", found, places), packed.dtype)
    return [
        e.full(0, packed.dtype, call.shape(place)) if made is None else made
        for place, made in enumerate((permutation, lower, upper))
    ]


def _triangles(
    e: NodeMaker, packed: Tensor, lower: Sequence[Dim], upper: Sequence[Dim]
) -> tuple[Tensor, Tensor]:
    rank = packed.rank
    left = e.slice(packed, rank - 1, 0, lower[-1])
    right = e.slice(packed, rank - 2, 0, upper[-2])
    shape = tuple(lower)
    rows, columns = (e.iota(shape, rank - 2 + axis) for axis in (0, 1))
    zero, one = e.scalar(0, packed.dtype), e.scalar(1, packed.dtype)
    left = e.op("where", e.op("less", columns, rows), left, zero)
    left = e.op("where", e.op("equal", columns, rows), one, left)
    shape = tuple(upper)
    rows, columns = (e.iota(shape, rank - 2 + axis) for axis in (0, 1))
    right = e.op("where", e.op("less_equal", rows, columns), right, zero)
    return left, right


def _reflectors(call: Call) -> Sequence[Tensor]:
    return call.maker.ops("reflectors", call.tensor())


def _reflected(call: Call) -> Tensor:
    return call.op("reflected", call.tensor("input"), call.tensor("tau"))


def _eigh(call: Call) -> Sequence[Tensor]:
    e, x = call.maker, call.tensor("A")
    values, vectors = e.ops("eigh", x, lower=call.text("UPLO", "L").upper() == "L")
    if not call.flag("compute_v", default=True):
        vectors = e.full(0, x.dtype, call.shape(1))
    return values, vectors


def _svd(call: Call) -> Sequence[Tensor]:
    e, x = call.maker, call.tensor("A")
    call.argument("driver")
    found = e.ops("svd", x, full=call.flag("full_matrices"))
    if call.flag("compute_uv", default=True):
        return found
    empty = [e.full(0, x.dtype, call.shape(place)) for place in (0, 2)]
    return empty[0], found[1], empty[1]


def _triangular(call: Call) -> Tensor:
    """Equations with the matrix on the left; on the right, both sides are turned."""
    e, a, b = call.maker, call.tensor("self"), call.tensor("B")
    upper, unit = call.flag("upper"), call.flag("unitriangular")
    left = call.flag("left", default=True)
    batch = call.shape()[:-2]
    a = e.broadcast_to(a, (*batch, *a.shape[-2:]))
    b = e.broadcast_to(b, (*batch, *b.shape[-2:]))
    if left:
        return e.op("triangular_solve", a, b, lower=not upper, unit=unit)
    turned = [_turned(e, x) for x in (a, b)]
    return _turned(e, e.op("triangular_solve", *turned, lower=upper, unit=unit))


ROWS: Final[tuple[Row, ...]] = (
    row("linalg_cholesky_ex", _cholesky, ignores=_SILENT),
    row("linalg_lu_factor_ex", _lu, ignores=_SILENT),
    row("lu_unpack", _unpacked),
    row("geqrf", _reflectors),
    row("linalg_householder_product", _reflected),
    row("_linalg_eigh", _eigh),
    row("_linalg_svd", _svd),
    row("linalg_solve_triangular", _triangular),
)
