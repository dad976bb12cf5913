"""Factors of matrices and systems of equations of numerical models.

All take matrices in the last two axes, compute in f64 and round once.  Elimination, roots and substitution have
kernels (`factor_bodies`); reflections, eigenvalues and singular values are found on the host, by numpy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, cast

import numpy as np

from tilewright.base import dtypes
from tilewright.base.dtypes import i32, i64
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim, minimum
from tilewright.compiler.graph.schema import (
    UNKNOWN,
    Array,
    Asked,
    Attributes,
    Range,
    TensorType,
)
from tilewright.compiler.kernel import numerics
from tilewright.compiler.ops import reflections
from tilewright.compiler.ops.declaration import (
    IndexRange,
    OpDecl,
    Types,
    attr,
    declare,
    operand,
)
from tilewright.compiler.ops.elimination import eliminated, substituted
from tilewright.compiler.ops.factor_bodies import (
    cholesky_body,
    exchanged_rows_body,
    lu_body,
    triangular_body,
)
from tilewright.compiler.ops.real_schur import eigenvalues as eigenvalues_of_form
from tilewright.compiler.ops.real_schur import real_schur as form_of
from tilewright.compiler.ops.shapes import check_at_most, check_same, first, need

_FLOATS: Final = (dtypes.f32, dtypes.f64)
_ON_HOST: Final = "iteration picks its steps by value"
_MANY_ROWS: Final = 32
"""Rows up to which steps of a whole batch cost less than each matrix by blocks."""


def _matrices(types: Types, place: int = 0) -> TensorType:
    x = need(types, place)
    if x.rank < 2:
        raise ModelError(f"needs matrices, got {x}")
    return x


def _square(types: Types) -> TensorType:
    x = _matrices(types)
    check_same(f"rows and columns of {x}", x.shape[-1], x.shape[-2])
    return x


def _rounded(value: Any, like: Array) -> Array:
    return numerics.cast(np.asarray(value), dtypes.from_numpy(like.dtype))


def _each(x: Array) -> np.ndarray:
    """The matrices one after another, in f64."""
    count = int(np.prod(x.shape[:-2], dtype=np.int64))
    return x.astype(np.float64).reshape((count, *x.shape[-2:]))


# --- factors ------------------------------------------------------------------------------------


def _cholesky_infer(types: Types, _: Attributes) -> tuple[TensorType, ...]:
    x = _square(types)
    return x, TensorType(i32, x.shape[:-2])


def _cholesky_oracle(x: Array) -> tuple[Array, Array]:
    matrices = _each(x)
    factors = _factors_if_any(matrices)
    lost = np.zeros(len(matrices), np.int32)
    missing: Array = np.asarray(~np.isfinite(factors).all(axis=(-2, -1)))
    if missing.any():
        factors[missing], lost[missing] = cholesky_by_rows(matrices[missing])
    return _rounded(factors.reshape(x.shape), x), lost.reshape(x.shape[:-2])


def _factors_if_any(matrices: np.ndarray) -> np.ndarray:
    """Numpy's factor of every matrix; NaN for those without one."""
    try:
        return np.asarray(np.linalg.cholesky(matrices))
    except np.linalg.LinAlgError:
        if len(matrices) == 1:
            return np.full_like(matrices, np.nan)
    # It does not say which has none, and all others are to be what they are without it.
    half = len(matrices) // 2
    return np.concatenate(
        [_factors_if_any(matrices[:half]), _factors_if_any(matrices[half:])]
    )


@np.errstate(all="ignore")
def cholesky_by_rows(matrices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Factors of a batch of f64 or complex128, as far as each has one, and which leading minor has none, or 0."""
    found = np.zeros_like(matrices)
    lost = np.zeros(len(matrices), np.int32)
    for j in range(matrices.shape[-1]):
        row = found[:, j, :j]
        rest = np.real(matrices[:, j, j]) - np.sum(abs(row) ** 2, -1)
        lost = np.where((lost == 0) & ~(rest > 0), j + 1, lost)
        root = np.sqrt(rest)
        found[:, j, j] = root
        below = found[:, j + 1 :, :j] @ row.conj()[..., None]
        found[:, j + 1 :, j] = (matrices[:, j + 1 :, j] - below[..., 0]) / root[:, None]
    return found, np.asarray(lost, np.int32)


cholesky: Final = declare(
    name="cholesky",
    summary="Lower triangular L of positive definite x = L L', and which leading minor is not, or 0",
    operands=(operand("x", _FLOATS),),
    results=("factor", "info"),
    infer=_cholesky_infer,
    evaluate=_cholesky_oracle,
    body=cholesky_body,
    cases=(
        "[3,3]:=4,2,1,2,5,3,1,3,6",
        "f64[2,3,3]:=9,1,1,1,9,1,1,1,9,1,2,3,2,1,4,3,4,1",
    ),
    source="LAPACK potrf",
)


def _lu_infer(types: Types, _: Attributes) -> tuple[TensorType, ...]:
    x = _matrices(types)
    count = minimum(x.shape[-2], x.shape[-1])
    batch = x.shape[:-2]
    return x, TensorType(i32, (*batch, count)), TensorType(i32, batch)


def _lu_oracle(x: Array, *, pivot: bool) -> tuple[Array, ...]:
    matrices = _each(x).copy()
    count = min(x.shape[-2:])
    pivots = np.tile(np.arange(1, count + 1, dtype=np.int32), (len(matrices), 1))
    lost = np.zeros(len(matrices), np.int32)
    if pivot and count > _MANY_ROWS:
        for place, matrix in enumerate(matrices):
            pivots[place], lost[place] = eliminated(matrix, np.abs)
    else:
        for k in range(count):
            if pivot:
                _exchange(matrices, pivots, k)
            _eliminate(matrices, lost, k)
    batch = x.shape[:-2]
    packed = _rounded(matrices.reshape(x.shape), x)
    return packed, pivots.reshape((*batch, count)), lost.reshape(batch)


def _exchange(a: np.ndarray, pivots: np.ndarray, k: int) -> None:
    """Let row k of every matrix be the one with the largest number in column k; which it was, counted from 1."""
    chosen = k + np.argmax(np.abs(a[:, k:, k]), axis=1)
    pivots[:, k] = chosen + 1
    each = np.arange(len(a))
    picked = a[each, chosen]
    a[each, chosen] = a[:, k]
    a[:, k] = picked


def _eliminate(a: np.ndarray, lost: np.ndarray, k: int) -> None:
    """Subtract row k of every matrix from those below; where its pivot is 0, that is noted instead."""
    live: Any = slice(None)
    if not a[:, k, k].all():
        lost[(lost == 0) & (a[:, k, k] == 0)] = k + 1
        live = np.flatnonzero(a[:, k, k])
    column = a[live, k + 1 :, k] / a[live, k, k][:, None]
    a[live, k + 1 :, k] = column
    a[live, k + 1 :, k + 1 :] -= column[:, :, None] * a[live, k, None, k + 1 :]


def _lu_ranges(asked: Asked) -> Range:
    """Rows are counted from 1; of what is found, only these are places."""
    x = need(asked.operands, 0)
    if asked.result.rank == x.rank - 1:
        return Range(1, x.shape[-2])
    return UNKNOWN


lu: Final = declare(
    name="lu",
    summary="Unit lower and upper triangular factors in one matrix, rows exchanged (from 1), and which pivot is 0",
    operands=(operand("x", _FLOATS),),
    attributes=(attr("pivot", "bool", default=True),),
    results=("factors", "pivots", "info"),
    infer=_lu_infer,
    evaluate=_lu_oracle,
    body=lu_body,
    ranges=_lu_ranges,
    cases=("[5,5]", "[2,18,19]", "[19,4]; pivot=False", "[2,0,3]", "[0,3,3]", "[3,3]:=0"),
    source="LAPACK getrf",
)


def _exchanged_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    pivots, (rows,) = first(types), cast("tuple[Dim, ...]", attributes["rows"])
    check_at_most(f"exchanges {pivots} of {rows} rows", pivots.shape[-1], rows)
    return (TensorType(i64, (*pivots.shape[:-1], rows)),)


def _exchanged_places(types: Types, attributes: Attributes) -> tuple[IndexRange, ...]:
    (rows,) = cast("tuple[Dim, ...]", attributes["rows"])
    return (IndexRange(0, first(types).rank - 1, rows, 1, rows),)


def _exchanged_oracle(pivots: np.ndarray, *, rows: tuple[int, ...]) -> np.ndarray:
    flat = pivots.reshape((-1, pivots.shape[-1])) if pivots.size else pivots
    found = np.tile(np.arange(rows[0]), (*pivots.shape[:-1], 1))
    if pivots.size:
        for order, exchanges in zip(found.reshape((-1, rows[0])), flat, strict=True):
            listed = list(range(rows[0]))
            for k, chosen in enumerate((exchanges - 1).tolist()):
                listed[k], listed[chosen] = listed[chosen], listed[k]
            order[:] = listed
    return found


exchanged_rows: Final = declare(
    name="exchanged_rows",
    summary="Which of `rows` rows stands where after row k was exchanged with row pivots[k] - 1, one after another",
    operands=(operand("pivots", (i32,)),),
    attributes=(attr("rows", "dims"),),
    infer=_exchanged_infer,
    evaluate=_exchanged_oracle,
    body=exchanged_rows_body,
    indices=_exchanged_places,
    cases=("i32[2,0]; rows=(3,)", "i32[2,3]:=3,2,3,1,4,4; rows=(4,)"),
    source="LAPACK laswp",
)


def _reflectors_infer(types: Types, _: Attributes) -> tuple[TensorType, ...]:
    x = _matrices(types)
    count = minimum(x.shape[-2], x.shape[-1])
    return x, x.with_shape((*x.shape[:-2], count))


def _reflectors_oracle(x: Array) -> tuple[Array, Array]:
    count = min(x.shape[-2:])
    if not x.size:
        return x, np.zeros((*x.shape[:-2], count), x.dtype)
    raw: Any = np.linalg.qr(x.astype(np.float64), mode="raw")
    return _rounded(np.swapaxes(raw[0], -1, -2), x), _rounded(raw[1], x)


reflectors: Final = declare(
    name="reflectors",
    summary="R above the diagonal and Householder's vectors below it, and how far each reflects",
    operands=(operand("x", _FLOATS),),
    results=("factors", "scales"),
    infer=_reflectors_infer,
    evaluate=_reflectors_oracle,
    on_host=_ON_HOST,
    source="LAPACK geqrf",
)


def _reflected_infer(types: Types, _: Attributes) -> tuple[TensorType, ...]:
    return (_matrices(types),)


def _reflected_oracle(x: Array, scales: Array) -> Array:
    vectors, steps = x.astype(np.float64), scales.astype(np.float64)
    rows, columns = x.shape[-2:]
    eye = np.broadcast_to(np.eye(rows, columns), x.shape)
    found = reflections.reflected(vectors, steps, eye, left=True, adjoint=False)
    return _rounded(found, x)


reflected: Final = declare(
    name="reflected",
    summary="The first columns of the product of Householder's reflections",
    operands=(operand("vectors", _FLOATS), operand("scales", _FLOATS, like="vectors")),
    infer=_reflected_infer,
    evaluate=_reflected_oracle,
    on_host=_ON_HOST,
    source="LAPACK orgqr",
)


# --- eigenvalues and singular values ------------------------------------------------------------


def _eigh_infer(types: Types, _: Attributes) -> tuple[TensorType, ...]:
    x = _square(types)
    return x.with_shape(x.shape[:-1]), x


def where_finite(factor: Callable[[Any], Any], x: Array) -> tuple[Array, ...]:
    """Factors of each matrix, as LAPACK has them: NaN throughout for one with NaN or an infinity."""
    lost: Array = np.asarray(~np.isfinite(x).all(axis=(-2, -1)))
    found: Any = factor(np.where(lost[..., None, None], 0, x))
    parts: list[Array] = [np.array(part) for part in found]
    for part in parts:
        part[lost] = complex(math.nan, math.nan) if part.dtype.kind == "c" else math.nan
    return tuple(parts)


def _eigh_oracle(x: Array, *, lower: bool) -> tuple[Array, Array]:
    if not x.size:
        return np.zeros(x.shape[:-1], x.dtype), x
    triangle = "L" if lower else "U"
    values, vectors = where_finite(
        lambda a: np.linalg.eigh(a, triangle), x.astype(np.float64)
    )
    return _rounded(values, x), _rounded(vectors, x)


eigh: Final = declare(
    name="eigh",
    summary="Eigenvalues, smallest first, and eigenvectors of symmetric matrices of which one triangle is read",
    operands=(operand("x", _FLOATS),),
    attributes=(attr("lower", "bool", default=True),),
    results=("values", "vectors"),
    infer=_eigh_infer,
    evaluate=_eigh_oracle,
    on_host=_ON_HOST,
    source="LAPACK syevd",
)


def _eig_infer(types: Types, _: Attributes) -> tuple[TensorType, ...]:
    x = _square(types)
    return x.with_shape(x.shape[:-1]), x.with_shape(x.shape[:-1]), x, x


def _complex_eig(x: Any) -> list[Array]:
    """Complex for any x: numpy's are real where all eigenvalues of a batch are, and then have one NaN, not two."""
    return [np.asarray(part, np.complex128) for part in np.linalg.eig(x)]


def _eig_oracle(x: Array) -> tuple[Array, ...]:
    if not x.size:
        return (*(np.zeros(x.shape[:-1], x.dtype) for _ in range(2)), x, x)
    found: Any = where_finite(_complex_eig, x.astype(np.float64))
    parts = [getattr(held, part) for held in found for part in ("real", "imag")]
    return tuple(_rounded(part, x) for part in parts)


eig: Final = declare(
    name="eig",
    summary="Eigenvalues and eigenvectors of any square matrices, by their real and imaginary parts",
    operands=(operand("x", _FLOATS),),
    results=("values_real", "values_imaginary", "vectors_real", "vectors_imaginary"),
    infer=_eig_infer,
    evaluate=_eig_oracle,
    on_host=_ON_HOST,
    source="LAPACK geev",
)


def _real_schur_infer(types: Types, _: Attributes) -> tuple[TensorType, ...]:
    x = _square(types)
    line = x.with_shape(x.shape[:-1])
    return x, x, line, line, TensorType(i32, x.shape[:-2])


def _real_schur_oracle(x: Array) -> tuple[Array, ...]:
    found = [form_of(each) for each in _each(x)]
    lost = np.array([info for _, _, info in found], np.int32).reshape(x.shape[:-2])
    form, vectors = (
        np.array([parts[place] for parts in found], np.float64).reshape(x.shape)
        for place in (0, 1)
    )
    parts = (form, vectors, *eigenvalues_of_form(form))
    return (*(_rounded(part, x) for part in parts), lost)


real_schur: Final = declare(
    name="real_schur",
    summary="T of blocks of one and two rows, orthogonal Q of x = Q T Q', both parts of the eigenvalues, and how many were not found",
    operands=(operand("x", _FLOATS),),
    results=("form", "vectors", "values_real", "values_imaginary", "info"),
    infer=_real_schur_infer,
    evaluate=_real_schur_oracle,
    on_host=_ON_HOST,
    source="LAPACK gees",
)


def svd_types(x: TensorType, attributes: Attributes) -> tuple[TensorType, ...]:
    """Those of U, the singular values, and V*."""
    *batch, rows, columns = x.shape
    count = minimum(rows, columns)
    left, right = (rows, columns) if attributes["full"] else (count, count)
    shapes = ((rows, left), (count,), (right, columns))
    return tuple(x.with_shape((*batch, *shape)) for shape in shapes)


def _svd_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    return svd_types(_matrices(types), attributes)


def svd_factors(x: Array, *, full: bool) -> tuple[Array, ...]:
    """U, the singular values, and V* of matrices of f64 or complex128."""
    if x.size:
        return where_finite(lambda a: np.linalg.svd(a, full_matrices=full), x)
    *batch, rows, columns = x.shape
    count = min(rows, columns)
    left, right = (rows, columns) if full else (count, count)
    u = np.broadcast_to(np.eye(rows, left, dtype=x.dtype), (*batch, rows, left))
    v = np.broadcast_to(np.eye(right, columns, dtype=x.dtype), (*batch, right, columns))
    return u, np.zeros((*batch, count)), v


def _svd_oracle(x: Array, *, full: bool) -> tuple[Array, ...]:
    return tuple(_rounded(part, x) for part in svd_factors(x.astype(np.float64), full=full))


svd: Final = declare(
    name="svd",
    summary="U, the singular values, largest first, and V', `full` with square U and V'",
    operands=(operand("x", _FLOATS),),
    attributes=(attr("full", "bool", default=False),),
    results=("left", "values", "right"),
    infer=_svd_infer,
    evaluate=_svd_oracle,
    on_host=_ON_HOST,
    source="LAPACK gesdd",
)


# --- equations ----------------------------------------------------------------------------------


def _triangular_infer(types: Types, _: Attributes) -> tuple[TensorType, ...]:
    a, b = _square(types), _matrices(types, 1)
    check_same(f"rows of {a} and {b}", a.shape[-1], b.shape[-2])
    if a.rank != b.rank:
        raise ModelError(f"needs batches of one shape, got {a} and {b}")
    for one, other in zip(a.shape[:-2], b.shape[:-2], strict=True):
        check_same(f"batches of {a} and {b}", one, other)
    return (b,)


def _triangular_oracle(a: Array, b: Array, *, lower: bool, unit: bool) -> Array:
    wide = (a.astype(np.float64), b.astype(np.float64))
    return _rounded(substituted(*wide, lower=lower, unit=unit), b)


triangular_solve: Final = declare(
    name="triangular_solve",
    summary="X of a X = b, where only the lower or the upper triangle of a counts, `unit` with ones on its diagonal",
    operands=(operand("a", _FLOATS), operand("b", _FLOATS, like="a")),
    attributes=(attr("lower", "bool", default=True), attr("unit", "bool", default=False)),
    infer=_triangular_infer,
    evaluate=_triangular_oracle,
    body=triangular_body,
    cases=(
        "[3,3]:=4,2,1,2,5,3,1,3,6 [3,7]",
        "[2,3,3]:=4,2,1,2,5,3,1,3,6 [2,3,1]; lower=False",
        "[18,18]:unit [18,5]; unit=True",
        "[18,18]:unit [18,2]; unit=True lower=False",
        "[0,0] [0,3]",
    ),
    source="BLAS trsm",
)

OPS: Final[tuple[OpDecl, ...]] = (
    cholesky, lu, exchanged_rows, reflectors, reflected, eigh, eig, real_schur, svd,
    triangular_solve,
)  # fmt: skip
