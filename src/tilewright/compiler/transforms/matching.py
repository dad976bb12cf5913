"""Questions that transforms ask about nodes and values: constants, splats, attributes, makers.

Read-only and cheap: nothing here looks at more than a few elements of a large array unless its
first ones agree.  Used by every file of the room.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final, TypeVar, cast

import numpy as np

from tilewright.base import symbolic
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.editor import Editor
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.graph.schema import Array, TensorType, Trait
from tilewright.compiler.ops.movement import shape_groups
from tilewright.compiler.ops.shapes import element_count
from tilewright.compiler.passes import given, need

Place = TypeVar("Place", Node, Value)


def either_way(node: Node) -> tuple[tuple[Value, Value], tuple[Value, Value]]:
    """The first two operands of a node as they stand, and the other way round."""
    first, second = node.operand(0), node.operand(1)
    return (first, second), (second, first)


def maker(value: Value | None, *ops: str) -> Node | None:
    """The node that makes `value`, if it is one of `ops` (any op when none is named)."""
    if value is None or value.node is None:
        return None
    return value.node if not ops or value.node.op in ops else None


def made(value: Value | None, *ops: str) -> Node:
    """The node that makes `value`, which is one of `ops`.  Raises: NoMatchError where it is not."""
    return given(maker(value, *ops))


def constant_of(value: Value | None) -> Array | None:
    """The array of a constant."""
    node = maker(value)
    if node is None or not node.has(Trait.CONSTANT):
        return None
    return cast("Array", node.attributes["value"])


def is_constant(value: Value | None) -> bool:
    """Whether the value is a constant node's."""
    return constant_of(value) is not None


def picks_one(value: Value | None) -> bool:
    """Whether the value is one slice of another along an axis, at a place that data decides."""
    node = maker(value)
    if node is None or not node.has(Trait.PICKS) or "axis" not in node.attributes:
        return False
    return node.operand(1).type.element_count == 1


def splat_of(value: Value | None) -> float | int | bool | None:
    """The one element that fills the whole of a constant, also where it is moved or repeated."""
    while True:
        node = maker(value)
        if node is None:
            return None
        if node.schema.places is None:
            break
        value = node.operands[0]
    array = constant_of(value)
    return None if array is None else array_splat(array)


def array_splat(array: Array) -> float | int | bool | None:
    """The one element that fills `array`, as a Python number; None if there are several."""
    if array.size == 0:
        return None
    first = array[(0,) * array.ndim]
    if not _all_same(array, first):
        return None
    # numpy's item() gives the types of ml_dtypes as themselves.
    kind = array.dtype.kind
    return bool(first) if kind == "b" else int(first) if kind in "iu" else float(first)


def _all_same(array: Array, first: np.generic) -> bool:
    """Whether all elements are the first, zeros with its sign."""
    if array.strides and not any(array.strides):
        return True
    if array.size == 1:  # most often; NaN is like nothing
        return bool(first == first)
    probe = array[tuple(slice(0, 2) for _ in range(array.ndim))]
    if not (probe == first).all() or not (array == first).all():
        return False
    if array.dtype.kind in "biuc" or first != 0:
        return True
    return bool((np.signbit(array) == np.signbit(first)).all())


# --- walks and sets of nodes ------------------------------------------------------------------


def reached(
    start: Iterable[Place], onward: Callable[[Place], Iterable[Place]]
) -> Iterator[Place]:
    """What `onward` leads to from `start`, which is part of it, each once; asked when the next one is wanted."""
    seen, work = set[Place](), [*start]
    while work:
        current = work.pop()
        if current not in seen:
            seen.add(current)
            yield current
            work.extend(onward(current))


def read_outside(nodes: Iterable[Node], inside: Collection[Node]) -> list[Value]:
    """What nodes read that none of those `inside` makes, in order of first use."""
    read = (v for node in nodes for v in node.present_operands)
    return list(dict.fromkeys(v for v in read if v.node is None or v.node not in inside))


def needed_outside(
    nodes: Iterable[Node], inside: Collection[Node], edit: Editor
) -> list[Value]:
    """The results of nodes that the graph returns, or that a node reads which is not `inside`."""
    return [
        value
        for node in nodes
        for value in node.results
        if edit.is_output(value) or any(user not in inside for user in edit.users(value))
    ]


# --- moves -----------------------------------------------------------------------------------

_INDEX: Final = "index of axis "  # no size has such a name


def source_places(node: Node) -> tuple[Sequence[Dim], Sequence[Dim]] | None:
    """Where an element of the result stands in the first operand, and its own indices, as symbols."""
    places = node.schema.places
    if places is None:
        return None
    indices = [symbolic.symbol(f"{_INDEX}{a}") for a in range(node.result.type.rank)]
    return places(node.attributes, node.operand().type.shape, indices), indices


def is_index(symbol: symbolic.Symbol) -> bool:
    """Whether a symbol of `source_places` is an index, not a size."""
    return symbol.name.startswith(_INDEX)


def shows_everything(node: Node) -> bool:
    """Whether all elements of the first operand, and no others, are in the result."""
    found = source_places(node)
    if node.has(Trait.VIEW) or found is None:
        return found is not None
    places, indices = found
    sizes = dict(zip(map(str, indices), node.result.type.shape, strict=True))
    shape = node.operand().type.shape
    return all(
        size == 1 or sizes.get(str(place)) == size
        for place, size in zip(places, shape, strict=True)
    )


# --- numbers ---------------------------------------------------------------------------------


def fixed(size: Dim) -> int:
    """A size that is a number.  Raises: NoMatchError for one that only a call knows."""
    need(isinstance(size, int))
    return cast("int", size)


def is_splat(value: Value | None, expected: float) -> bool:
    """Whether every element is the number `expected`."""
    found = splat_of(value)
    return found is not None and not isinstance(found, bool) and bool(found == expected)


def last_axes(type_: TensorType, axes: Sequence[int]) -> int | None:
    """The first of `axes` when they are the trailing ones, without a gap."""
    normal = sorted(a % type_.rank for a in axes) if type_.rank else []
    if not normal or normal != list(range(type_.rank - len(normal), type_.rank)):
        return None
    return normal[0]


def permuted(items: Sequence[Dim], perm: Sequence[int]) -> tuple[Dim, ...]:
    """`items` in the order of `perm`."""
    return tuple(items[p] for p in perm)


def inverse(perm: Sequence[int]) -> tuple[int, ...]:
    """The permutation that undoes `perm`."""
    return tuple(perm.index(axis) for axis in range(len(perm)))


def to_channels_last(rank: int) -> tuple[int, ...]:
    """The permutation from NC… to N…C."""
    return (0, *range(2, rank), 1)


def to_channels_first(rank: int) -> tuple[int, ...]:
    """The permutation from N…C to NC…."""
    return (0, rank - 1, *range(1, rank - 1))


def dim_groups(
    source: Sequence[Dim], target: Sequence[Dim]
) -> list[tuple[tuple[int, ...], tuple[int, ...]]] | None:
    """How a reshape splits and merges: the finest groups of axes with equal products, in order.

    None when symbolic sizes do not tell.
    """
    groups: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    for left, right in shape_groups(tuple(source), tuple(target)):
        sizes = [source[a] for a in left], [target[a] for a in right]
        if element_count(sizes[0]) != element_count(sizes[1]):
            return None
        groups.append((tuple(left), tuple(right)))
    return groups
