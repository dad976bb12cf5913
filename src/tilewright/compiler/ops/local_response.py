"""Local response normalisation: each element over the squares of neighbouring channels.

A body of two nests, of which the first sums over the neighbours, in the compute type.
"""

from __future__ import annotations

from typing import Final, cast

import numpy as np

from tilewright.base import dtypes, symbolic
from tilewright.base.dtypes import FLOATS
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.schema import Attributes, Role, TensorType, Trait
from tilewright.compiler.kernel import numerics
from tilewright.compiler.kernel.builder import KernelBuilder, compute_dtype
from tilewright.compiler.kernel.ir import Expression
from tilewright.compiler.ops.bodies import Operands, Results, given
from tilewright.compiler.ops.declaration import Types, attr, declare, operand
from tilewright.compiler.ops.shapes import channel_axis, check_positive, first


def _lrn_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    x = first(types)
    if x.rank < 2:
        raise ModelError(f"operand {x} has no batch and channel axis")
    check_positive("the number of channels is", (cast("int", attributes["size"]),))
    return (x,)


def _neighbours(size: int, channels: Dim) -> tuple[Dim, Dim]:
    """How many channels before and after one are added to it: no more than there are."""
    most = symbolic.maximum(channels - 1, 0)
    return symbolic.minimum((size - 1) // 2, most), symbolic.minimum(size // 2, most)


def _lrn_oracle(
    x: np.ndarray, *, size: int, alpha: float, beta: float, bias: float, layout: str
) -> np.ndarray:
    channel = channel_axis(x.ndim, layout)
    wide = np.moveaxis(x.astype(np.float64), channel, -1)
    channels = wide.shape[-1]
    before, after = min((size - 1) // 2, channels), min(size // 2, channels)
    padded = np.pad(wide**2, [(0, 0)] * (x.ndim - 1) + [(before, after)])
    total = sum(padded[..., i : i + channels] for i in range(before + 1 + after))
    value = wide / (bias + alpha / size * total) ** beta
    return numerics.cast(np.moveaxis(value, -1, channel), dtypes.from_numpy(x.dtype))


def _lrn_body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    x, (result,) = given(operands, 0), results
    channel = channel_axis(len(x.shape), cast("str", attributes["layout"]))
    size = cast("int", attributes["size"])
    before, after = _neighbours(size, x.shape[channel])
    squares = b.temporary(compute_dtype(x.dtype), x.shape, "squares")
    with b.nest(x.shape) as indices:
        b.store(squares, indices, 0)
        with b.reduce((before + 1 + after,), ("w",)) as (step,):
            at = indices[channel] + step - before
            source = (*indices[:channel], at, *indices[channel + 1 :])
            value = b.read(x, source, b.within(at, 0, x.shape[channel]))
            b.accumulate("add", squares, indices, b.mul(value, value))
    share = cast("float", attributes["alpha"]) / size
    with b.nest(x.shape) as indices:
        base = b.add(
            b.mul(b.load(squares, indices), share), cast("float", attributes["bias"])
        )
        scale = _power(b, base, cast("float", attributes["beta"]))
        b.write(result, indices, b.div(b.read(x, indices), scale))


def _power(b: KernelBuilder, base: Expression, exponent: float) -> Expression:
    """`base ** exponent` for a positive base; quarters by square roots."""
    if exponent == 0.75:
        root = b.sqrt(base)
        return b.mul(root, b.sqrt(root))
    if exponent == 0.5:
        return b.sqrt(base)
    return base if exponent == 1 else b.pow(base, exponent)


lrn: Final = declare(
    name="lrn",
    summary="x / (bias + alpha / size * sum of squares over neighbouring channels) ** beta",
    operands=(operand("x", FLOATS),),
    attributes=(
        attr("size", "int"), attr("alpha", "float", 1e-4), attr("beta", "float", 0.75),
        attr("bias", "float", 1.0), attr("layout", "string", "NCHW"),
    ),
    infer=_lrn_infer,
    evaluate=_lrn_oracle,
    body=_lrn_body,
    traits=Trait.PURE | Trait.ROWWISE,
    role=Role.ALONE,
    cases=(
        "[2,7,3,5]; size=3 alpha=0.5",
        "[2,3,5,7]; size=4 alpha=0.5 layout=NHWC",
        "[2,3,5]; size=1000003 alpha=500000",
        "[1,2,3,3]; size=5 beta=0.5 bias=2.0 alpha=0.1",
        "[1,5,3]; size=3 beta=0.9",
    ),
    source="ONNX LRN, opset 13",
)  # fmt: skip

OPS: Final = (lrn,)
