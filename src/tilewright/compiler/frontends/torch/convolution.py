"""Rows for convolutions.

Source: the operators of ATen by name, `torch.nn` reference pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.torch.call import Call
from tilewright.compiler.frontends.torch.row import Row, row


def spread(values: Sequence[int], count: int) -> tuple[int, ...]:
    """One number per spatial axis; a single one holds for all."""
    if len(values) == count:
        return tuple(values)
    if len(values) != 1:
        raise ModelError(f"{len(values)} numbers for {count} axes")
    return tuple(values) * count


def _convolution(call: Call) -> Tensor:
    """The general form, which says by a flag whether it is transposed."""
    return _transposed(call) if call.flag("transposed") else _forward(call)


def _forward(call: Call) -> Tensor:
    e, x, w = call.maker, call.tensor("input"), call.tensor("weight")
    spatial = w.rank - 2
    is_batched = x.rank == w.rank
    if not is_batched:
        x = e.unsqueeze(x, (0,))
    strides = spread(call.integers("stride", (1,)), spatial)
    dilations = spread(call.integers("dilation", (1,)), spatial)
    pads = _pads(call, w, dilations)
    if "output_padding" in call.operation.arguments:
        call.argument("output_padding")
    if any(size == 0 for size in (*x.shape, *w.shape)):
        raise UnsupportedError("a convolution of nothing is not supported")
    found = e.op(
        "conv", x, w, call.optional("bias"), strides=strides, pads=pads,
        dilations=dilations, groups=call.integer("groups", 1),
    )  # fmt: skip
    return found if is_batched else e.squeeze(found, (0,))


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


def _transposed(call: Call) -> Tensor:
    e, x, w = call.maker, call.tensor("input"), call.tensor("weight")
    spatial = w.rank - 2
    is_batched = x.rank == w.rank
    if not is_batched:
        x = e.unsqueeze(x, (0,))
    pads = spread(call.integers("padding", (0,)), spatial)
    if any(size == 0 for size in (*x.shape, *w.shape)):
        raise UnsupportedError("a convolution of nothing is not supported")
    found = e.op(
        "conv_transpose", x, w, call.optional("bias"),
        strides=spread(call.integers("stride", (1,)), spatial),
        pads=(*pads, *pads),
        dilations=spread(call.integers("dilation", (1,)), spatial),
        groups=call.integer("groups", 1),
        output_padding=spread(call.integers("output_padding", (0,)), spatial),
    )  # fmt: skip
    return found if is_batched else e.squeeze(found, (0,))


ROWS: Final[tuple[Row, ...]] = (
    row("convolution", _convolution),
    row("conv1d conv2d conv3d conv1d.padding conv2d.padding conv3d.padding", _forward),
    row("conv_transpose1d conv_transpose2d.input conv_transpose3d.input", _transposed),
)
