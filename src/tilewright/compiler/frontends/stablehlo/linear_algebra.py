"""Rows for systems of equations.

Source: StableHLO specification, "triangular_solve", "cholesky".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.complex_functions import divide
from tilewright.compiler.frontends.kit.complex_pairs import Pair
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.stablehlo.assumed_sizes import assumed_equal
from tilewright.compiler.frontends.stablehlo.call import Call, real
from tilewright.compiler.frontends.stablehlo.demands import (
    elements,
    one_element,
    pointwise,
    takes,
)
from tilewright.compiler.frontends.stablehlo.elementwise import product_of
from tilewright.compiler.frontends.stablehlo.held import (
    Complex,
    Held,
    dims_of,
    joined,
    on_parts,
)
from tilewright.compiler.frontends.stablehlo.numbers import widely
from tilewright.compiler.frontends.stablehlo.row import Row, row

# Every row is a few operations of its own; larger real matrices, and few of them, are one kernel's, larger complex ones the host's.
FEW_ROWS: Final = 24
# That kernel goes through them one by one; operations have a lane for each, and take many times as long to compile.
_FEW_MATRICES: Final = 16


def _flipped(e: NodeMaker, held: Held) -> Held:
    """The last two axes exchanged."""
    order = [*range(len(dims_of(held)))]
    order[-2:] = order[-1], order[-2]
    return on_parts(lambda x: e.transpose(x, order), held)


def _wide(e: NodeMaker, held: Held) -> Held:
    return on_parts(lambda x: widely(e, x), held)


def _triangular_solve(call: Call) -> Held:
    return solved(
        call.maker,
        call.held(0),
        call.held(1),
        left=call.flag("left_side"),
        lower=call.flag("lower"),
        unit=call.flag("unit_diagonal"),
        transpose=call.keyword("transpose_a"),
    )


def solved(
    e: NodeMaker,
    matrix: Held,
    given: Held,
    *,
    left: bool,
    lower: bool,
    unit: bool,
    transpose: str,
) -> Held:
    """X of `a x = b`, or of `x a = b`; of a matrix, only what lies in its triangle is read.

    All are solved in f64, as errors grow from row to row.
    """
    a, b = _wide(e, matrix), _wide(e, given)
    if transpose not in ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"):
        raise ModelError(f"transposition '{transpose}' is unknown")
    _check_equations(e, dims_of(a), dims_of(b), left=left)
    if 0 in dims_of(b):
        return given
    if transpose == "ADJOINT":
        a = _conjugated(e, a)
    # From here the matrix stands on the left: x a = b is a' x' = b'.
    turned = (transpose != "NO_TRANSPOSE") == left
    a = _flipped(e, a) if turned else a
    right = b if left else _flipped(e, b)
    lower = lower != turned
    count = _rows_apart(a)
    if count is not None:
        found = _substituted(e, a, right, count, lower=lower, unit=unit)
    else:
        found = _solved_whole(e, a, right, lower=lower, unit=unit)
    found = found if left else _flipped(e, found)
    dtype = _dtype_of(given)
    return on_parts(lambda x: e.cast(x, dtype), found)


def _rows_apart(held: Held) -> int | None:
    """How many rows matrices have, if each is to be operations of its own."""
    *batch, count, _ = dims_of(held)
    if not isinstance(count, int) or count > FEW_ROWS:
        return None
    known = [n for n in batch if isinstance(n, int)]
    are_few = known == batch and math.prod(known) <= _FEW_MATRICES
    return None if are_few and not isinstance(held, Complex) else count


def _solved_whole(e: NodeMaker, a: Held, b: Held, *, lower: bool, unit: bool) -> Held:
    """By one operation: real matrices have a kernel, complex ones are solved on the host."""
    if isinstance(a, Complex) and isinstance(b, Complex):
        parts = (a.real, a.imaginary, b.real, b.imaginary)
        found = e.ops("complex_triangular_solve", *parts, lower=lower, unit=unit)
        return Complex(*found)
    return e.op("triangular_solve", real(a), real(b), lower=lower, unit=unit)


def _dtype_of(held: Held) -> DType:
    return (held.real if isinstance(held, Complex) else real(held)).dtype


def _check_equations(
    e: NodeMaker, a: Sequence[Dim], b: Sequence[Dim], *, left: bool
) -> None:
    """Raise ModelError for shapes that do not fit."""
    pairs = [(a[-1], a[-2]), *zip(a[:-2], b[:-2], strict=False)] if len(a) > 1 else []
    fits = 2 <= len(a) == len(b) and all(assumed_equal(e, *pair) for pair in pairs)
    if not fits or not assumed_equal(e, b[-2 if left else -1], a[-1]):
        raise ModelError(f"{list(a)} and {list(b)} are no equations")


def _substituted(
    e: NodeMaker, a: Held, b: Held, count: int, *, lower: bool, unit: bool
) -> Held:
    """X of `a x = b`, from the row with one unknown on."""
    rank = len(dims_of(a))
    rows, columns = rank - 2, rank - 1
    found: dict[int, Held] = {}
    for index in range(count) if lower else reversed(range(count)):
        line = _cut(e, a, rows, index)
        value = _cut(e, b, rows, index)
        for known, solved in found.items():
            product = product_of(e, _cut(e, line, columns, known), solved)
            value = _difference(e, value, product)
        if not unit:
            value = _quotient(e, value, _cut(e, line, columns, index))
        found[index] = value
    return joined(e, [found[index] for index in range(count)], rows)


def _cut(e: NodeMaker, held: Held, axis: int, index: int) -> Held:
    return on_parts(lambda x: e.slice(x, axis, index, 1), held)


def _difference(e: NodeMaker, x: Held, y: Held) -> Held:
    if isinstance(x, Complex) and isinstance(y, Complex):
        return Complex(e.op("sub", x.real, y.real), e.op("sub", x.imaginary, y.imaginary))
    return e.op("sub", real(x), real(y))


def _quotient(e: NodeMaker, x: Held, y: Held) -> Held:
    if isinstance(x, Complex) and isinstance(y, Complex):
        return divide(Pair.of(e, x), Pair.of(e, y)).rounded(dtypes.f64)
    return e.op("div", real(x), real(y))


def _cholesky(call: Call) -> Held:
    return cholesky(call.maker, call.held(0), lower=call.flag("lower"))


def cholesky(e: NodeMaker, held: Held, *, lower: bool) -> Held:
    """A triangular factor in f64: each entry is what is left of it over the root on the diagonal."""
    given, sizes = _wide(e, held), dims_of(held)
    if len(sizes) < 2 or not assumed_equal(e, sizes[-1], sizes[-2]):
        raise ModelError(f"{list(sizes)} are no square matrices")
    if 0 in sizes:
        return held
    if not lower:
        given = _conjugated(e, _flipped(e, given))
    count = _rows_apart(given)
    if count is not None:
        found = _factored(e, given, len(sizes), count)
    elif isinstance(given, Complex):
        found = Complex(*e.ops("complex_cholesky", given.real, given.imaginary)[:2])
    else:
        found = e.ops("cholesky", real(given))[0]
    if not lower:
        found = _conjugated(e, _flipped(e, found))
    dtype = _dtype_of(held)
    return on_parts(lambda x: e.cast(x, dtype), found)


def _conjugated(e: NodeMaker, held: Held) -> Held:
    if not isinstance(held, Complex):
        return held
    return Complex(held.real, e.op("neg", held.imaginary))


def _factored(e: NodeMaker, a: Held, rank: int, count: int) -> Held:
    """The lower factor; entries above the diagonal are zero."""
    rows, columns = rank - 2, rank - 1
    lines: list[list[Held]] = []
    for i in range(count):
        line: list[Held] = []
        for j in range(i + 1):
            rest = _cut(e, _cut(e, a, rows, i), columns, j)
            above = line if i == j else lines[j]
            for k in range(j):
                product = product_of(e, line[k], _conjugated(e, above[k]))
                rest = _difference(e, rest, product)
            line.append(_root(e, rest) if i == j else _quotient(e, rest, lines[j][j]))
        lines.append(line)
    zero = on_parts(lambda x: e.full(0, x.dtype, x.shape), lines[0][0])
    whole = [[*line, *[zero] * (count - len(line))] for line in lines]
    return joined(e, [joined(e, line, columns) for line in whole], rows)


def _root(e: NodeMaker, held: Held) -> Held:
    """Of a diagonal, which is real."""
    if not isinstance(held, Complex):
        return e.op("sqrt", real(held))
    return Complex(e.op("sqrt", held.real), e.op("sub", held.imaginary, held.imaginary))


ROWS: Final[tuple[Row, ...]] = (
    row("cholesky", _cholesky, demands=pointwise(1, "fcq")),
    row(
        "triangular_solve",
        _triangular_solve,
        demands=(takes(2), elements("fcq"), one_element()),
    ),
)
