"""Rows for systems of equations.

Source: StableHLO specification, "triangular_solve".
"""

from __future__ import annotations

from typing import Final

from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.stablehlo.call import Call
from tilewright.compiler.frontends.stablehlo.movement import sizes_of
from tilewright.compiler.frontends.stablehlo.numbers import widely
from tilewright.compiler.frontends.stablehlo.row import Row, row

# Every row is a few operations of its own.
MAX_ROWS: Final = 128


def _flipped(e: NodeMaker, x: Tensor) -> Tensor:
    """The last two axes exchanged."""
    order = [*range(x.rank)]
    order[-2:] = order[-1], order[-2]
    return e.transpose(x, order)


def _triangular_solve(call: Call) -> Tensor:
    """Row by row, in f64, as errors grow from row to row; of a row, only what lies in its triangle is read."""
    e = call.maker
    a, b = widely(e, call.tensor(0)), widely(e, call.tensor(1))
    left, lower = call.flag("left_side"), call.flag("lower")
    unit, transpose = call.flag("unit_diagonal"), call.keyword("transpose_a")
    if transpose not in ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"):
        raise ModelError(f"transposition '{transpose}' is unknown")
    if a.rank < 2 or a.rank != b.rank or sizes_of(a)[:-2] != sizes_of(b)[:-2]:
        raise ModelError(f"{a.type} and {b.type} are no equations")
    count = sizes_of(a)[-1]
    if sizes_of(a)[-2] != count or sizes_of(b)[-2 if left else -1] != count:
        raise ModelError(f"{a.type} and {b.type} are no equations")
    if count > MAX_ROWS:
        raise UnsupportedError(f"{count} equations are not supported, at most {MAX_ROWS}")
    # From here the matrix stands on the left: x a = b is a' x' = b'.
    turned = (transpose != "NO_TRANSPOSE") == left
    matrix = _flipped(e, a) if turned else a
    right = b if left else _flipped(e, b)
    if 0 in sizes_of(right):
        return e.full(0, call.dtype(), call.shape())
    solved = _substituted(e, matrix, right, lower=lower != turned, unit=unit)
    return e.cast(solved if left else _flipped(e, solved), call.dtype())


def _substituted(e: NodeMaker, a: Tensor, b: Tensor, *, lower: bool, unit: bool) -> Tensor:
    """X of `a x = b`, from the row with one unknown on."""
    rows, columns, count = a.rank - 2, a.rank - 1, sizes_of(a)[-1]
    found: dict[int, Tensor] = {}
    for index in range(count) if lower else reversed(range(count)):
        line = e.slice(a, rows, index, 1)
        value = e.slice(b, rows, index, 1)
        for known, solved in found.items():
            factor = e.slice(line, columns, known, 1)
            value = e.op("sub", value, e.op("mul", factor, solved))
        if not unit:
            value = e.op("div", value, e.slice(line, columns, index, 1))
        found[index] = value
    return e.concat([found[index] for index in range(count)], rows)


ROWS: Final[tuple[Row, ...]] = (row("triangular_solve", _triangular_solve),)
