"""Rows for what attention adds or turns by how far apart tokens are.

Source: onnxruntime ContribOperators.md (RelativePositionBias, GatedRelativePositionBias, GemmaRotaryEmbedding,
MRotaryEmbedding); Raffel et al., "Exploring the Limits of Transfer Learning", 2020, for the buckets of distances.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from tilewright.base import dtypes, symbolic
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.attention import heads_of, merged, turned_by
from tilewright.compiler.frontends.onnx.call import FIXED_SIZE, Call
from tilewright.compiler.frontends.onnx.row import MICROSOFT, Row, row

_STREAMS: Final = 3


def _buckets(
    e: NodeMaker, distance: Tensor, count: int, most: int, *, both_ways: bool
) -> Tensor:
    """The bucket of every distance from a query to a key: near ones alone, far ones by logarithm."""
    zero = e.scalar(0, dtypes.i64)
    first = zero
    if both_ways:
        count //= 2
        later = e.cast(e.op("greater", distance, zero), dtypes.i64)
        first = e.op("mul", later, e.scalar(count, dtypes.i64))
        distance = e.op("abs", distance)
    else:
        distance = e.op("neg", e.op("min", distance, zero))
    exact = count // 2
    near = e.op("less", distance, e.scalar(exact, dtypes.i64))
    # Where distances are near, what is computed here is not taken.
    far = e.cast(e.op("max", distance, e.scalar(1, dtypes.i64)), dtypes.f32)
    ratio = e.op("log", e.op("div", far, e.scalar(exact, dtypes.f32)))
    ratio = e.op("div", ratio, e.scalar(math.log(most / exact), dtypes.f32))
    steps = e.cast(e.op("mul", ratio, e.scalar(count - exact, dtypes.f32)), dtypes.i64)
    bucket = e.op("add", steps, e.scalar(exact, dtypes.i64))
    bucket = e.op("min", bucket, e.scalar(count - 1, dtypes.i64))
    return e.op("add", first, e.op("where", near, distance, bucket))


def _relative_position_bias(call: Call) -> Tensor:
    """The table of a bias for each bucket and head lies head after head, whatever its shape says."""
    e, table = call.maker, call.tensor(0)
    count, heads = table.shape
    if not isinstance(count, int) or not isinstance(heads, int):
        raise UnsupportedError("a table of dynamic size is not supported", hint=FIXED_SIZE)
    rows = call.one_size(1, "the number of queries")
    keys = call.one_size(2, "the number of keys")
    distance = e.op("sub", e.iota((1, keys), 1), e.iota((rows, 1), 0))
    buckets = _buckets(
        e, distance, count, call.integer("max_distance"), both_ways=call.flag("is_bidirectional")
    )  # fmt: skip
    found = e.op("gather", e.reshape(table, (heads, count)), buckets, axis=1)
    return e.unsqueeze(found, (0,))


def _gated_relative_position_bias(call: Call) -> Tensor:
    """A bias of distances times a gate that queries make."""
    e, heads = call.maker, call.integer("num_heads")
    query, weight = call.tensor(0), call.tensor(3)
    if call.optional(6) is not None:
        raise UnsupportedError("operand 'token_offset' is not supported")
    q = heads_of(e, e.op("add", query, call.tensor(1)), heads)
    gates = e.op("add", e.op("matmul", q, weight), call.tensor(4))
    half = symbolic.floordiv(gates.shape[3], 2)
    gates = e.reshape(gates, (*gates.shape[:3], 2, half))
    summed = e.op("reduce_sum", gates, axes=(4,), keepdims=False)
    both = e.op("sigmoid", summed)
    update, reset = (e.slice(both, 3, place, 1) for place in (0, 1))
    one, two = (e.scalar(number, q.dtype) for number in (1, 2))
    inner = e.op("sub", e.op("mul", reset, call.tensor(5)), one)
    return e.op("mul", e.op("add", e.op("mul", update, inner), two), call.tensor(2))


def _gemma_rotary_embedding(call: Call) -> list[Tensor]:
    """Angles as they are; their sines and cosines are rounded to the type of what they turn."""
    e, angles = call.maker, call.tensor(0)
    q, q_turned, k, k_turned = (call.tensor(i) for i in range(1, 5))
    sin, cos = (
        e.unsqueeze(e.cast(e.op(name, angles), q.dtype), (1,)) for name in ("sin", "cos")
    )
    return [
        e.op("add", e.op("mul", x, cos), e.op("mul", other, sin))
        for x, other in ((q, q_turned), (k, k_turned))
    ]


def _streams(sections: tuple[int, ...], half: int, layout: int) -> np.ndarray:
    """Which of the three positions each column of the tables belongs to."""
    if len(sections) != _STREAMS or sum(sections) != half:
        raise ModelError(
            f"attribute 'mrope_section' is {list(sections)}, expected a sum of {half}"
        )
    if not layout:
        return np.repeat(np.arange(_STREAMS), sections)
    found = np.zeros(half, np.int64)
    for stream in (1, 2):
        found[stream : _STREAMS * sections[stream] : _STREAMS] = stream
    return found


def _multimodal_rotary_embedding(call: Call) -> Tensor:
    """Columns turned by the angle of one of three positions, in turn or section by section."""
    e, x, places = call.maker, call.tensor(0), call.tensor(1)
    heads, interleaved = call.integer("num_heads", 0), call.flag("interleaved")
    call.integer("rotary_embedding_dim", 0)
    if call.float("scale", 1.0) != 1 or call.flag("is_packed_batching"):
        raise UnsupportedError("attributes 'scale' and 'is_packed_batching'")
    tables = [call.tensor(2), call.tensor(3)]
    half = tables[0].shape[1]
    if not isinstance(half, int):
        raise UnsupportedError("heads of a dynamic size are not supported", hint=FIXED_SIZE)
    sections = call.integers("mrope_section")
    streams = _streams(sections, half, call.integer("mrope_layout", 0))
    flat = x.rank == 3
    if flat:
        whole = symbolic.floordiv(x.shape[2], half * 2)
        count = heads or (whole if isinstance(whole, int) else 0)
        if not count:
            raise UnsupportedError(
                "a dynamic number of heads is not supported", hint=FIXED_SIZE
            )
        x = heads_of(e, x, count)
    chosen: list[Tensor] = []
    for table in tables:
        rows = e.op("gather", table, places, axis=0)  # [3, batch, sequence, half]
        picked = e.squeeze(e.slice(rows, 0, 0, 1), (0,))
        for stream in (1, 2):
            own = e.squeeze(e.slice(rows, 0, stream, 1), (0,))
            picked = e.op("where", e.constant(streams == stream), own, picked)
        chosen.append(e.unsqueeze(picked, (1,)))
    result = turned_by(e, x, chosen[0], chosen[1], interleaved=interleaved)
    return merged(e, result) if flat else result


ROWS: Final[tuple[Row, ...]] = (
    row("GatedRelativePositionBias", _gated_relative_position_bias, domain=MICROSOFT),
    row("GemmaRotaryEmbedding", _gemma_rotary_embedding, domain=MICROSOFT),
    row("MRotaryEmbedding", _multimodal_rotary_embedding, domain=MICROSOFT),
    row("RelativePositionBias", _relative_position_bias, domain=MICROSOFT),
)
