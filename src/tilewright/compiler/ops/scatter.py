"""Ops that write at places that come from data: scatter of elements and of slices.

Updates are combined in the order in which they stand, as in the ONNX reference; the axes along
which no two updates meet are loops of their own, so schedules may share them out or make lanes of
them.  Indices below zero count from the end, unless `from_end` says that they are out of
range (checked as those of `indexing`); kernels clamp every index into its range.  16-bit
floats are combined in f32 and rounded once.

With `drops` an index below zero or beyond the end is no mistake: its update goes nowhere.
With `in_place` the memory of the result holds x already, and kernels only write the updates.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, cast

import numpy as np

from tilewright.base import dtypes
from tilewright.base.dtypes import i32, i64
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.schema import IN_PLACE, Attributes, TensorType
from tilewright.compiler.kernel.builder import KernelBuilder, Source, compute_dtype
from tilewright.compiler.kernel.ir import Buffer, Expression
from tilewright.compiler.ops.bodies import (
    Operands,
    Results,
    copy_nest,
    given,
    picking_nest,
    wrapped_index,
)
from tilewright.compiler.ops.declaration import (
    IndexRanges,
    OpDecl,
    Types,
    attr,
    declare,
    operand,
)
from tilewright.compiler.ops.indexing import (
    FROM_END,
    along_axis,
    check_reach,
    element_places,
    from_front,
    index_tuples,
)
from tilewright.compiler.ops.shapes import check_same, need, normal_axis

_INDEX: Final = (i64, i32)
_COMBINE: Final[dict[str, Any]] = {
    "none": None, "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
}  # fmt: skip
_MAY_BE_IN_PLACE: Final = attr(IN_PLACE, "bool", default=False)
_MAY_DROP: Final = attr("drops", "bool", default=False)
_Pick = Callable[[Expression, Dim], Dim]
_LOGICAL: Final = {"add": "or", "mul": "and", "max": "or", "min": "and"}


def _checked(ranges: IndexRanges) -> IndexRanges:
    """The ranges of indices that fail a call; none where updates outside are dropped."""
    return lambda types, attributes: (
        () if attributes.get("drops") else ranges(types, attributes)
    )


def _all_but_of_x(types: Types, attributes: Attributes, operand: int) -> Sequence[int]:
    """The axes of indices and updates: the result has those of what they are written into."""
    del attributes
    return range(need(types, operand).rank) if operand else ()


def _check_reduction(attributes: Attributes) -> None:
    reduction = attributes["reduction"]
    if reduction not in _COMBINE:
        known = " ".join(_COMBINE)
        raise ModelError(f"scatter reduction '{reduction}' is unknown (known: {known})")


def _combine(
    result: np.ndarray, places: tuple[np.ndarray, ...], updates: np.ndarray, reduction: str
) -> np.ndarray:
    function = _COMBINE[reduction]
    if function is None:
        result[places] = updates
        return result
    if result.dtype.itemsize != 2 or result.dtype.kind not in "fV":
        function.at(result, places, updates)
        return result
    wide = result.astype(np.float32)
    function.at(wide, places, updates.astype(np.float32))
    return wide.astype(result.dtype)


def _scatter(
    b: KernelBuilder,
    x: Source,
    updates: Source,
    result: Buffer,
    attributes: Attributes,
    place_of: Callable[[tuple[Dim, ...], _Pick], tuple[Dim, ...]],
) -> None:
    """The result is x with every update combined at `place_of` its own place, by what picks places of loaded indices."""
    reduction, in_place = cast("str", attributes["reduction"]), attributes[IN_PLACE]
    wide = compute_dtype(x.dtype)
    rounds = reduction != "none" and wide is not x.dtype
    target = b.temporary(wide, result.shape, "total") if rounds else result
    if rounds or not in_place:
        copy_nest(b, x, target)
    op = _LOGICAL.get(reduction, reduction) if target.dtype.is_bool else reduction
    # Every axis: an update has nowhere to go in a tensor without elements.
    drops = bool(attributes["drops"])
    with (
        picking_nest(b, updates.shape, x.shape) as place,
        _picked(b, place, place_of, drops=drops) as there,
    ):
        value = b.cast(b.load(updates, place), target.dtype)
        if op == "none":
            b.store(target, there, value)
        else:
            b.accumulate(op, target, there, value)
    if rounds:
        copy_nest(b, target, result)


@contextmanager
def _picked(
    b: KernelBuilder,
    place: tuple[Dim, ...],
    place_of: Callable[[tuple[Dim, ...], _Pick], tuple[Dim, ...]],
    *,
    drops: bool,
) -> Generator[tuple[Dim, ...]]:
    """Where an update goes; with `drops` only for those that go somewhere."""
    if not drops:
        yield place_of(place, partial(wrapped_index, b))
        return
    inside: Expression = b.const(True, dtypes.bool_)

    def pick(value: Expression, extent: Dim) -> Dim:
        nonlocal inside
        value = b.cast(value, b.index(0).dtype)
        exists = b.and_(b.gt(value, -1), b.lt(value, b.index(extent)))
        inside = b.and_(exists, inside)
        return b.as_index(b.min(b.max(value, 0), b.index(extent - 1)))

    there = place_of(place, pick)
    with b.when(inside):
        yield there


def _kept(indices: np.ndarray, sizes: Sequence[int], *, drops: bool) -> np.ndarray:
    """Which index vectors of the last axis have a place; all of them where no update is dropped."""
    if not drops:
        return np.ones(indices.shape[:-1], np.bool_)
    return np.asarray(np.all((indices >= 0) & (indices < np.array(sizes)), axis=-1))


# --- elements --------------------------------------------------------------------------------


def _elements_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    x, indices, updates = need(types, 0), need(types, 1), need(types, 2)
    axis = normal_axis(cast("int", attributes["axis"]), x.rank)
    _check_reduction(attributes)
    if x.rank != indices.rank or x.rank != updates.rank:
        raise ModelError(
            f"scatter_elements into {x} with indices {indices} and updates {updates}: "
            "all have one rank"
        )
    for left, right in zip(indices.shape, updates.shape, strict=True):
        check_same("indices and updates of scatter_elements", left, right)
    check_reach(x, indices, axis)
    return (x,)


def _elements_oracle(
    x: np.ndarray,
    indices: np.ndarray,
    updates: np.ndarray,
    *,
    axis: int,
    reduction: str,
    from_end: bool = True,
    drops: bool = False,
    in_place: bool = False,
) -> np.ndarray:
    del in_place, from_end
    axis = normal_axis(axis, x.ndim)
    kept = _kept(indices[..., None], (x.shape[axis],), drops=drops)
    places = element_places(x, np.where(kept, indices, 0), axis)
    chosen = tuple(place[kept] for place in np.broadcast_arrays(*places))
    return _combine(x.copy(), chosen, updates[kept], reduction)


def _elements_body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    x, indices, updates = (given(operands, i) for i in range(3))
    (result,) = results
    axis = normal_axis(cast("int", attributes["axis"]), len(x.shape))

    def place_of(place: tuple[Dim, ...], pick: _Pick) -> tuple[Dim, ...]:
        at = pick(b.load(indices, place), x.shape[axis])
        return (*place[:axis], at, *place[axis + 1 :])

    _scatter(b, x, updates, result, attributes, place_of)


scatter_elements: Final = declare(
    name="scatter_elements",
    summary="x with every update at its own position along `axis`, combined by `reduction`",
    operands=(operand("x"), operand("indices", _INDEX), operand("updates", like="x")),
    attributes=(
        attr("axis", "int", 0),
        attr("reduction", "string", "none"),
        FROM_END,
        _MAY_DROP,
        _MAY_BE_IN_PLACE,
    ),
    infer=_elements_infer,
    evaluate=_elements_oracle,
    body=_elements_body,
    indices=_checked(along_axis),
    empty_axes=_all_but_of_x,
    cases=(
        "[3,5] [2,5]:index(3) [2,5]; axis=0",
        "[3] [3]:=0,0,2 [3]; reduction=add",
        "[3] [2]:=0,2 [2]; from_end=False",
        "f32[3,7] [3,9]:index(7) [3,9]; axis=1 reduction=add",
        "f32[2,5,17] [2,6,17]:index(5) [2,6,17]; axis=1 reduction=mul",
        "[4,19] [9,18]:index(4) [9,18]; axis=0 reduction=max",
        "f32[4,19] [9,18]:index(4) [9,18]; axis=-2 reduction=min",
        "i32[4,3,1] [3,3,10]:index(1) [3,3,10]; axis=-1 reduction=max",
        "f32[5,3] [0,3]:index(1) [0,3]; axis=0",
        "f32[1,1] [1,1]:index(1) [1,1]; axis=1 reduction=add",
        "f32[6,33] [6,33]:index(33) [6,33]; axis=1",
        "[3] [5]:=0,-1,3,1,2 [5]; drops=True",
        "[3,4] [5,4]:=9 [5,4]; drops=True",
        "[3] [5]:=0,-1,3,0,2 [5]; reduction=add drops=True",
    ),
    source="ONNX ScatterElements, opset 18",
)

# --- slices ----------------------------------------------------------------------------------


def _slices_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    x, indices, updates = need(types, 0), need(types, 1), need(types, 2)
    _check_reduction(attributes)
    depth = indices.shape[-1] if indices.rank else 0
    if not isinstance(depth, int) or depth > x.rank or not indices.rank:
        raise ModelError(f"scatter_nd into {x} with index tuples {indices}")
    wanted = (*indices.shape[:-1], *x.shape[depth:])
    if updates.rank != len(wanted):
        raise ModelError(
            f"scatter_nd into {x} with indices {indices}: updates {updates} have another "
            f"rank than {len(wanted)}"
        )
    for left, right in zip(wanted, updates.shape, strict=True):
        check_same("updates of scatter_nd", left, right)
    return (x,)


def _slices_oracle(
    x: np.ndarray,
    indices: np.ndarray,
    updates: np.ndarray,
    *,
    reduction: str,
    from_end: bool = True,
    drops: bool = False,
    in_place: bool = False,
) -> np.ndarray:
    del from_end, in_place
    kept = _kept(indices, x.shape[: indices.shape[-1]], drops=drops)
    chosen = indices[kept]
    places = tuple(from_front(chosen[:, i], x.shape[i]) for i in range(chosen.shape[-1]))
    return _combine(x.copy(), places, updates[kept], reduction)


def _slices_body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    x, indices, updates = (given(operands, i) for i in range(3))
    (result,) = results
    depth, outer = cast("int", indices.shape[-1]), len(indices.shape) - 1

    def place_of(place: tuple[Dim, ...], pick: _Pick) -> tuple[Dim, ...]:
        picks = [
            pick(b.load(indices, (*place[:outer], i)), x.shape[i]) for i in range(depth)
        ]
        return (*picks, *place[outer:])

    _scatter(b, x, updates, result, attributes, place_of)


scatter_nd: Final = declare(
    name="scatter_nd",
    summary="x with slices replaced at index tuples, combined by `reduction`",
    operands=(operand("x"), operand("indices", _INDEX), operand("updates", like="x")),
    attributes=(attr("reduction", "string", "none"), FROM_END, _MAY_DROP, _MAY_BE_IN_PLACE),
    infer=_slices_infer,
    evaluate=_slices_oracle,
    body=_slices_body,
    indices=_checked(index_tuples),
    empty_axes=_all_but_of_x,
    cases=(
        "f32[4,3] [2,1]:=1,3 [2,3]",
        "[4] [3,1]:=0,0,2 [3]; reduction=add",
        "f32[4,5] [3,2]:index(4) [3]",
        "[4,37] [9,1]:index(4) [9,37]; reduction=add",
        "f32[3,4,5] [2,3,2]:index(3) [2,3,5]; reduction=mul",
        "f32[3,4,5] [7,3]:index(3) [7]; reduction=max",
        "f32[4,19] [6,1]:index(4) [6,19]; reduction=min",
        "[4,19] [6,1]:index(4) [6,19]",
        "f32[4,3] [0,1]:index(1) [0,3]",
        "f32[1] [1,1]:index(1) [1]",
        "f32[4,19] [5,1]:=0,-1,3,4,2 [5,19]; drops=True",
        "[4,37] [5,1]:=0,-1,0,4,2 [5,37]; reduction=add drops=True",
        "[4,37] [3,1]:=0,3,0 [3,37]; reduction=add from_end=False",
        "f32[3,2] [4,2]:=0,1,2,2,-1,0,2,1 [4]; reduction=max drops=True",
    ),
    source="ONNX ScatterND, opset 18",
)

OPS: Final[tuple[OpDecl, ...]] = (scatter_elements, scatter_nd)
