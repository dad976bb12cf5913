"""Ops that read where data says: gather, one-hot, nonzero.

Indices below zero count from the end, unless a row's attribute `from_end` says that they are out of range; in kernels
every index is clamped into its range, so that none reads foreign memory.  The rows say what that range is (`indices`): `declare` has it checked
before an oracle, which so needs not ask for `from_end`, and a run reports what its kernels clamped (`out_of_range`).  What writes there: `scatter`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

import numpy as np

from tilewright.base.dtypes import ALL, ANY, DType, bool_, i32, i64
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.schema import Attributes, Layout, Role, TensorType, Trait
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.ir import Expression
from tilewright.compiler.ops import contents, layouts, ranges
from tilewright.compiler.ops.bodies import (
    Operands,
    Results,
    given,
    picking_nest,
    pointwise,
    reduce_rows,
    wrapped_index,
)
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
    check_same,
    first,
    like_first_as_dtype,
    need,
    normal_axis,
)

_M: Final = Trait.PURE | Trait.MOVEMENT
_INDEX: Final = (i64, i32)

_NOTHING: Final = int(np.iinfo(np.int64).min)


def from_front(indices: np.ndarray, extent: int) -> np.ndarray:
    """Indices counted from the front."""
    return np.where(indices < 0, indices + extent, indices)


FROM_END: Final = attr("from_end", "bool", default=True)
"""Whether a negative place counts from the end, as in ONNX; else it is out of range."""


def _place_on(
    x: TensorType, attributes: Attributes, axis: int, column: int | None = None
) -> IndexRange:
    """Operand 1 holds places on one axis of x, counted as the attribute `from_end` says: from either end, if it is not there."""
    size = x.shape[axis]
    low = -size if attributes.get(FROM_END.name, True) else 0
    return IndexRange(1, axis, size, low, size - 1, column)


def along_axis(types: Types, attributes: Attributes) -> tuple[IndexRange, ...]:
    """Operand 1 holds places on the axis that the attribute `axis` says."""
    x = need(types, 0)
    axis = normal_axis(cast("int", attributes["axis"]), x.rank)
    return (_place_on(x, attributes, axis),)


def index_tuples(types: Types, attributes: Attributes) -> tuple[IndexRange, ...]:
    """The last axis of operand 1 holds one place per axis of x, behind those of batches."""
    x, indices = need(types, 0), need(types, 1)
    batch = cast("int", attributes.get("batch_dims", 0))
    depth = cast("int", indices.shape[-1])
    return tuple(
        _place_on(x, attributes, batch + column, column) for column in range(depth)
    )


# --- out of range ----------------------------------------------------------------------------


def _out_of_range_oracle(
    x: np.ndarray, *, low: tuple[int], high: tuple[int], axis: int, size: tuple[int]
) -> np.ndarray:
    del axis, size
    wide = x.astype(np.int64)
    bad = wide[(wide < low[0]) | (wide > high[0])]
    # The least i64 of all is reported as the one above, for it says that all is well.
    return np.asarray(np.max(bad, initial=_NOTHING + 1) if bad.size else _NOTHING)


def _out_of_range_body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    x, (result,) = given(operands, 0), results
    (low,), (high,) = (cast("tuple[Dim]", attributes[n]) for n in ("low", "high"))

    def element(indices: tuple[Dim, ...], _: tuple[Dim, ...]) -> Expression:
        value = b.cast(b.load(x, indices), i64)
        bad = b.or_(b.lt(value, b.index(low)), b.gt(value, b.index(high)))
        return b.select(bad, b.max(value, _NOTHING + 1), _NOTHING)

    reduce_rows(b, "max", x, range(len(x.shape)), element, into=result)


out_of_range: Final = declare(
    name="out_of_range",
    summary="The largest element outside low .. high; the smallest i64 when none is",
    operands=(operand("x", _INDEX),),
    attributes=(
        attr("low", "dims"), attr("high", "dims"), attr("axis", "int"), attr("size", "dims"),
    ),
    infer=lambda _types, _attributes: (TensorType(i64, ()),),
    evaluate=_out_of_range_oracle,
    body=_out_of_range_body,
    traits=Trait.REDUCTION | Trait.GUARD,
    cases=(
        "[5,3]:index(4); low=(-4,) high=(3,) axis=0 size=(4,)",
        "[2,37]:index(9); low=(-4,) high=(3,) axis=1 size=(4,)",
        "[3]:=-7,2,-5; low=(-4,) high=(3,) axis=0 size=(4,)",
        "[]:=0; low=(0,) high=(-1,) axis=0 size=(0,)",
        "[0,3]:index(1); low=(-4,) high=(3,) axis=0 size=(4,)",
    ),
    source="what onnxruntime refuses at run time; `axis` and `size` are for the message",
)  # fmt: skip

# --- in range --------------------------------------------------------------------------------


def _clamped(
    b: KernelBuilder, x: Expression, *, size: tuple[Dim], dtype: DType
) -> Expression:
    wide, whole = b.cast(x, i64), b.index(size[0])
    wrapped = b.select(b.lt(wide, 0), b.add(wide, whole), wide)
    return b.cast(b.min(b.max(wrapped, 0), b.index(size[0] - 1)), dtype)


def _clamped_oracle(x: np.ndarray, *, size: tuple[int], dtype: DType) -> np.ndarray:
    places = np.maximum(from_front(x.astype(np.int64), size[0]), 0)
    return np.minimum(places, size[0] - 1).astype(dtype.numpy)


clamp_index: Final = declare(
    name="clamp_index",
    summary="Places on an axis of `size`: x counted from the front, what is out of range moved to an end",
    operands=(operand("x", _INDEX),),
    attributes=(attr("size", "dims"), attr("dtype", "dtype", i64)),
    infer=like_first_as_dtype,
    evaluate=_clamped_oracle,
    body=pointwise(_clamped, use_attributes=True),
    traits=Trait.PURE | Trait.ELEMENTWISE,
    cases=(
        "[5,3]:index(4); size=(4,) dtype=i32",
        "[2,3]:=-7,2,-5,0,9,4; size=(5,)",
        "i32[5]:=-7,2,-5,0,9; size=(3,) dtype=i32",
        "[3]:=0,1,-1; size=(1,)",
    ),
    source="what `gather` does with its indices, once for all rows that are picked from",
)


def _index(b: KernelBuilder, value: Expression, extent: Dim, attributes: Attributes) -> Dim:
    """A loaded index, brought in range unless it is; inside a `picking_nest`."""
    if attributes["in_range"]:
        return b.as_index(b.cast(value, i64))
    return wrapped_index(b, value, extent)


# --- gather ----------------------------------------------------------------------------------


def _gather_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    x, indices = need(types, 0), need(types, 1)
    axis = normal_axis(cast("int", attributes["axis"]), x.rank)
    if x.rank == 0:
        raise ModelError("gather from a scalar")
    return (x.with_shape((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])),)


def _gather_body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    x, indices, (result,) = given(operands, 0), given(operands, 1), results
    axis = normal_axis(cast("int", attributes["axis"]), len(x.shape))
    after = axis + len(indices.shape)
    with picking_nest(b, result.shape, (x.shape[axis],)) as place:
        value = b.load(indices, place[axis:after])
        at = _index(b, value, x.shape[axis], attributes)
        b.store(result, place, b.load(x, (*place[:axis], at, *place[after:])))


def _gather_oracle(
    x: np.ndarray, indices: np.ndarray, *, axis: int, in_range: bool, from_end: bool
) -> np.ndarray:
    del in_range, from_end
    return np.take(x, from_front(indices, x.shape[axis]), axis)


gather: Final = declare(
    name="gather",
    contents=contents.gathered,
    summary="Slices of x along `axis` at the given indices",
    operands=(operand("x", ALL), operand("indices", _INDEX)),
    attributes=(attr("axis", "int", 0), attr("in_range", "bool", default=False), FROM_END),
    infer=_gather_infer,
    evaluate=_gather_oracle,
    body=_gather_body,
    indices=along_axis,
    traits=_M | Trait.PICKS,
    role=Role.MAP,
    layout=Layout(layouts.picked),
    ranges=ranges.same,
    cases=(
        "[5,3] [2,4]:index(5); axis=0",
        "[3,7] [4]:index(7); axis=1",
        "[3,7,2] []:index(7); axis=1",
        "[2,3,5] [4]:index(3); axis=1",
        "[3,7] [4]:=0,6,3,3; axis=1 in_range=True",
        "[3,7] [4]:=0,6,3,3; axis=1 from_end=False",
        "[5] [3]:index(5); axis=-1",
        "[4,2] [0]:index(1)",
    ),
    source="ONNX Gather, opset 13",
)


def check_reach(x: TensorType, indices: TensorType, axis: int) -> None:
    """Raises: ModelError where indices along `axis` surely have places on another axis that `x` has not."""
    for position, (left, right) in enumerate(zip(indices.shape, x.shape, strict=True)):
        if position != axis:
            check_at_most(f"indices {indices} reach over the end of {x}", left, right)


def _elements_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    x, indices = need(types, 0), need(types, 1)
    axis = normal_axis(cast("int", attributes["axis"]), x.rank)
    if x.rank != indices.rank:
        raise ModelError(f"indices {indices} have another rank than {x}")
    check_reach(x, indices, axis)
    return (x.with_shape(indices.shape),)


def element_places(x: np.ndarray, indices: np.ndarray, axis: int) -> tuple[np.ndarray, ...]:
    """Where in x every element of an indices-shaped tensor lies."""
    grid: list[np.ndarray] = list(np.indices(indices.shape, sparse=True))
    grid[axis] = from_front(indices, x.shape[axis])
    return tuple(np.broadcast_arrays(*grid)) if grid else ()


def _all_of_x(types: Types, attributes: Attributes, operand: int) -> Sequence[int]:
    """The axes of what is picked from: the result has those of the indices."""
    del attributes
    return () if operand else range(need(types, 0).rank)


def _gather_elements_oracle(
    x: np.ndarray, indices: np.ndarray, *, axis: int, in_range: bool, from_end: bool
) -> np.ndarray:
    del in_range, from_end
    return x[element_places(x, indices, normal_axis(axis, x.ndim))]


def _gather_elements_body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    x, indices, (result,) = given(operands, 0), given(operands, 1), results
    axis = normal_axis(cast("int", attributes["axis"]), len(x.shape))
    with picking_nest(b, result.shape, (x.shape[axis],)) as place:
        at = _index(b, b.load(indices, place), x.shape[axis], attributes)
        b.store(result, place, b.load(x, (*place[:axis], at, *place[axis + 1 :])))


gather_elements: Final = declare(
    name="gather_elements",
    summary="Every element of x at its own position along `axis`",
    operands=(operand("x", ALL), operand("indices", _INDEX)),
    attributes=(attr("axis", "int", 0), attr("in_range", "bool", default=False), FROM_END),
    infer=_elements_infer,
    evaluate=_gather_elements_oracle,
    body=_gather_elements_body,
    indices=along_axis,
    empty_axes=_all_of_x,
    traits=_M,
    role=Role.MAP,
    ranges=ranges.same,
    cases=(
        "[3,5] [3,4]:index(5); axis=1",
        "[4,3] [2,3]:index(4); axis=0",
        "[3] [2]:=2,0; from_end=False",
        "[5] [0]:index(1)",
    ),
    source="ONNX GatherElements, opset 13",
)


def _gather_nd_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    x, indices = need(types, 0), need(types, 1)
    batch = cast("int", attributes["batch_dims"])
    depth = indices.shape[-1] if indices.rank else 0
    inside = 0 <= batch < indices.rank
    if not inside or not isinstance(depth, int) or batch + depth > x.rank:
        raise ModelError(
            f"gather_nd of {x} with indices {indices}, {batch} batch dimensions"
        )
    for left, right in zip(indices.shape[:batch], x.shape, strict=False):
        check_same(f"batches of {x} and indices {indices}", left, right)
    return (x.with_shape((*indices.shape[:-1], *x.shape[batch + depth :])),)


def _gather_nd_oracle(x: np.ndarray, indices: np.ndarray, *, batch_dims: int) -> np.ndarray:
    depth = indices.shape[-1]
    lead = list(np.indices(indices.shape[:-1], sparse=True))[:batch_dims]
    picks = [from_front(indices[..., i], x.shape[batch_dims + i]) for i in range(depth)]
    if not lead and not picks:
        return np.broadcast_to(x, (*indices.shape[:-1], *x.shape))
    spread = np.broadcast_arrays(*lead, *picks, np.zeros(indices.shape[:-1], np.int64))[:-1]
    return x[tuple(spread)]


def _gather_nd_body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    x, indices, (result,) = given(operands, 0), given(operands, 1), results
    batch = cast("int", attributes["batch_dims"])
    depth = cast("int", indices.shape[-1])
    outer = len(indices.shape) - 1
    sizes = x.shape[batch : batch + depth]
    with picking_nest(b, result.shape, sizes) as place:
        picks = [
            wrapped_index(b, b.load(indices, (*place[:outer], i)), size)
            for i, size in enumerate(sizes)
        ]
        b.store(result, place, b.load(x, (*place[:batch], *picks, *place[outer:])))


gather_nd: Final = declare(
    name="gather_nd",
    summary="Slices of x at index tuples, the last axis of `indices`",
    operands=(operand("x", ALL), operand("indices", _INDEX)),
    attributes=(attr("batch_dims", "int", 0),),
    infer=_gather_nd_infer,
    evaluate=_gather_nd_oracle,
    body=_gather_nd_body,
    indices=index_tuples,
    traits=_M | Trait.PICKS,
    role=Role.MAP,
    ranges=ranges.same,
    cases=(
        "[3,4] [5,2]:index(3)",
        "[3,4] [2,1]:index(3)",
        "[2,3,4] [2,1]:index(3); batch_dims=1",
        "[2,3,4] [2,5,2]:index(3); batch_dims=1",
        "[5] [1]:index(5)",
    ),
    source="ONNX GatherND, opset 13",
)

# --- rows ------------------------------------------------------------------------------------


def _row_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    x, place = need(types, 0), need(types, 1)
    result = x.with_shape(cast("tuple[Dim, ...]", attributes["shape"]))
    whole, part = x.element_count, result.element_count
    fits = isinstance(part, int) and part > 0 and place.element_count == 1
    if not fits or (isinstance(whole, int) and (not whole or whole % part)):
        raise ModelError(f"{result} is no row of {x} at {place}")
    return (result,)


def _row_oracle(x: np.ndarray, place: np.ndarray, *, shape: tuple[int, ...]) -> np.ndarray:
    rows = x.reshape(-1, *shape)
    at = int(place.reshape(-1)[0])
    return rows[min(max(at + len(rows) if at < 0 else at, 0), len(rows) - 1)]


pick_row: Final = declare(
    name="pick_row",
    summary="A part of x of `shape`, counted in such parts, where it lies: a place outside is moved inside",
    operands=(operand("x", ALL), operand("place", (i64,))),
    attributes=(attr("shape", "dims"),),
    infer=_row_infer,
    evaluate=_row_oracle,
    traits=Trait.PURE | Trait.PART,
    role=Role.NONE,
    source="what programs do in place of a gather of one slice (transforms.pick_rows)",
)

# --- one-hot ---------------------------------------------------------------------------------


def _one_hot_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    indices, values = need(types, 0), need(types, 1)
    (depth,) = cast("tuple[Dim, ...]", attributes["depth"])
    if values.rank != 1:
        raise ModelError(f"one_hot chooses between two values, not {values}")
    check_same(f"values {values} of one_hot", values.shape[0], 2)
    axis = normal_axis(cast("int", attributes["axis"]), indices.rank + 1)
    return (values.with_shape((*indices.shape[:axis], depth, *indices.shape[axis:])),)


def _one_hot_oracle(
    indices: np.ndarray, values: np.ndarray, *, depth: tuple[int], axis: int
) -> np.ndarray:
    axis = normal_axis(axis, indices.ndim + 1)
    (size,) = depth
    inside = (indices >= -size) & (indices < size)
    place = np.where(inside, np.where(indices < 0, indices + size, indices), -1)
    line = np.arange(size).reshape(
        [-1 if i == axis else 1 for i in range(indices.ndim + 1)]
    )
    return np.where(np.expand_dims(place, axis) == line, values[1], values[0])


def _one_hot_body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    indices, values, (result,) = given(operands, 0), given(operands, 1), results
    axis = normal_axis(cast("int", attributes["axis"]), len(result.shape))
    size = b.index(result.shape[axis])
    with b.nest(result.shape) as place:
        index = b.cast(b.load(indices, (*place[:axis], *place[axis + 1 :])), i64)
        here = b.index(place[axis])
        hit = b.or_(b.eq(index, here), b.eq(b.add(index, size), here))
        b.store(result, place, b.select(hit, b.load(values, (1,)), b.load(values, (0,))))


one_hot: Final = declare(
    name="one_hot",
    summary="values[1] where the new axis equals the index, values[0] elsewhere",
    operands=(operand("indices", _INDEX), operand("values", ANY)),
    attributes=(attr("depth", "dims"), attr("axis", "int", -1)),
    infer=_one_hot_infer,
    evaluate=_one_hot_oracle,
    body=_one_hot_body,
    role=Role.MAP,
    cases=(
        "[3]:index(6) [2]; depth=(5,)",
        "[2,3]:index(4) [2]; depth=(4,) axis=1",
        "[]:index(3) [2]; depth=(3,)",
    ),
    source="ONNX OneHot, opset 11",
)

# --- searches --------------------------------------------------------------------------------


def _counted(rank: int, position: int) -> Any:
    """Result of `count` (a fresh symbol) elements; rank 2 puts it at `position`."""

    def infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
        (count,) = cast("tuple[Dim, ...]", attributes["count"])
        x = first(types)
        shape: tuple[Dim, ...] = (x.rank, count) if rank == 2 else (count,)
        return (TensorType(i64, shape if position else shape[::-1]),)

    return infer


def _nonzero_oracle(x: np.ndarray, **_: object) -> np.ndarray:
    return np.stack(np.nonzero(x)) if x.ndim else np.zeros((0, int(bool(x))), np.int64)


nonzero: Final = declare(
    name="nonzero",
    summary="Indices of the elements that are not zero, [rank, count]",
    operands=(operand("x", ANY),),
    attributes=(attr("count", "dims"),),
    infer=_counted(2, 1),
    evaluate=_nonzero_oracle,
    cases=(),
    on_host="its size follows from the data, and a program has all sizes before its first step",
    source="ONNX NonZero, opset 13; `count` names the unknown size",
)


def _compress_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    x = first(types)
    (count,) = cast("tuple[Dim, ...]", attributes["count"])
    axis = attributes["axis"]
    if axis is None:
        return (x.with_shape((count,)),)
    place = normal_axis(cast("int", axis), x.rank)
    return (x.with_shape((*x.shape[:place], count, *x.shape[place + 1 :])),)


def _compress_oracle(
    x: np.ndarray, condition: np.ndarray, *, axis: int | None, **_: object
) -> np.ndarray:
    return np.compress(condition, x, axis)


compress: Final = declare(
    name="compress",
    summary="The slices along `axis` (elements, without one) where the condition holds",
    operands=(operand("x", ALL), operand("condition", (bool_,))),
    attributes=(attr("count", "dims"), attr("axis", "int", None)),
    infer=_compress_infer,
    evaluate=_compress_oracle,
    on_host="its size follows from the data, and a program has all sizes before its first step",
    source="ONNX Compress, opset 11; `count` names the unknown size",
)


def _reverse_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    x, lengths = need(types, 0), need(types, 1)
    batch = cast("int", attributes["batch_axis"])
    axes = (batch, cast("int", attributes["time_axis"]))
    if sorted(axes) != [0, 1] or x.rank < 2 or lengths.rank != 1:
        raise ModelError(f"reverse_sequence of {x} with lengths {lengths}, axes {axes}")
    check_same("lengths of reverse_sequence", x.shape[batch], lengths.shape[0])
    return (x,)


def _lengths(types: Types, attributes: Attributes) -> tuple[IndexRange, ...]:
    axis = cast("int", attributes["time_axis"])
    size = need(types, 0).shape[axis]
    return (IndexRange(1, axis, size, 0, size),)


def _reverse_oracle(
    x: np.ndarray, lengths: np.ndarray, *, batch_axis: int, time_axis: int
) -> np.ndarray:
    result = x.copy()
    for row, length in enumerate(lengths):
        place: list[Any] = [slice(None)] * x.ndim
        place[batch_axis] = row
        line = x[tuple(place)]
        axis = time_axis - (time_axis > batch_axis)
        order = np.arange(x.shape[time_axis])
        order[:length] = order[:length][::-1]
        result[tuple(place)] = np.take(line, order, axis)
    return result


def _reverse_body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    x, lengths, (result,) = given(operands, 0), given(operands, 1), results
    batch, time = (
        cast("int", attributes["batch_axis"]),
        cast("int", attributes["time_axis"]),
    )
    size = x.shape[time]
    with b.nest(result.shape) as place:
        length = b.cast(b.load(lengths, (place[batch],)), i64)
        here = b.index(place[time])
        turned = b.sub(b.sub(length, 1), here)
        at = b.select(b.lt(here, length), turned, here)
        index = b.as_index(b.min(b.max(at, 0), b.index(size - 1)))
        b.store(result, place, b.load(x, (*place[:time], index, *place[time + 1 :])))


reverse_sequence: Final = declare(
    name="reverse_sequence",
    summary="The first lengths[b] steps of every row turned around",
    operands=(operand("x", ALL), operand("lengths", (i64,))),
    attributes=(attr("batch_axis", "int", 1), attr("time_axis", "int", 0)),
    infer=_reverse_infer,
    evaluate=_reverse_oracle,
    body=_reverse_body,
    indices=_lengths,
    traits=_M,
    role=Role.MAP,
    ranges=ranges.same,
    cases=("[5,3,2] [3]:count(6)", "[3,5] [3]:count(6); batch_axis=0 time_axis=1"),
    source="ONNX ReverseSequence, opset 10",
)

OPS: Final[tuple[OpDecl, ...]] = (
    out_of_range, clamp_index, gather, pick_row, gather_elements, gather_nd, one_hot, nonzero,
    compress, reverse_sequence,
)  # fmt: skip
