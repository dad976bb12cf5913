"""Rows for factors of complex matrices and triangular systems; `decompositions` builds on them.

Each is an op of the graph that takes and gives both parts, which the host computes.  Looked up with the other rows
of complex numbers.

Source: the operators of ATen by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tilewright.compiler.frontends.kit.complex_parts import Complex
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.torch.call import Call
from tilewright.compiler.frontends.torch.complex_operands import Held, pair_of
from tilewright.compiler.frontends.torch.linear_algebra import (
    permuted_rows,
    solved_triangle,
    triangles,
)


def _parts(call: Call, name: str) -> tuple[Tensor, Tensor]:
    pair = pair_of(call, name)
    return pair.real, pair.imaginary


def _adjoint(e: NodeMaker, parts: Sequence[Tensor]) -> list[Tensor]:
    real, imaginary = parts
    axes = [*range(real.rank - 2), real.rank - 1, real.rank - 2]
    return [e.transpose(real, axes), e.op("neg", e.transpose(imaginary, axes))]


def _nothing(call: Call, place: int) -> Complex:
    """A result that nobody asked for."""
    empty = call.maker.full(0, call.dtype(place), call.shape(place))
    return Complex(empty, empty)


def _cholesky(call: Call) -> Sequence[Held]:
    call.argument("check_errors")
    e, x = call.maker, _parts(call, "self")
    if not call.flag("upper"):
        *factor, info = e.ops("complex_cholesky", *x)
    else:
        *lower, info = e.ops("complex_cholesky", *_adjoint(e, x))
        factor = _adjoint(e, lower)
    return Complex(*factor), info


def _lu(call: Call) -> Sequence[Held]:
    call.argument("check_errors")
    if not call.flag("pivot", default=True):
        raise UnsupportedError(
            "factors of complex matrices without exchanged rows are not supported"
        )
    *factors, pivots, info = call.maker.ops("complex_lu", *_parts(call, "A"))
    return Complex(*factors), pivots, info


def _unpacked(call: Call) -> Sequence[Held]:
    """P, L and U of the factors in one matrix."""
    real, imaginary = _parts(call, "LU_data")
    permutation, (lower, upper) = permuted_rows(call), triangles(call, real)
    other_lower, other_upper = triangles(call, imaginary, ones=0)
    still = (
        None
        if permutation is None
        else call.maker.full(0, permutation.dtype, permutation.shape)
    )
    pairs = ((permutation, still), (lower, other_lower), (upper, other_upper))
    return [
        _nothing(call, place) if a is None or b is None else Complex(a, b)
        for place, (a, b) in enumerate(pairs)
    ]


def _reflectors(call: Call) -> Sequence[Held]:
    a, b, c, d = call.maker.ops("complex_reflectors", *_parts(call, "self"))
    return Complex(a, b), Complex(c, d)


def _reflected(call: Call) -> Held:
    """The first columns of the product of reflections: what they make of those of one."""
    e, vectors, scales = call.maker, _parts(call, "input"), _parts(call, "tau")
    shape, dtype = vectors[0].shape, vectors[0].dtype
    rows, columns = (e.iota(shape, len(shape) - 2 + axis) for axis in (0, 1))
    eye = e.cast(e.op("equal", rows, columns), dtype)
    still = e.full(0, dtype, shape)
    return Complex(*e.ops("complex_reflected", *vectors, *scales, eye, still))


def _eigh(call: Call) -> Sequence[Held]:
    is_lower = call.text("UPLO", "L").upper() == "L"
    values, *vectors = call.maker.ops("complex_eigh", *_parts(call, "A"), lower=is_lower)
    wanted = call.flag("compute_v", default=True)
    return values, Complex(*vectors) if wanted else _nothing(call, 1)


def _svd(call: Call) -> Sequence[Held]:
    call.argument("driver")
    full = call.flag("full_matrices")
    a, b, values, c, d = call.maker.ops("complex_svd", *_parts(call, "A"), full=full)
    if call.flag("compute_uv", default=True):
        return Complex(a, b), values, Complex(c, d)
    return _nothing(call, 0), values, _nothing(call, 2)


def _eig(call: Call) -> Sequence[Held]:
    """Of real matrices, too: their eigenvalues may be complex."""
    held = call.held("self")
    if isinstance(held, Complex):
        parts = call.maker.ops("complex_eig", held.real, held.imaginary)
    else:
        parts = call.maker.ops("eig", held)
    a, b, c, d = parts
    return Complex(a, b), Complex(c, d)


def _triangular(call: Call) -> Held:
    a, b = (_parts(call, name) for name in ("self", "B"))
    return Complex(*solved_triangle(call, "complex_triangular_solve", a, b))


ROWS: Final[dict[str, Callable[[Call], Held | Sequence[Held]]]] = {
    "linalg_cholesky_ex": _cholesky, "linalg_lu_factor_ex": _lu, "lu_unpack": _unpacked,
    "geqrf": _reflectors, "linalg_householder_product": _reflected, "_linalg_eigh": _eigh,
    "_linalg_svd": _svd, "linalg_eig": _eig, "linalg_solve_triangular": _triangular,
}  # fmt: skip
"""By the names of overloads, spelled short."""
