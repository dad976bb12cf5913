"""Rows for reductions: sums, extremes, norms, positions of extremes, running sums, top-k.

Source: ONNX operator reference (Operators.md), per op in the row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit import computed
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.recurrence import Rows, walked
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.row import Build, Row, row
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.ops.shapes import element_count, normal_axes, normal_axis
from tilewright.formats.plan.size_relations import at_least

Reduce = Callable[[NodeMaker, Tensor, tuple[int, ...], bool], Tensor]


def reduce(
    e: NodeMaker, op: str, x: Tensor, axes: Sequence[int], *, keepdims: bool
) -> Tensor:
    """Graph op `op` over `axes`; no axes, no op."""
    return e.op(op, x, axes=tuple(axes), keepdims=keepdims) if axes else x


def _axes(call: Call, operand_since: int) -> tuple[int, ...] | None:
    """Axes to reduce; None means leave the operand alone."""
    x = call.tensor(0)
    if call.opset < operand_since:
        given = call.attributes.integers("axes") or ()
    else:
        given = () if call.optional(1) is None else call.numbers(1, "the axes")
    noop = call.flag("noop_with_empty_axes")
    if not given:
        return None if noop else tuple(range(x.rank))
    return normal_axes(given, x.rank)


def _reduction(function: Reduce, *, operand_since: int = 18) -> Build:
    """A reduction by `function(maker, x, axes, keepdims)`."""

    def build(call: Call) -> Tensor:
        e, x = call.maker, call.tensor(0)
        keepdims = call.flag("keepdims", default=True)
        if call.opset >= operand_since and not call.is_known(1):
            return _by_data(call, x, function, keepdims)
        axes = _axes(call, operand_since)
        return function(e, x, () if axes is None else axes, keepdims)

    return build


def _by_data(call: Call, x: Tensor, function: Reduce, keepdims: bool) -> Tensor:
    """Axes that data decides; no axes are all or none, whatever they would be."""
    e, axes = call.maker, call.tensor(1)
    noop = call.flag("noop_with_empty_axes")
    none = () if noop else tuple(range(x.rank))
    if 0 in axes.shape:
        return function(e, x, none, keepdims)
    if not keepdims and not isinstance(element_count(axes.shape), int):
        raise UnsupportedError(
            "the rank of the result depends on data: how many axes there are"
        )

    def along(found: tuple[int, ...]) -> list[Tensor]:
        return [function(e, x, found or none, keepdims)]

    (result,) = computed.by_axes(e, axes, x.rank, along)
    return result


def _along_axis(
    call: Call, x: Tensor, index: int, build: Callable[[int], Tensor]
) -> Tensor:
    """What `build` makes for the axis that an operand says, or the data of a call."""
    if call.is_known(index):
        return build(normal_axis(call.number(index, "the axis"), x.rank))
    return computed.by_axis(call.maker, call.tensor(index), x.rank, build)


def _plain(op: str) -> Reduce:
    def function(e: NodeMaker, x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
        if not x.dtype.is_bool:
            return reduce(e, op, x, axes, keepdims=keepdims)
        wide = reduce(e, op, e.cast(x, dtypes.u8), axes, keepdims=keepdims)
        return e.cast(wide, dtypes.bool_)

    return function


def _l1(e: NodeMaker, x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    return reduce(e, "reduce_sum", e.op("abs", x), axes, keepdims=keepdims)


def _sum_square(e: NodeMaker, x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    return reduce(e, "reduce_sum", e.op("mul", x, x), axes, keepdims=keepdims)


def _l2(e: NodeMaker, x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    return through_float(e, _sum_square(e, x, axes, keepdims), "sqrt")


def _log_sum(e: NodeMaker, x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    return through_float(e, reduce(e, "reduce_sum", x, axes, keepdims=keepdims), "log")


def _log_sum_exp(e: NodeMaker, x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    """Shifted by the largest element, so that it does not overflow."""
    wide = x if x.dtype.is_float else e.cast(x, dtypes.f32)
    top = reduce(e, "reduce_max", wide, axes, keepdims=True)
    finite = e.op("is_inf", top)
    shift = e.op("where", finite, e.scalar(0, wide.dtype), top)
    total = reduce(
        e, "reduce_sum", e.op("exp", e.op("sub", wide, shift)), axes, keepdims=True
    )
    result = e.op("add", e.op("log", total), shift)
    if not keepdims:
        result = e.reshape(result, [d for i, d in enumerate(x.shape) if i not in axes])
    return e.cast(result, x.dtype)


def through_float(e: NodeMaker, x: Tensor, op: str) -> Tensor:
    """A float function of `x`, in f64 and back when `x` holds integers."""
    if x.dtype.is_float:
        return e.op(op, x)
    return e.cast(e.op(op, e.cast(x, dtypes.f64)), x.dtype)


def _arg(op: str) -> Build:
    def build(call: Call) -> Tensor:
        x = call.tensor(0)
        axis = call.axis(x.rank, 0)
        # There is no place among no elements.
        call.maker.assume(*at_least(x.shape[axis], 1))
        return call.maker.op(
            op,
            x,
            axis=axis,
            keepdims=call.flag("keepdims", default=True),
            select_last=call.flag("select_last_index"),
        )

    return build


def _cumsum(call: Call) -> Tensor:
    x = call.tensor(0)
    exclusive, reverse = call.flag("exclusive"), call.flag("reverse")

    def along(axis: int) -> Tensor:
        return call.maker.op("cumsum", x, axis=axis, exclusive=exclusive, reverse=reverse)

    return _along_axis(call, x, 1, along)


def _cumprod(call: Call) -> Tensor:
    x = call.tensor(0)
    exclusive, reverse = call.flag("exclusive"), call.flag("reverse")
    return _along_axis(
        call, x, 1, lambda axis: _product(call.maker, x, axis, exclusive, reverse)
    )


def _product(e: NodeMaker, x: Tensor, axis: int, exclusive: bool, reverse: bool) -> Tensor:
    """Step by step along an axis."""
    order = (axis, *(a for a in range(x.rank) if a != axis))
    rows = e.transpose(x, order)
    one = TensorType(x.dtype, rows.shape[1:])

    def step(place: Tensor, given: Rows, state: Rows) -> tuple[Rows, Rows]:
        del place
        total = e.op("mul", state[0], given[0])
        return [state[0] if exclusive else total], [total]

    start = e.full(1, x.dtype, one.shape)
    (made,), _ = walked(e, [rows], [start], step, [one], backwards=reverse)
    back = [order.index(a) for a in range(x.rank)]
    return e.transpose(made, back)


def _top_k(call: Call) -> list[Tensor]:
    x = call.tensor(0)
    if call.opset < 10:
        count: Dim = call.integer("k")
    else:
        count = call.one_size(1, "k")
    results = call.maker.ops(
        "top_k",
        x,
        k=(count,),
        axis=call.axis(x.rank, -1),
        largest=call.flag("largest", default=True),
        sorted=call.flag("sorted", default=True),
    )
    return list(results)


def _softmax(op: str) -> Build:
    """Before opset 13 all axes from `axis` on count as one."""

    def build(call: Call) -> Tensor:
        e, x = call.maker, call.tensor(0)
        axis = call.axis(x.rank, -1 if call.opset >= 13 else 1)
        if call.opset >= 13 or axis == x.rank - 1:
            return e.op(op, x, axis=axis)
        return e.reshape(e.op(op, _flattened(e, x, axis), axis=-1), x.shape)

    return build


def _flattened(e: NodeMaker, x: Tensor, axis: int) -> Tensor:
    return e.reshape(x, (*x.shape[:axis], element_count(x.shape[axis:])))


def _hardmax(call: Call) -> Tensor:
    """One at the first largest element, zero elsewhere."""
    e, x = call.maker, call.tensor(0)
    axis = call.axis(x.rank, -1 if call.opset >= 13 else 1)
    flat = x if call.opset >= 13 else _flattened(e, x, axis)
    if flat.shape[axis] == 0:
        return x
    best = e.op("arg_max", flat, axis=axis, keepdims=False)
    choice = e.constant(np.array([0, 1], x.dtype.numpy))
    hot = e.op("one_hot", best, choice, depth=(flat.shape[axis],), axis=axis)
    return e.reshape(hot, x.shape)


def extremes(e: NodeMaker, dtype: DType) -> tuple[Tensor, Tensor]:
    """The smallest and the largest number of a type (infinite for floats)."""
    if dtype.is_float:
        return e.scalar(-np.inf, dtype), e.scalar(np.inf, dtype)
    top = (1 << (dtype.bits - dtype.is_signed)) - 1
    return e.scalar(-top - 1 if dtype.is_signed else 0, dtype), e.scalar(top, dtype)


ROWS: Final[tuple[Row, ...]] = (
    row("ArgMax", _arg("arg_max")),
    row("ArgMin", _arg("arg_min")),
    row("CumProd", _cumprod),
    row("CumSum", _cumsum),
    row("Hardmax", _hardmax),
    row("LogSoftmax", _softmax("log_softmax")),
    row("ReduceL1", _reduction(_l1)),
    row("ReduceL2", _reduction(_l2)),
    row("ReduceLogSum", _reduction(_log_sum)),
    row("ReduceLogSumExp", _reduction(_log_sum_exp)),
    row("ReduceMax", _reduction(_plain("reduce_max"))),
    row("ReduceMean", _reduction(_plain("reduce_mean"))),
    row("ReduceMin", _reduction(_plain("reduce_min"))),
    row("ReduceProd", _reduction(_plain("reduce_prod"))),
    row("ReduceSum", _reduction(_plain("reduce_sum"), operand_since=13)),
    row("ReduceSumSquare", _reduction(_sum_square)),
    row("Softmax", _softmax("softmax")),
    row("TopK", _top_k),
)
