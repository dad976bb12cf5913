"""Rows for several streams of features beside one another, and for gates between what was looked up and what is known.

Source: onnxruntime ContribOperators.md (HyperConnectionPreMix, HyperConnectionPostMix, EngramGate).
"""

from __future__ import annotations

import math
from typing import Final

from tilewright.base import symbolic
from tilewright.base.dtypes import f32
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.call import FIXED_SIZE, Call
from tilewright.compiler.frontends.onnx.row import MICROSOFT, Row, row


def _streams(call: Call) -> Tensor:
    """f32 `[..., streams, features]`, however they are given."""
    e, x = call.maker, _wide(call, 0)
    count = call.integer("num_branches", 0)
    if not count:
        return x
    return e.reshape(x, (*x.shape[:-1], count, symbolic.floordiv(x.shape[-1], count)))


def _wide(call: Call, index: int) -> Tensor:
    """An operand in f32."""
    return call.maker.cast(call.tensor(index), f32)


def _as_gates(call: Call, gates: Tensor, streams: Tensor) -> Tensor:
    """Gates of each stream, or of each feature, as factors of streams."""
    e = call.maker
    if gates.rank == streams.rank:
        return gates
    if gates.rank != streams.rank - 1:
        raise ModelError(f"gates {gates.type} for streams {streams.type}")
    if gates.shape[-1] == streams.shape[-2]:
        return e.unsqueeze(gates, (gates.rank,))
    return e.reshape(gates, streams.shape)


def _pre_mix(call: Call) -> Tensor:
    """The sum of streams, each times its gates."""
    e, streams = call.maker, _streams(call)
    gates = _as_gates(call, _wide(call, 1), streams)
    total = e.op(
        "reduce_sum", e.op("mul", streams, gates), axes=(streams.rank - 2,), keepdims=False
    )
    factor = e.scalar(call.float("reduction_scale", 1.0), f32)
    return e.cast(e.op("mul", total, factor), call.tensor(0).dtype)


def _post_mix(call: Call) -> Tensor:
    """The streams, mixed with each other, and what a block made, times their gates."""
    e, streams = call.maker, _streams(call)
    gates = _as_gates(call, _wide(call, 2), streams)
    made = e.unsqueeze(_wide(call, 1), (streams.rank - 2,))
    if call.optional(3) is not None:
        mix = _wide(call, 3)
        order = [*range(mix.rank - 2), mix.rank - 1, mix.rank - 2]
        streams = e.op("matmul", e.transpose(mix, order), streams)
    total = e.op("add", streams, e.op("mul", gates, made))
    x = call.tensor(0)
    return e.cast(e.reshape(total, x.shape), x.dtype)


def _engram_gate(call: Call) -> list[Tensor | None]:
    """What was looked up, as far as its key is like the query."""
    e, epsilon = call.maker, call.float("epsilon", 1e-5)
    x = call.tensor(0)
    size = x.shape[-1]
    if not isinstance(size, int):
        raise UnsupportedError(
            "features of a dynamic size are not supported", hint=FIXED_SIZE
        )
    key, query = (
        e.op("mul", _normal(call, _wide(call, i), epsilon), _wide(call, i + 3))
        for i in (0, 1)
    )
    dot = e.op("reduce_sum", e.op("mul", key, query), axes=(-1,), keepdims=True)
    dot = e.op("div", dot, e.scalar(math.sqrt(size), f32))
    least = e.op("max", e.op("abs", dot), e.scalar(1e-6, f32))
    gate = e.op("sigmoid", e.op("mul", e.op("sign", dot), e.op("sqrt", least)))
    output = e.op("mul", gate, e.unsqueeze(_wide(call, 2), (2,)))
    results: list[Tensor | None] = [e.cast(output, x.dtype), None]
    if call.wants(1):
        normal = e.op("mul", _normal(call, output, epsilon), _wide(call, 5))
        results[1] = e.cast(normal, x.dtype)
    return results


def _normal(call: Call, x: Tensor, epsilon: float) -> Tensor:
    return call.maker.op("rms_norm", x, None, axis=-1, epsilon=epsilon)


ROWS: Final[tuple[Row, ...]] = (
    row("EngramGate", _engram_gate, domain=MICROSOFT),
    row("HyperConnectionPostMix", _post_mix, domain=MICROSOFT),
    row("HyperConnectionPreMix", _pre_mix, domain=MICROSOFT),
)
