"""Rows for convolutions.

Source: the operators of ATen by name, `torch.nn` reference pages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, final

import tilewright.compiler.frontends.torch.grouped_convolution as grouped_convolution
from tilewright.base import symbolic
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.torch.call import Call
from tilewright.compiler.frontends.torch.grouped_convolution import Windows
from tilewright.compiler.frontends.torch.row import Row, row

Form = Callable[[Call, Tensor, Tensor, Tensor | None], Tensor]
"""What convolves images and weights, with a bias, by the other arguments of an operator."""


def spread(values: Sequence[int], count: int) -> tuple[int, ...]:
    """One number per spatial axis; a single one holds for all."""
    if len(values) == count:
        return tuple(values)
    if len(values) != 1:
        raise ModelError(f"{len(values)} numbers for {count} axes")
    return tuple(values) * count


def _row(names: str, form: Form) -> Row:
    def build(call: Call) -> Tensor:
        operands = call.tensor("input"), call.tensor("weight")
        return form(call, *operands, call.optional("bias"))

    return row(names, build)


def _convolution(call: Call, x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    """The general form, which says by a flag whether it is transposed."""
    return (_transposed if call.flag("transposed") else _forward)(call, x, w, bias)


def _forward(call: Call, x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    e = call.maker
    spatial = w.rank - 2
    is_batched = x.rank == w.rank
    if not is_batched:
        x = e.unsqueeze(x, (0,))
    strides = spread(call.integers("stride", (1,)), spatial)
    dilations = spread(call.integers("dilation", (1,)), spatial)
    pads = _pads(call, w, dilations)
    if "output_padding" in call.operation.arguments:
        call.argument("output_padding")
    groups = call.size("groups", 1)
    if (nothing := _of_nothing(call, x, w)) is not None:
        return nothing
    windows = Windows(strides=strides, pads=pads, dilations=dilations)
    found = _convolved(e, x, w, bias, windows, groups)
    return found if is_batched else e.squeeze(found, (0,))


def _convolved(
    e: NodeMaker, x: Tensor, w: Tensor, bias: Tensor | None, windows: Windows, groups: Dim
) -> Tensor:
    if not isinstance(groups, int):
        return grouped_convolution.convolved(e, x, w, bias, windows, groups)
    return e.op(
        "conv", x, w, bias, strides=tuple(windows.strides), pads=tuple(windows.pads),
        dilations=tuple(windows.dilations), groups=groups,
    )  # fmt: skip


def _of_nothing(call: Call, x: Tensor, w: Tensor) -> Tensor | None:
    """The result where it has no elements.  Raises: UnsupportedError for one that sums nothing."""
    if any(size == 0 for size in call.shape()):
        return call.maker.full(0, call.dtype(), call.shape())
    if any(size == 0 for size in (*x.shape, *w.shape)):
        raise UnsupportedError("a convolution of nothing is not supported")
    return None


def _pads(call: Call, w: Tensor, dilations: Sequence[int]) -> tuple[int, ...]:
    """Borders before and behind every spatial axis."""
    word = call.argument("padding")
    spatial = w.rank - 2
    if word == "valid":
        return (0,) * (2 * spatial)
    if word != "same":
        given = spread(call.integers("padding", (0,)), spatial)
        return (*given, *given)
    begin: list[int] = []
    end: list[int] = []
    for size, dilation in zip(w.shape[2:], dilations, strict=True):
        if not isinstance(size, int):
            raise UnsupportedError(
                "kernels of a size that a call decides are not supported"
            )
        total = dilation * (size - 1)
        begin.append(total // 2)
        end.append(total - total // 2)
    return (*begin, *end)


def _transposed(call: Call, x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    e = call.maker
    spatial = w.rank - 2
    is_batched = x.rank == w.rank
    if not is_batched:
        x = e.unsqueeze(x, (0,))
    window = _Transposed(
        strides=spread(call.integers("stride", (1,)), spatial),
        pads=spread(call.integers("padding", (0,)), spatial),
        dilations=spread(call.integers("dilation", (1,)), spatial),
        groups=call.size("groups", 1),
        behind=spread(call.integers("output_padding", (0,)), spatial),
    )
    if (nothing := _of_nothing(call, x, w)) is not None:
        return nothing
    if x.dtype.is_integer or not isinstance(window.groups, int):
        found = _by_convolution(e, x, w, bias, window)
    else:
        found = e.op(
            "conv_transpose", x, w, bias, strides=window.strides, dilations=window.dilations,
            pads=(*window.pads, *window.pads), groups=window.groups, output_padding=window.behind,
        )  # fmt: skip
    return found if is_batched else e.squeeze(found, (0,))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Transposed:
    """How a transposed convolution goes over its axes."""

    strides: Sequence[int]
    pads: Sequence[int]
    dilations: Sequence[int]
    groups: Dim
    behind: Sequence[int]


def _by_convolution(
    e: NodeMaker, x: Tensor, w: Tensor, bias: Tensor | None, window: _Transposed
) -> Tensor:
    """As a convolution, for integers (which wrap) and groups of a call: zeros between the elements, kernels turned round."""
    begin: list[Dim] = [0, 0]
    end: list[Dim] = [0, 0]
    for axis, stride in enumerate(window.strides, start=2):
        x = _spaced(e, x, axis, stride)
        size = w.shape[axis]
        edge = window.dilations[axis - 2] * (size - 1) - window.pads[axis - 2]
        begin.append(edge)
        end.append(edge + window.behind[axis - 2])
        w = e.slice(w, axis, size - 1, size, -1)
    x = e.op("pad", x, None, pads=(*begin, *end))
    spatial = len(window.strides)
    windows = Windows(
        strides=(1,) * spatial, pads=(0,) * (2 * spatial), dilations=window.dilations
    )
    filters = _filters_first(e, w, window.groups)
    return _convolved(e, x, filters, bias, windows, window.groups)


def _spaced(e: NodeMaker, x: Tensor, axis: int, stride: int) -> Tensor:
    """`stride - 1` zeros between the elements of an axis."""
    if stride == 1:
        return x
    size = x.shape[axis]
    wide = e.unsqueeze(x, (axis + 1,))
    behind = [0] * wide.rank
    behind[axis + 1] = stride - 1
    wide = e.op("pad", wide, None, pads=(*[0] * wide.rank, *behind))
    flat = e.reshape(wide, (*x.shape[:axis], size * stride, *x.shape[axis + 1 :]))
    return e.slice(flat, axis, 0, (size - 1) * stride + 1)


def _filters_first(e: NodeMaker, w: Tensor, groups: Dim) -> Tensor:
    """Weights [channels, filters of a group, kernel…] as [filters, channels of a group, kernel…]."""
    channels, filters, *kernel = w.shape
    inner = symbolic.floordiv(channels, groups)
    parts = e.reshape(w, (groups, inner, filters, *kernel))
    turned = e.transpose(parts, (0, 2, 1, *range(3, parts.rank)))
    return e.reshape(turned, (groups * filters, inner, *kernel))


FORMS: Final[tuple[tuple[str, Form], ...]] = (
    ("convolution", _convolution),
    ("conv1d conv2d conv3d conv1d.padding conv2d.padding conv3d.padding", _forward),
    ("conv_transpose1d conv_transpose2d.input conv_transpose3d.input", _transposed),
)
"""Names of overloads and what convolves them."""
ROWS: Final[tuple[Row, ...]] = tuple(_row(names, form) for names, form in FORMS)
