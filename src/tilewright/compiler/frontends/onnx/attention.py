"""Rows for attention as onnxruntime writes it, and rotary embedding.

ONNX's own Attention comes apart through the function body of its schema; these contrib ops have
none.  Caches with lengths: `grouped_attention`.

Source: onnxruntime ContribOperators.md (Attention, QAttention, MultiHeadAttention, DecoderMaskedMultiHeadAttention,
RotaryEmbedding).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from tilewright.base import dtypes, symbolic
from tilewright.base.dtypes import DType
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.call import FIXED_SIZE, Call
from tilewright.compiler.frontends.onnx.contraction import swap_last
from tilewright.compiler.frontends.onnx.movement import split
from tilewright.compiler.frontends.onnx.quantization import centred, scalar_like
from tilewright.compiler.frontends.onnx.row import MICROSOFT, Row, row

_LOWEST: Final = -10000.0
_FARTHEST: Final = {
    dtypes.f16: -65504.0,
    dtypes.bf16: -3.3895e38,
    dtypes.f32: -3.4028e38,
    dtypes.f64: -1.7976e308,
}
"""Finite, so that a row that sees nothing is no number of zero by zero."""
_MASK_AXES: Final = {2: (1, 2), 3: (1,), 4: ()}
"""By the rank of a mask of keys, the axes that it lacks of the scores."""


def heads_of(e: NodeMaker, x: Tensor, heads: int) -> Tensor:
    """`[batch, sequence, heads * size]` as `[batch, heads, sequence, size]`."""
    batch, length, hidden = x.shape
    if isinstance(hidden, int) and hidden % heads:
        raise ModelError(f"{hidden} columns do not divide into {heads} heads")
    size = symbolic.floordiv(hidden, heads)
    return e.transpose(e.reshape(x, (batch, length, heads, size)), (0, 2, 1, 3))


def merged(e: NodeMaker, x: Tensor) -> Tensor:
    """The inverse of `heads_of`."""
    batch, heads, length, size = x.shape
    return e.reshape(e.transpose(x, (0, 2, 1, 3)), (batch, length, heads * size))


def scaled_attention(
    e: NodeMaker, q: Tensor, k: Tensor, v: Tensor, masks: Sequence[Tensor], scale: float
) -> Tensor:
    """`softmax(q k' scale + masks) v` over `[batch, heads, sequence, size]`."""
    scores = _scores(e, q, k, masks, scale)
    return e.op("matmul", e.op("softmax", scores, axis=-1), v)


def _scores(
    e: NodeMaker, q: Tensor, k: Tensor, masks: Sequence[Tensor], scale: float
) -> Tensor:
    """`q k' scale + masks` over `[batch, heads, sequence, size]`."""
    scores = e.op("matmul", e.op("mul", q, e.scalar(scale, q.dtype)), swap_last(e, k))
    for mask in masks:
        scores = e.op("add", scores, mask)
    return scores


def scale_of(call: Call, size: Dim) -> float:
    """The factor of the scores: what is said, or one over the root of a head's size."""
    given = call.float("scale", 0.0)
    if given:
        return given
    if not isinstance(size, int):
        raise UnsupportedError("heads of a dynamic size are not supported", hint=FIXED_SIZE)
    return 1 / math.sqrt(size)


def _key_mask(
    call: Call, index: int, scores: tuple[Dim, Dim], dtype: DType
) -> Tensor | None:
    """A 0/1 mask of keys, or how many keys sequences have, as numbers to add to the scores.

    Args:
        call: whose operand it is.
        index: of the operand.
        scores: batch and keys of the scores.
        dtype: of the scores.
    """
    e, mask = call.maker, call.optional(index)
    # Exporters also write it beside no mask.
    lowest = call.float("mask_filter_value", _LOWEST)
    if mask is None:
        return None
    batch, keys = scores
    if mask.shape == (batch * 2,):
        # Where keys end in each sequence, then where they begin.
        ends, begins = split(e, mask, 0, [batch, batch])
        behind = e.op("logical_not", up_to(e, begins, keys))
        kept = e.op("logical_and", up_to(e, ends, keys), behind)
    elif mask.rank == 1 and e.may_be(mask.shape[0], batch):
        kept = up_to(e, mask, keys)
    elif mask.rank in _MASK_AXES:
        kept = e.op("not_equal", mask, e.scalar(0, mask.dtype))
    else:
        raise UnsupportedError(f"a mask of type {mask.type} is not supported")
    added = e.op("where", kept, e.scalar(0, dtype), e.scalar(lowest, dtype))
    return e.unsqueeze(added, _MASK_AXES[kept.rank])


def up_to(e: NodeMaker, lengths: Tensor, keys: Dim) -> Tensor:
    """`[batch, keys]`, true for as many keys of each sequence as `lengths` says."""
    wide = e.cast(e.unsqueeze(lengths, (1,)), dtypes.i64)
    return e.op("less", e.iota((1, keys), 1), wide)


def _causal_mask(e: NodeMaker, rows: Dim, columns: Dim, dtype: DType) -> Tensor:
    """Zero up to the diagonal that ends in the last corner; behind it lower than any mask of keys."""
    row_ = e.op("add", e.iota((rows, 1), 0), e.dim(columns - rows))
    later = e.op("greater", e.iota((1, columns), 1), row_)
    return e.op("where", later, e.scalar(_FARTHEST[dtype], dtype), e.scalar(0, dtype))


def _attention(call: Call) -> list[Tensor | None]:
    """The product with packed q, k and v weights, then attention; with a cache on request."""
    e, x, weights, bias = call.maker, call.tensor(0), call.tensor(1), call.optional(2)
    packed = e.op("matmul", x, weights)
    packed = packed if bias is None else e.op("add", packed, bias)
    return _packed_attention(call, packed, mask=3, past=4, bias=call.optional(5))


def _quantized_attention(call: Call) -> list[Tensor | None]:
    """The product is that of bytes, exact in 32 bits; the rest is attention of floats."""
    e = call.maker
    left = centred(e, call.tensor(0), call.optional(6), trailing=1)
    right = centred(e, call.tensor(1), call.optional(7), trailing=0)
    total = e.op("matmul", left, right)
    scales = [e.cast(scalar_like(e, call.tensor(i)), dtypes.f32) for i in (3, 4)]
    packed = e.op("mul", e.cast(total, dtypes.f32), e.op("mul", *scales))
    bias = call.tensor(2)
    packed = e.cast(e.op("add", packed, e.cast(bias, dtypes.f32)), bias.dtype)
    return _packed_attention(call, packed, mask=5, past=8, bias=None)


def _packed_attention(
    call: Call, packed: Tensor, *, mask: int, past: int, bias: Tensor | None
) -> list[Tensor | None]:
    """Attention of projections side by side.

    Args:
        call: whose attributes say the rest.
        packed: `[batch, sequence, columns of q, k and v]`.
        mask: index of the operand that masks keys.
        past: of the cache.
        bias: of the scores.
    """
    e, heads = call.maker, call.integer("num_heads")
    sizes: Sequence[Dim] = call.integers("qkv_hidden_sizes", ())
    sizes = sizes or [symbolic.floordiv(packed.shape[2], 3)] * 3
    if call.flag("do_rotary"):
        raise UnsupportedError("attribute 'do_rotary' is not supported")
    q, k, v = (heads_of(e, part, heads) for part in split(e, packed, 2, sizes))
    present, held = None, call.optional(past)
    if call.flag("past_present_share_buffer") and held is not None:
        length, rows = call.one_size(past + 2, "the past"), k.shape[2]
        present = _written(e, held, _pair(e, k, v), call.tensor(past + 2), 3)
        seen = e.slice(present, 3, 0, length + rows)
        k, v = (e.squeeze(t, (0,)) for t in split(e, seen, 0, [1, 1]))
    else:
        if held is not None:
            old_k, old_v = (e.squeeze(t, (0,)) for t in split(e, held, 0, [1, 1]))
            k, v = e.concat([old_k, k], 2), e.concat([old_v, v], 2)
        present = _pair(e, k, v) if call.wants(1) else None
    masks = [_key_mask(call, mask, (k.shape[0], k.shape[2]), q.dtype), bias]
    if call.flag("unidirectional"):
        masks.append(_causal_mask(e, q.shape[2], k.shape[2], q.dtype))
    added = [m for m in masks if m is not None]
    result = scaled_attention(e, q, k, v, added, scale_of(call, q.shape[3]))
    return [merged(e, result), present]


def _pair(e: NodeMaker, k: Tensor, v: Tensor) -> Tensor:
    """Keys and values as one cache, `[2, batch, heads, rows, size]`."""
    return e.concat([e.unsqueeze(k, (0,)), e.unsqueeze(v, (0,))], 0)


def _written(e: NodeMaker, past: Tensor, new: Tensor, first: Tensor, axis: int) -> Tensor:
    """A cache with room, with rows in it from a place on that data says."""
    place = e.cast(e.reshape(first, [1] * new.rank), dtypes.i64)
    places = e.op("add", place, e.along(axis, new.shape[axis], new.rank))
    places = e.broadcast_to(places, new.shape)
    return e.op("scatter_elements", past, places, new, axis=axis)


def _unpacked(call: Call) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values as `[batch, sequence, columns]`; keys and values perhaps with heads in front."""
    e, q, key, value = call.maker, call.tensor(0), call.optional(1), call.optional(2)
    if key is not None and value is not None:
        return q, key, value
    packed, count = (q, 3) if key is None else (key, 2)
    if packed.rank != 5:
        raise UnsupportedError("keys without values are not supported")
    batch, length, heads, _, size = packed.shape
    parts = split(e, packed, 3, [1] * count)
    *first, k, v = (e.reshape(x, (batch, length, heads * size)) for x in parts)
    return (first[0] if first else q), k, v


def _biased_heads(
    e: NodeMaker, projected: tuple[Tensor, Tensor, Tensor], bias: Tensor | None, heads: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values with their parts of one bias, heads in front; what has heads already is an encoder's."""
    q, k, v = projected
    if bias is not None:
        sizes = [q.shape[2], q.shape[2], bias.shape[0] - q.shape[2] * 2]
        parts = split(e, bias, 0, sizes)
        q = e.op("add", q, parts[0])
        k = e.op("add", k, parts[1]) if k.rank == 3 else k
        v = e.op("add", v, parts[2]) if v.rank == 3 else v
    q = heads_of(e, q, heads)
    k, v = (t if t.rank == 4 else heads_of(e, t, heads) for t in (k, v))
    return q, k, v


def _multi_head_attention(call: Call) -> list[Tensor | None]:
    e, heads = call.maker, call.integer("num_heads")
    q, k, v = _biased_heads(e, _unpacked(call), call.optional(3), heads)
    old = [call.optional(i) for i in (6, 7)]
    if old[0] is not None and old[1] is not None:
        k, v = e.concat([old[0], k], 2), e.concat([old[1], v], 2)
    masks = [_key_mask(call, 4, (k.shape[0], k.shape[2]), q.dtype), call.optional(5)]
    if call.flag("unidirectional"):
        masks.append(_causal_mask(e, q.shape[2], k.shape[2], q.dtype))
    held = [m for m in masks if m is not None]
    scale = scale_of(call, q.shape[3])
    result = scaled_attention(e, q, k, v, held, scale)
    scores = _scores(e, q, k, held, scale) if call.wants(3) else None
    return [merged(e, result), k, v, scores]


def _decoder_attention(call: Call) -> list[Tensor | None]:
    """One row of queries for each sequence; keys and values are new, or those of an encoder."""
    e, heads = call.maker, call.integer("num_heads")
    for index, name in ((8, "beam_width"), (9, "cache_indirection")):
        if call.optional(index) is not None:
            raise UnsupportedError(f"operand '{name}' is not supported")
    q, k, v = _biased_heads(e, _unpacked_row(call), call.optional(10), heads)
    shared = call.flag("past_present_share_buffer")
    old = [call.optional(i) for i in (5, 6)]
    if old[0] is not None and old[1] is not None:
        k, v = (
            _written(e, past, new, call.tensor(7), 2)
            if shared
            else e.concat([past, new], 2)
            for past, new in ((old[0], k), (old[1], v))
        )
    present: list[Tensor | None] = [k, v]
    if shared and call.optional(7) is not None:
        total = call.one_size(7, "the past") + 1
        k, v = (e.slice(x, 2, 0, total) for x in (k, v))
    masks = [_key_mask(call, 3, (k.shape[0], k.shape[2]), q.dtype), call.optional(4)]
    held = [m for m in masks if m is not None]
    result = scaled_attention(e, q, k, v, held, scale_of(call, q.shape[3]))
    call.flag("output_qk")
    return [merged(e, result), *present]


def _unpacked_row(call: Call) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of one row, side by side or not."""
    e, q, key, value = call.maker, call.tensor(0), call.optional(1), call.optional(2)
    if key is not None and value is not None:
        return q, key, value
    third = symbolic.floordiv(q.shape[2], 3)
    first, second, rest = split(e, q, 2, [third, third, q.shape[2] - third * 2])
    return first, second, rest


def _rotary_embedding(call: Call) -> Tensor:
    """Pairs of columns turned by the angle of their position."""
    e, x, places = call.maker, call.tensor(0), call.tensor(1)
    heads, interleaved = call.integer("num_heads", 0), call.flag("interleaved")
    if call.integer("rotary_embedding_dim", 0) and not heads:
        raise ModelError("attribute 'num_heads' is missing")
    call.float("scale", 1.0)
    call.flag("is_packed_batching")
    flat = x.rank == 3
    tables = [call.tensor(2), call.tensor(3)]
    half = tables[0].shape[1]
    if flat:
        if not heads:
            heads_dim = symbolic.floordiv(x.shape[2], half * 2)
            if not isinstance(heads_dim, int):
                raise UnsupportedError(
                    "a dynamic number of heads is not supported", hint=FIXED_SIZE
                )
            heads = heads_dim
        x = heads_of(e, x, heads)
    if places.rank == 1:
        length = e.iota((1, x.shape[2]), 1)
        places = e.op("add", e.cast(e.unsqueeze(places, (1,)), dtypes.i64), length)
    result = turned(e, x, places, tables, interleaved=interleaved)
    return merged(e, result) if flat else result


def turned(
    e: NodeMaker, x: Tensor, places: Tensor, tables: Sequence[Tensor], *, interleaved: bool
) -> Tensor:
    """Columns of `x: [batch, heads, sequence, size]` turned by the angles of `places: [batch, sequence]`.

    `tables` are cosines and sines, `[positions, half of what is turned]`.
    """
    cos, sin = (e.unsqueeze(e.op("gather", t, places, axis=0), (1,)) for t in tables)
    return turned_by(e, x, cos, sin, interleaved=interleaved)


def turned_by(
    e: NodeMaker, x: Tensor, cos: Tensor, sin: Tensor, *, interleaved: bool
) -> Tensor:
    """Columns of `x: [batch, heads, sequence, size]` turned; `cos` and `sin`: `[batch, 1, sequence, half]`."""
    half = cos.shape[-1]
    size = half * 2
    body, rest = e.slice(x, 3, 0, size), x.shape[3] - size
    if interleaved:
        pairs = e.reshape(body, (*body.shape[:3], half, 2))
        a, b = (e.squeeze(t, (4,)) for t in split(e, pairs, 4, [1, 1]))
    else:
        a, b = split(e, body, 3, [half, half])
    first = e.op("sub", e.op("mul", a, cos), e.op("mul", b, sin))
    second = e.op("add", e.op("mul", a, sin), e.op("mul", b, cos))
    if interleaved:
        joined = e.concat([e.unsqueeze(first, (4,)), e.unsqueeze(second, (4,))], 4)
        result = e.reshape(joined, body.shape)
    else:
        result = e.concat([first, second], 3)
    return result if rest == 0 else e.concat([result, e.slice(x, 3, size, rest)], 3)


ROWS: Final[tuple[Row, ...]] = (
    row("Attention", _attention, domain=MICROSOFT),
    row("DecoderMaskedMultiHeadAttention", _decoder_attention, domain=MICROSOFT),
    row("MultiHeadAttention", _multi_head_attention, domain=MICROSOFT),
    row("QAttention", _quantized_attention, domain=MICROSOFT),
    row("RotaryEmbedding", _rotary_embedding, domain=MICROSOFT),
)  # fmt: skip
