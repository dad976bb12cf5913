"""Shape rules shared by the families: broadcasting, axes, windows.

Works on symbolic dimensions; what cannot be compared is taken to match (a symbol against another
symbol or a number), because a model that runs at all makes them equal.  Who has to see to that reads
from `taken_to_hold` what was taken so.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, cast

import numpy as np

from tilewright.base import symbolic
from tilewright.base.dtypes import DType
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.schema import Attributes, Infer, TensorType

Shape = tuple[Dim, ...]
Types = Sequence[TensorType | None]
Pair = tuple[Dim, Dim]

_TAKEN: Final[ContextVar[list[Pair] | None]] = ContextVar("taken to hold", default=None)


def present(types: Types) -> list[TensorType]:
    """The operands that are there."""
    return [t for t in types if t is not None]


def first(types: Types) -> TensorType:
    """The first operand's type."""
    type_ = types[0]
    assert type_ is not None
    return type_


def need(types: Types, position: int) -> TensorType:
    """The type of an operand that the checks made sure of."""
    type_ = types[position]
    assert type_ is not None
    return type_


# --- broadcasting ----------------------------------------------------------------------------


def broadcast_dim(left: Dim, right: Dim) -> Dim:
    """One dimension of a numpy broadcast."""
    if left == right or right == 1:
        return left
    if left == 1:
        return right
    if isinstance(left, int) and isinstance(right, int):
        raise ModelError(f"dimensions {left} and {right} do not broadcast")
    if isinstance(left, int) or isinstance(right, int):
        return left if isinstance(left, int) else right
    return min(left, right, key=lambda d: (len(str(d)), str(d)))


def broadcast_shapes(*shapes: Shape) -> Shape:
    """The numpy broadcast of several shapes.  Raises: ModelError where sizes clash."""
    rank = max((len(s) for s in shapes), default=0)
    result: list[Dim] = [1] * rank
    for shape in shapes:
        for position, dim in enumerate(shape, rank - len(shape)):
            try:
                result[position] = broadcast_dim(result[position], dim)
            except ModelError as error:
                texts = " and ".join(f"[{', '.join(map(str, s))}]" for s in shapes)
                raise ModelError(f"shapes {texts} do not broadcast") from error
    return tuple(result)


def broadcast_sizes(
    operands: Sequence[TensorType], result: TensorType, _: Attributes
) -> Iterator[tuple[Dim, Dim]]:
    """The sizes that numpy's broadcasting takes to be equal."""
    for type_ in operands:
        yield from aligned_sizes(type_.shape, result.shape)


def aligned_sizes(shape: Shape, result: Shape) -> Iterator[tuple[Dim, Dim]]:
    """Dimensions of a broadcast operand that are not 1, with those of the result."""
    for dim, other in zip(reversed(shape), reversed(result), strict=False):
        if dim != 1:
            yield dim, other


def broadcast_indices(shape: Shape, indices: Sequence[Dim]) -> tuple[Dim, ...]:
    """Where an operand of `shape` is read when the broadcast result is at `indices`."""
    offset = len(indices) - len(shape)
    return tuple(0 if dim == 1 else indices[offset + i] for i, dim in enumerate(shape))


def surely_broadcasts(shape: Shape, to: Shape) -> bool:
    """Whether every size is 1 or surely that of the other shape, which has as many axes."""
    same = len(shape) == len(to)
    return same and all(size in (1, whole) for size, whole in zip(shape, to, strict=True))


# --- axes ------------------------------------------------------------------------------------


def normal_axis(axis: int, rank: int) -> int:
    """`axis` counted from the front.  Raises: ModelError outside `-rank .. rank`."""
    if not -rank <= axis < max(rank, 1):
        raise ModelError(f"axis {axis} is out of range for rank {rank}")
    return axis + rank if axis < 0 else axis


def normal_axes(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Axes counted from the front, in order, without repetition."""
    result = sorted({normal_axis(a, rank) for a in axes})
    if len(result) != len(axes):
        raise ModelError(f"axes {list(axes)} repeat an axis")
    return tuple(result)


def reduced_shape(shape: Shape, axes: Sequence[int], *, keepdims: bool) -> Shape:
    """`shape` with `axes` reduced to 1 or removed."""
    if keepdims:
        return tuple(1 if i in axes else d for i, d in enumerate(shape))
    return tuple(d for i, d in enumerate(shape) if i not in axes)


@contextmanager
def taken_to_hold() -> Generator[list[Pair]]:
    """What the checks inside cannot prove, as pairs of sizes that are equal where it holds."""
    pairs: list[Pair] = []
    before = _TAKEN.set(pairs)
    try:
        yield pairs
    finally:
        _TAKEN.reset(before)


def _take(left: Dim, right: Dim) -> None:
    pairs = _TAKEN.get()
    if pairs is not None and left != right:
        pairs.append((left, right))


def check_same(subject: str, left: Dim, right: Dim) -> None:
    """Raises: ModelError when two dimensions surely differ."""
    if isinstance(left, int) and isinstance(right, int) and left != right:
        raise ModelError(f"{subject}: {left} and {right} differ")
    _take(left, right)


def check_same_shape(subject: str, left: TensorType, right: TensorType) -> None:
    """Raises: ModelError when two types surely have different shapes."""
    if left.rank != right.rank:
        raise ModelError(f"{subject}: {left} and {right} have different ranks")
    for one, other in zip(left.shape, right.shape, strict=True):
        check_same(f"{subject} ({left} and {right})", one, other)


def check_at_most(subject: str, size: Dim, most: Dim) -> None:
    """Raises: ModelError when a dimension is surely greater than another."""
    spare = symbolic.bounds(most - size)[1]
    if spare is not None and spare < 0:
        raise ModelError(f"{subject}: {size} is more than {most}")
    _take(symbolic.minimum(size, most), size)


def check_not_negative(subject: str, size: Dim) -> None:
    """Raises: ModelError when a number of places is surely below zero."""
    low, high = symbolic.bounds(size)
    if high is not None and high < 0:
        raise ModelError(f"{subject}: {size} is less than 0")
    if low is None or low < 0:
        _take(symbolic.maximum(size, 0), size)


def check_positive(subject: str, values: Iterable[int]) -> None:
    """Raises: ModelError when one of some steps, counts or sizes is less than 1."""
    given = tuple(values)
    if any(value < 1 for value in given):
        raise ModelError(f"{subject} {', '.join(map(str, given))}, expected at least 1")


def check_groups(subject: str, size: Dim, groups: int) -> None:
    """Raises: ModelError when `size` elements surely do not divide into `groups`."""
    if groups < 1 or (isinstance(size, int) and size % groups):
        raise ModelError(f"{size} {subject} do not divide into {groups} groups")
    _take(symbolic.mod(size, groups), 0)


def element_count(shape: Sequence[Dim]) -> Dim:
    """The product of the dimensions."""
    count: Dim = 1
    for dim in shape:
        count = count * dim
    return count


# --- windows (convolution, pooling) ----------------------------------------------------------


def spatial_axes(rank: int, layout: str) -> tuple[int, ...]:
    """The axes between batch and channel of an NCHW- or NHWC-like layout."""
    return tuple(range(2, rank)) if layout == "NCHW" else tuple(range(1, rank - 1))


def channel_axis(rank: int, layout: str) -> int:
    """The channel axis of an NCHW- or NHWC-like layout."""
    return 1 if layout == "NCHW" else rank - 1


def window_count(
    size: Dim,
    kernel: Dim,
    stride: int,
    dilation: int,
    *,
    ceil_mode: bool,
    pads: tuple[Dim, Dim],
) -> Dim:
    """How many windows fit into `size` with `pads` (begin, end) around it.

    In ceil mode the last window may stick out at the end, but it starts inside the input or its
    left padding (ONNX).
    """
    span = size + pads[0] + pads[1] - ((kernel - 1) * dilation + 1)
    if not ceil_mode:
        return symbolic.floordiv(span, stride) + 1
    inside = symbolic.ceildiv(size + pads[0], stride)
    return symbolic.minimum(symbolic.ceildiv(span, stride) + 1, inside)


def with_borders(
    array: np.ndarray, borders: Sequence[tuple[int, int]], value: float = 0
) -> np.ndarray:
    """`array` with so many elements of `value` before and after each axis; fewer than 0: taken away."""
    kept = tuple(
        slice(max(-before, 0), max(size - max(-after, 0), 0))
        for (before, after), size in zip(borders, array.shape, strict=True)
    )
    added = [(max(before, 0), max(after, 0)) for before, after in borders]
    return np.pad(array[kept], added, constant_values=value)


def ints_or(value: object, default: Sequence[int]) -> tuple[int, ...]:
    """An `ints` attribute, or `default` when it is empty."""
    given = cast("tuple[int, ...]", value)
    return tuple(given) if given else tuple(default)


def window_steps(
    attributes: Mapping[str, object], rank: int
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """The strides, pads (begin…, end…) and dilations of a window over `rank` axes; 1, 0 and 1 where they are not said."""
    strides, dilations = (
        ints_or(attributes[name], (1,) * rank) for name in ("strides", "dilations")
    )
    return strides, ints_or(attributes.get("pads", ()), (0,) * (2 * rank)), dilations


# --- common inference ------------------------------------------------------------------------


def like_first(types: Types, _: Attributes) -> tuple[TensorType, ...]:
    """The result has the type of operand 0."""
    return (first(types),)


def like_first_along_axis(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    """One result of the first operand's type, which has the axis that the attribute `axis` names."""
    x = first(types)
    normal_axis(cast("int", attributes["axis"]), x.rank)
    return (x,)


def like_first_as_dtype(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    """One result of the first operand's shape, of the type that the attribute `dtype` names."""
    return (first(types).with_dtype(cast("DType", attributes["dtype"])),)


def like_broadcast(types: Types, _: Attributes) -> tuple[TensorType, ...]:
    """The result is the broadcast of all operands, of the first one's dtype."""
    operands = present(types)
    return (operands[0].with_shape(broadcast_shapes(*(t.shape for t in operands))),)


def broadcast_result(dtype: DType) -> Infer:
    """The result is the broadcast of all operands, with elements of `dtype`."""
    return lambda types, attributes: (
        like_broadcast(types, attributes)[0].with_dtype(dtype),
    )
