"""Custom calls of LAPACK's routines, which JAX writes for factors of matrices on CPUs.

Each is an op of the graph; those of complex numbers take and give both parts.  A routine that is not here is
refused by its name.

Source: LAPACK Users' Guide; JAX, `jax.lax.linalg`, for the order of operands, results and attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tilewright.base import dtypes
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.diagonal import diagonal
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.stablehlo.call import Call, config_of, integer_of, real
from tilewright.compiler.frontends.stablehlo.held import Complex, Held, dims_of
from tilewright.compiler.frontends.stablehlo.linear_algebra import cholesky, solved

Build = Callable[[Call], Sequence[Held]]

_TRANSPOSITIONS: Final = {"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "C": "ADJOINT"}


def _letter(call: Call, name: str) -> str:
    """An option, which is the number of a letter."""
    return chr(integer_of(name, config_of(call).get(name)))


def _real(call: Call, index: int = 0) -> Tensor:
    """A tensor of f32 or f64.  Raises: UnsupportedError for complex numbers."""
    return real(call.held(index))


def _no_problem(e: NodeMaker, held: Held) -> Tensor:
    """What says that every matrix has its factors."""
    return e.full(0, dtypes.i32, dims_of(held)[:-2])


def _places(e: NodeMaker, shape: Sequence[Dim]) -> tuple[Tensor, Tensor]:
    """The row and the column of every element of matrices."""
    rows, columns = (e.iota(shape, len(shape) - axis) for axis in (2, 1))
    return rows, columns


def _potrf(call: Call) -> list[Held]:
    """A factor, whose other triangle is zero, and which leading minor is not positive."""
    e, held, lower = call.maker, call.held(0), _letter(call, "uplo") == "L"
    factor = cholesky(e, held, lower=lower)
    return [factor, _lost_minor(e, factor)]


def _lost_minor(e: NodeMaker, factor: Held) -> Tensor:
    """The first place on the diagonal of a factor, counted from 1, that is not positive; 0: there is none."""
    x = factor.real if isinstance(factor, Complex) else real(factor)
    if 0 in x.shape:
        return _no_problem(e, factor)
    # What is not a number is lost, too.
    kept = e.op("greater", diagonal(e, x, x.shape[-1]), e.scalar(0, x.dtype))
    kept = e.cast(kept, dtypes.i32)
    first = e.op("arg_min", kept, axis=kept.rank - 1, keepdims=False)
    least = e.op("reduce_min", kept, axes=(kept.rank - 1,), keepdims=False)
    is_lost = e.op("equal", least, e.scalar(0, dtypes.i32))
    place = e.cast(e.op("add", first, e.scalar(1, first.dtype)), dtypes.i32)
    return e.op("where", is_lost, place, e.scalar(0, dtypes.i32))


def _trsm(call: Call) -> list[Held]:
    found = solved(
        call.maker,
        call.held(0),
        call.held(1),
        left=_letter(call, "side") == "L",
        lower=_letter(call, "uplo") == "L",
        unit=_letter(call, "diag") == "U",
        transpose=_TRANSPOSITIONS.get(_letter(call, "trans_x"), ""),
    )
    return [found]


def _pair(call: Call, index: int = 0) -> tuple[Tensor, Tensor]:
    """Both parts of an operand; those of real numbers have zeros."""
    held = call.held(index)
    if isinstance(held, Complex):
        return held.real, held.imaginary
    x = real(held)
    return x, call.maker.full(0, x.dtype, x.shape)


def _in_pairs(call: Call, found: Sequence[Tensor]) -> list[Held]:
    """Results by their parts as values of the kind that the first operand is."""
    parts = zip(found[::2], found[1::2], strict=True)
    if isinstance(call.held(0), Complex):
        return [Complex(*pair) for pair in parts]
    return [x for x, _ in parts]


def _getrf(call: Call) -> list[Held]:
    if not isinstance(call.held(0), Complex):
        return list(call.maker.ops("lu", _real(call)))
    *parts, pivots, info = call.maker.ops("complex_lu", *_pair(call))
    return [*_in_pairs(call, parts), pivots, info]


def _geqrf(call: Call) -> list[Held]:
    if not isinstance(call.held(0), Complex):
        return list(call.maker.ops("reflectors", _real(call)))
    return _in_pairs(call, call.maker.ops("complex_reflectors", *_pair(call)))


def _geqp3(call: Call) -> list[Held]:
    """Factors, which column stands where, and scales."""
    found = call.maker.ops("pivoted_reflectors", *_pair(call), call.tensor(1))
    factors, scales = _in_pairs(call, (*found[:2], *found[3:]))
    return [factors, found[2], scales]


def _orgqr(call: Call) -> list[Held]:
    e = call.maker
    if not isinstance(call.held(0), Complex):
        return [e.op("reflected", _real(call), _real(call, 1))]
    vectors, scales = _pair(call), _pair(call, 1)
    shape = vectors[0].shape
    rows, columns = _places(e, shape)
    eye = e.cast(e.op("equal", rows, columns), vectors[0].dtype)
    nothing = e.full(0, eye.dtype, shape)
    found = e.ops("complex_reflected", *vectors, *scales, eye, nothing)
    return _in_pairs(call, found)


def _ormqr(call: Call) -> list[Held]:
    """A matrix times the product of reflections, or times its adjoint."""
    config = config_of(call)
    sides = {
        name: config.get(given) is True
        for name, given in (("left", "left"), ("adjoint", "transpose"))
    }
    pairs = [part for index in range(3) for part in _pair(call, index)]
    return _in_pairs(call, call.maker.ops("complex_reflected", *pairs, **sides))


def _gehrd(call: Call) -> list[Held]:
    config = config_of(call)
    low, high = (integer_of(name, config.get(name)) for name in ("low", "high"))
    count = dims_of(call.held(0))[-1]
    if low < 1 or (isinstance(count, int) and high > count):
        raise ModelError(f"{count} rows have no rows {low} to {high}")
    found = call.maker.ops("hessenberg", *_pair(call), low=low, high=high)
    return [*_in_pairs(call, found), _no_problem(call.maker, call.held(0))]


def _sytrd(call: Call) -> list[Held]:
    """Vectors, both diagonals, and scales."""
    e, lower = call.maker, _letter(call, "uplo") == "L"
    found = e.ops("tridiagonal", *_pair(call), lower=lower)
    factors, scales = _in_pairs(call, (*found[:2], *found[4:]))
    return [factors, *found[2:4], scales, _no_problem(e, call.held(0))]


def _gees(call: Call) -> list[Held]:
    """The triangular form (of real matrices of blocks), vectors, eigenvalues (of real matrices their parts are results of their own), how many were put in front (none), and what was not found."""
    e = call.maker
    if _letter(call, "sort") != "N":
        raise UnsupportedError("eigenvalues in another order are not supported")
    if not isinstance(call.held(0), Complex):
        *real_parts, info = e.ops("real_schur", _real(call))
        return [*real_parts, _no_problem(e, real_parts[0]), info]
    *parts, info = e.ops("schur", *_pair(call))
    form, vectors = _in_pairs(call, parts)
    values = Complex(*(diagonal(e, x, x.shape[-1]) for x in parts[:2]))
    return [form, vectors, values, _no_problem(e, form), info]


def _syevd(call: Call) -> list[Held]:
    e, lower = call.maker, _letter(call, "uplo") == "L"
    if isinstance(call.held(0), Complex):
        values, *parts = e.ops("complex_eigh", *_pair(call), lower=lower)
        vectors: Held = Complex(*parts)
    else:
        values, vectors = e.ops("eigh", _real(call), lower=lower)
    return [vectors, values, _no_problem(e, vectors)]


def _gesdd(call: Call) -> list[Held]:
    """The operand, which nobody reads, the singular values and both sides."""
    e, held, mode = call.maker, call.held(0), _letter(call, "mode")
    if mode not in ("A", "S", "N"):
        raise ModelError(f"mode '{mode}' is unknown")
    # Where no sides are asked for, their results are of either shape, and nobody reads them.
    sides = (call.stated(2)[-1], call.stated(3)[-2])
    full = mode == "A" or (mode == "N" and sides == dims_of(held)[-2:])
    if isinstance(held, Complex):
        a, b, values, c, d = e.ops("complex_svd", *_pair(call), full=full)
        return [held, values, Complex(a, b), Complex(c, d), _no_problem(e, held)]
    left, values, right = e.ops("svd", real(held), full=full)
    return [held, values, left, right, _no_problem(e, held)]


def _geev(call: Call) -> list[Held]:
    """Eigenvalues (of real matrices their parts are results of their own), eigenvectors from the left and the right."""
    e, held = call.maker, call.held(0)
    is_complex = isinstance(held, Complex)
    parts = e.ops("complex_eig", *_pair(call)) if is_complex else e.ops("eig", real(held))
    *values, real_part, imaginary_part = parts
    zero = e.full(0, real_part.dtype, real_part.shape)
    left = Complex(zero, zero)
    if _letter(call, "compute_left") == "V":
        left = Complex(*e.ops("left_eigenvectors", *_pair(call), *values))
    shown: list[Held] = [Complex(*values)] if is_complex else [*values]
    return [*shown, left, Complex(real_part, imaginary_part), _no_problem(e, held)]


def _gtsv(call: Call) -> list[Held]:
    """Systems of three diagonals, by the factors of their matrix."""
    e, given = call.maker, [_pair(call, index) for index in range(4)]
    *diagonals, b = given
    matrix = [_banded(e, *lines) for lines in zip(*diagonals, strict=True)]
    if isinstance(call.held(0), Complex):
        *factors, pivots, info = e.ops("complex_lu", *matrix)
        found = _ordered(e, pivots, b)
        for lower in (True, False):
            found = e.ops(
                "complex_triangular_solve", *factors, *found, lower=lower, unit=lower
            )
        solution: Held = Complex(*found)
    else:
        factors, pivots, info = e.ops("lu", matrix[0])
        (solution,) = _ordered(e, pivots, b[:1])
        for lower in (True, False):
            solution = e.op("triangular_solve", factors, solution, lower=lower, unit=lower)
    return [*call.operands[:3], solution, info]


def _banded(e: NodeMaker, below: Tensor, on: Tensor, above: Tensor) -> Tensor:
    """The matrix of three diagonals."""
    shape = (*on.shape, on.shape[-1])
    rows, columns = _places(e, shape)
    matrix = e.full(0, on.dtype, shape)
    offset = e.op("sub", columns, rows)
    for line, place in ((below, -1), (on, 0), (above, 1)):
        here = e.op("equal", offset, e.scalar(place, dtypes.i64))
        spread = e.broadcast_to(e.unsqueeze(line, (line.rank,)), shape)
        matrix = e.op("where", here, spread, matrix)
    return matrix


def _ordered(e: NodeMaker, pivots: Tensor, parts: Sequence[Tensor]) -> list[Tensor]:
    """Rows of both sides as elimination exchanged them."""
    order = e.op("exchanged_rows", pivots, rows=(parts[0].shape[-2],))
    order = e.unsqueeze(order, (order.rank,))
    return [
        e.op("gather_elements", x, e.broadcast_to(order, x.shape), axis=x.rank - 2)
        for x in parts
    ]


_ROUTINES: Final[dict[str, Build]] = {
    "geev": _geev,
    "gees": _gees,
    "gehrd": _gehrd,
    "geqp3": _geqp3,
    "geqrf": _geqrf,
    "gesdd": _gesdd,
    "gesvd": _gesdd,
    "getrf": _getrf,
    "gtsv": _gtsv,
    "orgqr": _orgqr,
    "ormqr": _ormqr,
    "potrf": _potrf,
    "syevd": _syevd,
    "sytrd": _sytrd,
    "trsm": _trsm,
}
_OF_COMPLEX: Final = {
    "orgqr": "ungqr",
    "ormqr": "unmqr",
    "syevd": "heevd",
    "sytrd": "hetrd",
}
"""Names that routines of complex numbers have of their own."""


def _names(routine: str) -> list[str]:
    own = _OF_COMPLEX.get(routine, routine)
    named = [f"s{routine}", f"d{routine}", f"c{own}", f"z{own}"]
    return [f"lapack_{name}_ffi" for name in named]


CALLS: Final[dict[str, Build]] = {
    name: build for routine, build in _ROUTINES.items() for name in _names(routine)
}
