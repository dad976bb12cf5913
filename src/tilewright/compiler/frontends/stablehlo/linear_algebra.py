"""Rows for systems of equations.

Source: StableHLO specification, "triangular_solve", "cholesky".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.base import dtypes
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.stablehlo.call import Call, real
from tilewright.compiler.frontends.stablehlo.complex_functions import Pair, divide
from tilewright.compiler.frontends.stablehlo.elementwise import product_of
from tilewright.compiler.frontends.stablehlo.held import (
    Complex,
    Held,
    joined,
    on_parts,
    shape_of,
)
from tilewright.compiler.frontends.stablehlo.numbers import widely
from tilewright.compiler.frontends.stablehlo.row import Row, row

# Every row is a few operations of its own.
MAX_ROWS: Final = 128


def _flipped(e: NodeMaker, held: Held) -> Held:
    """The last two axes exchanged."""
    order = [*range(len(shape_of(held)))]
    order[-2:] = order[-1], order[-2]
    return on_parts(lambda x: e.transpose(x, order), held)


def _wide(e: NodeMaker, held: Held) -> Held:
    return on_parts(lambda x: widely(e, x), held)


def _triangular_solve(call: Call) -> Held:
    """Row by row, in f64, as errors grow from row to row; of a row, only what lies in its triangle is read."""
    e = call.maker
    a, b = _wide(e, call.held(0)), _wide(e, call.held(1))
    left, lower = call.flag("left_side"), call.flag("lower")
    unit, transpose = call.flag("unit_diagonal"), call.keyword("transpose_a")
    if transpose not in ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"):
        raise ModelError(f"transposition '{transpose}' is unknown")
    _check_equations(shape_of(a), shape_of(b), left=left)
    if 0 in shape_of(b):
        return call.held(1)
    if transpose == "ADJOINT" and isinstance(a, Complex):
        a = Complex(a.real, e.op("neg", a.imaginary))
    # From here the matrix stands on the left: x a = b is a' x' = b'.
    turned = (transpose != "NO_TRANSPOSE") == left
    matrix = _flipped(e, a) if turned else a
    right = b if left else _flipped(e, b)
    solved = _substituted(e, matrix, right, lower=lower != turned, unit=unit)
    found = solved if left else _flipped(e, solved)
    return on_parts(lambda x: e.cast(x, call.dtype()), found)


def _check_equations(a: Sequence[int], b: Sequence[int], *, left: bool) -> None:
    """Raise ModelError for shapes that do not fit; UnsupportedError for too many rows."""
    fits = 2 <= len(a) == len(b) and a[:-2] == b[:-2] and a[-1] == a[-2]
    if not fits or b[-2 if left else -1] != a[-1]:
        raise ModelError(f"{list(a)} and {list(b)} are no equations")
    if a[-1] > MAX_ROWS:
        raise UnsupportedError(f"{a[-1]} equations are not supported, at most {MAX_ROWS}")


def _substituted(e: NodeMaker, a: Held, b: Held, *, lower: bool, unit: bool) -> Held:
    """X of `a x = b`, from the row with one unknown on."""
    rank, count = len(shape_of(a)), shape_of(a)[-1]
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
    """Row by row, in f64: each entry is what is left of it over the root on the diagonal."""
    e, dtype, lower = call.maker, call.dtype(), call.flag("lower")
    given = _wide(e, call.held(0))
    sizes = shape_of(given)
    if len(sizes) < 2 or sizes[-1] != sizes[-2]:
        raise ModelError(f"{list(sizes)} are no square matrices")
    if sizes[-1] > MAX_ROWS:
        raise UnsupportedError(f"{sizes[-1]} rows are not supported, at most {MAX_ROWS}")
    if 0 in sizes:
        return call.held(0)
    if not lower:
        given = _conjugated(e, _flipped(e, given))
    found = _factored(e, given, sizes)
    if not lower:
        found = _conjugated(e, _flipped(e, found))
    return on_parts(lambda x: e.cast(x, dtype), found)


def _conjugated(e: NodeMaker, held: Held) -> Held:
    if not isinstance(held, Complex):
        return held
    return Complex(held.real, e.op("neg", held.imaginary))


def _factored(e: NodeMaker, a: Held, sizes: Sequence[int]) -> Held:
    """The lower factor; entries above the diagonal are zero."""
    rows, columns, count = len(sizes) - 2, len(sizes) - 1, sizes[-1]
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
    row("cholesky", _cholesky),
    row("triangular_solve", _triangular_solve),
)
