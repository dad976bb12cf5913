"""Rows for sums, extremes and statistics along axes, and for running ones.

Sums of halves are kept in f32, integers become i64, as torch has it.

Source: the operators of ATen by name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.torch.axes import axes_of, axis_of, keep_filled
from tilewright.compiler.frontends.torch.call import Call
from tilewright.compiler.frontends.torch.elementwise import to_bool
from tilewright.compiler.frontends.torch.row import Build, Row, row


def wide_type(dtype: DType) -> DType:
    """What sums of this type are kept in."""
    return dtypes.f32 if dtype in dtypes.HALVES else dtype


def reduced(
    e: NodeMaker, op: str, x: Tensor, axes: Sequence[int], *, keep: bool = False
) -> Tensor:
    """One reduction; that over no axis is the operand."""
    if not axes:
        return x
    return e.op(op, x, axes=tuple(axes), keepdims=keep)


def _sum(call: Call) -> Tensor:
    e, dtype = call.maker, call.dtype()
    call.element_type()
    x = call.operand("self", wide_type(dtype))
    if dtype.is_bool:
        raise UnsupportedError("sums of truth values are not supported here")
    axes = axes_of(call, x.rank)
    return call.finish(reduced(e, "reduce_sum", x, axes, keep=call.flag("keepdim")))


def _mean(call: Call) -> Tensor:
    e, dtype = call.maker, call.dtype()
    call.element_type()
    x = call.operand("self", wide_type(dtype))
    axes = axes_of(call, x.rank)
    return call.finish(mean(e, x, axes, keep=call.flag("keepdim")))


def mean(e: NodeMaker, x: Tensor, axes: Sequence[int], *, keep: bool) -> Tensor:
    """The mean; that of nothing is not a number."""
    if any(x.shape[axis] == 0 for axis in axes):
        total = reduced(e, "reduce_sum", x, axes, keep=keep)
        return e.full(np.nan, x.dtype, total.shape)
    return reduced(e, "reduce_mean", x, axes, keep=keep)


def _product(call: Call) -> Tensor:
    dtype = call.dtype()
    call.element_type()
    if dtype.is_bool:
        raise UnsupportedError("products of truth values are not supported here")
    x = call.operand("self", wide_type(dtype))
    axes = (axis_of(call, x.rank),) if call.has("dim") else tuple(range(x.rank))
    keep = call.flag("keepdim")
    if not x.rank:
        return call.finish(x)
    return call.finish(reduced(call.maker, "reduce_prod", x, axes, keep=keep))


def _extreme(op: str) -> Build:
    """The largest or smallest over axes; truth values are compared as bytes."""

    def build(call: Call) -> Tensor:
        return extreme(call, op, axes_of(call, call.tensor().rank))

    return build


def extreme(call: Call, op: str, axes: Sequence[int]) -> Tensor:
    """One extreme along axes of `self`.  Raises: UnsupportedError where there is nothing to choose from."""
    e, x = call.maker, call.tensor()
    keep = call.flag("keepdim")
    _refuse_empty(e, x, axes)
    if x.dtype.is_bool:
        found = reduced(e, op, e.cast(x, dtypes.u8), axes, keep=keep)
        return to_bool(e, found)
    return reduced(e, op, x, axes, keep=keep)


def _refuse_empty(e: NodeMaker, x: Tensor, axes: Sequence[int]) -> None:
    """Have calls fail that give nothing to choose from.  Raises: UnsupportedError where none has something."""
    if any(x.shape[axis] == 0 for axis in axes):
        raise UnsupportedError("an extreme of no element")
    for axis in axes:
        keep_filled(e, x.shape[axis])


def _extreme_and_place(op: str, places: str) -> Build:
    def build(call: Call) -> Sequence[Tensor]:
        x = call.tensor()
        axis = axis_of(call, x.rank)
        if not x.rank:
            call.flag("keepdim")
            return x, call.maker.scalar(0, dtypes.i64)
        return extreme(call, op, (axis,)), _place(call, places, axis)

    return build


def _place(call: Call, op: str, axis: int) -> Tensor:
    x = call.tensor()
    if x.dtype.is_bool:
        x = call.maker.cast(x, dtypes.u8)
    return call.op(op, x, axis=axis, keepdims=call.flag("keepdim"))


def _arg(op: str) -> Build:
    def build(call: Call) -> Tensor:
        e, x = call.maker, call.tensor()
        keep = call.flag("keepdim")
        axis = axis_of(call, x.rank) if call.has("dim") else None
        if not x.rank:
            return e.scalar(0, dtypes.i64)
        if axis is not None:
            _refuse_empty(e, x, (axis,))
            return _place(call, op, axis)
        _refuse_empty(e, x, range(x.rank))
        count: Dim = 1
        for size in x.shape:
            count = count * size
        flat = e.reshape(x, (count,))
        flat = e.cast(flat, dtypes.u8) if x.dtype.is_bool else flat
        found = e.op(op, flat, axis=0, keepdims=False)
        return e.reshape(found, (1,) * x.rank) if keep else found

    return build


def _aminmax(call: Call) -> Sequence[Tensor]:
    x = call.tensor()
    axes = (axis_of(call, x.rank),) if call.has("dim") and x.rank else tuple(range(x.rank))
    return [extreme(call, op, axes) for op in ("reduce_min", "reduce_max")]


def _some(op: str) -> Build:
    def build(call: Call) -> Tensor:
        e, x = call.maker, call.tensor()
        axes = axes_of(call, x.rank)
        if call.operation.arguments.get("dim") == ():
            axes = ()
        bits = e.cast(to_bool(e, x), dtypes.u8)
        if any(x.shape[axis] == 0 for axis in axes):
            empty = e.cast(
                reduced(e, "reduce_sum", bits, axes, keep=call.flag("keepdim")), dtypes.u8
            )
            found = e.full(op == "reduce_min", dtypes.u8, empty.shape)
        else:
            found = reduced(e, op, bits, axes, keep=call.flag("keepdim"))
        # Where a call has none, the least of no bytes is the largest byte.
        return e.cast(to_bool(e, found), call.dtype())

    return build


def _correction(call: Call) -> float:
    """How many degrees of freedom are lost."""
    if "correction" in call.operation.arguments:
        return float(call.number("correction", 1))
    return 1.0 if call.flag("unbiased", default=True) else 0.0


def moments(call: Call, x: Tensor) -> tuple[Tensor, Tensor]:
    """Variance and mean of `x`, in the type that sums have, both with the axes kept as the caller wants them."""
    e = call.maker
    x = e.cast(x, wide_type(call.dtype()))
    axes, keep = axes_of(call, x.rank), call.flag("keepdim")
    lost = _correction(call)
    count: Dim = 1
    for axis in axes:
        count = count * x.shape[axis]
    centre = mean(e, x, axes, keep=True)
    gap = e.op("sub", x, centre)
    total = reduced(e, "reduce_sum", e.op("mul", gap, gap), axes, keep=keep)
    if isinstance(count, int):
        left = max(count - lost, 0.0)
        below = e.scalar(left, x.dtype)
    else:
        found = e.cast(e.dim(count), x.dtype)
        below = e.op(
            "max", e.op("sub", found, e.scalar(lost, x.dtype)), e.scalar(0, x.dtype)
        )
    return e.op("div", total, below), centre if keep else e.reshape(centre, total.shape)


def _variance(*, root: bool, with_mean: bool) -> Build:
    def build(call: Call) -> Tensor | Sequence[Tensor]:
        variance, centre = moments(call, call.tensor())
        spread = call.op("sqrt", variance) if root else variance
        if not with_mean:
            return call.finish(spread)
        return call.finish(spread), call.finish(centre)

    return build


def _logsumexp(call: Call) -> Tensor:
    e, dtype = call.maker, call.dtype()
    x = call.operand("self", wide_type(dtype))
    axes, keep = axes_of(call, x.rank), call.flag("keepdim")
    if any(x.shape[axis] == 0 for axis in axes):
        total = reduced(e, "reduce_sum", x, axes, keep=keep)
        return call.finish(e.full(-math.inf, x.dtype, total.shape))
    most = reduced(e, "reduce_max", x, axes, keep=True)
    zero = e.scalar(0, x.dtype)
    most = e.op("where", e.op("is_inf", most), zero, most)
    powers = e.op("exp", e.op("sub", x, most))
    total = e.op("log", reduced(e, "reduce_sum", powers, axes, keep=keep))
    return call.finish(e.op("add", total, e.reshape(most, total.shape)))


def _running(op: str) -> Build:
    def build(call: Call) -> Tensor:
        dtype = call.dtype()
        call.element_type()
        x = call.operand("self", wide_type(dtype))
        if not x.rank:
            call.argument("dim")
            return call.finish(x)
        axis = axis_of(call, x.rank)
        return call.finish(call.op(op, x, axis=axis))

    return build


def _vector_norm(call: Call) -> Tensor:
    e, dtype = call.maker, call.dtype()
    call.argument("dtype")  # of complex numbers, where the result is real
    x = call.operand("self", wide_type(dtype))
    axes, keep = axes_of(call, x.rank), call.flag("keepdim")
    size = e.op("abs", x)
    order = float(call.number("ord" if "ord" in call.operation.arguments else "p", 2.0))
    zero = e.scalar(0, x.dtype)
    if math.isinf(order):
        _refuse_empty(e, x, axes)
        op = "reduce_max" if order > 0 else "reduce_min"
        return call.finish(reduced(e, op, size, axes, keep=keep))
    if order == 0:
        present = e.cast(e.op("not_equal", x, zero), x.dtype)
        return call.finish(reduced(e, "reduce_sum", present, axes, keep=keep))
    if order == 1:
        return call.finish(reduced(e, "reduce_sum", size, axes, keep=keep))
    if order == 2:
        squares = e.op("mul", size, size)
        return call.finish(e.op("sqrt", reduced(e, "reduce_sum", squares, axes, keep=keep)))
    powers = e.op("pow", size, e.scalar(order, x.dtype))
    total = reduced(e, "reduce_sum", powers, axes, keep=keep)
    return call.finish(e.op("pow", total, e.scalar(1 / order, x.dtype)))


ROWS: Final[tuple[Row, ...]] = (
    row("sum sum.dim_IntList", _sum),
    row("mean mean.dim", _mean),
    row("prod prod.dim_int", _product),
    row("amax max", _extreme("reduce_max")),
    row("amin min", _extreme("reduce_min")),
    row("max.dim", _extreme_and_place("reduce_max", "arg_max")),
    row("min.dim", _extreme_and_place("reduce_min", "arg_min")),
    row("argmax", _arg("arg_max")),
    row("argmin", _arg("arg_min")),
    row("aminmax", _aminmax),
    row("any any.dim any.dims _is_any_true", _some("reduce_max")),
    row("all all.dim all.dims _is_all_true", _some("reduce_min")),
    row("var var.dim var.correction", _variance(root=False, with_mean=False)),
    row("std std.dim std.correction", _variance(root=True, with_mean=False)),
    row("var_mean var_mean.dim var_mean.correction", _variance(root=False, with_mean=True)),
    row("std_mean std_mean.dim std_mean.correction", _variance(root=True, with_mean=True)),
    row("logsumexp special_logsumexp", _logsumexp),
    row("cumsum", _running("cumsum")),
    row("cumprod", _running("cumprod")),
    row(
        "linalg_vector_norm norm.Scalar norm.ScalarOpt_dim norm.ScalarOpt_dim_dtype "
        "norm.ScalarOpt_dtype",
        _vector_norm,
    ),
)
