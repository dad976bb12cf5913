"""Row for dynamic time warping: the cheapest path through a matrix of costs, from its first element to its last.

Costs of paths are found diagonal by diagonal, for those of one diagonal follow from the two before it; the path is
walked back afterwards, and how long it is a call finds out.

Source: onnxruntime ContribOperators.md (DynamicTimeWarping), in the order of ties of its CPU kernel, which is that of
Whisper's `timing.py`: the step over a corner or down has to be cheaper than both others, else it is to the right.
"""

from __future__ import annotations

import math
from typing import Final

from tilewright.base import dtypes
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit import control
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.row import MICROSOFT, Row, row

_CORNER: Final = 0
_DOWN: Final = 1
_RIGHT: Final = 2


def _dynamic_time_warping(call: Call) -> Tensor:
    e, costs = call.maker, call.tensor(0)
    if costs.rank == 3 and costs.shape[0] == 1:
        costs = e.squeeze(costs, (0,))
    if costs.rank != 2:
        raise ModelError(f"costs {costs.type}, expected a matrix")
    if 0 in costs.shape:
        return e.full(0, dtypes.i32, (2, 0))
    rows, columns = costs.shape
    steps = _steps(e, costs, rows, columns)
    path, count = _walked_back(call, steps, rows, columns)
    longest = rows + columns - 1
    high = longest if isinstance(longest, int) else None
    (length,) = control.read_sizes(e, e.reshape(count, (1,)), "path", high, low=1)
    return e.cast(e.slice(path, 1, longest - length, length), dtypes.i32)


def _steps(e: NodeMaker, costs: Tensor, rows: Dim, columns: Dim) -> Tensor:
    """By diagonal and row the step with which the cheapest path reaches an element: `i64[rows + columns - 1, rows]`."""
    diagonals, zero = rows + columns - 1, e.scalar(0, dtypes.i64)
    row_ = e.iota((diagonals, rows), 1)
    column = e.op("sub", e.iota((diagonals, rows), 0), row_)
    last = e.op("sub", e.dim(columns), e.scalar(1, dtypes.i64))
    is_inside = e.op(
        "logical_and", e.op("greater_equal", column, zero), e.op("less_equal", column, last)
    )
    column = e.op("clip", column, zero, last)
    flat = e.op("add", e.op("mul", row_, e.dim(columns)), column)
    lined = e.op("gather", e.reshape(costs, (rows * columns,)), flat, axis=0)
    endless = e.scalar(math.inf, costs.dtype)
    border = e.full(math.inf, costs.dtype, (1,))
    # Before the first diagonal lie the corner, which costs nothing, and the border, which nothing crosses.
    corner = e.concat(
        [e.full(0, costs.dtype, (1,)), e.full(math.inf, costs.dtype, (rows,))], 0
    )
    begin = [
        corner,
        e.full(math.inf, costs.dtype, (rows + 1,)),
        e.full(0, dtypes.i64, (diagonals, rows)),
    ]

    def trip(at: Tensor, held: list[Tensor]) -> list[Tensor]:
        before, previous, steps = held
        own, valid = (control.row_at(e, t, at, 0) for t in (lined, is_inside))
        over, down = (e.slice(t, 0, 0, rows) for t in (before, previous))
        right = e.slice(previous, 0, 1, rows)
        is_over = _cheapest(e, over, down, right)
        is_down = _cheapest(e, down, over, right)
        least = e.op("where", is_over, over, e.op("where", is_down, down, right))
        kinds = [e.scalar(kind, dtypes.i64) for kind in (_CORNER, _DOWN, _RIGHT)]
        step = e.op("where", is_over, kinds[0], e.op("where", is_down, kinds[1], kinds[2]))
        total = e.op("where", valid, e.op("add", own, least), endless)
        return [
            previous,
            e.concat([border, total], 0),
            control.with_row(e, steps, at, step),
        ]

    return control.counted(e, diagonals, begin, trip, is_certain=True)[2]


def _cheapest(e: NodeMaker, one: Tensor, other: Tensor, third: Tensor) -> Tensor:
    return e.op("logical_and", e.op("less", one, other), e.op("less", one, third))


def _walked_back(
    call: Call, steps: Tensor, rows: Dim, columns: Dim
) -> tuple[Tensor, Tensor]:
    """The path at the end of `i64[2, rows + columns - 1]`, and how many elements it has."""
    e, longest = call.maker, rows + columns - 1
    zero, one = (e.scalar(n, dtypes.i64) for n in (0, 1))
    flat = e.reshape(steps, (longest * rows,))

    def go_on(values: list[Tensor]) -> Tensor:
        row_, column = values[:2]
        return e.op(
            "logical_and",
            e.op("greater_equal", row_, zero),
            e.op("greater_equal", column, zero),
        )

    def trip(values: list[Tensor]) -> list[Tensor]:
        row_, column, count, path = values
        place = e.op("sub", e.op("sub", e.dim(longest), one), count)
        both = e.concat([e.reshape(t, (1, 1)) for t in (row_, column)], 0)
        where = e.broadcast_to(e.reshape(place, (1, 1)), (2, 1))
        path = e.op("scatter_elements", path, where, both, axis=1)
        at = e.op("add", e.op("mul", e.op("add", row_, column), e.dim(rows)), row_)
        step = e.op("gather", flat, at, axis=0)
        up, left = (
            e.cast(e.op("not_equal", step, e.scalar(kind, dtypes.i64)), dtypes.i64)
            for kind in (_RIGHT, _DOWN)
        )
        return [
            e.op("sub", row_, up),
            e.op("sub", column, left),
            e.op("add", count, one),
            path,
        ]

    ends = [e.op("sub", e.dim(size), one) for size in (rows, columns)]
    begin = [*ends, zero, e.full(0, dtypes.i64, (2, longest))]
    _, _, count, path = control.loop(
        e, begin, go_on, trip, checkpoint=call.checkpoint, is_certain=True
    )
    return path, count


ROWS: Final[tuple[Row, ...]] = (
    row("DynamicTimeWarping", _dynamic_time_warping, domain=MICROSOFT),
)
