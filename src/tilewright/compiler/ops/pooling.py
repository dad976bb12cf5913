"""Pooling over sliding windows, any spatial rank, NCHW or NHWC.

Global pooling is `reduce_mean` or `reduce_max` over the spatial axes, not an op of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

import numpy as np

from tilewright.base import dtypes, symbolic
from tilewright.base.dtypes import FLOATS, NUMERIC, i64
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.schema import (
    Attributes,
    AttributeSpec,
    Role,
    TensorType,
    Trait,
)
from tilewright.compiler.kernel import numerics
from tilewright.compiler.kernel.builder import KernelBuilder, Source, compute_dtype
from tilewright.compiler.kernel.ir import Buffer, Expression
from tilewright.compiler.ops.bodies import Operands, Results, fold, given, picking_nest
from tilewright.compiler.ops.declaration import (
    IndexRange,
    OpDecl,
    Types,
    attr,
    declare,
    operand,
)
from tilewright.compiler.ops.shapes import (
    check_at_most,
    check_positive,
    check_same_shape,
    element_count,
    first,
    need,
    spatial_axes,
    window_count,
    window_steps,
    with_borders,
)

Ints = tuple[int, ...]
_WINDOW: Final[tuple[AttributeSpec, ...]] = (
    attr("kernel", "ints"),
    attr("strides", "ints", ()),
    attr("pads", "ints", ()),
    attr("dilations", "ints", ()),
    attr("ceil_mode", "bool", default=False),
    attr("layout", "string", "NCHW"),
)
FEW_TAPS: Final = 16
"""Taps along an axis up to which all are taken, though an input of open size may have fewer elements there."""
_POOL: Final = Trait.PURE | Trait.REDUCTION


class _Window:
    """The window of one pooling node: per spatial axis kernel, stride, pads and dilation."""

    def __init__(self, shape: Sequence[Dim], attributes: Attributes) -> None:
        layout = cast("str", attributes["layout"])
        self.axes: Ints = spatial_axes(len(shape), layout)
        rank = len(self.axes)
        self.kernel: Ints = cast("Ints", attributes["kernel"])
        self.strides: Ints
        self.dilations: Ints
        self.strides, pads, self.dilations = window_steps(attributes, rank)
        if not len(self.kernel) == len(self.strides) == len(self.dilations) == rank:
            raise ModelError(f"window {self.kernel} does not fit {rank} spatial dimensions")
        if len(pads) != 2 * rank:
            raise ModelError(f"{len(pads)} pads for {rank} spatial dimensions")
        check_positive("the window is", self.kernel)
        check_positive("strides are", self.strides)
        check_positive("dilations are", self.dilations)
        self.begin: Ints = pads[:rank]
        self.end: Ints = pads[rank:]
        self.sizes: tuple[Dim, ...] = tuple(shape[a] for a in self.axes)
        ceil_mode = bool(attributes["ceil_mode"])
        self.counts: tuple[Dim, ...] = tuple(
            window_count(
                self.sizes[i], self.kernel[i], self.strides[i], self.dilations[i],
                ceil_mode=ceil_mode, pads=(self.begin[i], self.end[i]),
            )
            for i in range(rank)
        )  # fmt: skip

    def output(self, shape: Sequence[Dim]) -> tuple[Dim, ...]:
        """`shape` with the spatial sizes replaced by the window counts."""
        result = list(shape)
        for axis, count in zip(self.axes, self.counts, strict=True):
            result[axis] = count
        return tuple(result)

    def met(self, i: int) -> tuple[Dim, Dim]:
        """The first tap along spatial axis i that may meet the input in some window, and how many taps may.

        A large window may stick out of an input of open size, and hold all of it and much more: it then takes as many
        steps as the input has elements.  Few taps are all taken, since their number is known.
        """
        kernel, step = self.kernel[i], self.dilations[i]
        if kernel <= FEW_TAPS or isinstance(self.sizes[i], int) or self.covered(i):
            return 0, kernel
        # The first window begins farthest in front of the input, the last one farthest behind.
        before = self.begin[i] - (self.counts[i] - 1) * self.strides[i]
        behind = symbolic.ceildiv(self.sizes[i] + self.begin[i], step)
        low: Dim = 0
        if self.begin[i] > 0:
            low = symbolic.maximum(symbolic.ceildiv(before, step), 0)
        return low, symbolic.maximum(symbolic.minimum(behind, kernel) - low, 0)

    @property
    def extents(self) -> tuple[Dim, ...]:
        """How many taps are taken along each spatial axis."""
        return tuple(self.met(i)[1] for i in range(len(self.axes)))

    def source(self, indices: Sequence[Dim], taps: Sequence[Dim]) -> list[Dim]:
        """Where the window at `indices` reads with a tap, one of `extents`."""
        source = list(indices)
        for i, axis in enumerate(self.axes):
            source[axis] = self.place(i, indices[axis], self.met(i)[0] + taps[i])
        return source

    def place(self, i: int, index: Dim, tap: Dim) -> Dim:
        """Where tap `tap` of window `index` reads along spatial axis i."""
        return index * self.strides[i] + tap * self.dilations[i] - self.begin[i]

    def covered(self, i: int, *, padded: bool = False) -> bool:
        """Whether every tap of every window surely lies inside the input, with its padding if that is `padded`."""
        last = (self.counts[i] - 1) * self.strides[i] + (
            self.kernel[i] - 1
        ) * self.dilations[i]
        before, after = (0, self.end[i]) if padded else (self.begin[i], 0)
        room = self.sizes[i] - 1 - last + self.begin[i] + after
        slack = symbolic.bounds(room)[0]
        return before == 0 and slack is not None and slack >= 0


def _infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    x = first(types)
    if x.rank < 3:
        raise ModelError(f"pooling of {x}: no spatial dimensions")
    return (x.with_shape(_Window(x.shape, attributes).output(x.shape)),)


def _lp_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    if not attributes["p"]:
        raise ModelError("the 0-norm takes a root of order 0, which is no number")
    return _infer(types, attributes)


# --- oracle ----------------------------------------------------------------------------------


def _taps(x: np.ndarray, window: _Window, fill: float) -> Iterator[np.ndarray]:
    """Per tap, a view of the input elements of all windows, `fill` outside the input."""
    pads = [(0, 0)] * x.ndim
    for i, axis in enumerate(window.axes):
        counts, kernel = cast("int", window.counts[i]), window.kernel[i]
        reach = (counts - 1) * window.strides[i] + (kernel - 1) * window.dilations[i] + 1
        beyond = reach - window.begin[i] - x.shape[axis]
        pads[axis] = (window.begin[i], max(beyond, 0))
    padded = with_borders(x, pads, fill)
    for tap in itertools.product(*(range(k) for k in window.kernel)):
        cut: list[slice] = [slice(None)] * x.ndim
        for i, axis in enumerate(window.axes):
            start = tap[i] * window.dilations[i]
            reach = (cast("int", window.counts[i]) - 1) * window.strides[i] + 1
            cut[axis] = slice(start, start + max(reach, 0), window.strides[i])
        yield padded[tuple(cut)]


def _max_oracle(x: np.ndarray, **attributes: Any) -> np.ndarray:
    window = _Window(x.shape, attributes)
    dtype = dtypes.from_numpy(x.dtype)
    wide = numerics.cast(x, compute_dtype(dtype))
    lowest = numerics.identity("max", dtype)
    total: np.ndarray | None = None
    for part in _taps(wide, window, lowest):
        total = part.copy() if total is None else np.maximum(total, part)
    assert total is not None
    return numerics.cast(total, dtype)


def _counts(window: _Window, rank: int, *, include_pad: bool) -> np.ndarray:
    """How many elements each window averages; axes that are not pooled have size 1."""
    total = np.ones((1,) * rank)
    for i, axis in enumerate(window.axes):
        before, after = (window.begin[i], window.end[i]) if include_pad else (0, 0)
        starts = (
            np.arange(cast("int", window.counts[i])) * window.strides[i] - window.begin[i]
        )
        # Taps `start + t * step` with low <= tap < high and 0 <= t < kernel.
        low, high = -before - starts, cast("int", window.sizes[i]) + after - starts
        begin = np.maximum(-(-low // window.dilations[i]), 0)
        end = np.minimum(-(-high // window.dilations[i]), window.kernel[i])
        total = total * np.maximum(end - begin, 0).reshape(
            [-1 if a == axis else 1 for a in range(rank)]
        )
    return total


def _average_oracle(
    x: np.ndarray, *, count_include_pad: bool, **attributes: Any
) -> np.ndarray:
    window = _Window(x.shape, attributes)
    total = sum(_taps(x.astype(np.float64), window, 0))
    counts = _counts(window, x.ndim, include_pad=count_include_pad)
    return numerics.cast(np.asarray(total / counts), dtypes.from_numpy(x.dtype))


def _lp_oracle(x: np.ndarray, *, p: int, **attributes: Any) -> np.ndarray:
    window = _Window(x.shape, attributes)
    total = sum(np.abs(part) ** p for part in _taps(x.astype(np.float64), window, 0))
    return numerics.cast(np.asarray(total) ** (1 / p), dtypes.from_numpy(x.dtype))


# --- bodies ----------------------------------------------------------------------------------


def _accumulate(
    b: KernelBuilder, x: Source, window: _Window, op: str, into: Buffer, element: Any = None
) -> None:  # fmt: skip
    """Combine the taps of every window; those outside the input are neutral."""
    neutral = numerics.identity(op, into.dtype)

    def read(indices: Sequence[Dim], taps: Sequence[Dim]) -> Expression:
        source = window.source(indices, taps)
        mask: Expression | None = None
        for i, axis in enumerate(window.axes):
            if not window.covered(i):
                test = b.within(source[axis], 0, window.sizes[i])
                mask = test if mask is None else b.and_(mask, test)
        value = b.read(x, source, mask)
        value = value if element is None else element(value)
        return value if mask is None or neutral == 0 else b.select(mask, value, neutral)

    names = tuple(f"k{i}" for i in range(len(window.axes)))
    with b.nest(into.shape) as indices:
        fold(b, op, into, indices, window.extents, lambda taps: read(indices, taps), names)


def _max_body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    x, (result,) = given(operands, 0), results
    window = _Window(x.shape, attributes)
    # Of its own, so that schedules can keep it in registers.
    best = b.temporary(compute_dtype(x.dtype), result.shape, "acc")
    _accumulate(b, x, window, "max", best)
    with b.nest(result.shape) as indices:
        b.write(result, indices, b.load(best, indices))


def _divisor(window: _Window, indices: Sequence[Dim], *, include_pad: bool) -> Dim:
    """How many elements the window at `indices` averages."""
    count: Dim = 1
    for i, axis in enumerate(window.axes):
        if window.covered(i, padded=include_pad):
            count = count * window.kernel[i]
            continue
        start, step = window.place(i, indices[axis], 0), window.dilations[i]
        low, high = (0, window.sizes[i])
        if include_pad:
            low, high = -window.begin[i], window.sizes[i] + window.end[i]
        # Taps `start + t * step` with low <= tap < high and 0 <= t < kernel.
        begin = symbolic.maximum(symbolic.ceildiv(low - start, step), 0)
        end = symbolic.minimum(symbolic.ceildiv(high - start, step), window.kernel[i])
        count = count * symbolic.maximum(end - begin, 0)
    return count


def _average_body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    x, (result,) = given(operands, 0), results
    window = _Window(x.shape, attributes)
    total = b.temporary(compute_dtype(x.dtype), result.shape, "acc")
    _accumulate(b, x, window, "add", total)
    include = bool(attributes["count_include_pad"])
    with b.nest(result.shape) as indices:
        count = _divisor(window, indices, include_pad=include)
        divisor = b.cast(b.index(count), total.dtype)
        b.write(result, indices, b.div(b.load(total, indices), divisor))


def _lp_body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    x, (result,) = given(operands, 0), results
    p = cast("int", attributes["p"])
    total = b.temporary(compute_dtype(x.dtype), result.shape, "acc")

    def element(value: Expression) -> Expression:
        if p == 2:
            return b.mul(value, value)
        return b.abs(value) if p == 1 else b.pow(b.abs(value), p)

    _accumulate(b, x, _Window(x.shape, attributes), "add", total, element)
    with b.nest(result.shape) as indices:
        value = b.load(total, indices)
        if p == 2:
            value = b.sqrt(value)
        elif p != 1:
            value = b.pow(value, 1 / p)
        b.write(result, indices, value)


_CASES: Final = (
    "[1,2,6,7]; kernel=(3,3) strides=(2,2) pads=(1,1,1,1)",
    "[1,6,7,2]; kernel=(2,3) layout=NHWC",
    "[2,1,9]; kernel=(3,) strides=(2,) dilations=(2,) pads=(1,2)",
    "[1,1,5,5]; kernel=(2,2) strides=(2,2) ceil_mode=True",
    "[1,1,6,6]; kernel=(3,3) strides=(2,2) pads=(1,1,1,1) ceil_mode=True",
    "[1,2,4,3,4]; kernel=(2,2,2)",
    "[1,2,5,6]; kernel=(2,3) strides=(2,1) pads=(-1,1,1,-2)",
    "[2,1,9]; kernel=(7,) strides=(2,) dilations=(2,) pads=(1,2)",
)

max_pool: Final = declare(
    name="max_pool",
    summary="The largest element of every window; NaN wins, padding never does",
    operands=(operand("x", NUMERIC),),
    attributes=_WINDOW,
    infer=_infer,
    evaluate=_max_oracle,
    body=_max_body,
    traits=_POOL,
    role=Role.POOLING,
    cases=_CASES,
    source="ONNX MaxPool, opset 22",
)

average_pool: Final = declare(
    name="average_pool",
    summary="The mean of every window, over its elements inside the input or with its padding",
    operands=(operand("x", FLOATS),),
    attributes=(*_WINDOW, attr("count_include_pad", "bool", default=False)),
    infer=_infer,
    evaluate=_average_oracle,
    body=_average_body,
    traits=_POOL,
    role=Role.POOLING,
    cases=(*_CASES, *(f"{case} count_include_pad=True" for case in _CASES)),
    source="ONNX AveragePool, opset 22",
)

lp_pool: Final = declare(
    name="lp_pool",
    summary="The p-norm of every window",
    operands=(operand("x", FLOATS),),
    attributes=(*_WINDOW, attr("p", "int", 2)),
    infer=_lp_infer,
    evaluate=_lp_oracle,
    body=_lp_body,
    traits=_POOL,
    role=Role.POOLING,
    cases=(_CASES[0], f"{_CASES[1]} p=1", f"{_CASES[2]} p=3"),
    source="ONNX LpPool, opset 22",
)

# --- max pooling with positions --------------------------------------------------------------


def _indices_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    plain = {k: v for k, v in attributes.items() if k != "storage_order"}
    (values,) = _infer(types, plain)
    return (values, TensorType(i64, values.shape))


def _indices_oracle(
    x: np.ndarray, *, storage_order: int, **attributes: Any
) -> tuple[np.ndarray, np.ndarray]:
    window = _Window(x.shape, attributes)
    dtype = dtypes.from_numpy(x.dtype)
    order = np.arange(x.size, dtype=np.int64).reshape(x.shape)
    if storage_order:
        # Positions counted with the last two axes exchanged.
        planes = (*x.shape[:-2], x.shape[-1], x.shape[-2])
        order = np.swapaxes(np.arange(x.size, dtype=np.int64).reshape(planes), -1, -2)
    wide = numerics.cast(x, compute_dtype(dtype))
    lowest = numerics.identity("max", dtype)
    best: np.ndarray | None = None
    where: np.ndarray | None = None
    for part, place in zip(
        _taps(wide, window, lowest), _taps(order, window, -1), strict=True
    ):
        if best is None or where is None:
            best, where = part.copy(), place.copy()
            continue
        better = (part > best) | ((place >= 0) & (where < 0))
        best, where = np.where(better, part, best), np.where(better, place, where)
    assert best is not None
    assert where is not None
    return numerics.cast(best, dtype), where


def _indices_body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    """Taps in order; one inside the input always beats the start, later ones only when larger."""
    x, (values, places) = given(operands, 0), results
    window = _Window(x.shape, attributes)
    best = b.temporary(compute_dtype(x.dtype), values.shape, "best")
    wins = b.temporary(dtypes.bool_, values.shape, "wins")
    with b.nest(values.shape) as indices:
        b.store(places, indices, -1)
        b.store(best, indices, 0)
        names = tuple(f"k{i}" for i in range(len(window.axes)))
        with b.nest(window.extents, names) as taps:
            source, inside = window.source(indices, taps), b.const(True, dtypes.bool_)
            for i, axis in enumerate(window.axes):
                inside = b.and_(inside, b.within(source[axis], 0, window.sizes[i]))
            value = b.read(x, source, inside)
            first_ = b.lt(b.load(places, indices), 0)
            better = b.and_(inside, b.or_(first_, b.gt(value, b.load(best, indices))))
            order = _flat(x.shape, source, column_major=bool(attributes["storage_order"]))
            # As a value of its own it stays a mask where `best` changes.
            b.store(wins, indices, better)
            with b.when(b.load(wins, indices)):
                b.store(best, indices, value)
                b.store(places, indices, b.index(order))
    with b.nest(values.shape) as indices:
        b.write(values, indices, b.load(best, indices))


def _flat(shape: Sequence[Dim], indices: Sequence[Dim], *, column_major: bool) -> Dim:
    """The position of an element, with the last two axes exchanged in column-major order."""
    sizes, places = list(shape), list(indices)
    if column_major:
        sizes[-2:], places[-2:] = sizes[:-3:-1], places[:-3:-1]
    position: Dim = 0
    for size, place in zip(sizes, places, strict=True):
        position = position * size + place
    return position


max_pool_indices: Final = declare(
    name="max_pool_indices",
    summary="The largest element of every window and its position in the flattened input",
    operands=(operand("x", NUMERIC),),
    attributes=(*_WINDOW, attr("storage_order", "int", 0)),
    results=("values", "indices"),
    infer=_indices_infer,
    evaluate=_indices_oracle,
    body=_indices_body,
    traits=_POOL,
    cases=(_CASES[0], *(f"f32{case} storage_order=1" for case in _CASES[2:5])),
    source="ONNX MaxPool, opset 22, second result",
)


def _unpool_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    shape = cast("tuple[Dim, ...]", attributes["shape"])
    x, places, source = first(types), need(types, 1), _unpool_source(attributes)
    subject = f"max_unpool of places in shape {list(source)} to shape {list(shape)}"
    if len(source) != len(shape):
        raise ModelError(subject)
    for size, most in zip(source, shape, strict=True):
        check_at_most(subject, size, most)
    check_same_shape("elements and places of max_unpool", x, places)
    return (x.with_shape(shape),)


def _unpool_source(attributes: Attributes) -> tuple[Dim, ...]:
    """The shape in which the places count."""
    return cast("tuple[Dim, ...]", attributes["source"] or attributes["shape"])


def _unpool_places(_: Types, attributes: Attributes) -> tuple[IndexRange, ...]:
    count = element_count(_unpool_source(attributes))
    return (IndexRange(1, 0, count, 0, count - 1),)


def _unpool_oracle(
    x: np.ndarray, indices: np.ndarray, *, shape: tuple[int, ...], source: tuple[int, ...]
) -> np.ndarray:
    """`indices` count in a tensor of shape `source`, which differs where the output is larger."""
    result = np.zeros(shape, x.dtype)
    places = np.unravel_index(indices.ravel(), source or shape)
    result[places] = x.ravel()
    return result


def _unpool_body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    x, indices, (result,) = given(operands, 0), given(operands, 1), results
    source = _unpool_source(attributes)
    with b.nest(result.shape) as place:
        b.store(result, place, 0)
    with picking_nest(b, x.shape, source) as place:
        count = b.index(element_count(source))
        rest = b.min(b.max(b.load(indices, place), 0), b.sub(count, 1))
        there: list[Dim] = []
        for size, most in zip(reversed(source), reversed(result.shape), strict=True):
            at = b.min(b.mod(rest, b.index(size)), b.sub(b.index(most), 1))
            there.insert(0, b.as_index(at))
            rest = b.div(rest, b.index(size))
        b.store(result, there, b.load(x, place))


max_unpool: Final = declare(
    name="max_unpool",
    summary="Zeros of `shape` with x at the flat positions `indices` (counted in shape `source`)",
    operands=(operand("x", FLOATS), operand("indices", (i64,))),
    attributes=(attr("shape", "dims"), attr("source", "dims", ())),
    infer=_unpool_infer,
    evaluate=_unpool_oracle,
    body=_unpool_body,
    indices=_unpool_places,
    cases=(
        "[1,1,2] [1,1,2]:=1,3; shape=(1,1,5)",
        "f32[1,2,2,2] [1,2,2,2]:=1,6,8,15,17,18,25,30; shape=(1,2,4,4)",
        "f32[1,1,2,2] [1,1,2,2]:=1,6,8,15; shape=(1,1,5,6) source=(1,1,4,4)",
    ),
    source="ONNX MaxUnpool, opset 22",
)

OPS: Final[tuple[OpDecl, ...]] = (
    max_pool, average_pool, lp_pool, max_pool_indices, max_unpool,
)  # fmt: skip
