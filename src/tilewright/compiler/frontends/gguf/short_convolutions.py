"""Layers that mix a few tokens before each one, instead of attention: a gated causal convolution of every column.

Its rows are kept as keys are, one for each place, so that a text goes on from any place of it.  Called by `transformer`.

Source: Liquid AI, LFM2 Technical Report, 2025; transformers, `Lfm2ShortConv`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from tilewright.base import dtypes
from tilewright.compiler.frontends.gguf.parts import Parts
from tilewright.compiler.frontends.gguf.weights import Projection
from tilewright.compiler.frontends.kit.tensor import Tensor


@final
@dataclass(frozen=True, slots=True, eq=False)
class ShortConvolution:
    """What a convolution reads and what its result is multiplied by, f32[1, n, width] each."""

    rows: Tensor
    gate: Tensor


def short_convolution(parts: Parts, x: Tensor, block: str) -> ShortConvolution:
    """Both from `x: f32[1, n, width]`."""
    e, width = parts.maker, parts.form.width
    both = parts.product(x, [Projection(f"{block}.shortconv.in_proj", 3 * width)])
    with parts.part("Gates", f"{block}.shortconv.gates"):
        before, gate, rows = (e.slice(both, 2, at * width, width) for at in range(3))
        return ShortConvolution(e.op("mul", before, rows), gate)


def convolved(
    parts: Parts, given: ShortConvolution, kept: Tensor, places: Tensor, block: str
) -> Tensor:
    """The result, f32[1, n, width].

    Args:
        parts: writes the model.
        given: for the tokens of a step.
        kept: rows of all places up to them, f32[1, 1, room, width].
        places: of the tokens, i64[n].
        block: the name of the layer.
    """
    e, width, name = parts.maker, parts.form.width, f"{block}.shortconv.conv"
    taps = parts.weights.matrix(f"{name}.weight", (width, None))
    with parts.part("ShortConvolution", name):
        last = taps.shape[1] - 1
        total = e.op("mul", given.rows, e.constant(np.ascontiguousarray(taps[:, last])))
        zero, none = e.scalar(0, dtypes.i64), e.scalar(0.0, dtypes.f32)
        for back in range(1, last + 1):
            place = e.op("sub", places, e.scalar(back, dtypes.i64))
            rows = e.op("gather", kept, e.op("max", place, zero), axis=2)
            rows = e.reshape(rows, given.rows.shape)
            is_there = e.op("greater_equal", e.unsqueeze(place, (0, 2)), zero)
            rows = e.op("where", is_there, rows, none)
            tap = e.constant(np.ascontiguousarray(taps[:, last - back]))
            total = e.op("add", total, e.op("mul", rows, tap))
        mixed = e.op("mul", given.gate, total)
    return parts.product(mixed, [Projection(f"{block}.shortconv.out_proj", width)])
