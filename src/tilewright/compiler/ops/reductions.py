"""Reductions over axes: sums, extremes, positions of extremes, running sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

import numpy as np

from tilewright.base import dtypes, symbolic
from tilewright.base.dtypes import FLOATS, NUMERIC, DType, i32, i64
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.contents import Follow
from tilewright.compiler.graph.schema import Attributes, Layout, Role, TensorType, Trait
from tilewright.compiler.kernel import numerics
from tilewright.compiler.kernel.builder import KernelBuilder, compute_dtype
from tilewright.compiler.kernel.ir import Expression
from tilewright.compiler.ops import contents, layouts, ranges
from tilewright.compiler.ops.bodies import (
    Operands,
    Results,
    Scalar,
    fold,
    given,
    reduce_rows,
    reduction,
    result_indices,
    safe_quotient,
)
from tilewright.compiler.ops.declaration import (
    Body,
    Emit,
    OpDecl,
    Types,
    attr,
    declare,
    operand,
)
from tilewright.compiler.ops.shapes import (
    first,
    like_first_along_axis,
    normal_axes,
    normal_axis,
    reduced_shape,
)

_R: Final = Trait.PURE | Trait.REDUCTION
_CASES: Final = (
    "[3,17]; axes=(1,)",
    "[3,17]; axes=(0,) keepdims=False",
    "[2,3,5]; axes=(0,2)",
    "[2,3,5]; axes=(-1,) keepdims=False",
    "[7]; axes=(0,) keepdims=False",
    "[3,1]; axes=(1,)",
    "[3,0]; axes=(1,)",
    "[0,3]; axes=(1,)",
    "[4,3]; axes=()",
)


def _infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    x = first(types)
    axes = normal_axes(cast("tuple[int, ...]", attributes["axes"]), x.rank)
    shape = reduced_shape(x.shape, axes, keepdims=bool(attributes["keepdims"]))
    return (x.with_shape(shape),)


def _reduced_axes(attributes: Attributes, rank: int) -> frozenset[int]:
    axes = cast("tuple[int, ...]", attributes["axes"])
    return frozenset(() if attributes["keepdims"] else normal_axes(axes, rank))


def _oracle(combine: Callable[..., Any], op: str) -> Callable[..., Any]:
    """`combine` over the axes in f64 (floats) or wrapping integers."""

    def evaluate(x: np.ndarray, *, axes: tuple[int, ...], keepdims: bool) -> np.ndarray:
        dtype = dtypes.from_numpy(x.dtype)
        wide = x.astype(np.float64) if dtype.is_float else x
        start = np.asarray(numerics.identity(op, dtype)).astype(wide.dtype)
        # The initial value also fixes the type of the sum, which numpy would widen.
        options: dict[str, Any] = {"initial": start, "keepdims": keepdims}
        if op in ("add", "mul"):
            options["dtype"] = wide.dtype
        total = combine(wide, axis=tuple(axes), **options)
        return numerics.cast(np.asarray(total), dtype)

    return evaluate


def _reduce(
    name: str,
    summary: str,
    op: str,
    oracle: Callable[..., Any],
    *,
    after: Scalar | None = None,
    follow: Follow | None = None,
) -> OpDecl:
    return declare(
        name=name,
        summary=summary,
        operands=(operand("x", NUMERIC),),
        attributes=(attr("axes", "ints"), attr("keepdims", "bool", default=True)),
        infer=_infer,
        evaluate=oracle,
        body=reduction(op, after=after),
        layout=Layout(layouts.axes, reduced=_reduced_axes),
        ranges=ranges.extreme if op in ("max", "min") else None,
        contents=follow,
        traits=_R,
        role=Role.REDUCTION,
        cases=_CASES,
        source=f"ONNX {name}, opset 18",
    )


def _mean_after(b: KernelBuilder, total: Expression, count: Dim) -> Expression:
    return safe_quotient(b, "div", total, b.cast(b.index(count), total.dtype))


def _mean_oracle(x: np.ndarray, *, axes: tuple[int, ...], keepdims: bool) -> np.ndarray:
    dtype = dtypes.from_numpy(x.dtype)
    if dtype.is_float:
        mean = np.sum(x.astype(np.float64), axis=tuple(axes), keepdims=keepdims) / np.prod(
            [x.shape[a] for a in axes], dtype=np.float64
        )
        return numerics.cast(np.asarray(mean), dtype)
    total = np.sum(x, axis=tuple(axes), keepdims=keepdims, dtype=x.dtype)
    count = numerics.array(int(np.prod([x.shape[a] for a in axes], dtype=np.int64)), dtype)
    if count == 0:
        return np.zeros_like(total)
    return numerics.binary("div", np.asarray(total), count, dtype)


reduce_sum: Final = _reduce(
    "reduce_sum", "Sum over the listed axes (none listed: the operand)", "add",
    _oracle(np.sum, "add"), follow=contents.TOTAL,
)  # fmt: skip
reduce_prod: Final = _reduce(
    "reduce_prod",
    "Product over the listed axes",
    "mul",
    _oracle(np.prod, "mul"),
    follow=contents.TOTAL_PRODUCT,
)
reduce_max: Final = _reduce(
    "reduce_max",
    "Largest over the listed axes; NaN wins",
    "max",
    _oracle(np.max, "max"),
    follow=contents.LARGEST,
)
reduce_min: Final = _reduce(
    "reduce_min",
    "Smallest over the listed axes; NaN wins",
    "min",
    _oracle(np.min, "min"),
    follow=contents.SMALLEST,
)
reduce_mean: Final = _reduce(
    "reduce_mean", "Mean over the listed axes; integers truncate", "add", _mean_oracle,
    after=_mean_after,
)  # fmt: skip

# --- positions of extremes -------------------------------------------------------------------


_LONGEST: Final = (1 << 31) - 1
"""No line of unknown size is longer."""


def _arg_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    x = first(types)
    axis = normal_axis(cast("int", attributes["axis"]), x.rank)
    shape = reduced_shape(x.shape, (axis,), keepdims=bool(attributes["keepdims"]))
    if x.shape[axis] == 0 and 0 not in shape:
        raise ModelError(f"no place among no elements: axis {axis} of {x}")
    return (TensorType(i64, shape),)


def _reduced_axis(attributes: Attributes, rank: int) -> frozenset[int]:
    axis = cast("int", attributes["axis"])
    return frozenset(() if attributes["keepdims"] else (normal_axis(axis, rank),))


def _places_of_none(x: np.ndarray, axis: int, *, keepdims: bool) -> np.ndarray:
    shape = np.sum(x, axis=axis, keepdims=keepdims, dtype=bool).shape
    if 0 not in shape:
        raise ModelError(f"no place among no elements: axis {axis} of shape {x.shape}")
    return np.zeros(shape, np.int64)


def _arg_oracle(find: Callable[..., Any]) -> Callable[..., Any]:
    def evaluate(
        x: np.ndarray, *, axis: int, keepdims: bool, select_last: bool
    ) -> np.ndarray:
        if not x.size:
            return _places_of_none(x, axis, keepdims=keepdims)
        wide = x.astype(np.float32) if x.dtype.itemsize == 2 and x.dtype.kind in "fV" else x
        if not select_last:
            return find(wide, axis=axis, keepdims=keepdims)
        flipped = np.flip(wide, axis)
        return x.shape[axis] - 1 - find(flipped, axis=axis, keepdims=keepdims)

    return evaluate


def _arg_body(op: str) -> Body:
    """Two reductions: the extreme, then the first (last) position that holds it."""

    def emit(
        b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
    ) -> None:
        x, (result,) = given(operands, 0), results
        axis = normal_axis(cast("int", attributes["axis"]), len(x.shape))
        last, size = bool(attributes["select_last"]), x.shape[axis]
        best = reduce_rows(b, op, x, (axis,), lambda indices, _: b.read(x, indices))
        # Short places fill as many lanes as the elements.
        dtype = i64 if isinstance(size, int) and size >= _LONGEST else i32
        nowhere = b.index(-1 if last else size, dtype)

        def position(indices: tuple[Dim, ...], outer: tuple[Dim, ...]) -> Expression:
            value = b.read(x, indices)
            hit = b.or_(b.eq(value, b.load(best, outer)), b.is_nan(value))
            return b.select(hit, b.index(indices[axis], dtype), nowhere)

        places = b.temporary(dtype, best.shape, "places")
        reduce_rows(b, "max" if last else "min", x, (axis,), position, into=places)
        keepdims = bool(attributes["keepdims"])
        with b.nest(places.shape) as outer:
            place = b.cast(b.load(places, outer), i64)
            b.store(result, result_indices((axis,), outer, keepdims=keepdims), place)

    return Body(emit)


def _arg(name: str, summary: str, op: str, find: Callable[..., Any]) -> OpDecl:
    return declare(
        name=name,
        summary=summary,
        operands=(operand("x", NUMERIC),),
        attributes=(
            attr("axis", "int", 0),
            attr("keepdims", "bool", default=True),
            attr("select_last", "bool", default=False),
        ),
        infer=_arg_infer,
        evaluate=_arg_oracle(find),
        body=_arg_body(op),
        ranges=ranges.position,
        layout=Layout(layouts.axis, reduced=_reduced_axis),
        traits=_R,
        cases=(
            "[3,17]; axis=1",
            "[3,17]; axis=0 keepdims=False",
            "[2,9]:index(2); axis=1 select_last=True",
            "[2,9]:index(2); axis=-1",
            "[5,1]; axis=1",
            "[3,0]; axis=0",
            "[0,0]; axis=1 select_last=True",
        ),
        source=f"ONNX {name}, opset 13",
    )


arg_max: Final = _arg(
    "arg_max",
    "First (or last) position of the largest; NaN counts as largest",
    "max",
    np.argmax,
)
arg_min: Final = _arg(
    "arg_min",
    "First (or last) position of the smallest; NaN counts as smallest",
    "min",
    np.argmin,
)

# --- running sums and products ---------------------------------------------------------------


def _running_oracle(accumulate: Callable[..., Any], start: int) -> Callable[..., Any]:
    def evaluate(x: np.ndarray, *, axis: int, exclusive: bool, reverse: bool) -> np.ndarray:
        dtype = dtypes.from_numpy(x.dtype)
        wide: Any = np.float64 if dtype.is_float else x.dtype
        values = np.flip(x, axis) if reverse else x
        total = accumulate(values.astype(wide), axis=axis, dtype=wide)
        if exclusive and x.shape[axis]:
            total = np.roll(total, 1, axis)
            index: list[Any] = [slice(None)] * x.ndim
            index[axis] = slice(0, 1)
            total[tuple(index)] = start
        total = np.flip(total, axis) if reverse else total
        return numerics.cast(np.ascontiguousarray(total), dtype)

    return evaluate


def _running_body(op: str) -> Emit:
    """One pass along the axis that carries what has been combined so far."""

    def emit(
        b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
    ) -> None:
        x, (result,) = given(operands, 0), results
        axis = normal_axis(cast("int", attributes["axis"]), len(x.shape))
        reverse, exclusive = bool(attributes["reverse"]), bool(attributes["exclusive"])
        wide: DType = compute_dtype(x.dtype)
        outer = (*x.shape[:axis], *x.shape[axis + 1 :])
        carried = b.temporary(wide, outer, "running")
        size = x.shape[axis]
        with b.nest(outer) as around:
            b.store(carried, around, numerics.identity(op, wide))
            with b.nest((size,), ("p",)) as (step,):
                at = size - 1 - step if reverse else step
                place = (*around[:axis], at, *around[axis:])
                if exclusive:
                    b.write(result, place, b.load(carried, around))
                b.accumulate(op, carried, around, b.read(x, place))
                if not exclusive:
                    b.write(result, place, b.load(carried, around))

    return emit


def _running(name: str, summary: str, op: str, oracle: Callable[..., Any]) -> OpDecl:
    return declare(
        name=name,
        summary=f"{summary} along `axis`; `exclusive` leaves the element out, `reverse` runs back",
        operands=(operand("x", NUMERIC),),
        attributes=(
            attr("axis", "int", 0),
            attr("exclusive", "bool", default=False),
            attr("reverse", "bool", default=False),
        ),
        infer=like_first_along_axis,
        evaluate=oracle,
        body=_running_body(op),
        layout=layouts.ALONG_AXIS,
        traits=_R,
        cases=(
            "[3,7]; axis=1",
            "[3,7]; axis=0 exclusive=True",
            "[7]; reverse=True",
            "[2,7]; axis=-1 exclusive=True reverse=True",
            "[3,1]; axis=1",
            "[0,2]; axis=0",
        ),
        source=f"ONNX {name}",
    )


cumsum: Final = _running("cumsum", "Running sum", "add", _running_oracle(np.cumsum, 0))
cumprod: Final = _running(
    "cumprod", "Running product", "mul", _running_oracle(np.cumprod, 1)
)

# --- groups of neighbours --------------------------------------------------------------------


def _groups_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    x, groups = first(types), cast("int", attributes["groups"])
    if not x.rank:
        raise ModelError(f"groups are parts of the last axis, got {x}")
    if groups < 1 or symbolic.mod(x.shape[-1], groups) != 0:
        raise ModelError(f"the last axis of {x} does not divide into {groups} groups")
    return (x,)


def _groups_oracle(x: np.ndarray, *, groups: int) -> np.ndarray:
    parts = x.astype(np.float64).reshape(*x.shape[:-1], groups, x.shape[-1] // groups)
    means = parts.sum(-1, keepdims=True) / max(1, parts.shape[-1])
    means = np.broadcast_to(means, parts.shape)
    return numerics.cast(means.reshape(x.shape), dtypes.from_numpy(x.dtype))


def _groups_body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    x, (result,) = given(operands, 0), results
    groups = cast("int", attributes["groups"])
    *outer, size = x.shape
    each = symbolic.floordiv(size, groups)
    mean = b.temporary(compute_dtype(x.dtype), (*outer, groups), "mean")
    with b.nest(mean.shape) as (*around, group):
        place = (*around, group)
        fold(
            b, "add", mean, place, (each,),
            lambda inner: b.read(x, (*around, group * each + inner[0])),
        )  # fmt: skip
    with b.nest(x.shape) as (*around, at):
        total = b.load(mean, (*around, symbolic.floordiv(at, each)))
        b.write(result, (*around, at), b.div(total, b.cast(b.index(each), total.dtype)))


mean_of_groups: Final = declare(
    name="mean_of_groups",
    summary="For each element the mean of its group: `groups` equal parts of the last axis",
    operands=(operand("x", FLOATS),),
    attributes=(attr("groups", "int"),),
    infer=_groups_infer,
    evaluate=_groups_oracle,
    body=_groups_body,
    traits=Trait.PURE | Trait.ROWWISE,
    cases=(
        "[3,12]; groups=3",
        "[2,1,10]; groups=1",
        "[5]; groups=5",
        "[0,4]; groups=2",
        "[3,0]; groups=2",
    ),
)

OPS: Final = (
    reduce_sum, reduce_mean, reduce_max, reduce_min, reduce_prod, arg_max, arg_min, cumsum, cumprod,
    mean_of_groups,
)  # fmt: skip
