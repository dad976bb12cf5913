"""Systems of equations taken apart: into factors of matrices and triangular systems.

Written in operators that have rows; they run under torch's tracing.  Called by `decompositions`.

Source: the operators of ATen by name, `torch` reference pages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import tilewright.compiler.frontends.torch.border as border

# Torch's tensors have no types that we see.
Held = Any


def _torch() -> Any:
    return border.load()


def _turned(x: Held) -> Held:
    """The adjoint: of real matrices the transposed ones."""
    return x.mH


def _check_errors(info: Held, api_name: str, *, is_matrix: bool) -> None:
    del info, api_name, is_matrix


def _cholesky(x: Held, upper: bool = False) -> Held:
    return _torch().linalg.cholesky_ex(x, upper=upper)[0]


def _triangular(a: Held, b: Held, *, upper: bool, unit: bool = False) -> Held:
    return _torch().linalg.solve_triangular(a, b, upper=upper, unitriangular=unit)


def _cholesky_solve(b: Held, factor: Held, upper: bool = False) -> Held:
    batch = _torch().broadcast_shapes(b.shape[:-2], factor.shape[:-2])
    b = b.expand(*batch, *b.shape[-2:])
    lower = _turned(factor) if upper else factor
    return _triangular(_turned(lower), _triangular(lower, b, upper=False), upper=True)


def _eye_like(x: Held) -> Held:
    eye = _torch().eye(x.shape[-1], dtype=x.dtype, device=x.device)
    return eye.expand(x.shape)


def _cholesky_inverse(factor: Held, upper: bool = False) -> Held:
    return _cholesky_solve(_eye_like(factor), factor, upper)


def _triangular_solve(
    b: Held,
    a: Held,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> tuple[Held, Held]:
    batch = _torch().broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a = a.expand(*batch, *a.shape[-2:])
    b = b.expand(*batch, *b.shape[-2:])
    matrix, is_upper = (a.mT, not upper) if transpose else (a, upper)
    return _triangular(matrix, b, upper=is_upper, unit=unitriangular), a.clone()


def _lu(x: Held, *, pivot: bool = True) -> tuple[Held, Held, Held]:
    torch = _torch()
    packed, pivots, _ = torch.linalg.lu_factor_ex(x, pivot=pivot)
    permutation, lower, upper = torch.lu_unpack(packed, pivots)
    return (permutation if pivot else x.new_empty((0,))), lower, upper


def _lu_solve(
    packed: Held, pivots: Held, b: Held, *, left: bool = True, adjoint: bool = False
) -> Held:
    torch = _torch()
    batch = torch.broadcast_shapes(packed.shape[:-2], b.shape[:-2])
    permutation, _, _ = torch.lu_unpack(packed, pivots, unpack_data=False)
    permutation = permutation.expand(*batch, *permutation.shape[-2:])
    packed = packed.expand(*batch, *packed.shape[-2:])
    b = b.expand(*batch, *b.shape[-2:])
    if not left:
        return _turned(_solved(packed, permutation, _turned(b), adjoint=not adjoint))
    return _solved(packed, permutation, b, adjoint=adjoint)


def _solved(packed: Held, permutation: Held, b: Held, *, adjoint: bool) -> Held:
    """X of `P L U x = b`, or of the turned matrix."""
    if adjoint:
        found = _triangular(_turned(packed), b, upper=False)
        found = _triangular(_turned(packed), found, upper=True, unit=True)
        return permutation @ found
    found = _triangular(packed, _turned(permutation) @ b, upper=False, unit=True)
    return _triangular(packed, found, upper=True)


def _sign_of(pivots: Held, dtype: Any) -> Held:
    """The sign that exchanges of rows give a determinant."""
    places = _torch().arange(1, pivots.shape[-1] + 1, device=pivots.device)
    moved = (pivots != places).sum(-1)
    return (1 - 2 * (moved % 2)).to(dtype)


def _diagonal_product(packed: Held, pivots: Held) -> Held:
    return packed.diagonal(0, -2, -1).prod(-1) * _sign_of(pivots, packed.dtype)


def _factors(x: Held) -> tuple[Held, Held]:
    """What a determinant is made of: of the transposed matrix where a real one lies row by row.

    So does torch, and derivatives, which it traces before this, solve equations with what it has.
    """
    has_rows = x.is_contiguous() and not x.is_complex()
    packed, pivots, _ = _torch().linalg.lu_factor_ex(x.mT if has_rows else x)
    return packed, pivots


def _det(x: Held) -> tuple[Held, Held, Held]:
    packed, pivots = _factors(x)
    return _diagonal_product(packed, pivots), packed, pivots


def _slogdet(x: Held) -> tuple[Held, Held, Held, Held]:
    packed, pivots = _factors(x)
    diagonal = packed.diagonal(0, -2, -1)
    sign = diagonal.sgn().prod(-1) * _sign_of(pivots, packed.dtype)
    return sign, diagonal.abs().log().sum(-1), packed, pivots


def _inverse(x: Held, *, check_errors: bool = False) -> tuple[Held, Held]:
    del check_errors
    packed, pivots, info = _torch().linalg.lu_factor_ex(x)
    return _lu_solve(packed, pivots, _eye_like(x)), info


def _solve(
    x: Held, b: Held, *, left: bool = True, check_errors: bool = False
) -> tuple[Held, Held, Held, Held]:
    del check_errors
    torch = _torch()
    packed, pivots, info = torch.linalg.lu_factor_ex(x)
    is_vector = b.dim() == 1 or (x.dim() - 1 == b.dim() and x.shape[:-1] == b.shape)
    right = b.unsqueeze(-1) if is_vector else b
    found = _lu_solve(packed, pivots, right, left=left)
    return (found.squeeze(-1) if is_vector else found), packed, pivots, info


def _qr(x: Held, mode: str = "reduced") -> tuple[Held, Held]:
    torch = _torch()
    rows, columns = x.shape[-2:]
    count = torch.sym_min(rows, columns)
    vectors, scales = torch.geqrf(x)
    if mode == "r":
        return x.new_empty((0,)), vectors[..., :count, :].triu()
    if mode == "complete" and rows != count:
        wide = torch.nn.functional.pad(vectors, (0, rows - columns))
        return torch.linalg.householder_product(wide, scales), vectors.triu()
    front = vectors[..., :, :count]
    return torch.linalg.householder_product(front, scales), vectors[..., :count, :].triu()


def _apply_reflections(
    vectors: Held, scales: Held, x: Held, left: bool = True, transpose: bool = False
) -> Held:
    torch = _torch()
    rows, columns = vectors.shape[-2:]
    # Columns behind the last row hold no reflection.
    whole = torch.nn.functional.pad(vectors, (0, rows - columns))
    q = torch.linalg.householder_product(whole, scales)
    q = _turned(q) if transpose else q
    return q @ x if left else x @ q


def _pseudo_inverse(
    x: Held, *, atol: Held = None, rtol: Held = None, hermitian: bool = False
) -> Held:
    torch = _torch()
    if border.is_known_empty(x):
        return x.new_zeros((*x.shape[:-2], x.shape[-1], x.shape[-2]))
    if hermitian:
        values, vectors = torch.linalg.eigh(x)
        left, right, sizes = vectors, _turned(vectors), values.abs()
    else:
        left, values, right = torch.linalg.svd(x, full_matrices=False)
        sizes = values
    limit = sizes.amax(-1, keepdim=True)
    if rtol is None:
        small = torch.finfo(x.dtype).eps * torch.sym_max(*x.shape[-2:])
        rtol = torch.full((), small, dtype=sizes.dtype, device=x.device)
        if atol is not None:
            rtol = torch.where(atol > 0, torch.zeros_like(rtol), rtol)
    atol = torch.zeros_like(rtol) if atol is None else atol
    limit = torch.maximum(atol.unsqueeze(-1), rtol.unsqueeze(-1) * limit)
    inverse = torch.where(sizes > limit, 1 / values, torch.zeros_like(values))
    return _turned(right) @ (inverse.unsqueeze(-1) * _turned(left))


_TAYLOR: Final = 18
_SQUARINGS: Final = 12


def _matrix_exponential(x: Held) -> Held:
    """Taylor's series of the matrix divided by 2^s, squared s times; s follows from its norm."""
    torch = _torch()
    if border.is_known_empty(x):
        return x.clone()
    wide = x.to(torch.promote_types(x.dtype, torch.float64))
    norm = wide.abs().sum(-1).amax(-1)
    squarings = norm.clamp(min=1.0).log2().ceil().clamp(max=_SQUARINGS)[..., None, None]
    scaled = wide / torch.exp2(squarings)
    term = found = _eye_like(scaled)
    for step in range(1, _TAYLOR + 1):
        term = term @ scaled / step
        found = found + term
    for step in range(_SQUARINGS):
        found = torch.where(squarings > step, found @ found, found)
    return found.to(x.dtype)


OWN: Final[dict[str, Callable[..., Any]]] = {
    "_linalg_check_errors": _check_errors,
    "_linalg_det": _det,
    "_linalg_slogdet": _slogdet,
    "_linalg_solve_ex": _solve,
    "cholesky": _cholesky,
    "cholesky_inverse": _cholesky_inverse,
    "cholesky_solve": _cholesky_solve,
    "linalg_inv_ex": _inverse,
    "linalg_lu": _lu,
    "linalg_lu_solve": _lu_solve,
    "linalg_matrix_exp": _matrix_exponential,
    "linalg_pinv.atol_rtol_tensor": _pseudo_inverse,
    "linalg_qr": _qr,
    "ormqr": _apply_reflections,
    "triangular_solve": _triangular_solve,
}
"""By the names of overloads."""
