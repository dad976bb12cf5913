"""Elements at other places: reshape, transpose, slice, concat, tile and their kin.

Bodies keep indices affine wherever the shapes allow it; a reshape splits into groups of
dimensions with equal products, so a div or mod appears only where dimensions really merge.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

import numpy as np

from tilewright.base import dtypes, symbolic
from tilewright.base.dtypes import ALL
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.schema import Attributes, Layout, Role, TensorType, Trait
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.ops import contents, layouts, ranges
from tilewright.compiler.ops.bodies import Operands, Results, given, maybe
from tilewright.compiler.ops.declaration import (
    Types,
    attr,
    declare,
    operand,
    optional,
    variadic,
)
from tilewright.compiler.ops.shapes import (
    broadcast_indices,
    broadcast_sizes,
    check_at_most,
    check_not_negative,
    check_same,
    element_count,
    first,
    like_first,
    normal_axis,
    present,
)

M: Final = Trait.PURE | Trait.MOVEMENT
Dims = tuple[Dim, ...]


def _dims(attributes: Attributes, name: str) -> Dims:
    return cast("Dims", attributes[name])


def _with(indices: Sequence[Dim], axis: int, value: Dim) -> Dims:
    return (*indices[:axis], value, *indices[axis + 1 :])


# --- reshape ---------------------------------------------------------------------------------


def _reshape_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    x, shape = first(types), _dims(attributes, "shape")
    check_same(
        f"elements of {x} and of shape {list(shape)}", x.element_count, element_count(shape)
    )
    return (x.with_shape(shape),)


def shape_groups(source: Dims, target: Dims) -> list[tuple[range, range]]:
    """The finest split of both shapes into runs of dimensions with equal products."""
    groups: list[tuple[range, range]] = []
    i = j = 0
    while i < len(source) or j < len(target):
        start = (i, j)
        left: Dim = 1
        right: Dim = 1
        if i < len(source):
            left, i = source[i], i + 1
        if j < len(target):
            right, j = target[j], j + 1
        while left != right and (i < len(source) or j < len(target)):
            left, right, i, j = _extend(source, target, left, right, i, j)
        groups.append((range(start[0], i), range(start[1], j)))
    return groups


def _extend(
    source: Dims, target: Dims, left: Dim, right: Dim, i: int, j: int
) -> tuple[Dim, Dim, int, int]:
    """One more dimension on the side that has less (or the only side that has any)."""
    take_source = i < len(source) and (j >= len(target) or _less(left, right))
    if take_source:
        return left * source[i], right, i + 1, j
    return left, right * target[j], i, j + 1


def _less(left: Dim, right: Dim) -> bool:
    """Whether `left` surely is the smaller; for unlike symbols, the shorter product."""
    if isinstance(left, int) and isinstance(right, int):
        return left < right
    if isinstance(left, int) or isinstance(right, int):
        return isinstance(left, int)
    if symbolic.mod(right, left) == 0:
        return True
    return symbolic.mod(left, right) != 0 and len(str(left)) < len(str(right))


def _linear(indices: Sequence[Dim], shape: Sequence[Dim]) -> Dim:
    total: Dim = 0
    for index, extent in zip(indices, shape, strict=True):
        total = total * extent + index
    return total


def _delinear(position: Dim, shape: Sequence[Dim]) -> list[Dim]:
    """The indices of linear `position` in `shape`; the leading one needs no mod."""
    indices: list[Dim] = []
    leading = next((i for i, d in enumerate(shape) if d != 1), 0)
    for axis in range(len(shape) - 1, -1, -1):
        extent = shape[axis]
        if extent in (0, 1):  # of no elements, none is asked for
            indices.append(0)
        elif axis == leading:
            indices.append(position)
        else:
            indices.append(symbolic.mod(position, extent))
            position = symbolic.floordiv(position, extent)
    return indices[::-1]


def reshaped_indices(source: Dims, target: Dims, indices: Sequence[Dim]) -> Dims:
    """Where element `indices` of a reshaped tensor stands in the original."""
    result: list[Dim] = []
    for left, right in shape_groups(source, target):
        here = [indices[a] for a in right]
        position = _linear(here, [target[a] for a in right])
        result.extend(_delinear(position, [source[a] for a in left]))
    return tuple(result)


reshape: Final = declare(
    name="reshape",
    contents=contents.reshaped,
    summary="The same elements in row-major order under another shape",
    operands=(operand("x", ALL),),
    attributes=(attr("shape", "dims"),),
    infer=_reshape_infer,
    evaluate=lambda x, *, shape: x.reshape(shape),
    traits=M | Trait.VIEW,
    places=lambda attributes, shape, indices: reshaped_indices(
        shape, _dims(attributes, "shape"), indices
    ),
    cases=(
        "[2,3,4]; shape=(2,12)",
        "[2,12]; shape=(2,3,4)",
        "[6,4]; shape=(8,3)",
        "[2,3,5]; shape=(30,)",
        "[1,1]; shape=()",
        "[]; shape=(1,1,1)",
        "[0,3]; shape=(3,0)",
        "[3,0,2]; shape=(0,5)",
        "[4,1,6]; shape=(2,2,1,3,2)",
    ),
    source="ONNX Reshape, opset 25 (shape resolved)",
)

# --- transpose, broadcast, slice -------------------------------------------------------------


def _transpose_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    x, perm = first(types), cast("tuple[int, ...]", attributes["perm"])
    if sorted(perm) != list(range(x.rank)):
        raise ModelError(f"perm {list(perm)} is no permutation of the axes of {x}")
    return (x.with_shape([x.shape[p] for p in perm]),)


def _transposed(
    attributes: Attributes, shape: Dims, indices: Sequence[Dim]
) -> Sequence[Dim]:
    source: list[Dim] = [0] * len(shape)
    for position, axis in enumerate(cast("tuple[int, ...]", attributes["perm"])):
        source[axis] = indices[position]
    return source


transpose: Final = declare(
    name="transpose",
    contents=contents.transposed,
    summary="Axis i of the result is axis perm[i] of the operand",
    operands=(operand("x", ALL),),
    attributes=(attr("perm", "ints"),),
    infer=_transpose_infer,
    evaluate=lambda x, *, perm: np.transpose(x, perm),
    traits=M,
    places=_transposed,
    cases=(
        "[3,5]; perm=(1,0)",
        "[2,3,1,5]; perm=(0,2,3,1)",
        "[]; perm=()",
        "[0,3]; perm=(1,0)",
        "[2,3,4]; perm=(2,0,1)",
    ),
    source="ONNX Transpose, opset 25",
)


def _broadcast_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    x, shape = first(types), _dims(attributes, "shape")
    grown = zip(reversed(x.shape), reversed(shape), strict=False)
    differ = any(
        isinstance(a, int) and isinstance(b, int) and a not in (1, b) for a, b in grown
    )
    if len(x.shape) > len(shape) or differ:
        raise ModelError(f"{x} does not broadcast to shape {list(shape)}")
    return (x.with_shape(shape),)


broadcast_to: Final = declare(
    name="broadcast_to",
    contents=contents.filled,
    summary="Size-1 and missing dimensions repeated up to `shape`",
    operands=(operand("x", ALL),),
    attributes=(attr("shape", "dims"),),
    infer=_broadcast_infer,
    evaluate=lambda x, *, shape: np.broadcast_to(x, shape),
    traits=M,
    places=lambda _, shape, indices: broadcast_indices(shape, indices),
    layout=Layout(layouts.per_axis("shape")),
    equal_sizes=broadcast_sizes,
    cases=(
        "[3,1]; shape=(2,3,4)",
        "[]; shape=(5,)",
        "[1]; shape=(0,)",
        "[3,5]; shape=(3,5)",
    ),
    source="ONNX Expand, opset 13",
)


LONGEST_STEP: Final = 1 << 32
"""Of a slice: an axis of more elements is in no kernel, and indices are products of 64 bits."""


def _slice_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    x = first(types)
    axes = [normal_axis(a, x.rank) for a in cast("tuple[int, ...]", attributes["axes"])]
    starts, sizes = _dims(attributes, "starts"), _dims(attributes, "sizes")
    steps = cast("tuple[int, ...]", attributes["steps"]) or (1,) * len(axes)
    if not len(axes) == len(starts) == len(sizes) == len(steps):
        raise ModelError("slice: axes, starts, sizes and steps differ in length")
    if len(set(axes)) != len(axes):
        raise ModelError(f"slice: axes {axes} repeat an axis")
    shape = list(x.shape)
    for axis, start, size, step in zip(axes, starts, sizes, steps, strict=True):
        _check_slice(x, axis, start, size, step)
        shape[axis] = size
    return (x.with_shape(shape),)


def nearest_step(step: int, extent: Dim) -> int:
    """A step over an axis of `extent` that picks the same elements: not longer than the axis, which no index holds."""
    longest = max(extent, 1) if isinstance(extent, int) else LONGEST_STEP
    longest = min(longest, LONGEST_STEP)
    return max(-longest, min(longest, step))


def _check_slice(x: TensorType, axis: int, start: Dim, size: Dim, step: int) -> None:
    extent = x.shape[axis]
    if abs(step) > LONGEST_STEP:
        raise ModelError(
            f"slice of {x}: the step on axis {axis} is {step}, expected at most {LONGEST_STEP}"
        )
    if not isinstance(size, int) or size == 0:
        return
    subject = f"slice of {x}: {size} elements from {start} by {step} on axis {axis}"
    if not isinstance(start, int):
        # Else a size of 0 would have what lies in front of the tensor read.
        check_not_negative(subject, start + min(0, (size - 1) * step))
        return
    ends = (start, start + (size - 1) * step)
    if min(ends) < 0 or step == 0:
        raise ModelError(subject)
    check_at_most(subject, max(ends) + 1, extent)


def _slice_oracle(
    x: np.ndarray, *, axes: Sequence[int], starts: Sequence[int], sizes: Sequence[int],
    steps: Sequence[int],
) -> np.ndarray:  # fmt: skip
    for position, axis in enumerate(axes):
        step = steps[position] if steps else 1
        picks = starts[position] + step * np.arange(sizes[position])
        x = np.take(x, picks, axis)
    return x


def _sliced(attributes: Attributes, shape: Dims, indices: Sequence[Dim]) -> Sequence[Dim]:
    axes = [normal_axis(a, len(shape)) for a in cast("tuple[int, ...]", attributes["axes"])]
    starts = _dims(attributes, "starts")
    steps = cast("tuple[int, ...]", attributes["steps"]) or (1,) * len(axes)
    source = list(indices)
    for axis, start, step in zip(axes, starts, steps, strict=True):
        source[axis] = indices[axis] * step + start
    return source


slice_: Final = declare(
    name="slice",
    contents=contents.sliced,
    summary="`sizes` elements from `starts` by `steps` (may be negative) along `axes`",
    operands=(operand("x", ALL),),
    attributes=(
        attr("axes", "ints"), attr("starts", "dims"), attr("sizes", "dims"),
        attr("steps", "ints", ()),
    ),
    infer=_slice_infer,
    evaluate=_slice_oracle,
    traits=M,
    places=_sliced,
    layout=Layout(layouts.axes),
    cases=(
        "[5,7]; axes=(1,) starts=(2,) sizes=(4,)",
        "[5,7]; axes=(0,1) starts=(4,0) sizes=(5,4) steps=(-1,2)",
        "[5]; axes=(0,) starts=(3,) sizes=(0,)",
        "[5,3]; axes=(-1,) starts=(2,) sizes=(1,)",
    ),
    source="ONNX Slice, opset 13 (bounds resolved)",
)  # fmt: skip

# --- concat ----------------------------------------------------------------------------------


def _concat_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    parts = present(types)
    axis = normal_axis(cast("int", attributes["axis"]), parts[0].rank)
    shape = list(parts[0].shape)
    for part in parts[1:]:
        if part.rank != len(shape):
            raise ModelError(f"concat of {parts[0]} and {part}")
        for position, dim in enumerate(part.shape):
            if position == axis:
                shape[axis] = shape[axis] + dim
            else:
                check_same(
                    f"concat along axis {axis}: axis {position}", shape[position], dim
                )
                shape[position] = dim if isinstance(dim, int) else shape[position]
    return (parts[0].with_shape(shape),)


def _concat_body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    (result,) = results
    axis = normal_axis(cast("int", attributes["axis"]), len(result.shape))
    offset: Dim = 0
    for source in operands:
        assert source is not None
        if source.shape[axis] == 0:
            continue
        with b.nest(source.shape) as indices:
            target = _with(indices, axis, indices[axis] + offset)
            b.store(result, target, b.load(source, indices))
        offset = offset + source.shape[axis]


def _joined_axis(types: Types, attributes: Attributes, operand: int) -> Sequence[int]:
    del operand
    return (normal_axis(cast("int", attributes["axis"]), first(types).rank),)


concat: Final = declare(
    name="concat",
    contents=contents.joined,
    summary="The operands one after the other along `axis`",
    operands=(variadic("parts", ALL),),
    attributes=(attr("axis", "int"),),
    infer=_concat_infer,
    evaluate=lambda *parts, axis: np.concatenate(parts, axis),
    body=_concat_body,
    traits=M,
    role=Role.PLACE,
    ranges=ranges.joined,
    empty_axes=_joined_axis,
    layout=Layout(layouts.axis, aligned=True),
    cases=(
        "[2,3] [2,4] [2,1]; axis=1",
        "[2,3] [1,3]; axis=0",
        "[3]; axis=0",
        "[2,0] [2,3]; axis=-1",
        "[1,2,3] [1,5,3]; axis=1",
    ),
    source="ONNX Concat, opset 13",
)

# --- tile, trilu -----------------------------------------------------------------------------


def _tile_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    x, repeats = first(types), _dims(attributes, "repeats")
    if len(repeats) != x.rank:
        raise ModelError(f"{len(repeats)} repeats for {x}")
    if any(isinstance(r, int) and r < 0 for r in repeats):
        raise ModelError(f"repeats {list(repeats)}, expected at least 0")
    return (x.with_shape([d * r for d, r in zip(x.shape, repeats, strict=True)]),)


def _tiled(attributes: Attributes, shape: Dims, indices: Sequence[Dim]) -> Sequence[Dim]:
    repeats = _dims(attributes, "repeats")
    return [
        i if r == 1 else 0 if d in (0, 1) else symbolic.mod(i, d)
        for i, d, r in zip(indices, shape, repeats, strict=True)
    ]


tile: Final = declare(
    name="tile",
    contents=contents.repeated,
    summary="The operand repeated along every axis",
    operands=(operand("x", ALL),),
    attributes=(attr("repeats", "dims"),),
    infer=_tile_infer,
    evaluate=lambda x, *, repeats: np.tile(x, repeats),
    traits=M,
    places=_tiled,
    layout=Layout(layouts.per_axis("repeats")),
    cases=(
        "[2,3]; repeats=(2,1)",
        "[3]; repeats=(4,)",
        "[2,1]; repeats=(0,3)",
        "[0,3]; repeats=(4,2)",
        "[]; repeats=()",
    ),
    source="ONNX Tile, opset 13",
)


def _trilu_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    if first(types).rank < 2:
        raise ModelError(f"trilu needs a matrix, got {first(types)}")
    return like_first(types, attributes)


def _trilu_oracle(x: np.ndarray, k: np.ndarray | None, *, upper: bool) -> np.ndarray:
    offset = 0 if k is None else int(np.reshape(k, ()))
    rows, columns = np.indices(x.shape[-2:])
    keep = columns - rows >= offset if upper else columns - rows <= offset
    return np.where(keep, x, np.zeros((), x.dtype))


def _trilu_body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    x, k, (result,) = given(operands, 0), maybe(operands, 1), results
    offset = b.index(0) if k is None else b.load(k, (0,) * len(k.shape))
    with b.nest(result.shape) as indices:
        diagonal = b.index(indices[-1] - indices[-2])
        keep = b.compare("ge" if attributes["upper"] else "le", diagonal, offset)
        value = b.load(x, indices)
        b.store(result, indices, b.select(keep, value, 0))


trilu: Final = declare(
    name="trilu",
    summary="The upper or lower triangle from diagonal k on, zeros elsewhere",
    operands=(operand("x"), optional("k", (dtypes.i64,))),
    attributes=(attr("upper", "bool", default=True),),
    infer=_trilu_infer,
    evaluate=_trilu_oracle,
    body=_trilu_body,
    traits=Trait.PURE,
    role=Role.MAP,
    cases=(
        "[4,5]",
        "[2,3,3] []:=1",
        "[5,4] []:=-1; upper=False",
        "[3,3]; upper=False",
        "[0,3]",
    ),
    source="ONNX Trilu, opset 14",
)

OPS: Final = (reshape, transpose, broadcast_to, slice_, concat, tile, trilu)
