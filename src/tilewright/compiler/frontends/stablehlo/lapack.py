"""Custom calls of LAPACK's routines, which JAX writes for factors of matrices on CPUs.

Those of real numbers are ops of the graph; systems of complex ones are solved as StableHLO's own operations are.
A routine that is not here is refused by its name.

Source: LAPACK Users' Guide; JAX, `jax.lax.linalg`, for the order of operands, results and attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tilewright.base import dtypes
from tilewright.base.errors import ModelError
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
    rows, columns = (e.iota(x.shape, x.rank - axis) for axis in (2, 1))
    zero = e.scalar(0, x.dtype)
    # Beside the diagonal nothing is lost; on it, what is not a number is.
    beside = e.op("not_equal", rows, columns)
    kept = e.op("logical_or", beside, e.op("greater", x, zero))
    kept = e.op("reduce_min", e.cast(kept, dtypes.i32), axes=(x.rank - 1,), keepdims=False)
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


def _getrf(call: Call) -> list[Held]:
    return list(call.maker.ops("lu", _real(call)))


def _geqrf(call: Call) -> list[Held]:
    return list(call.maker.ops("reflectors", _real(call)))


def _orgqr(call: Call) -> list[Held]:
    return [call.maker.op("reflected", _real(call), _real(call, 1))]


def _syevd(call: Call) -> list[Held]:
    e, x = call.maker, _real(call)
    values, vectors = e.ops("eigh", x, lower=_letter(call, "uplo") == "L")
    return [vectors, values, _no_problem(e, x)]


def _gesdd(call: Call) -> list[Held]:
    """The operand, which nobody reads, the singular values and both sides."""
    e, x, mode = call.maker, _real(call), _letter(call, "mode")
    if mode not in ("A", "S", "N"):
        raise ModelError(f"mode '{mode}' is unknown")
    # Where no sides are asked for, their results are of either shape, and nobody reads them.
    sides = (call.stated(2)[-1], call.stated(3)[-2])
    full = mode == "A" or (mode == "N" and sides == x.shape[-2:])
    left, values, right = e.ops("svd", x, full=full)
    return [x, values, left, right, _no_problem(e, x)]


def _geev(call: Call) -> list[Held]:
    """Eigenvalues by their parts, eigenvectors from the left and from the right."""
    e, x = call.maker, _real(call)
    asked = {side: _letter(call, f"compute_{side}") == "V" for side in ("left", "right")}
    if asked["left"]:
        raise UnsupportedError("eigenvectors from the left are not supported")
    *values, real_part, imaginary_part = e.ops("eig", x)
    zero = e.full(0, x.dtype, x.shape)
    vectors = Complex(real_part, imaginary_part)
    return [*values, Complex(zero, zero), vectors, _no_problem(e, x)]


def _gtsv(call: Call) -> list[Held]:
    """Systems of three diagonals, by the factors of their matrix."""
    below, on, above, b = (_real(call, index) for index in range(4))
    e, count = call.maker, on.shape[-1]
    shape = (*on.shape, count)
    rows, columns = (e.iota(shape, len(shape) - 2 + axis) for axis in (0, 1))
    matrix = e.full(0, on.dtype, shape)
    offset = e.op("sub", columns, rows)
    for diagonal, place in ((below, -1), (on, 0), (above, 1)):
        here = e.op("equal", offset, e.scalar(place, dtypes.i64))
        spread = e.broadcast_to(e.unsqueeze(diagonal, (diagonal.rank,)), shape)
        matrix = e.op("where", here, spread, matrix)
    factors, pivots, info = e.ops("lu", matrix)
    order = e.op("exchanged_rows", pivots, rows=(count,))
    places = e.broadcast_to(e.unsqueeze(order, (order.rank,)), b.shape)
    ordered = e.op("gather_elements", b, places, axis=b.rank - 2)
    half = e.op("triangular_solve", factors, ordered, lower=True, unit=True)
    found = e.op("triangular_solve", factors, half, lower=False)
    return [below, on, above, found, info]


_ROUTINES: Final[dict[str, Build]] = {
    "geev": _geev,
    "geqrf": _geqrf,
    "gesdd": _gesdd,
    "gesvd": _gesdd,
    "getrf": _getrf,
    "gtsv": _gtsv,
    "orgqr": _orgqr,
    "potrf": _potrf,
    "syevd": _syevd,
    "trsm": _trsm,
}
_OF_COMPLEX: Final = ("potrf", "trsm")
CALLS: Final[dict[str, Build]] = {
    f"lapack_{letter}{name}_ffi": build
    for name, build in _ROUTINES.items()
    for letter in ("sdcz" if name in _OF_COMPLEX else "sd")
}
