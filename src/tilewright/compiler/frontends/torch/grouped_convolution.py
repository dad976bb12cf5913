"""Convolutions whose number of groups follows from a call: each sample of a batch has filters of its own.

The samples lie in the channels of one image, and the groups are as many as the samples.  Windows become columns, and
a group is a product of matrices; the groups are the batch of these products.  Called by `convolution`.

Source: StyleGAN2's modulated convolutions (Karras et al., 2020), dynamic convolutions, correlation of trackers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

from tilewright.base import symbolic
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor

_MOST_PLACES: Final = 1024
"""Of a window: each is a slice of its own."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """How windows go over the spatial axes; `pads` are before each axis, then behind each."""

    strides: Sequence[int]
    pads: Sequence[Dim]
    dilations: Sequence[int]


def convolved(
    e: NodeMaker, x: Tensor, w: Tensor, bias: Tensor | None, windows: Windows, groups: Dim
) -> Tensor:
    """The convolution of `x` [n, groups * c, …] and `w` [groups * f, c, …], of as many groups as a call says.

    Raises: UnsupportedError for windows of a size that a call decides, or of very many places.
    """
    kernel = tuple(size for size in w.shape[2:] if isinstance(size, int))
    if len(kernel) != w.rank - 2 or math.prod(kernel) > _MOST_PLACES:
        raise UnsupportedError(
            f"a convolution of {groups} groups and windows {list(w.shape[2:])} is not supported"
        )
    count, channels = x.shape[0], w.shape[1]
    filters = symbolic.floordiv(w.shape[0], groups)
    columns, sizes = _columns(e, _padded(e, x, windows.pads), kernel, windows)
    inner, places = channels * math.prod(kernel), _product(sizes)
    # Places of the window lie behind the channels, as in the filters.
    columns = e.reshape(columns, (count, groups, inner, places))
    rows = e.reshape(w, (1, groups, filters, inner))
    found = e.op("matmul", rows, columns)
    found = e.reshape(found, (count, groups * filters, *sizes))
    if bias is None:
        return found
    return e.op("add", found, e.reshape(bias, (1, groups * filters, *[1] * len(sizes))))


def _padded(e: NodeMaker, x: Tensor, pads: Sequence[Dim]) -> Tensor:
    if all(amount == 0 for amount in pads):
        return x
    spatial = len(pads) // 2
    return e.op("pad", x, None, pads=(0, 0, *pads[:spatial], 0, 0, *pads[spatial:]))


def _columns(
    e: NodeMaker, x: Tensor, kernel: Sequence[int], windows: Windows
) -> tuple[Tensor, tuple[Dim, ...]]:
    """What each place of the window sees, [n, channels, places of the window, …], and how often it moves."""
    reach = [d * (k - 1) for d, k in zip(windows.dilations, kernel, strict=True)]
    sizes = tuple(
        symbolic.floordiv(size - far - 1, stride) + 1
        for size, far, stride in zip(x.shape[2:], reach, windows.strides, strict=True)
    )
    parts: list[Tensor] = []
    for place in itertools.product(*map(range, kernel)):
        part = x
        for axis, (at, dilation, stride, size) in enumerate(
            zip(place, windows.dilations, windows.strides, sizes, strict=True), start=2
        ):
            part = e.slice(part, axis, at * dilation, size, stride)
        parts.append(e.unsqueeze(part, (2,)))
    return e.concat(parts, 2), sizes


def _product(sizes: Sequence[Dim]) -> Dim:
    found: Dim = 1
    for size in sizes:
        found = found * size
    return found
