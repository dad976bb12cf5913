"""The row for attention over a cache whose heads are shared: what generators of text are exported with.

A row of queries stands at a place of its own sequence: behind what the cache holds of it, which data says.  Its keys
are joined with those of the cache there, and it sees what stands up to it.

Source: onnxruntime ContribOperators.md (GroupQueryAttention).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from tilewright.base import dtypes, symbolic
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.attention import (
    heads_of,
    merged,
    scale_of,
    turned,
)
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.movement import split
from tilewright.compiler.frontends.onnx.row import MICROSOFT, Row, row

_UNSUPPORTED_OPERANDS: Final = (
    (11, "head_sink"),
    (12, "k_scale"),
    (13, "v_scale"),
    (14, "q_norm_weight"),
    (15, "k_norm_weight"),
    (16, "query_seqlens"),
)


@final
@dataclass(frozen=True, slots=True)
class _Lengths:
    """How long the sequences are.

    Attributes:
        rows: queries of each sequence.
        total: keys of the longest, those of this call among them.
        room: keys that caches hold afterwards.
        before: `[batch, 1]` keys that stood in the cache of each sequence.
    """

    rows: Dim
    total: Dim
    room: Dim
    before: Tensor


def _grouped_attention(call: Call) -> list[Tensor | None]:
    e = call.maker
    _refuse(call)
    q, k, v = _projected(call)
    past = [call.optional(i) for i in (3, 4)]
    lengths = _lengths(call, q, past[0])
    places = call.optional(9)
    if places is None:
        places = e.op("add", lengths.before, e.iota((1, lengths.rows), 1))
    if call.flag("do_rotary"):
        tables = [call.tensor(7), call.tensor(8)]
        interleaved = call.flag("rotary_interleaved")
        q, k = (turned(e, x, places, tables, interleaved=interleaved) for x in (q, k))
    else:
        call.flag("rotary_interleaved")
    present = [_joined(e, old, new, lengths) for old, new in zip(past, (k, v), strict=True)]
    seen = [e.slice(x, 2, 0, lengths.total) for x in present]
    mask = _mask(e, lengths, call.integer("local_window_size", -1))
    bias = call.optional(10)
    scale = scale_of(call, q.shape[3])
    cap = call.float("softcap", 0.0)
    result = e.op("attention", q, *seen, bias, mask, scale=scale, softcap=cap)
    return [merged(e, result), *present]


def _refuse(call: Call) -> None:
    """Raises: UnsupportedError for what would be another computation."""
    for index, name in _UNSUPPORTED_OPERANDS:
        if call.optional(index) is not None:
            raise UnsupportedError(f"operand '{name}' is not supported")
    for name, neutral in (("smooth_softmax", 0), ("qk_output", 0), ("causal", 1)):
        if call.integer(name, neutral) not in (neutral, -1):
            raise UnsupportedError(f"attribute '{name}' is not supported")
    for name in ("sliding_window_cache", "kv_cache_bit_width"):
        if call.integer(name, 0):
            raise UnsupportedError(f"attribute '{name}' is not supported")
    for name in ("k_quant_type", "v_quant_type"):
        call.choice(name, "NONE", ("NONE",))


def _projected(call: Call) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values as `[batch, heads, sequence, size]`, packed or not."""
    e, q = call.maker, call.tensor(0)
    heads, shared = call.integer("num_heads"), call.integer("kv_num_heads")
    if heads % shared:
        raise ModelError(f"{heads} heads of queries do not share {shared} heads of keys")
    if call.optional(1) is not None:
        k, v = call.tensor(1), call.tensor(2)
    else:
        size = symbolic.floordiv(q.shape[2], heads + 2 * shared)
        q, k, v = split(e, q, 2, [heads * size, shared * size, shared * size])
    return heads_of(e, q, heads), heads_of(e, k, shared), heads_of(e, v, shared)


def _lengths(call: Call, q: Tensor, past: Tensor | None) -> _Lengths:
    """Without a cache nothing stands before; at a first call, whose rows are all there is, neither."""
    e, rows = call.maker, q.shape[2]
    (total,) = call.dims(6, "the number of keys")
    room = total if past is None else symbolic.maximum(past.shape[2], total)
    longest = e.cast(e.reshape(call.tensor(5), (q.shape[0], 1)), dtypes.i64)
    before = e.op("sub", longest, e.dim(rows - 1))
    if past is None or total == rows:
        before = e.op("mul", before, e.scalar(0, dtypes.i64))
    elif not _surely_more(total, rows):
        first = e.op("equal", e.dim(total), e.dim(rows))
        before = e.op("where", first, e.scalar(0, dtypes.i64), before)
    return _Lengths(rows, total, room, before)


def _surely_more(total: Dim, rows: Dim) -> bool:
    least = symbolic.bounds(total - rows)[0]
    return least is not None and least > 0


def _joined(e: NodeMaker, past: Tensor | None, new: Tensor, lengths: _Lengths) -> Tensor:
    """The cache with new rows behind what it holds of each sequence: `[batch, heads, room, size]`."""
    if past is not None and lengths.room == past.shape[2]:
        rows = e.unsqueeze(e.iota((1, lengths.rows), 1), (1, 3))
        places = e.op("add", rows, e.unsqueeze(lengths.before, (1, 3)))
        places = e.broadcast_to(places, new.shape)
        return e.op("scatter_elements", past, places, new, axis=2)
    parts = [new] if past is None else [past, new]
    both = e.concat(parts, 2) if len(parts) > 1 else new
    old = both.shape[2] - lengths.rows
    if past is None and lengths.room == lengths.rows:
        return new
    place = e.iota((1, lengths.room), 1)
    behind = e.op("sub", place, lengths.before)
    last = e.dim(lengths.rows - 1)
    is_new = e.op(
        "logical_and",
        e.op("greater_equal", behind, e.scalar(0, dtypes.i64)),
        e.op("less_equal", behind, last),
    )
    kept = e.op("min", place, e.dim(both.shape[2] - 1))
    source = e.op("where", is_new, e.op("add", behind, e.dim(old)), kept)
    rows = e.transpose(both, (0, 2, 1, 3))
    found = e.op("gather_nd", rows, e.unsqueeze(source, (2,)), batch_dims=1)
    return e.transpose(found, (0, 2, 1, 3))


def _mask(e: NodeMaker, lengths: _Lengths, window: int) -> Tensor:
    """`[batch, 1, rows, total]`: keys up to the row's own place, and not too far before it."""
    place = e.unsqueeze(e.op("add", lengths.before, e.iota((1, lengths.rows), 1)), (1, 3))
    key = e.iota((1, 1, 1, lengths.total), 3)
    shown = e.op("less_equal", key, place)
    if window < 0:
        return shown
    first = e.op("sub", place, e.scalar(window - 1, dtypes.i64))
    return e.op("logical_and", shown, e.op("greater_equal", key, first))


ROWS: Final[tuple[Row, ...]] = (
    row("GroupQueryAttention", _grouped_attention, domain=MICROSOFT),
)
