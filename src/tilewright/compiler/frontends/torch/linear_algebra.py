"""Rows for factors of matrices and triangular systems; `decompositions` builds on them.

A matrix that has no factors (not positive definite, singular) gives what is not a number, or infinities, where
torch raises an error.

Source: the operators of ATen by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

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
    e, packed = call.maker, call.tensor("LU_data")
    permutation, (lower, upper) = permuted_rows(call), triangles(call, packed)
    return [
        e.full(0, packed.dtype, call.shape(place)) if made is None else made
        for place, made in enumerate((permutation, lower, upper))
    ]


def permuted_rows(call: Call) -> Tensor | None:
    """The matrix P that pivots stand for, in the type of the result; None: nobody asks for it."""
    e, pivots = call.maker, call.tensor("LU_pivots")
    if not call.flag("unpack_pivots", default=True):
        return None
    shape = call.shape(0)
    order = e.op("exchanged_rows", pivots, rows=(shape[-1],))
    found = e.unsqueeze(order, (order.rank - 1,))
    return e.cast(e.op("equal", found, e.iota(shape, len(shape) - 2)), call.dtype())


def triangles(
    call: Call, packed: Tensor, *, ones: float = 1
) -> tuple[Tensor, Tensor] | tuple[None, None]:
    """L, whose diagonal holds `ones`, and U of the factors in one matrix; None: nobody asks for them."""
    if not call.flag("unpack_data", default=True):
        return None, None
    e, rank, dtype = call.maker, packed.rank, packed.dtype
    lower, upper = call.shape(1), call.shape(2)
    left = e.slice(packed, rank - 1, 0, lower[-1])
    right = e.slice(packed, rank - 2, 0, upper[-2])
    rows, columns = (e.iota(lower, rank - 2 + axis) for axis in (0, 1))
    zero = e.scalar(0, dtype)
    left = e.op("where", e.op("less", columns, rows), left, zero)
    left = e.op("where", e.op("equal", columns, rows), e.scalar(ones, dtype), left)
    rows, columns = (e.iota(upper, rank - 2 + axis) for axis in (0, 1))
    return left, e.op("where", e.op("less_equal", rows, columns), right, zero)


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


def solved_triangle(
    call: Call, op: str, a: Sequence[Tensor], b: Sequence[Tensor]
) -> Sequence[Tensor]:
    """The parts of what solves equations with the matrix `a` on the left; on the right, both sides are turned."""
    e, rank = call.maker, len(call.shape())
    upper, unit = call.flag("upper"), call.flag("unitriangular")
    left, batch = call.flag("left", default=True), call.shape()[: rank - 2]

    def placed(x: Tensor) -> Tensor:
        whole = e.broadcast_to(x, (*batch, *x.shape[-2:]))
        return whole if left else _turned(e, whole)

    sides = [placed(x) for x in (*a, *b)]
    found = e.ops(op, *sides, lower=upper != left, unit=unit)
    return found if left else [_turned(e, x) for x in found]


def _triangular(call: Call) -> Tensor:
    a, b = (call.tensor(name) for name in ("self", "B"))
    return solved_triangle(call, "triangular_solve", (a,), (b,))[0]


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
