"""How ops behave when the axes of their operands stand in another order: what rows name.

Every function makes an op's attributes for operands whose axis i has moved to `place[i]`.  Which
axes move where is decided by `transforms.convert_layout`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

import numpy as np

from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.schema import Attributes, Layout, Moved, TensorType

Types = Sequence[TensorType | None]


def _reordered(items: Sequence[Any], place: Sequence[int]) -> tuple[Any, ...]:
    """One item per axis, for axes that have moved."""
    result = list(items)
    for item, target in zip(items, place, strict=True):
        result[target] = item
    return tuple(result)


def unchanged(_: Types, attributes: Attributes, place: Sequence[int]) -> Attributes:
    """No attribute says anything about an axis."""
    del place
    return attributes


def axis(_: Types, attributes: Attributes, place: Sequence[int]) -> Attributes:
    """The attribute `axis` names one."""
    old = cast("int", attributes["axis"])
    return {**attributes, "axis": place[old % len(place)]}


def picked(types: Types, attributes: Attributes, place: Sequence[int]) -> Attributes | None:
    """The attribute `axis` names one, which as many axes take the place of as there are of indices: one."""
    indices = types[1]
    if indices is None or indices.rank != 1:
        return None
    return axis(types, attributes, place)


def axes(_: Types, attributes: Attributes, place: Sequence[int]) -> Attributes:
    """The attribute `axes` names some."""
    old = cast("tuple[int, ...]", attributes["axes"])
    return {**attributes, "axes": tuple(place[a % len(place)] for a in old)}


def per_axis(name: str, times: int = 1) -> Moved:
    """The attribute `name` has an item for each axis of the operand, `times` in a row."""

    def moved(_: Types, attributes: Attributes, place: Sequence[int]) -> Attributes | None:
        items, rank = cast("tuple[Dim, ...]", attributes[name]), len(place)
        if len(items) != rank * times:
            return None
        rounds = (items[i * rank : (i + 1) * rank] for i in range(times))
        sizes = tuple(d for one in rounds for d in _reordered(one, place))
        return {**attributes, name: sizes}

    return moved


def resampled(
    types: Types, attributes: Attributes, place: Sequence[int]
) -> Attributes | None:
    """`resize` has sizes, scales and a region per axis."""
    result = dict(per_axis("sizes")(types, attributes, place) or {})
    for name in ("scales", "roi"):
        array = attributes[name]
        if isinstance(array, np.ndarray):
            order = np.argsort(place)
            result[name] = array.reshape(-1, len(place))[:, order].reshape(array.shape)
    return result


def one_scale_or_axis(
    types: Types, attributes: Attributes, place: Sequence[int]
) -> Attributes | None:
    """Scales and zero points are single numbers or a line along `axis`, not blocks."""
    if any(t is not None and t.rank > 1 for t in types[1:]):
        return None
    return axis(types, attributes, place)


BROADCAST: Final = Layout(unchanged, aligned=True)
ALONG_AXIS: Final = Layout(axis)
