"""Factors of matrices of complex numbers, and equations: host ops of numerical models.

The graph has no complex numbers: every one is two operands or results, its parts.  All take matrices in the
last two axes, compute in complex128 and round once.  Those that matrices of real numbers have no op for are used
for them, too: their imaginary parts stay zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.dtypes import i32
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim, minimum
from tilewright.compiler.graph.schema import Attributes, TensorType
from tilewright.compiler.kernel import numerics
from tilewright.compiler.ops import reflections
from tilewright.compiler.ops.declaration import OpDecl, Types, attr, declare, operand
from tilewright.compiler.ops.elimination import eliminated, substituted
from tilewright.compiler.ops.linear_algebra import (
    cholesky_by_rows,
    svd_factors,
    svd_types,
    where_finite,
)
from tilewright.compiler.ops.shapes import check_same, need

_FLOATS: Final = (dtypes.f32, dtypes.f64)
_ON_HOST: Final = "elimination and iteration pick their steps by value"
Shape = tuple[Dim, ...]


def _operands(*names: str) -> tuple[Any, ...]:
    """Two operands for each name, all of one type."""
    parts = [f"{name}_{part}" for name in names for part in ("real", "imaginary")]
    first, *rest = parts
    return (operand(first, _FLOATS), *(operand(name, _FLOATS, like=first) for name in rest))


def _results(*names: str) -> tuple[str, ...]:
    """Two results for each name, or one for `=name`."""
    listed: list[str] = []
    for name in names:
        plain = name.removeprefix("=")
        parts = (f"{name}_real", f"{name}_imaginary")
        listed += [plain] if plain != name else parts
    return tuple(listed)


def _matrices(types: Types, place: int = 0) -> TensorType:
    x, other = need(types, place), need(types, place + 1)
    if x.rank < 2 or other.rank != x.rank:
        raise ModelError(f"needs the parts of matrices, got {x} and {other}")
    for one, two in zip(x.shape, other.shape, strict=True):
        check_same(f"the parts {x} and {other}", one, two)
    return x


def _square(types: Types) -> TensorType:
    x = _matrices(types)
    check_same(f"rows and columns of {x}", x.shape[-1], x.shape[-2])
    return x


def _twice(*types: TensorType) -> tuple[TensorType, ...]:
    return tuple(t for each in types for t in (each, each))


def _joined(real: np.ndarray, imaginary: np.ndarray) -> np.ndarray:
    found = np.empty(real.shape, np.complex128)
    found.real, found.imag = real, imaginary
    return found


def _parts(value: np.ndarray, like: np.ndarray) -> list[np.ndarray]:
    """Both parts of complex numbers, rounded; whole numbers as they are."""
    if value.dtype.kind in "iu":
        return [value.astype(np.int32)]
    pieces = [np.real(value), np.imag(value)] if value.dtype.kind == "c" else [value]
    dtype = dtypes.from_numpy(like.dtype)
    return [numerics.cast(np.ascontiguousarray(piece), dtype) for piece in pieces]


def _by_parts(function: Callable[..., Any]) -> Callable[..., tuple[np.ndarray, ...]]:
    """An oracle of parts from a function of complex arrays; operands that are whole numbers stay one."""

    def oracle(*given: np.ndarray, **attributes: Any) -> tuple[np.ndarray, ...]:
        rest = list(given)
        arrays: list[np.ndarray] = []
        while rest:
            real = rest.pop(0)
            arrays.append(real if real.dtype.kind in "iu" else _joined(real, rest.pop(0)))
        found: Any = function(*arrays, **attributes)
        several: Sequence[np.ndarray] = found if isinstance(found, tuple) else (found,)
        return tuple(part for each in several for part in _parts(each, given[0]))

    return oracle


def _one_by_one(function: Callable[..., Any]) -> Callable[..., tuple[np.ndarray, ...]]:
    """A function of one matrix and what belongs to it, for every matrix of a batch."""

    def each(
        x: np.ndarray, *others: np.ndarray, **attributes: Any
    ) -> tuple[np.ndarray, ...]:
        batch = x.shape[:-2]
        places = list(np.ndindex(batch)) or [None]
        found = [_listed(function, place, (x, *others), attributes) for place in places]
        if not batch:
            return tuple(found[0])
        count = int(np.prod(batch))
        stacked = [np.stack(column) for column in zip(*found, strict=True)]
        return tuple(s[:count].reshape((*batch, *s.shape[1:])) for s in stacked)

    return each


def _listed(
    function: Callable[..., Any],
    place: tuple[int, ...] | None,
    arrays: Sequence[np.ndarray],
    attributes: dict[str, Any],
) -> list[np.ndarray]:
    """What one matrix gives; no place: what one of zeros would, for the sizes of results of empty batches."""
    if place is None:
        depth = arrays[0].ndim - 2
        zeros = [np.zeros(a.shape[depth:], a.dtype) for a in arrays]
        found = function(*zeros, **attributes)
    else:
        found = function(*(a[place] for a in arrays), **attributes)
    return [np.asarray(each) for each in (found if isinstance(found, tuple) else (found,))]


# --- factors ------------------------------------------------------------------------------------


def _cholesky_infer(types: Types, _: Attributes) -> tuple[TensorType, ...]:
    x = _square(types)
    return *_twice(x), TensorType(i32, x.shape[:-2])


def _cholesky(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    found, lost = cholesky_by_rows(x[None])
    return found[0], lost[0]


complex_cholesky: Final = declare(
    name="complex_cholesky",
    summary="Lower triangular L of positive definite x = L L*, and which leading minor is not, or 0",
    operands=_operands("x"),
    results=_results("factor", "=info"),
    infer=_cholesky_infer,
    evaluate=_by_parts(_one_by_one(_cholesky)),
    on_host=_ON_HOST,
    source="LAPACK zpotrf",
)


def _lu_infer(types: Types, _: Attributes) -> tuple[TensorType, ...]:
    x = _matrices(types)
    count, batch = minimum(x.shape[-2], x.shape[-1]), x.shape[:-2]
    return *_twice(x), TensorType(i32, (*batch, count)), TensorType(i32, batch)


def _size(column: np.ndarray) -> np.ndarray:
    return abs(np.real(column)) + abs(np.imag(column))


def _lu(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    a = x.copy()
    pivots, lost = eliminated(a, _size)
    return a, pivots, np.asarray(lost)


complex_lu: Final = declare(
    name="complex_lu",
    summary="Unit lower and upper triangular factors in one matrix, rows exchanged (from 1), and which pivot is 0",
    operands=_operands("x"),
    results=_results("factors", "=pivots", "=info"),
    infer=_lu_infer,
    evaluate=_by_parts(_one_by_one(_lu)),
    on_host=_ON_HOST,
    source="LAPACK zgetrf",
)


def _pivoted_infer(types: Types, _: Attributes) -> tuple[TensorType, ...]:
    x, places = _matrices(types), need(types, 2)
    count = minimum(x.shape[-2], x.shape[-1])
    scales = x.with_shape((*x.shape[:-2], count))
    return *_twice(x), places, *_twice(scales)


pivoted_reflectors: Final = declare(
    name="pivoted_reflectors",
    summary="As `reflectors`, of x with its columns exchanged, the longest first after those whose place is not 0",
    operands=(*_operands("x"), operand("places", (i32,))),
    results=_results("factors", "=places_found", "scales"),
    infer=_pivoted_infer,
    evaluate=_by_parts(_one_by_one(reflections.pivoted)),
    on_host=_ON_HOST,
    source="LAPACK geqp3",
)


def _reflectors_infer(types: Types, _: Attributes) -> tuple[TensorType, ...]:
    x = _matrices(types)
    count = minimum(x.shape[-2], x.shape[-1])
    return _twice(x, x.with_shape((*x.shape[:-2], count)))


def _reflectors(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    factors, _, scales = reflections.pivoted(x, np.ones(x.shape[1]))  # all columns stay
    return factors, scales


complex_reflectors: Final = declare(
    name="complex_reflectors",
    summary="R above the diagonal and Householder's vectors below it, and how far each reflects",
    operands=_operands("x"),
    results=_results("factors", "scales"),
    infer=_reflectors_infer,
    evaluate=_by_parts(_one_by_one(_reflectors)),
    on_host=_ON_HOST,
    source="LAPACK zgeqrf",
)


def _reflected_infer(types: Types, _: Attributes) -> tuple[TensorType, ...]:
    return _twice(_matrices(types, 4))


complex_reflected: Final = declare(
    name="complex_reflected",
    summary="Q x, or x Q, or the same with the adjoint of Q, the product of Householder's reflections",
    operands=_operands("vectors", "scales", "x"),
    attributes=(attr("left", "bool", default=True), attr("adjoint", "bool", default=False)),
    results=_results("found"),
    infer=_reflected_infer,
    evaluate=_by_parts(reflections.reflected),
    on_host=_ON_HOST,
    source="LAPACK zunmqr",
)

# --- similar matrices ---------------------------------------------------------------------------


def _beside(x: TensorType) -> TensorType:
    """What a diagonal beside the main one holds."""
    return x.with_shape((*x.shape[:-2], x.shape[-1] - 1))


def _hessenberg_infer(types: Types, _: Attributes) -> tuple[TensorType, ...]:
    x = _square(types)
    return _twice(x, _beside(x))


hessenberg: Final = declare(
    name="hessenberg",
    summary="A similar matrix that is zero below the diagonal under the main one, Householder's vectors there, and scales",
    operands=_operands("x"),
    attributes=(attr("low", "int"), attr("high", "int")),
    results=_results("factors", "scales"),
    infer=_hessenberg_infer,
    evaluate=_by_parts(_one_by_one(reflections.hessenberg)),
    on_host=_ON_HOST,
    source="LAPACK gehrd",
)


def _tridiagonal_infer(types: Types, _: Attributes) -> tuple[TensorType, ...]:
    x = _square(types)
    diagonal = x.with_shape(x.shape[:-1])
    return *_twice(x), diagonal, _beside(x), *_twice(_beside(x))


tridiagonal: Final = declare(
    name="tridiagonal",
    summary="Householder's vectors, two real diagonals and scales of a Hermitian matrix of which one triangle is read",
    operands=_operands("x"),
    attributes=(attr("lower", "bool", default=True),),
    results=_results("factors", "=diagonal", "=beside", "scales"),
    infer=_tridiagonal_infer,
    evaluate=_by_parts(_one_by_one(reflections.tridiagonal)),
    on_host=_ON_HOST,
    source="LAPACK hetrd",
)


def _schur_infer(types: Types, _: Attributes) -> tuple[TensorType, ...]:
    x = _square(types)
    return *_twice(x, x), TensorType(i32, x.shape[:-2])


schur: Final = declare(
    name="schur",
    summary="Upper triangular T and unitary Q of x = Q T Q*, and how many eigenvalues were not found",
    operands=_operands("x"),
    results=_results("form", "vectors", "=info"),
    infer=_schur_infer,
    evaluate=_by_parts(_one_by_one(reflections.schur)),
    on_host=_ON_HOST,
    source="LAPACK zgees",
)

# --- eigenvalues and singular values ------------------------------------------------------------


def _eigh_infer(types: Types, _: Attributes) -> tuple[TensorType, ...]:
    x = _square(types)
    return x.with_shape(x.shape[:-1]), *_twice(x)


def _eigh(x: np.ndarray, *, lower: bool) -> tuple[np.ndarray, np.ndarray]:
    if not x.size:
        return np.zeros(x.shape[:-1]), x
    triangle = "L" if lower else "U"
    values, vectors = where_finite(lambda a: np.linalg.eigh(a, triangle), x)
    return values, vectors


complex_eigh: Final = declare(
    name="complex_eigh",
    summary="Eigenvalues, smallest first, and eigenvectors of Hermitian matrices of which one triangle is read",
    operands=_operands("x"),
    attributes=(attr("lower", "bool", default=True),),
    results=_results("=values", "vectors"),
    infer=_eigh_infer,
    evaluate=_by_parts(_eigh),
    on_host=_ON_HOST,
    source="LAPACK zheevd",
)


def _eig_infer(types: Types, _: Attributes) -> tuple[TensorType, ...]:
    x = _square(types)
    return _twice(x.with_shape(x.shape[:-1]), x)


def _eig(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if not x.size:
        return np.zeros(x.shape[:-1], x.dtype), x
    values, vectors = where_finite(np.linalg.eig, x)
    return values, vectors


complex_eig: Final = declare(
    name="complex_eig",
    summary="Eigenvalues and eigenvectors of any square matrices",
    operands=_operands("x"),
    results=_results("values", "vectors"),
    infer=_eig_infer,
    evaluate=_by_parts(_eig),
    on_host=_ON_HOST,
    source="LAPACK zgeev",
)


def _left_infer(types: Types, _: Attributes) -> tuple[TensorType, ...]:
    return _twice(_square(types))


def _left(x: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Eigenvectors of the adjoint, each that of the nearest value that is not taken."""
    if not x.size:
        return x
    mirrored, vectors = where_finite(np.linalg.eig, x.conj().T)
    if np.isnan(vectors).any():
        return vectors
    distances = abs(values[:, None] - mirrored.conj()[None, :])
    order = np.zeros(len(values), np.intp)
    for place in range(len(values)):
        order[place] = np.argmin(distances[place])
        distances[:, order[place]] = np.inf
    return vectors[:, order]


left_eigenvectors: Final = declare(
    name="left_eigenvectors",
    summary="Vectors u with u* x = w u* for the eigenvalues w of square matrices, in their order",
    operands=_operands("x", "values"),
    results=_results("vectors"),
    infer=_left_infer,
    evaluate=_by_parts(_one_by_one(_left)),
    on_host=_ON_HOST,
    source="LAPACK zgeev",
)


def _svd_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    left, values, right = svd_types(_matrices(types), attributes)
    return *_twice(left), values, *_twice(right)


complex_svd: Final = declare(
    name="complex_svd",
    summary="U, the singular values, largest first, and V*, `full` with square U and V*",
    operands=_operands("x"),
    attributes=(attr("full", "bool", default=False),),
    results=_results("left", "=values", "right"),
    infer=_svd_infer,
    evaluate=_by_parts(svd_factors),
    on_host=_ON_HOST,
    source="LAPACK zgesdd",
)

# --- equations ----------------------------------------------------------------------------------


def _triangular_infer(types: Types, _: Attributes) -> tuple[TensorType, ...]:
    a, b = _square(types), _matrices(types, 2)
    check_same(f"rows of {a} and {b}", a.shape[-1], b.shape[-2])
    return _twice(b)


complex_triangular_solve: Final = declare(
    name="complex_triangular_solve",
    summary="X of a X = b, where only the lower or the upper triangle of a counts, `unit` with ones on its diagonal",
    operands=_operands("a", "b"),
    attributes=(attr("lower", "bool", default=True), attr("unit", "bool", default=False)),
    results=_results("x"),
    infer=_triangular_infer,
    evaluate=_by_parts(substituted),
    on_host="every row follows those before",
    source="BLAS ztrsm",
)

OPS: Final[tuple[OpDecl, ...]] = (
    complex_cholesky, complex_lu, complex_reflectors, complex_reflected, pivoted_reflectors,
    hessenberg, tridiagonal, schur, complex_eigh, complex_eig, left_eigenvectors, complex_svd,
    complex_triangular_solve,
)  # fmt: skip
